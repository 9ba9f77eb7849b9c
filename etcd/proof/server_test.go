package proof_test

// The etcd of the cluster, a process of its own, so that it can be killed.

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/f8949c05/orchestrator/etcd/embed"
)

type serverSettings struct {
	Dir    string
	Listen string
}

// runServer is the whole of etcd's process: it serves until it is killed. What it
// has acknowledged is on the disk, as etcd does it by itself.
func runServer(text string) error {
	var s serverSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	server, err := embed.Start(context.Background(), embed.Config{Dir: s.Dir, Listen: s.Listen})
	if err != nil {
		return err
	}
	return <-server.Err()
}

package e2e_test

// The etcd of the cluster, in a separate process so that it can be killed.

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

// runServer is the main function of etcd's process. It serves until it is killed.
// Acknowledged writes are on disk, as by etcd's default.
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

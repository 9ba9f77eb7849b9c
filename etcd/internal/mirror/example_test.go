package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// The first call reports all keys, each later call the changes.
func Example() {
	if err := watchColours(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// "" is now "red"
	// "red" is now "green"
}

func watchColours() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := embed.Start(ctx, embed.Config{NoFsync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if _, err := client.Put(ctx, "colours/sky", "red"); err != nil {
		return err
	}

	from, end := mirror.Prefix("colours/")
	err = mirror.New(client, mirror.Options{From: from, End: end}).Run(ctx, func(_ mirror.At, changes []mirror.Change) {
		for _, c := range changes {
			fmt.Printf("%q is now %q\n", valueOf(c.Old), valueOf(c.New))
			if c.Old != nil {
				cancel() // ends Run
			} else if _, err := client.Put(ctx, c.Key, "green"); err != nil {
				fmt.Println(err)
			}
		}
	})
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func valueOf(kv *mirror.KV) []byte {
	if kv == nil {
		return nil
	}
	return kv.Value
}

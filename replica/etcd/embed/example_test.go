package embed_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

// A server for a test, on a free port and with a temporary folder.
func Example() {
	if err := putAndGet(); err != nil {
		fmt.Println(err)
	}
	// Output: works, at revision 2
}

func putAndGet() (err error) {
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

	if _, err := client.Put(ctx, "it", "works"); err != nil {
		return err
	}
	got, err := client.Get(ctx, "it")
	if err != nil {
		return err
	}
	fmt.Printf("%s, at revision %d\n", got.Kvs[0].Value, got.Kvs[0].ModRevision)
	return nil
}

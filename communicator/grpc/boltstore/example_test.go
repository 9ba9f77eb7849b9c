package boltstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/boltstore"
)

// manage calls do with a manager whose store is at path. Each call acts as a
// separate process.
func manage(path string, do func(*grpc.Manager) error) error {
	store, err := boltstore.Open(path)
	if err != nil {
		return err
	}
	defer store.Close()
	m, err := grpc.NewManager(store)
	if err != nil {
		return err
	}
	return do(m) // with workers: m.Run(ctx, listener)
}

// A manager knows the tasks of its predecessor.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "manager.db")
	ctx := context.Background()

	err = manage(path, func(m *grpc.Manager) error {
		_, err := m.PutAll(ctx, []grpc.Item{
			{Name: "poll orders", Content: []byte("every 5s")},
			{Name: "serve tenant 7", Content: []byte("from region eu"), Settings: grpc.Settings{Instances: 2}},
		})
		return err
	})
	fmt.Println("first:", err)

	err = manage(path, func(m *grpc.Manager) error {
		items, err := m.Items("", grpc.MaxList)
		for _, item := range items {
			fmt.Printf("%s (%d): %s\n", item.Name, item.Settings.Instances, item.Content)
		}
		return err
	})
	fmt.Println("second:", err)

	// Output:
	// first: <nil>
	// poll orders (1): every 5s
	// serve tenant 7 (2): from region eu
	// second: <nil>
}

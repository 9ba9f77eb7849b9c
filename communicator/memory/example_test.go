package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator/communicator/memory"
)

// A cluster of two workers, of which one crashes.
func Example() {
	ctx := context.Background()
	cluster, err := memory.New(func(ctx context.Context, worker, task string) error {
		fmt.Println(worker, "runs", task)
		<-ctx.Done()
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.Start("w1", "w2")

	if err := cluster.Add(ctx, "w1", "orders"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(cluster.Running("orders"))

	cluster.Kill("w1")
	fmt.Println(cluster.Running("orders"))
	_, err = cluster.List(ctx, "w1")
	fmt.Println(err)
	fmt.Println(cluster.Close(ctx))
	// Unordered output:
	// w1 runs orders
	// [w1]
	// []
	// the worker's process is gone: w1
	// <nil>
}

// A worker that is cut off keeps running its tasks: silent is not empty.
func ExampleCluster_Hang() {
	ctx := context.Background()
	cluster, err := memory.New[string, string](nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.Start("w1")
	if err := cluster.Add(ctx, "w1", "orders"); err != nil {
		fmt.Println(err)
	}

	cluster.Hang("w1")
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = cluster.List(soon, "w1")
	fmt.Println(err)
	fmt.Println(cluster.Running("orders"))

	cluster.Heal()
	fmt.Println(cluster.List(ctx, "w1"))
	fmt.Println(cluster.Close(ctx))
	// Output:
	// context deadline exceeded
	// [w1]
	// [orders] <nil>
	// <nil>
}

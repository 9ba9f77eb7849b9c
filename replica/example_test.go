package replica_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// Two replicas share four tasks. In production they are two processes, and the table is
// in a database.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
	defer stop()
	table := memory.New()
	tasks := replica.Names("billing", "mail", "orders", "search")

	var mu sync.Mutex
	ran := make(map[string]bool)
	var replicas sync.WaitGroup
	for _, name := range []string{"r1", "r2"} {
		poll := func(ctx context.Context, task string) error {
			mu.Lock()
			ran[task] = true
			mu.Unlock()
			<-ctx.Done() // or work until then
			return ctx.Err()
		}
		replicas.Go(func() {
			err := replica.Run(ctx, table, tasks, poll, replica.WithName(name), replica.WithLease(time.Second, 100*time.Millisecond))
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	replicas.Wait()
	fmt.Println(len(ran), "tasks ran")
	// Output: 4 tasks ran
}

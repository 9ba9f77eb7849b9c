package replica_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// Two replicas share four tasks. Each has its share, and when one leaves, the other takes
// over.
func Example() {
	table := memory.New()
	tasks := replica.Names("a", "b", "c", "d")
	var mu sync.Mutex
	running := make(map[string]int)
	count := func(name string, n int) {
		mu.Lock()
		defer mu.Unlock()
		running[name] += n
	}
	until := func(first, second int) {
		for {
			mu.Lock()
			done := running["first"] == first && running["second"] == second
			mu.Unlock()
			if done {
				fmt.Println("first:", first, "second:", second)
				return
			}
			<-time.After(time.Millisecond) // a program would not wait
		}
	}
	start := func(name string) (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			done <- replica.Run(ctx, table, tasks, func(ctx context.Context, _ string) error {
				count(name, 1)
				defer count(name, -1)
				<-ctx.Done()
				return nil
			}, replica.WithName(name), replica.WithLogger(slog.New(slog.DiscardHandler)))
		}()
		return func() { cancel(); fmt.Println(name, "has left:", <-done) }
	}
	stops := []func(){start("first"), start("second")}
	until(2, 2)
	stops[1]()
	until(4, 0)
	stops[0]()
	// Output:
	// first: 2 second: 2
	// second has left: <nil>
	// first: 4 second: 0
	// first has left: <nil>
}

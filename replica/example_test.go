package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
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

// transport is a Communicator of your own. It would call the workers over your network.
type transport struct{ running map[string][]string }

func (t *transport) List(_ context.Context, worker string) ([]string, error) {
	return t.running[worker], nil
}

func (t *transport) Add(_ context.Context, worker, task string) error {
	fmt.Println(worker, "runs", task)
	t.running[worker] = append(t.running[worker], task)
	return nil
}

func (t *transport) Remove(_ context.Context, worker, task string) error {
	t.running[worker] = slices.DeleteFunc(slices.Clone(t.running[worker]), func(other string) bool { return other == task })
	return nil
}

// One of several processes leads, with an orchestrator of its own. Its epoch is that of the
// election, so that workers refuse the calls of a leader that was deposed.
func ExampleLead() {
	table := memory.New() // in production that of PostgreSQL or etcd
	lead := func(ctx context.Context, epoch uint64) error {
		o, err := orchestrator.New(&transport{make(map[string][]string)}, orchestrator.WithEpoch(epoch))
		if err != nil {
			return err
		}
		if err := errors.Join(o.AddWorker("w1"), o.AddTask("a"), o.AddTask("b")); err != nil {
			return err
		}
		return o.NextTerm(ctx) // a program would call o.Run(ctx, time.Second)
	}
	err := replica.Lead(context.Background(), table, lead, replica.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println("ended:", err)
	// Unordered output:
	// w1 runs a
	// w1 runs b
	// ended: <nil>
}

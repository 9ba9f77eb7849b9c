package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// A worker runs one function per task until the task is removed.
func Example() {
	ctx := context.Background()
	w, err := worker.New(func(ctx context.Context, task string) error {
		fmt.Println("polling", task)
		worker.Ready(ctx)
		<-ctx.Done()
		fmt.Println("end of", task+":", context.Cause(ctx))
		return nil
	}, worker.WithReadiness())
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(w.Add(ctx, "orders"))
	fmt.Println(w.List(ctx))
	fmt.Println(w.Remove(ctx, "orders"))
	fmt.Println(w.List(ctx))
	fmt.Println(w.Close(ctx))
	// Output:
	// polling orders
	// <nil>
	// [orders] <nil>
	// end of orders: the task was removed from this worker
	// <nil>
	// [] <nil>
	// <nil>
}

// With slots, tasks beyond the limit wait in the order in which they were added.
func ExampleWithSlots() {
	ctx := context.Background()
	w, err := worker.New(func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return nil
	}, worker.WithSlots(1))
	if err != nil {
		fmt.Println(err)
		return
	}

	for _, task := range []string{"a", "b", "c"} {
		if err := w.Add(ctx, task); err != nil {
			fmt.Println(err)
		}
	}
	if err := w.Remove(ctx, "a"); err != nil {
		fmt.Println(err)
	}
	for _, s := range w.Status() {
		fmt.Println(s.Task, s.State)
	}
	fmt.Println(w.Close(ctx))
	// Output:
	// b running
	// c queued
	// <nil>
}

// A task that cannot run on this machine asks to run on another one.
func ExampleReschedule() {
	ctx := context.Background()
	w, err := worker.New(func(ctx context.Context, task string) error {
		if _, err := os.Stat("/dev/no-such-gpu"); err != nil {
			return worker.Reschedule(ctx, "no GPU")
		}
		return render(ctx, task)
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(w.Add(ctx, "frames"))
	for _, changed := w.Changes(); len(w.Status()) > 0; _, changed = w.Changes() {
		<-changed
	}
	fmt.Println(w.List(ctx))
	fmt.Println(w.Add(ctx, "frames"))
	fmt.Println(w.Close(ctx))
	// Output:
	// <nil>
	// [] <nil>
	// rejected by the worker: the task has asked to run elsewhere: no GPU
	// <nil>
}

func render(ctx context.Context, _ string) error {
	<-ctx.Done()
	return nil
}

// A transport passes the term of each call to the worker, which refuses writes of
// past terms.
func ExampleWorker_Fence() {
	w, err := worker.New(func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Fence(orchestrator.Term{Epoch: 7, Number: 12}) // learned at registration

	late := orchestrator.ContextWithTerm(context.Background(), orchestrator.Term{Epoch: 7, Number: 11})
	fmt.Println(w.Add(late, "orders"))
	deposed := orchestrator.ContextWithTerm(context.Background(), orchestrator.Term{Epoch: 6, Number: 99})
	fmt.Println(w.Add(deposed, "orders"))
	// Output:
	// rejected by the worker: stale term: the write is of term 11, the worker has seen 12
	// deposed: the call is of epoch 6, the worker has seen 7
}

// store refuses a token lower than the highest it has seen for a key.
type store struct {
	mu      sync.Mutex
	highest map[string]uint64
	scope   uint64
}

func (s *store) write(ctx context.Context, key string) error {
	token, scope := worker.Token(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if scope != s.scope || token < s.highest[key] {
		return errors.New("another worker owns the task")
	}
	s.highest[key] = token // in the same step as the write
	return nil
}

// The store refuses a write of a former owner, whatever was paused.
func ExampleToken() {
	s := &store{highest: map[string]uint64{"orders": 8}, scope: 3} // token 8 has written
	done := make(chan struct{})
	w, err := worker.New(func(ctx context.Context, task string) error {
		defer close(done)
		fmt.Println(s.write(ctx, task))
		<-ctx.Done()
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = w.AddWith(context.Background(), "orders", worker.Grant{Token: 7, Scope: 3})
	if err == nil {
		err = w.Close(context.Background())
	}
	<-done
	fmt.Println(err)
	// Output:
	// another worker owns the task
	// <nil>
}

// A transport renews the lease while the coordinator allows it. When the lease is
// gone, it stops all tasks and starts over.
func ExampleWorker_Rejoin() {
	ctx := context.Background()
	w, err := worker.New(func(ctx context.Context, _ string) error {
		<-ctx.Done()
		fmt.Println("stopped:", context.Cause(ctx))
		return nil
	}, worker.WithLease(10*time.Second, 2*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	requests := 0
	request := func() error { // asks the coordinator for a lease of length w.Lease()
		if requests++; requests > 2 {
			return errors.New("unknown lease")
		}
		return nil
	}

renewing:
	for { // in practice, about once a second
		select {
		case <-w.LeaseLost():
			break renewing
		default:
		}
		acknowledged := w.Sending()
		if err := request(); err != nil {
			w.EndLease(err)
			continue
		}
		acknowledged()
		if err := w.Add(ctx, "orders"); err != nil {
			fmt.Println(err)
		}
	}
	if err := w.Rejoin(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(w.Add(ctx, "orders"))
	// Output:
	// stopped: the lease is lost: unknown lease
	// rejected by the worker: the worker's lease is not acknowledged yet
}

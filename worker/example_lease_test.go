package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/worker"
)

// store takes what comes with the highest token it has seen, or a higher one.
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
		return errors.New("somebody else owns it by now")
	}
	s.highest[key] = token // in the same step in which it writes
	return nil
}

// What was paused at a bad moment is held off by whoever is written to.
func ExampleToken() {
	s := &store{highest: map[string]uint64{"orders": 8}, scope: 3} // the owner with token 8 has been here
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
	// somebody else owns it by now
	// <nil>
}

// A transport keeps the lease alive as long as that works, and begins anew when
// it does not.
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
	request := func() error { // to the coordinator, for a lease of length w.Lease()
		if requests++; requests > 2 {
			return errors.New("unknown lease")
		}
		return nil
	}

renewing:
	for { // every second or so
		select {
		case <-w.Fenced():
			break renewing
		default:
		}
		acknowledged := w.Sending()
		if err := request(); err != nil {
			w.GiveUp(err)
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
	// rejected by the worker: the worker's lease was not acknowledged yet
}

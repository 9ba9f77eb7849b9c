package replica_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// follower returns a replica that does not lead, or nil.
func (f *fleet) follower() (n *node) {
	for _, n := range f.replicas {
		if !n.Status().Leading {
			return n
		}
	}
	return nil
}

// It goes on to follow though there are changes all the time.
func TestWatch_GoesOnWhileThereAreChanges(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 6)
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		owned := make(map[string]bool)
		var w sync.WaitGroup
		n := f.follower()
		w.Go(func() {
			for c := range n.Watch(ctx) {
				mu.Lock()
				owned[c.Task] = len(c.Owners) > 0
				mu.Unlock()
			}
		})
		var worst time.Duration
		for i := range 40 {
			has := i%2 == 0
			f.want(named(6 + (i+1)%2)...)
			began := time.Now()
			f.within(time.Minute, "change", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return f.allRun() && owned["t06"] == has
			})
			worst = max(worst, time.Since(began))
			time.Sleep(2 * time.Second)
		}
		stop()
		w.Wait()
		require.Less(t, worst, 2*time.Second)
	})
}

// Who watches before Run knows the first owner at once.
func TestWatch_BeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := replica.New(memory.New(), replica.Names("a"), func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }, replica.WithLease(lease, time.Second), replica.WithService("x"))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		got := make(chan time.Duration, 1)
		go func() {
			for range r.Watch(ctx) {
				got <- time.Since(began)
				return
			}
		}()
		synctest.Wait()
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		d := <-got
		stop()
		<-done
		require.Less(t, d, 2*time.Second)
	})
}

package replica_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

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
		r, err := replica.New(memory.New(), replica.Names("a"), func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }, replica.WithLease(lease, time.Second), replica.WithService("x"), replica.WithLogger(slog.New(slog.DiscardHandler)))
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
		require.NoError(t, <-done)
		require.Less(t, d, 2*time.Second)
	})
}

// A function of OnTerm finds its snapshot in Last, and waits for nothing.
func TestOnTerm_LastIsTheSame(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 6)
		n := f.follower()
		var mu sync.Mutex
		bad, calls := 0, 0
		n.OnTerm(func(s *orchestrator.Snapshot[replica.WorkerID, string]) {
			last := n.Last()
			mu.Lock()
			defer mu.Unlock()
			if calls++; last != s {
				bad++
			}
		})
		for range 5 {
			n.Last()
			time.Sleep(time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		require.NotZero(t, calls)
		require.Zero(t, bad)
	})
}

// The terms of a replica that is asked again go on, or a history would leave them out.
func TestLast_TermsRise(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 6)
		n := f.follower()
		var last orchestrator.Term
		for range 3 {
			for range 4 {
				if s := n.Last(); s != nil {
					now := s.Plan().Stats.Term
					require.GreaterOrEqual(t, now.Compare(last), 0, "%v after %v", now, last)
					last = now
				}
				time.Sleep(time.Second)
			}
			time.Sleep(lease)
		}
	})
}

// Last waits for the first term of a leader, too.
func TestLast_OfANewLeader(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 6)
		for range 3 {
			f.kill(f.leader().name)
			var l *node
			for l = f.leader(); l == nil; l = f.leader() {
				time.Sleep(time.Millisecond)
			}
			require.NotNil(t, l.Last())
			f.join(fmt.Sprint("n", time.Now().UnixNano()))
		}
	})
}

// hidden hides the record of a member from another one.
type hidden struct {
	*memory.Table
	from, id atomic.Uint64
}

func (h *hidden) hide(q replica.Query, v replica.View) replica.View {
	if q.Self == h.from.Load() {
		v.Members = slices.DeleteFunc(v.Members, func(m replica.Member) bool { return m.ID == h.id.Load() })
	}
	return v
}

func (h *hidden) Read(ctx context.Context, q replica.Query) (replica.View, error) {
	v, err := h.Table.Read(ctx, q)
	return h.hide(q, v), err
}

func (h *hidden) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	v, err := h.Table.Sync(ctx, u)
	return h.hide(u.Query, v), err
}

// An owner has a name once its record can be read.
func TestOwners_ARecordThatComesLater(t *testing.T) {
	for _, open := range []func() *memory.Table{memory.New, memory.NewPiecewise} {
		synctest.Test(t, func(t *testing.T) {
			table := open()
			f := newFleet(t, table)
			h := &hidden{Table: table}
			f.backend = h
			defer f.end()
			f.settle(3, 6)
			n := f.join("r9")
			f.within(lease, "even", func() bool { return f.allRun() && f.even() && n.Status().ID != 0 })
			h.from.Store(n.Status().ID)
			h.id.Store(f.leader().Status().ID)
			f.within(time.Minute, "no name", func() bool {
				for i := range 6 {
					for _, o := range n.Owners(fmt.Sprintf("t%02d", i)) {
						if o.Name == "" {
							return true
						}
					}
				}
				time.Sleep(11 * time.Second)
				return false
			})
			h.id.Store(0)
			f.within(lease, "knows", func() bool { return f.knows(n) })
		})
	}
}

// After a loss of the table there is no leader, and members report as before.
func TestOwners_AfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 6)
		f.table.Restore(f.table.Save())
		n := f.join("r9")
		f.within(5*time.Second, "knows", func() bool { return f.knows(n) })
		require.NotEmpty(t, n.Owners("t00"))
	})
}

// A replica that has not seen an order to stop before it was deleted soon reads everything.
func TestOwners_AStopThatNobodySaw(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.backend = struct{ replica.Backend }{f.table} // that tells of no change
		f.settle(4, 200)
		n := f.follower()
		id := n.Status().ID
		require.Len(t, n.Owners("t00"), 1)
		f.table.SetFaults(func(u replica.Update) memory.Fault {
			if u.Self == id && u.Member.ID == 0 {
				return memory.Fault{Before: 100 * time.Millisecond, After: 100 * time.Millisecond}
			}
			return memory.Fault{}
		})
		var worst time.Duration
		for i := range 4 {
			f.join(fmt.Sprint("x", i))
			f.within(lease, "even", func() bool { return f.allRun() && f.even() && len(n.Owners("t00")) > 0 })
			worst = max(worst, f.within(lease, "knows", func() bool { return f.knows(n) }))
		}
		require.Less(t, worst, 2*time.Second)
	})
}

package test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T6: a term whose context ends.

var errShutdown = errors.New("the leader is deployed anew")

// cutAt has ctx end with a cause when a call for which when says yes has been
// made, before it is answered. It returns ctx.
func (f *fleet) cutAt(cause error, when func(call) bool) context.Context {
	ctx, cancel := context.WithCancelCause(f.t.Context())
	f.t.Cleanup(func() { cancel(nil) })
	f.intercept(func(_ context.Context, c call) error {
		if when(c) {
			cancel(cause)
		}
		return nil
	})
	return ctx
}

func TestT6_DoneBeforeTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(2)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errShutdown)
		require.ErrorIs(t, f.NextTerm(ctx), errShutdown)
		require.Empty(t, f.lists())
	})
}

func TestT6_DoneDuringTheListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(6)
		f.Slow(5*time.Second, "w2")
		f.Hang("w3")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errShutdown) })
		var err error
		require.Equal(t, time.Second, took(func() { err = f.NextTerm(ctx) }))
		require.ErrorIs(t, err, errShutdown)
		require.Empty(t, f.writes(), "a partial view")
		synctest.Wait()
		for _, c := range f.lists() {
			require.False(t, c.Open, "%v was cancelled too", c)
		}

		// The view is no worse for it: nobody is taken for silent.
		f.Heal()
		f.term()
		f.requireSettled()
	})
}

func TestT6_DoneByDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(2)
		f.Slow(2*time.Second, "w2")
		ctx, cancel := context.WithTimeout(t.Context(), timeout/20)
		defer cancel()
		var err error
		require.Equal(t, timeout/20, took(func() { err = f.NextTerm(ctx) }))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, f.writes())
	})
}

// A context that ends as the last worker answers has ended before the writes.
func TestT6_DoneBetweenListingAndWrites(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3)
				f.expect(6)
				ctx := f.cutAt(errShutdown, func(c call) bool { return c.Op == orchestrator.OpList && c.Worker == "w3" })
				require.ErrorIs(t, f.NextTerm(ctx), errShutdown)
				require.Empty(t, f.writes())
			})
		})
	}
}

// What was cut short in its listing does not make a worker look silent or late to
// the term right behind it.
func TestT6_TheNextTermIsAWholeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, orchestrator.WithGracePeriod(0))
		f.expect(6)
		f.term()
		f.Slow(timeout/20, "w3")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(errShutdown) })
		f.forget()
		require.ErrorIs(t, f.NextTerm(ctx), errShutdown)
		f.term()
		require.Empty(t, f.writes())
		require.Equal(t, timeout/20, f.LastPlan().Stats.Listing, "w3 is waited for")
	})
}

// What has begun is carried through under its own deadlines; nothing new
// begins.
func TestT6_DoneDuringTheWrites(t *testing.T) {
	for _, handoff := range []orchestrator.Handoff{orchestrator.StopThenStart, orchestrator.StartThenStop} {
		t.Run(handoff.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, orchestrator.WithHandoff(handoff))
				f.expect(4)
				f.term()
				f.join("w2")
				f.forget()
				ctx, cancel := context.WithCancelCause(t.Context())
				f.intercept(func(ctx context.Context, c call) error {
					if c.Op != orchestrator.OpList {
						cancel(errShutdown) // during the first half of the first move
						time.Sleep(timeout - time.Second)
						return ctx.Err() // its own context goes on
					}
					return nil
				})
				var err error
				d := took(func() { err = f.NextTerm(ctx) })
				require.ErrorIs(t, err, errShutdown)
				require.Equal(t, 2*(timeout-time.Second), d)
				require.Len(t, f.writes(), 2, "both halves of one move, and no other")
				require.Equal(t, []int{3, 1}, f.loads())

				var term *orchestrator.TermError
				require.ErrorAs(t, err, &term)
				require.ErrorIs(t, term.Failures[0], errShutdown, "the cause comes first")
				require.Len(t, term.Failures, 1)
				outcomes := map[orchestrator.Outcome]int{}
				for _, c := range f.LastPlan().Changes {
					outcomes[c.Outcome]++
				}
				require.Equal(t, map[orchestrator.Outcome]int{orchestrator.OutcomeDone: 1, orchestrator.OutcomeSkipped: 1}, outcomes)

				f.intercept(nil)
				f.term()
				f.requireSettled()
			})
		})
	}
}

// A stopped task whose start is refused is given back, also when the leader is
// on its way out.
func TestT6_GiveBackIsCarriedThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.expect(2)
		f.term()
		f.join("w2")
		f.forget()
		ctx, cancel := context.WithCancelCause(t.Context())
		f.intercept(func(_ context.Context, c call) error {
			if c.Op == orchestrator.OpRemove {
				cancel(errShutdown)
			}
			if c.Op == orchestrator.OpAdd && c.Worker == "w2" {
				return orchestrator.ErrRejected
			}
			return nil
		})
		require.ErrorIs(t, f.NextTerm(ctx), errShutdown)
		require.Len(t, f.writes(), 3)
		require.Equal(t, []int{2, 0}, f.loads())
	})
}

// Nothing begins after the context has ended, not even in the same instant.
func TestT6_NothingBeginsOnceDone(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1)
				f.expect(20)
				ctx := f.cutAt(errShutdown, func(c call) bool { return c.Op == orchestrator.OpAdd })
				require.ErrorIs(t, f.NextTerm(ctx), errShutdown)
				require.Len(t, f.writes(), 1)
			})
		})
	}
}

func TestT6_DeposedCancelsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.expect(2)
		f.term()
		f.join("w2", "w3")
		f.forget()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(fmt.Errorf("election: %w", orchestrator.ErrDeposed)) })
		f.intercept(func(ctx context.Context, c call) error {
			if c.Op == orchestrator.OpRemove {
				return hang(ctx)
			}
			return nil
		})
		var err error
		require.Equal(t, time.Second, took(func() { err = f.NextTerm(ctx) }))
		require.ErrorIs(t, err, orchestrator.ErrDeposed)
		synctest.Wait()
		removes := f.calls(func(c call) bool { return c.Op != orchestrator.OpList })
		require.Len(t, removes, 1)
		require.False(t, removes[0].Open)
		require.ErrorIs(t, removes[0].Err, orchestrator.ErrDeposed, "each call is told why")
		require.Equal(t, orchestrator.OutcomeUnknown, f.LastPlan().Changes[0].Outcome)
	})
}

// A worker that knows of a higher epoch ends the term like the context does,
// and nothing is given back: that is for the other leader to do.
func TestT6_WorkerSaysDeposed(t *testing.T) {
	for _, op := range []orchestrator.Op{orchestrator.OpList, orchestrator.OpRemove, orchestrator.OpAdd} {
		t.Run(op.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1)
				f.expect(6)
				f.term()
				f.join("w2")
				f.forget()
				f.intercept(func(_ context.Context, c call) error {
					if c.Op == op {
						return fmt.Errorf("epoch 7: %w", orchestrator.ErrDeposed)
					}
					return nil
				})
				d, err := f.timedTerm()
				require.ErrorIs(t, err, orchestrator.ErrDeposed)
				require.Zero(t, d)
				require.Len(t, f.writes(), map[orchestrator.Op]int{
					orchestrator.OpList: 0, orchestrator.OpRemove: 1, orchestrator.OpAdd: 2,
				}[op], "%v", f.writes())
			})
		})
	}
}

// One worker that knows is enough, whatever the others answer.
func TestT6_OneWorkerThatListsSaysDeposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(3)
		f.term()
		f.join("w4")
		f.expect(6)
		f.forget()
		f.intercept(func(_ context.Context, c call) error {
			if c.Worker == "w4" {
				return orchestrator.ErrDeposed
			}
			return nil
		})
		require.ErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrDeposed)
		require.Empty(t, f.writes())
	})
}

// A deposed leader does not even wait for calls that ignore their context.
func TestT6_DeposedDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(2)
		over := make(chan struct{})
		f.intercept(func(_ context.Context, c call) error {
			switch {
			case c.Op != orchestrator.OpAdd:
			case c.Worker == "w1":
				<-over
			default:
				time.Sleep(time.Second)
				return orchestrator.ErrDeposed
			}
			return nil
		})
		d, err := f.timedTerm()
		require.ErrorIs(t, err, orchestrator.ErrDeposed)
		require.Equal(t, time.Second, d)
		close(over)
	})
}

// Waiting for another term's end is part of the term.
func TestT6_DoneWhileWaitingForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.Slow(5*time.Second, "w1")
		first := make(chan error, 1)
		go func() { first <- f.NextTerm(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errShutdown) })
		require.Equal(t, time.Second, took(func() { require.ErrorIs(t, f.NextTerm(ctx), errShutdown) }))
		require.NoError(t, <-first)
	})
}

// A term that ended before it could plan gives no false all-clear: it counts
// what the term before it did, and where there was none, all is missing.
func TestT6_StatisticsOfACutTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.run("w1", "a b")
		f.expect(10)
		cut := func() orchestrator.TermStats {
			f.Hang("w2")
			ctx, cancel := context.WithTimeout(t.Context(), timeout/20)
			defer cancel()
			require.ErrorIs(t, f.NextTerm(ctx), context.DeadlineExceeded)
			f.Heal()
			stats := f.LastPlan().Stats
			require.True(t, stats.Cut)
			return stats
		}
		require.Equal(t, orchestrator.InstanceStats{Wanted: 10, Missing: 10}, cut().Instances)

		f.failAdds(errRejected, "w2")
		f.failingTerm()
		whole := f.LastPlan().Stats
		require.Positive(t, whole.Instances.Missing)
		require.Equal(t, whole.Instances, cut().Instances)
		require.Equal(t, whole.Spread, cut().Spread)
	})
}

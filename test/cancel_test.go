package test

// T6: a term whose context ends, and a leader that learns of a higher epoch, even
// from a call that no term awaits.

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

var errShutdown = errors.New("the leader is deployed anew")

// cutAt returns a context that ends with a cause when the first call for which when
// returns true is made, before the call is answered.
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
	inBubble(t, given{workers: 2, expected: 2}, func(t *testing.T, f *fleet) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errShutdown)
		require.ErrorIs(t, f.NextTerm(ctx), errShutdown)
		require.Empty(t, f.lists())
	})
}

func TestT6_DoneDuringTheListing(t *testing.T) {
	inBubble(t, given{workers: 3, expected: 6}, func(t *testing.T, f *fleet) {
		f.Slow(5*time.Second, "w2")
		f.Hang("w3")
		ctx := cancelledAfter(t, time.Second, errShutdown)
		var err error
		require.Equal(t, time.Second, took(func() { err = f.NextTerm(ctx) }))
		require.ErrorIs(t, err, errShutdown)
		require.Empty(t, f.writes(), "a partial view")
		synctest.Wait()
		for _, c := range f.lists() {
			require.False(t, c.Open, "%v was cancelled too", c)
		}

		// The cancelled calls make no worker silent.
		f.Heal()
		f.term()
		f.requireSettled()
	})
}

func TestT6_DoneByDeadline(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 2}, func(t *testing.T, f *fleet) {
		f.Slow(2*time.Second, "w2")
		ctx, cancel := context.WithTimeout(t.Context(), timeout/20)
		defer cancel()
		var err error
		require.Equal(t, timeout/20, took(func() { err = f.NextTerm(ctx) }))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, f.writes())
	})
}

// A context that ends when the last worker answers has ended before the writes.
func TestT6_DoneBetweenListingAndWrites(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), bubble(given{workers: 3, expected: 6}, func(t *testing.T, f *fleet) {
			ctx := f.cutAt(errShutdown, func(c call) bool { return c.Op == orchestrator.OpList && c.Worker == "w3" })
			require.ErrorIs(t, f.NextTerm(ctx), errShutdown)
			require.Empty(t, f.writes())
		}))
	}
}

// The term after a cancelled listing finds no worker silent or late because of it.
func TestT6_TheNextTermIsComplete(t *testing.T) {
	inBubble(t, given{workers: 3, running: 6, opts: options{orchestrator.WithGracePeriod(0)}}, func(t *testing.T, f *fleet) {
		f.Slow(timeout/20, "w3")
		ctx := cancelledAfter(t, time.Millisecond, errShutdown)
		f.forget()
		require.ErrorIs(t, f.NextTerm(ctx), errShutdown)
		f.term()
		require.Empty(t, f.writes())
		require.Equal(t, timeout/20, f.LastPlan().Stats.Listing, "w3 is waited for")
	})
}

// Changes that have begun are completed under their own deadlines. No other change
// begins.
func TestT6_DoneDuringTheWrites(t *testing.T) {
	for _, handoff := range []orchestrator.Handoff{orchestrator.StopThenStart, orchestrator.StartThenStop} {
		t.Run(handoff.String(), bubble(given{workers: 1, running: 4, opts: options{orchestrator.WithHandoff(handoff)}}, func(t *testing.T, f *fleet) {
			f.join("w2")
			ctx, cancel := context.WithCancelCause(t.Context())
			f.intercept(onWrites(func(ctx context.Context) error {
				cancel(errShutdown) // during the first half of the first move
				time.Sleep(timeout - time.Second)
				return ctx.Err() // its own context goes on
			}))
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
			require.Equal(t, map[orchestrator.Outcome]int{orchestrator.OutcomeDone: 1, orchestrator.OutcomeSkipped: 1}, f.outcomes())

			f.intercept(nil)
			f.term()
			f.requireSettled()
		}))
	}
}

// A stopped task whose start is refused is given back, even if the leader's context has
// ended.
func TestT6_GiveBackIsCarriedThrough(t *testing.T) {
	inBubble(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.join("w2")
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

// No change begins after the context has ended, not even at the same instant.
func TestT6_NothingBeginsOnceDone(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), bubble(given{workers: 1, expected: 20}, func(t *testing.T, f *fleet) {
			ctx := f.cutAt(errShutdown, func(c call) bool { return c.Op == orchestrator.OpAdd })
			require.ErrorIs(t, f.NextTerm(ctx), errShutdown)
			require.Len(t, f.writes(), 1)
		}))
	}
}

func TestT6_DeposedCancelsAtOnce(t *testing.T) {
	inBubble(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.join("w2", "w3")
		ctx := cancelledAfter(t, time.Second, fmt.Errorf("election: %w", orchestrator.ErrDeposed))
		f.intercept(on(orchestrator.OpRemove, "", "", hang))
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

// A worker that knows a higher epoch ends the term like the context does. The leader
// gives nothing back, because its successor decides where the task runs.
func TestT6_WorkerSaysDeposed(t *testing.T) {
	for _, op := range []orchestrator.Op{orchestrator.OpList, orchestrator.OpRemove, orchestrator.OpAdd} {
		t.Run(op.String(), bubble(given{workers: 1, running: 6}, func(t *testing.T, f *fleet) {
			f.join("w2")
			f.intercept(on(op, "", "", fails(fmt.Errorf("epoch 7: %w", orchestrator.ErrDeposed))))
			d, err := f.timedTerm()
			require.ErrorIs(t, err, orchestrator.ErrDeposed)
			require.Zero(t, d)
			require.Len(t, f.writes(), map[orchestrator.Op]int{
				orchestrator.OpList: 0, orchestrator.OpRemove: 1, orchestrator.OpAdd: 2,
			}[op], "%v", f.writes())
		}))
	}
}

// One answer of ErrDeposed is enough, whatever the other workers answer.
func TestT6_OneWorkerThatListsSaysDeposed(t *testing.T) {
	inBubble(t, given{workers: 3, running: 3}, func(t *testing.T, f *fleet) {
		f.join("w4")
		f.expect(6)
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

// A deposed leader does not wait for calls that ignore their context.
func TestT6_DeposedDoesNotWait(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 2}, func(t *testing.T, f *fleet) {
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

// A context may end while NextTerm waits for the end of another term.
func TestT6_DoneWhileAnotherTermRuns(t *testing.T) {
	inBubble(t, given{workers: 1}, func(t *testing.T, f *fleet) {
		f.Slow(5*time.Second, "w1")
		first := make(chan error, 1)
		go func() { first <- f.NextTerm(t.Context()) }()
		synctest.Wait()
		ctx := cancelledAfter(t, time.Second, errShutdown)
		require.Equal(t, time.Second, took(func() { require.ErrorIs(t, f.NextTerm(ctx), errShutdown) }))
		require.NoError(t, <-first)
	})
}

// A term that ended before it could plan has the counts of the term before it. Without an
// earlier term, every instance is missing.
func TestT6_StatisticsOfACutTerm(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
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

var errEpoch7 = fmt.Errorf("epoch 7: %w", orchestrator.ErrDeposed)

// lateDeposition starts a fleet in which w2 is silent, so that no term waits for it, and
// returns ErrDeposed a second after the call.
func lateDeposition(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t, given{workers: 3})
	f.term()
	f.Cut("w2")
	require.Error(t, f.NextTerm(t.Context()))
	f.Heal()
	f.forget()
	f.intercept(on(orchestrator.OpList, "w2", "", func(context.Context) error {
		time.Sleep(timeout / 20)
		return errEpoch7
	}))
	return f
}

// requireDeposed runs a term that may not write.
func (f *fleet) requireDeposed() {
	f.t.Helper()
	f.forget()
	require.NoError(f.t, f.AddTask("written by a deposed leader"))
	err := f.NextTerm(f.t.Context())
	require.ErrorIs(f.t, err, orchestrator.ErrDeposed)
	require.ErrorContains(f.t, err, "epoch 7")
	require.True(f.t, f.LastPlan().Stats.Cut)
	require.Empty(f.t, f.writes())
}

func TestT6_DeposedBetweenTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lateDeposition(t)
		require.NotErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrDeposed, "it does not wait for w2")
		time.Sleep(time.Second + 1)
		f.intercept(nil)
		_, err := f.Plan(orchestrator.Hypothesis[string, string]{})
		require.NotErrorIs(t, err, orchestrator.ErrDeposed, "a plan writes nothing, and leaves the news to the next term")
		f.requireDeposed()
	})
}

// The ErrDeposed may also arrive while a later term lists the workers.
func TestT6_DeposedWhileTheNextTermLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lateDeposition(t)
		require.NotErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrDeposed)
		f.Slow(2*time.Second, "w1")
		f.requireDeposed()
	})
}

// If it arrives during the writes, they end immediately.
func TestT6_DeposedDuringTheWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lateDeposition(t)
		f.expect(4)
		f.Slow(3*time.Second, "w1", "w3")
		began := time.Now()
		f.intercept(func(ctx context.Context, c call) error {
			switch {
			case c.Op == orchestrator.OpAdd:
				return hang(ctx)
			case c.Worker == "w2":
				time.Sleep(4 * time.Second) // a second after the others have answered
				return errEpoch7
			}
			return nil
		})
		require.ErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrDeposed)
		require.Equal(t, 4*time.Second, time.Since(began))
		synctest.Wait()
		for _, c := range f.calls(func(c call) bool { return c.Op == orchestrator.OpAdd }) {
			require.ErrorIs(t, c.Err, orchestrator.ErrDeposed, "%v is told why it is cut off", c)
		}
	})
}

// A write may return ErrDeposed after its deadline, while its term continues.
func TestT6_DeposedByAnEarlierWrite(t *testing.T) {
	onBothWires(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.join("w2")
		f.join("w3")
		require.NoError(t, f.AddTask("new"))
		f.intercept(func(_ context.Context, c call) error {
			switch {
			case c.Op == orchestrator.OpList:
			case c.Task == "new":
				time.Sleep(timeout + time.Second)
				return errEpoch7
			default:
				time.Sleep(timeout - time.Second) // for each half of the move
			}
			return nil
		})
		d, err := f.timedTerm()
		require.ErrorIs(t, err, orchestrator.ErrDeposed)
		require.ErrorContains(t, err, "epoch 7")
		require.Equal(t, timeout+time.Second, d)
	})
}

// It may also do so after the end of its term.
func TestT6_DeposedByAWriteOfThePastTerm(t *testing.T) {
	onBothWires(t, given{workers: 1, expected: 1}, func(t *testing.T, f *fleet) {
		f.intercept(on(orchestrator.OpAdd, "", "", func(context.Context) error {
			time.Sleep(timeout + time.Second)
			return errEpoch7
		}))
		require.NotErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrDeposed)
		time.Sleep(time.Second + 1)
		f.intercept(nil)
		f.requireDeposed()
	})
}

// A call that the leader itself cancelled because it is deposed does not depose it again.
func TestT6_DeposedByItsContextOnly(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 2}, func(t *testing.T, f *fleet) {
		ctx := cancelledAfter(t, time.Second, orchestrator.ErrDeposed)
		f.intercept(on(orchestrator.OpAdd, "", "", dawdle))
		require.ErrorIs(t, f.NextTerm(ctx), orchestrator.ErrDeposed)
		f.intercept(nil)
		time.Sleep(time.Minute)
		require.NoError(t, f.NextTerm(t.Context()))
	})
}

// A worker that knows a higher epoch ends the term, and the other calls are cancelled.
func TestT6_DeposedWhileOthersAreYetToAnswer(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		f.term()
		f.Hang("w1", "w3")
		f.intercept(on(orchestrator.OpList, "w2", "", fails(errEpoch7)))
		took, err := f.timedTerm()
		require.ErrorIs(t, err, orchestrator.ErrDeposed)
		require.Zero(t, took)
		synctest.Wait()
		require.Empty(t, f.calls(func(c call) bool { return c.Open }))
	})
}

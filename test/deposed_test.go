package test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T6: a leader that hears of a higher epoch when nobody waits for that answer any
// more. It is deposed all the same.

var errEpoch7 = fmt.Errorf("epoch 7: %w", orchestrator.ErrDeposed)

// lateDeposition starts a fleet of which w2 is silent, so that no term waits for
// it, and says after a second that it knows a higher epoch.
func lateDeposition(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t, 3)
	f.term()
	f.Cut("w2")
	require.Error(t, f.NextTerm(t.Context()))
	f.Heal()
	f.forget()
	f.intercept(func(_ context.Context, c call) error {
		if c.Op == orchestrator.OpList && c.Worker == "w2" {
			time.Sleep(timeout / 20)
			return errEpoch7
		}
		return nil
	})
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

// It may also come while a later term asks what the workers run.
func TestT6_DeposedWhileTheNextTermLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lateDeposition(t)
		require.NotErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrDeposed)
		f.Slow(2*time.Second, "w1")
		f.requireDeposed()
	})
}

// Where it comes during the writes, these end at once.
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

// A write whose time was up says so too, where its term goes on.
func TestT6_DeposedByAnEarlierWrite(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := oneMove(t, start)
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

// And where its term is over.
func TestT6_DeposedByAWriteOfThePastTerm(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 1)
		f.expect(1)
		f.intercept(func(_ context.Context, c call) error {
			if c.Op == orchestrator.OpAdd {
				time.Sleep(timeout + time.Second)
				return errEpoch7
			}
			return nil
		})
		require.NotErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrDeposed)
		time.Sleep(time.Second + 1)
		f.intercept(nil)
		f.requireDeposed()
	})
}

// Who has cut its calls off itself has not been told of anything by that.
func TestT6_DeposedByItsContextIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(2)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(orchestrator.ErrDeposed) })
		f.intercept(func(ctx context.Context, c call) error {
			if c.Op == orchestrator.OpAdd {
				return dawdle(ctx)
			}
			return nil
		})
		require.ErrorIs(t, f.NextTerm(ctx), orchestrator.ErrDeposed)
		f.intercept(nil)
		time.Sleep(time.Minute)
		require.NoError(t, f.NextTerm(t.Context()))
	})
}

// A worker that knows a higher epoch ends the term. The other calls are cancelled.
func TestT6_DeposedWhileOthersAreYetToAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.term()
		f.Hang("w1", "w3")
		f.intercept(on(orchestrator.OpList, "w2", "", func(context.Context) error { return errEpoch7 }))
		took, err := f.timedTerm()
		require.ErrorIs(t, err, orchestrator.ErrDeposed)
		require.Zero(t, took)
		synctest.Wait()
		require.Empty(t, f.calls(func(c call) bool { return c.Open }))
	})
}

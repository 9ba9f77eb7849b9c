package orchestrator_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// What a term says of a worker that it did not wait for.

// refusesLate has every List of w2 fail a second after it was called, when the
// others have answered.
func refusesLate(f *fleet) {
	n := 0
	f.intercept(func(_ context.Context, c call) error {
		if c.Op != orchestrator.OpList || c.Worker != "w2" {
			return nil
		}
		n++
		time.Sleep(time.Second)
		return fmt.Errorf("refused %d times", n)
	})
}

// A silent worker whose calls are refused in the end is no slow one: that its call
// of this term is still under way is not all that is known.
func TestT11_HowTheLastCallFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(3)
		f.term()
		refusesLate(f)
		why := func() string {
			t.Helper()
			failed := failures(t, f.NextTerm(t.Context()))
			require.Len(t, failed, 1)
			require.Equal(t, "w2", failed[0].Worker)
			return failed[0].Err.Error()
		}
		require.Equal(t, "refused 1 times", why(), "it answered last term: it is waited for")
		require.Equal(t, "no answer in time, and the last call failed: refused 1 times", why())
		time.Sleep(2 * time.Second) // the call fails after its term
		require.Equal(t, "no answer in time, and the last call failed: refused 2 times", why())
		p, err := f.Plan(t.Context())
		require.ErrorIs(t, err, orchestrator.ErrSilent)
		require.Equal(t, "no answer in time, and the last call failed: refused 2 times", failures(t, p.Stats.Err)[0].Err.Error())

		time.Sleep(2 * time.Second)
		f.intercept(nil)
		_ = f.NextTerm(t.Context()) // which need not wait for its answer
		synctest.Wait()
		f.term()
		f.Stick("w2")
		require.Equal(t, orchestrator.ErrSilent.Error(), why(), "it has answered since")
	})
}

// What has ended one term is no news to the terms after it.
func TestT11_ADepositionIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lateDeposition(t)
		require.NotErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrDeposed, "it does not wait for w2")
		time.Sleep(time.Second + 1)
		f.intercept(nil)
		f.Stick("w2")
		require.ErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrDeposed)
		err := f.NextTerm(t.Context())
		require.ErrorIs(t, err, orchestrator.ErrSilent)
		require.NotErrorIs(t, err, orchestrator.ErrDeposed)
	})
}

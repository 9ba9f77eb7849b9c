package worker_test

// W2: WithAccept decides which tasks the worker accepts.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

func TestW2_WithAcceptDecidesWhatIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		no := errors.New("too heavy")
		var w *worker.Worker[string]
		w = newWorker(t, stubborn(time.Second, new(int)), worker.WithAccept(func(_ context.Context, task string, content []byte) error {
			asked++
			_ = w.Status() // the function is called without locks
			switch {
			case task == "panics":
				panic("no")
			case string(content) == "heavy":
				return no
			}
			return nil
		}))
		err := w.AddWith(t.Context(), "a", grant("heavy", 1))
		require.ErrorIs(t, err, orchestrator.ErrRejected)
		require.ErrorIs(t, err, no)
		require.ErrorIs(t, w.Add(t.Context(), "panics"), orchestrator.ErrRejected)
		require.Empty(t, list(t, w))
		require.Equal(t, 2, asked)

		require.NoError(t, w.AddWith(t.Context(), "a", grant("light", 1)))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("heavy", 2)), "the worker has the task already")
		require.NoError(t, w.Remove(t.Context(), "x"))
		require.Equal(t, 3, asked)

		require.ErrorIs(t, w.Remove(within(t, time.Nanosecond), "a"), orchestrator.ErrStopping)
		require.ErrorIs(t, w.AddWith(t.Context(), "a", grant("heavy", 2)), no, "after the stop the task is new")
		require.Equal(t, 4, asked)
	})
}

// The state may change during the call of WithAccept's function, and is checked
// after it.
func TestW2_AnAcceptedAddMayHaveBecomeStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := leased(t, until, worker.WithAccept(func(context.Context, string, []byte) error {
			<-time.After(time.Second)
			return nil
		}))
		answers := make(chan error, 2)
		go func() { answers <- w.Add(term(t.Context(), 5, 3), "a") }()
		synctest.Wait()
		_, err := w.List(term(t.Context(), 5, 4))
		require.NoError(t, err)
		require.ErrorIs(t, <-answers, orchestrator.ErrStale)

		for range 2 {
			go func() { answers <- w.Add(term(t.Context(), 5, 4), "b") }()
		}
		require.NoError(t, <-answers)
		require.NoError(t, <-answers, "both Adds succeed")

		go func() { answers <- w.Add(term(t.Context(), 5, 4), "c") }()
		synctest.Wait()
		require.NoError(t, w.Rejoin(t.Context()))
		w.Sending()()
		require.ErrorIs(t, <-answers, orchestrator.ErrRejected, "the Add belongs to the former incarnation")
		require.ErrorIs(t, w.Add(within(t, time.Second/2), "d"), orchestrator.ErrRejected)
		require.Empty(t, list(t, w))
	})
}

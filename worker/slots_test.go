package worker_test

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

func TestW2_SlotsAreFilledFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, until, worker.WithSlots(2))
		require.Nil(t, w.Apply(t.Context(), add("a", "b", "c", "d", "e")))
		require.Equal(t, "a:running b:running c:queued d:queued e:queued ", states(w))
		require.Equal(t, []string{"a", "b", "c", "d", "e"}, list(t, w), "queued tasks are in List")

		require.NoError(t, w.Remove(t.Context(), "c"))
		require.NoError(t, w.Remove(t.Context(), "b"))
		require.Equal(t, "a:running d:running e:queued ", states(w))
		require.NoError(t, w.Add(t.Context(), "b"))
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.Equal(t, "d:running e:running b:queued ", states(w), "a task that is added again queues at the end")
	})
}

func TestW2_RemoveOfAQueuedTaskIsImmediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		w := newWorker(t, stubborn(time.Hour, &runs), worker.WithSlots(1))
		require.Nil(t, w.Apply(t.Context(), add("a", "b")))
		synctest.Wait()
		began := time.Now()
		require.NoError(t, w.Remove(t.Context(), "b"))
		require.Zero(t, time.Since(began))
		require.Equal(t, 1, runs)
	})
}

func TestW2_StoppingHoldsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		w := newWorker(t, stubborn(time.Minute, &runs), worker.WithSlots(1))
		require.Nil(t, w.Apply(t.Context(), add("a", "b")))
		require.ErrorIs(t, w.Remove(within(t, time.Second), "a"), orchestrator.ErrStopping)
		require.Equal(t, "a:stopping b:queued ", states(w))
		<-time.After(time.Minute)
		require.Equal(t, "b:running ", states(w))
	})
}

func TestW2_BackoffHoldsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := func(ctx context.Context, task string) error {
			if task == "failing" {
				return errors.New("no")
			}
			return until(ctx, task)
		}
		w := newWorker(t, failing, worker.WithSlots(1), worker.WithBackoff(time.Hour, time.Hour))
		require.Nil(t, w.Apply(t.Context(), add("failing", "b")))
		synctest.Wait()
		require.Equal(t, "failing:backoff b:queued ", states(w))
		require.NoError(t, w.Remove(t.Context(), "failing"))
		require.Equal(t, "b:running ", states(w))
	})
}

func TestW2_CompletedFreesItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, func(ctx context.Context, task string) error {
			if task == "short" {
				return nil
			}
			return until(ctx, task)
		}, worker.WithSlots(1), worker.WithCompletion(func(string) {}))
		require.Nil(t, w.Apply(t.Context(), add("short", "b")))
		synctest.Wait()
		require.Equal(t, "short:completed b:running ", states(w))
	})
}

func TestW2_AddOfAQueuedTaskDoesNotWaitForReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, func(ctx context.Context, task string) error {
			if task == "a" {
				worker.Ready(ctx)
			}
			return until(ctx, task)
		}, worker.WithSlots(1), worker.WithReadiness())
		require.Nil(t, w.Apply(t.Context(), add("a", "b")))
		require.NoError(t, w.Add(t.Context(), "b"))
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.Equal(t, "b:starting ", states(w))
		require.ErrorIs(t, w.Add(within(t, time.Second), "b"), context.DeadlineExceeded)
	})
}

func TestW2_StatusHasSinceAndRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		no := errors.New("no")
		w := newWorker(t, func(context.Context, string) error {
			<-time.After(time.Second)
			return no
		}, worker.WithBackoff(4*time.Second, 4*time.Second))
		require.NoError(t, w.Add(t.Context(), "a"))
		require.Equal(t, []worker.TaskStatus[string]{{Task: "a", State: worker.Running, Since: began}}, w.Status())
		<-time.After(2 * time.Second)
		require.Equal(t, []worker.TaskStatus[string]{
			{Task: "a", State: worker.Backoff, Since: began.Add(time.Second), Restarts: 1, Err: no, Attempts: 1, Next: w.Status()[0].Next},
		}, w.Status())
		pause := w.Status()[0].Next.Sub(began.Add(time.Second))
		require.LessOrEqual(t, pause, 4*time.Second)
		require.GreaterOrEqual(t, pause, 2*time.Second)
		text, err := w.Status()[0].State.MarshalText()
		require.NoError(t, err)
		require.Equal(t, "backoff", string(text))
		require.Equal(t, "state(99)", worker.State(99).String())
	})
}

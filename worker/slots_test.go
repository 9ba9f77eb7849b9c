package worker_test

// W2: slots, the tasks that the worker accepts, and what it reports.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
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
		failing := except("failing", errors.New("no"))
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
		w := newWorker(t, except("short", nil), worker.WithSlots(1), worker.WithCompletion(func(string) {}))
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
			{Task: "a", State: worker.Backoff, Since: began.Add(time.Second), Restarts: 1, Err: no, Attempts: 1, Failing: began.Add(time.Second), Next: w.Status()[0].Next},
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

// rises requires a change since n, and returns the new n and the next channel.
func rises(t *testing.T, w *worker.Worker[string], n uint64, next <-chan struct{}, why string) (uint64, <-chan struct{}) {
	t.Helper()
	synctest.Wait()
	select {
	case <-next:
	default:
		require.Fail(t, "next is not closed", why)
	}
	now, next := w.Changes()
	require.Greater(t, now, n, why)
	return now, next
}

func TestW2_ChangesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan error)
		w := newWorker(t, func(ctx context.Context, _ string) error {
			select {
			case <-ctx.Done():
				<-time.After(time.Second)
				return nil
			case err := <-end:
				return err
			}
		}, worker.WithSlots(1), worker.WithCompletion(func(string) {}), worker.WithBackoff(time.Minute, time.Hour))
		n, next := w.Changes()
		require.NotZero(t, n, "0 means no report")

		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		n, next = rises(t, w, n, next, "a runs")
		require.NoError(t, w.Add(t.Context(), "b"))
		n, next = rises(t, w, n, next, "b is queued")
		update(t, w, "two", 2)
		n, next = rises(t, w, n, next, "newer content")
		<-time.After(time.Second)
		n, next = rises(t, w, n, next, "a is restarted")
		end <- context.DeadlineExceeded
		n, next = rises(t, w, n, next, "a has failed")
		<-time.After(time.Minute)
		n, next = rises(t, w, n, next, "the pause has ended")
		end <- nil
		n, next = rises(t, w, n, next, "a has completed")

		update(t, w, "two", 2)
		require.NoError(t, w.Add(t.Context(), "a"))
		require.NoError(t, w.Remove(t.Context(), "c"))
		synctest.Wait()
		same, also := w.Changes()
		require.Equal(t, n, same, "none of these calls changes anything")
		require.Equal(t, next, also)

		require.ErrorIs(t, w.Remove(within(t, time.Nanosecond), "b"), orchestrator.ErrStopping)
		n, next = rises(t, w, n, next, "b is stopping")
		<-time.After(time.Second)
		n, next = rises(t, w, n, next, "b has stopped")
		require.NoError(t, w.Remove(t.Context(), "a"))
		n, next = rises(t, w, n, next, "the completed a is gone")
		require.NoError(t, w.Add(t.Context(), "a"))
		n, next = rises(t, w, n, next, "a runs")
		require.NoError(t, w.Rejoin(t.Context()))
		rises(t, w, n, next, "the worker has rejoined")
	})
}

func TestW2_ReportIsOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, until)
		n, tasks, err := w.Report(t.Context(), 0)
		require.NoError(t, err)
		require.NotNil(t, tasks)
		require.Empty(t, tasks)

		require.NoError(t, w.Add(t.Context(), "a"))
		after, tasks, err := w.Report(t.Context(), n)
		require.NoError(t, err)
		require.Greater(t, after, n)
		require.Equal(t, w.Status(), tasks)

		ctx := worker.ContextWithIncarnation(term(t.Context(), 5, 3), w.Incarnation())
		same, tasks, err := w.Report(ctx, after)
		require.NoError(t, err)
		require.Equal(t, after, same)
		require.Nil(t, tasks)
		require.ErrorIs(t, w.Add(term(t.Context(), 5, 2), "b"), orchestrator.ErrStale, "a report raises the fence")
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = w.Report(ctx, after) }), "without changes, Report allocates nothing")

		_, _, err = w.Report(term(t.Context(), 4, 9), after)
		require.ErrorIs(t, err, orchestrator.ErrDeposed)
		_, _, err = w.Report(worker.ContextWithIncarnation(t.Context(), 1), after)
		require.ErrorIs(t, err, worker.ErrIncarnation)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err = w.Report(ended, after)
		require.ErrorIs(t, err, context.Canceled)
	})
}

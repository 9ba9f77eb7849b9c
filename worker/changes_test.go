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

func TestW4_CallsForAnotherIncarnationAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, until)
		here := func() context.Context {
			return worker.ContextWithIncarnation(term(t.Context(), 5, 3), w.Incarnation())
		}
		require.NoError(t, w.AddWith(here(), "a", grant("one", 1)))

		other := worker.ContextWithIncarnation(term(t.Context(), 9, 9), w.Incarnation()+1)
		_, err := w.List(other)
		require.ErrorIs(t, err, worker.ErrIncarnation)
		errs := append(w.Apply(other, add("a", "b")),
			w.Add(other, "a"), w.Remove(other, "a"), w.Remove(other, "x"), w.Update(other, "a", worker.Grant{Version: 9}))
		for _, err := range errs {
			require.ErrorIs(t, err, worker.ErrIncarnation)
			require.ErrorIs(t, err, orchestrator.ErrRejected)
		}
		require.Equal(t, []string{"a"}, list(t, w))
		require.NoError(t, w.Add(here(), "b"), "the refused calls did not raise the fence")

		before := here()
		require.NoError(t, w.Rejoin(t.Context()))
		require.ErrorIs(t, w.Add(before, "a"), worker.ErrIncarnation)
		require.NoError(t, w.Add(here(), "a"))
	})
}

func TestW4_AWaitingAddIsRefusedAfterARejoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		w := newWorker(t, stubborn(5*time.Second, &runs))
		ctx := worker.ContextWithIncarnation(t.Context(), w.Incarnation())
		require.NoError(t, w.Add(ctx, "a"))
		synctest.Wait()

		added, removed := make(chan error, 1), make(chan error, 1)
		go func() { removed <- w.Remove(ctx, "a") }()
		synctest.Wait()
		go func() { added <- w.Add(ctx, "a") }()
		synctest.Wait()
		require.NoError(t, w.Rejoin(t.Context()))
		require.ErrorIs(t, <-added, orchestrator.ErrRejected)
		require.NoError(t, <-removed, "the task has stopped")
		require.Equal(t, 1, runs)
	})
}

func TestW7_ACompletedTaskRunsAgainWithNewerContent(t *testing.T) {
	t.Run("after the queue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			var told []string
			w := newWorker(t, func(ctx context.Context, task string) error {
				if task == "a" {
					content, _ := worker.Content(ctx)
					d.note("a does %s", content)
					return nil
				}
				return d.run(ctx, task)
			}, worker.WithSlots(1), worker.WithReadiness(), worker.WithCompletion(func(task string) { told = append(told, task) }))
			require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
			ctx := within(t, time.Second)
			require.ErrorIs(t, w.Add(ctx, "b"), context.DeadlineExceeded, "b is never ready")
			d.read()
			require.NoError(t, w.AddWith(t.Context(), "a", grant("two", 2)))
			require.Equal(t, "a:queued b:starting ", states(w))
			require.NoError(t, w.Remove(t.Context(), "b"))
			require.Equal(t, []string{"b ends: the task was removed", "a does two"}, d.read())
			require.Equal(t, "a:completed ", states(w))
			require.Equal(t, []string{"a", "a"}, told)
		})
	})
	t.Run("an update cut off by the end of the run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			end := make(chan error)
			w := newWorker(t, func(ctx context.Context, _ string) error {
				content, _ := worker.Content(ctx)
				d.note("does %s", content)
				return <-end
			}, worker.WithCompletion(func(string) { d.note("completed") }), worker.WithUpdate(d.update))
			require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
			synctest.Wait()
			update(t, w, "two", 2)
			require.ElementsMatch(t, []string{"does one", "a update two@2 begins"}, d.read())
			end <- nil // while the update is under way
			require.Equal(t, []string{"a update cut off: the task's function has returned", "does two"}, d.read())
			update(t, w, "three", 3)
			<-time.After(3 * time.Second)
			require.Equal(t, []string{"a update three@3 begins", "a update done"}, d.read())
			end <- nil
			require.Equal(t, []string{"completed"}, d.read())
			require.Equal(t, int64(3), w.Status()[0].Version)
		})
	})
	t.Run("an update before the task was ready", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			end := make(chan error)
			w := newWorker(t, func(ctx context.Context, _ string) error {
				content, _ := worker.Content(ctx)
				d.note("does %s", content)
				return <-end
			}, worker.WithReadiness(), worker.WithCompletion(func(string) { d.note("completed") }), worker.WithUpdate(d.update))
			require.ErrorIs(t, w.AddWith(within(t, time.Second), "a", grant("one", 1)), context.DeadlineExceeded)
			update(t, w, "two", 2)
			require.Equal(t, []string{"does one"}, d.read())
			end <- nil
			require.Equal(t, []string{"does two"}, d.read())
			end <- nil
			require.Equal(t, []string{"completed"}, d.read())
		})
	})
	t.Run("must become ready again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker(t, func(ctx context.Context, _ string) error {
				<-time.After(time.Second)
				worker.Ready(ctx)
				return nil
			}, worker.WithReadiness(), worker.WithCompletion(func(string) {}))
			for version := range int64(3) {
				began := time.Now()
				require.NoError(t, w.AddWith(t.Context(), "a", grant("one", version)))
				require.Equal(t, time.Second, time.Since(began), "version %d", version)
				synctest.Wait()
				require.Equal(t, "a:completed ", states(w))
			}
		})
	})
	t.Run("without earlier failures", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			w := newWorker(t, func(_ context.Context, _ string) error {
				<-time.After(time.Millisecond)
				runs++
				if runs == 6 {
					return nil
				}
				return errors.New("boom")
			}, worker.WithCompletion(func(string) {}), worker.WithBackoff(time.Second, time.Hour))
			require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
			pass(10 * time.Minute)
			require.Equal(t, "a:completed ", states(w))
			update(t, w, "two", 2)
			require.NoError(t, w.Status()[0].Err)
			require.Equal(t, 6, w.Status()[0].Restarts)
			pass(2 * time.Second)
			require.Greater(t, runs, 7, "the pauses start over with the shortest")
		})
	})
}

func TestW1_ApplyWithGivesContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		w := newWorker(t, d.run)
		require.NoError(t, w.Add(t.Context(), "gone"))
		d.read()
		changes := []worker.Change[string]{
			{Write: orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: "a"}, Grant: grant("one", 1)},
			{Write: orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: "gone"}},
			{Write: orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: "b"}, Grant: grant("two", 2)},
		}
		require.Nil(t, w.ApplyWith(t.Context(), changes))
		require.ElementsMatch(t, []string{
			"a runs one@1 token 7/3", "b runs two@2 token 7/3", "gone ends: the task was removed",
		}, d.read())
		require.Equal(t, []string{"a", "b"}, list(t, w))

		changes[1].Op = orchestrator.OpList
		errs := w.ApplyWith(t.Context(), changes)
		require.Len(t, errs, 3)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], orchestrator.ErrRejected)
		require.NoError(t, errs[2])
	})
}

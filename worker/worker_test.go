package worker_test

// W1, C2 and C4: what the calls do. Stop, the first half of Close, is here too.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// until is the simplest task: it runs until its context ends.
func until(ctx context.Context, _ string) error {
	<-ctx.Done()
	return nil
}

// newWorker returns a worker that is closed at the end of the test.
func newWorker(t *testing.T, run func(context.Context, string) error, opts ...worker.Option) *worker.Worker[string] {
	t.Helper()
	w, err := worker.New(run, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) })
	return w
}

// inBubble returns a test that runs in a bubble of testing/synctest.
func inBubble(test func(t *testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// except returns a run function that returns err for one task, and runs the others until
// their context ends.
func except(task string, err error) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		if name == task {
			return err
		}
		return until(ctx, name)
	}
}

// begin makes a call in a bubble, and returns when it waits. The result is the call's.
func begin(call func() error) (result <-chan error) {
	done := make(chan error, 1)
	go func() { done <- call() }()
	synctest.Wait()
	return done
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func list(t *testing.T, w *worker.Worker[string]) []string {
	t.Helper()
	tasks, err := w.List(collecting(t.Context()))
	require.NoError(t, err)
	return tasks
}

// collecting returns the context of a List whose pins reach the leader.
func collecting(ctx context.Context) context.Context {
	return orchestrator.ContextWithPins(ctx, func(int) {})
}

func states(w *worker.Worker[string]) string {
	text := ""
	for _, s := range w.Status() {
		text += fmt.Sprintf("%v:%v ", s.Task, s.State)
	}
	return text
}

func add(tasks ...string) []orchestrator.Write[string] {
	var writes []orchestrator.Write[string]
	for _, task := range tasks {
		writes = append(writes, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
	}
	return writes
}

// stubborn runs until its context ends, and then takes d to stop. It counts its runs
// in *runs, which may be read while the bubble is idle.
func stubborn(d time.Duration, runs *int) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		*runs++
		<-ctx.Done()
		<-time.After(d)
		return nil
	}
}

func TestW1_AddStartsAndRemoveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		w := newWorker(t, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			<-time.After(3 * time.Second)
			return nil
		})
		require.NoError(t, w.Add(t.Context(), "a"))
		require.Equal(t, []string{"a"}, list(t, w))

		began := time.Now()
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.Equal(t, 3*time.Second, time.Since(began))
		require.ErrorIs(t, cause, worker.ErrRemoved)
		require.Empty(t, list(t, w))
	})
}

func TestW1_TaskOutlivesTheCallThatAddedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, until)
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, w.Add(ctx, "a"))
		cancel()
		synctest.Wait()
		require.Equal(t, "a:running ", states(w))
		require.Zero(t, w.Status()[0].Restarts)
	})
}

func TestW1_RemoveThatTakesLongerIsStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		w := newWorker(t, stubborn(5*time.Second, &runs))
		require.NoError(t, w.Add(t.Context(), "a"))

		err := w.Remove(within(t, time.Second), "a")
		require.ErrorIs(t, err, orchestrator.ErrStopping)
		require.NotErrorIs(t, err, orchestrator.ErrRejected)
		require.Equal(t, []string{"a"}, list(t, w), "the task has not stopped")
		require.Equal(t, "a:stopping ", states(w))

		<-time.After(3 * time.Second)
		require.ErrorIs(t, w.Remove(within(t, time.Millisecond), "a"), orchestrator.ErrStopping)
		<-time.After(2 * time.Second)
		require.Empty(t, list(t, w), "the task has stopped without another call")
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.Equal(t, 1, runs)
	})
}

func TestW1_AddOfAStoppingTaskWaitsAndStartsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		w := newWorker(t, stubborn(5*time.Second, &runs))
		require.NoError(t, w.Add(t.Context(), "a"))
		synctest.Wait()
		require.ErrorIs(t, w.Remove(within(t, time.Second), "a"), orchestrator.ErrStopping)

		began := time.Now()
		require.NoError(t, w.Add(t.Context(), "a"))
		require.Equal(t, 4*time.Second, time.Since(began))
		synctest.Wait()
		require.Equal(t, "a:running ", states(w))
		require.Equal(t, 2, runs)
	})
}

func TestW1_AnAddThatTimedOutStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		w := newWorker(t, stubborn(5*time.Second, &runs))
		require.NoError(t, w.Add(t.Context(), "a"))
		require.ErrorIs(t, w.Remove(within(t, time.Second), "a"), orchestrator.ErrStopping)
		require.ErrorIs(t, w.Add(within(t, time.Second), "a"), orchestrator.ErrStopping)
		<-time.After(time.Hour)
		require.Empty(t, list(t, w))
		require.Equal(t, 1, runs)
	})
}

// A leader that waited in each term for a task that does not stop could make no
// other call. So only the first Remove waits, and the worker logs the task, without a lock.
func TestW1_OnlyTheFirstRemoveWaitsForATaskThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		var log bytes.Buffer
		var w *worker.Worker[string]
		text := slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			require.Len(t, w.Status(), 1)
			return a
		}}
		w = newWorker(t, stubborn(time.Minute, &runs), worker.WithLogger(slog.New(slog.NewTextHandler(&log, &text))))
		require.NoError(t, w.Add(t.Context(), "a"))
		synctest.Wait()
		began := time.Now()
		for range 3 {
			require.ErrorIs(t, w.Remove(within(t, 10*time.Second), "a"), orchestrator.ErrStopping)
			require.Equal(t, 10*time.Second, time.Since(began), "only the first Remove waits")
		}
		require.Equal(t, 1, strings.Count(log.String(), `level=WARN msg="task does not stop" task=a`), log.String())

		<-time.After(time.Minute)
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.NoError(t, w.Add(t.Context(), "a"))
		synctest.Wait()
		began = time.Now()
		require.ErrorIs(t, w.Remove(within(t, time.Second), "a"), orchestrator.ErrStopping)
		require.Equal(t, time.Second, time.Since(began), "Remove waits for another run")
		<-time.After(time.Minute)
	})
}

func TestW1_CallThatEndedBeforehandWritesNothing(t *testing.T) {
	w := newWorker(t, until)
	require.NoError(t, w.Add(t.Context(), "a"))
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)

	err := w.Add(ctx, "b")
	require.ErrorIs(t, err, orchestrator.ErrRejected)
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, w.Remove(ctx, "a"), orchestrator.ErrRejected)
	require.Equal(t, []string{"a"}, list(t, w))

	_, err = w.List(ctx)
	require.ErrorIs(t, err, why)
}

func TestW1_AddWaitsForReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, func(ctx context.Context, _ string) error {
			<-time.After(2 * time.Second)
			worker.Ready(ctx)
			worker.Ready(ctx)
			<-ctx.Done()
			return nil
		}, worker.WithReadiness())

		err := w.Add(within(t, time.Second), "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, orchestrator.ErrRejected, "the task may still become ready")
		require.NotErrorIs(t, err, orchestrator.ErrStopping)
		require.Equal(t, []string{"a"}, list(t, w))
		require.Equal(t, "a:starting ", states(w))

		began := time.Now()
		require.NoError(t, w.Add(t.Context(), "a"), "a further Add waits again")
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, "a:running ", states(w))
		require.NoError(t, w.Add(t.Context(), "a"))
	})
}

func TestW1_ReadinessAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		var first context.Context
		w := newWorker(t, func(ctx context.Context, _ string) error {
			runs++
			switch runs {
			case 1:
				first = ctx
				return errors.New("not yet")
			case 2:
				worker.Ready(first) // too late: that run has ended
				<-time.After(time.Second)
				worker.Ready(ctx)
			}
			<-ctx.Done()
			return nil
		}, worker.WithReadiness(), worker.WithBackoff(time.Second, time.Second), worker.WithSeed(1))
		began := time.Now()
		require.NoError(t, w.Add(t.Context(), "a"))
		require.Greater(t, time.Since(began), 1500*time.Millisecond, "a pause, and a second for the second run")
	})
}

func TestW1_RemoveWhileStartingAnswersTheAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		w := newWorker(t, stubborn(time.Second, &runs), worker.WithReadiness())
		answer := begin(func() error { return w.Add(t.Context(), "a") })
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.ErrorIs(t, <-answer, orchestrator.ErrStopping)

		// Between two runs no function runs that must stop.
		w = newWorker(t, func(context.Context, string) error { return nil }, worker.WithReadiness())
		answer = begin(func() error { return w.Add(t.Context(), "a") })
		require.Equal(t, "a:backoff ", states(w))
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.ErrorIs(t, <-answer, orchestrator.ErrRejected)
	})
}

// The answers are fixed when the tasks are told to stop. They do not depend on whether
// the goroutine of the Apply runs before or after that of a stopped task.
func TestW1_TheAnswersOfAnApplyDoNotDependOnTheScheduler(t *testing.T) {
	adds := []orchestrator.Write[string]{
		{Op: orchestrator.OpAdd, Task: "starting"}, {Op: orchestrator.OpAdd, Task: "ready"}, {Op: orchestrator.OpAdd, Task: "starting too"},
	}
	removes := slices.Clone(adds)
	for i := range removes {
		removes[i].Op = orchestrator.OpRemove
	}
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker(t, func(ctx context.Context, task string) error {
				if task == "ready" {
					worker.Ready(ctx)
				}
				<-ctx.Done()
				return nil
			}, worker.WithReadiness())
			answers := make(chan []error, 1)
			go func() { answers <- w.Apply(t.Context(), adds) }()
			synctest.Wait()
			require.Nil(t, w.Apply(t.Context(), removes))
			errs := <-answers
			require.ErrorIs(t, errs[0], orchestrator.ErrStopping)
			require.NoError(t, errs[1], "it was ready before")
			require.ErrorIs(t, errs[2], orchestrator.ErrStopping)
		})
	}
}

func TestW1_ApplyIsSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, func(ctx context.Context, task string) error {
			<-ctx.Done()
			d, err := time.ParseDuration(task)
			if err == nil {
				<-time.After(d)
			}
			return nil
		})
		require.Nil(t, w.Apply(t.Context(), add("1s", "2s", "3s", "4s")))
		synctest.Wait()
		require.ErrorIs(t, w.Remove(within(t, time.Nanosecond), "1s"), orchestrator.ErrStopping)
		require.ErrorIs(t, w.Remove(within(t, time.Nanosecond), "4s"), orchestrator.ErrStopping)

		began := time.Now()
		errs := w.Apply(within(t, 3500*time.Millisecond), []orchestrator.Write[string]{
			{Op: orchestrator.OpAdd, Task: "4s"},
			{Op: orchestrator.OpRemove, Task: "3s"},
			{Op: orchestrator.OpAdd, Task: "1s"},
			{Op: orchestrator.OpRemove, Task: "2s"},
			{Op: orchestrator.OpList},
			{Op: orchestrator.OpAdd, Task: "5s"},
		})
		require.Equal(t, 3500*time.Millisecond, time.Since(began))
		require.Len(t, errs, 6)
		require.ErrorIs(t, errs[0], orchestrator.ErrStopping)
		require.NoError(t, errs[1])
		require.NoError(t, errs[2])
		require.NoError(t, errs[3])
		require.ErrorIs(t, errs[4], orchestrator.ErrRejected)
		require.NoError(t, errs[5])
		require.Equal(t, []string{"4s", "5s", "1s"}, list(t, w), "the second start of 1s did not wait for the others")
	})
}

func TestC2_SameSliceWhileNothingChanged(t *testing.T) {
	w := newWorker(t, until)
	require.NotNil(t, list(t, w))
	require.Nil(t, w.Apply(t.Context(), add("c", "a", "b")))
	before := list(t, w)
	require.Equal(t, []string{"c", "a", "b"}, before)
	require.NoError(t, w.Add(t.Context(), "a"))
	require.NoError(t, w.Remove(t.Context(), "x"))
	require.Same(t, &before[0], &list(t, w)[0])

	require.NoError(t, w.Remove(t.Context(), "a"))
	require.NoError(t, w.Add(t.Context(), "d"))
	require.Equal(t, []string{"c", "b", "d"}, list(t, w))
	require.Equal(t, []string{"c", "a", "b"}, before, "a returned slice is not changed")
}

func TestC4_Idempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		w := newWorker(t, stubborn(0, &runs))
		require.NoError(t, w.Remove(t.Context(), "a"))
		for range 3 {
			require.NoError(t, w.Add(t.Context(), "a"))
			synctest.Wait()
		}
		require.Equal(t, 1, runs)
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.Empty(t, list(t, w))
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		w, err := worker.New(func(ctx context.Context, task string) error {
			if task == "failing" {
				return errors.New("no")
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			<-time.After(5 * time.Second)
			return nil
		}, worker.WithSlots(2))
		require.NoError(t, err)
		require.Nil(t, w.Apply(t.Context(), add("running", "failing", "queued")))
		synctest.Wait()
		require.Equal(t, "running:running failing:backoff queued:queued ", states(w))

		err = w.Close(within(t, time.Second))
		synctest.Wait()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 tasks")
		require.ErrorIs(t, cause, worker.ErrClosed)
		require.Equal(t, []string{"running"}, list(t, w))
		require.ErrorIs(t, w.Add(t.Context(), "running"), orchestrator.ErrRejected)
		require.ErrorIs(t, w.Add(t.Context(), "new"), worker.ErrClosed)

		began := time.Now()
		require.NoError(t, w.Close(t.Context()))
		require.Equal(t, 4*time.Second, time.Since(began))
		require.Empty(t, list(t, w))
		require.NoError(t, w.Remove(t.Context(), "running"))

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, w.Close(ended), "no task is left")
	})
}

func TestClose_EndsAnAddThatWaitsForAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		w := newWorker(t, stubborn(time.Second, &runs))
		require.NoError(t, w.Add(t.Context(), "a"))
		synctest.Wait()
		require.ErrorIs(t, w.Remove(within(t, time.Nanosecond), "a"), orchestrator.ErrStopping)
		answer := begin(func() error { return w.Add(t.Context(), "a") })
		require.NoError(t, w.Close(t.Context()))
		require.ErrorIs(t, <-answer, orchestrator.ErrRejected)
		require.Equal(t, 1, runs)
	})
}

func TestNew_NamesEveryBadOption(t *testing.T) {
	_, err := worker.New[string](nil,
		worker.WithSlots(-1),
		worker.WithBackoff(0, time.Second),
		worker.WithCompletion(func(int) {}),
		worker.WithLogger(nil),
	)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, text := range []string{"run is nil", "WithSlots(-1)", "WithBackoff(0s, 1s)", "func(int)", "func(string)"} {
		require.ErrorContains(t, err, text)
	}
	_, err = worker.New(until, worker.WithCompletion[string](nil))
	require.ErrorContains(t, err, "WithCompletion(nil)")
	_, err = worker.New(until, worker.WithSlots(0), worker.WithBackoff(1, 1), worker.WithSeed(0))
	require.NoError(t, err)
}

// completing completes the task called short, and runs the others until their
// context ends, after which they take a second to stop.
func completing(ctx context.Context, task string) error {
	if task == "short" {
		return nil
	}
	<-ctx.Done()
	<-time.After(time.Second)
	return context.Cause(ctx)
}

func TestW6_StopKeepsWhatHasCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newMemoryRecord()
		w := newWorker(t, completing, worker.WithRecord(p), worker.WithCompletion(func(string) {}), worker.WithSlots(2))
		require.Nil(t, w.Apply(t.Context(), add("short", "a", "b", "queued")))
		pass(10 * time.Second)
		require.Equal(t, "short:completed a:running b:running queued:queued ", states(w))

		err := w.Stop(within(t, time.Second/2))
		require.EqualError(t, err, "stop worker: 2 tasks have not stopped: context deadline exceeded")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "short:completed a:stopping b:stopping ", states(w))
		require.ErrorIs(t, w.Add(t.Context(), "c"), orchestrator.ErrRejected)

		began := time.Now()
		require.NoError(t, w.Stop(t.Context()))
		require.Equal(t, time.Second/2, time.Since(began))
		require.Equal(t, "short:completed ", states(w))
		pass(10 * time.Second)
		require.Len(t, p.tasks, 1)
		require.False(t, p.removed)

		require.NoError(t, w.Update(t.Context(), "short", worker.Grant{Version: 5}))
		require.NoError(t, w.Stop(t.Context()), "no task is run again")
		require.NoError(t, w.Close(t.Context()))
		require.Empty(t, list(t, w))
		require.True(t, p.removed)
		require.NoError(t, w.Stop(t.Context()))
	})
}

func TestGiven(t *testing.T) {
	require.Empty(t, worker.Given(nil, worker.WithSlots(3), worker.WithReadiness()))
	require.Equal(t, []string{"WithLease", "WithLastResort", "WithCompletion", "WithAttempts"}, worker.Given(
		worker.WithAttempts(3, func(string, error) {}), worker.WithCompletion(func(string) {}),
		worker.WithLease(time.Minute, time.Second), worker.WithLastResort(func([]string) {})))
}

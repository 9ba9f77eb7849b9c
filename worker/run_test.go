package worker_test

// W3 and W8: what a worker makes of the end of a task's function, and jobs.

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// starts returns a run function that records the times of its calls, relative to
// now, and then calls f.
func starts(at *[]time.Duration, f func(ctx context.Context) error) func(context.Context, string) error {
	began := time.Now()
	return func(ctx context.Context, _ string) error {
		*at = append(*at, time.Since(began))
		return f(ctx)
	}
}

// pauses returns the pauses between the starts.
func pauses(at []time.Duration) []time.Duration {
	var between []time.Duration
	for i := range at[1:] {
		between = append(between, at[i+1]-at[i])
	}
	return between
}

func TestW3_PausesGrowWithJitter(t *testing.T) {
	var same [2][]time.Duration
	for i := range same {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Duration
			w := newWorker(t, starts(&at, func(context.Context) error { return errors.New("no") }),
				worker.WithBackoff(time.Second, 10*time.Second), worker.WithSeed(7))
			require.NoError(t, w.Add(t.Context(), "a"))
			<-time.After(time.Minute)
			synctest.Wait()
			same[i] = pauses(at)
			require.GreaterOrEqual(t, len(same[i]), 6)
			for i, longest := range []time.Duration{1, 2, 4, 8, 10, 10} {
				longest *= time.Second
				require.LessOrEqual(t, same[0][i], longest)
				require.GreaterOrEqual(t, same[0][i], longest/2)
			}
		})
	}
	require.Equal(t, same[0], same[1], "equal seeds, equal pauses")
}

func TestW3_AGoodRunStartsTheSequenceOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		w := newWorker(t, starts(&at, func(context.Context) error {
			if len(at) == 4 {
				<-time.After(8 * time.Second)
			}
			return nil
		}), worker.WithBackoff(time.Second, 8*time.Second))
		require.NoError(t, w.Add(t.Context(), "a"))
		<-time.After(time.Hour)
		synctest.Wait()
		between := pauses(at)
		require.Greater(t, between[2], 2*time.Second-1)
		require.LessOrEqual(t, between[3]-8*time.Second, time.Second)
		require.LessOrEqual(t, between[4], 2*time.Second)
	})
}

func TestW3_NothingATaskDoesBringsTheWorkerDown(t *testing.T) {
	cause := errors.New("cause")
	var none map[int]int
	for name, c := range map[string]struct {
		end  func() error
		text string
	}{
		"error":        {func() error { return cause }, "cause"},
		"nil":          {func() error { return nil }, "has returned"},
		"panic":        {func() error { panic("at the disco") }, "panic: at the disco"},
		"panic error":  {func() error { panic(cause) }, "panic: cause"},
		"panic nil":    {func() error { panic(nil) }, "panic called with nil"}, //nolint:govet // on purpose
		"nil map":      {func() error { none[1] = 1; return nil }, "nil map"},
		"goexit":       {func() error { runtime.Goexit(); return nil }, "runtime.Goexit"},
		"nested panic": {func() error { defer func() { panic("again") }(); panic("once") }, "panic: again"},
	} {
		t.Run(name, inBubble(func(t *testing.T) {
			var log bytes.Buffer
			var at []time.Duration
			w := newWorker(t, starts(&at, func(context.Context) error { return c.end() }),
				worker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			require.NoError(t, w.Add(t.Context(), "a"))
			<-time.After(time.Second)
			synctest.Wait()
			require.GreaterOrEqual(t, len(at), 3)
			status := w.Status()[0]
			require.Equal(t, len(at), status.Restarts)
			require.ErrorContains(t, status.Err, c.text)
			require.Contains(t, log.String(), "level=WARN msg=\"task ended, will be restarted\" task=a err=")
			if name == "panic" {
				require.Contains(t, log.String(), "level=ERROR msg=\"task panicked\" task=a")
				require.Contains(t, log.String(), "run_test.go", "the stack of the panic")
			}
		}))
	}
}

func TestW3_TheContextEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left error
		w := newWorker(t, func(ctx context.Context, _ string) error {
			go func() {
				<-ctx.Done()
				left = context.Cause(ctx)
			}()
			return nil
		}, worker.WithBackoff(time.Hour, time.Hour))
		require.NoError(t, w.Add(t.Context(), "a"))
		synctest.Wait()
		require.ErrorIs(t, left, worker.ErrReturned)
	})
}

func TestW3_RemoveBetweenTwoRunsStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		w := newWorker(t, starts(&at, func(context.Context) error { return nil }))
		require.NoError(t, w.Add(t.Context(), "a"))
		synctest.Wait()
		require.Equal(t, "a:backoff ", states(w))
		began := time.Now()
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.Zero(t, time.Since(began))
		<-time.After(time.Hour)
		synctest.Wait()
		require.Len(t, at, 1)
	})
}

func TestW3_CompletedStaysUntilRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		var told []string
		w := newWorker(t, func(context.Context, string) error {
			runs++
			if runs == 1 {
				return errors.New("not yet")
			}
			return nil
		}, worker.WithCompletion(func(task string) { told = append(told, task) }))
		require.NoError(t, w.Add(t.Context(), "a"))
		<-time.After(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"a"}, told)
		require.Equal(t, 2, runs)
		require.Equal(t, "a:completed ", states(w))
		require.NoError(t, w.Add(t.Context(), "a"), "the task is in List")
		require.Equal(t, 2, runs)
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.Empty(t, list(t, w))
	})
}

func TestW3_CompletionMayCallTheWorkerAndMayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *worker.Worker[string]
		w = newWorker(t, func(context.Context, string) error { return nil },
			worker.WithReadiness(),
			worker.WithCompletion(func(task string) {
				if task == "panic" {
					panic("from the completion")
				}
				_ = w.Remove(t.Context(), task)
			}))
		require.NoError(t, w.Add(t.Context(), "panic"), "Add returns nil for a completed task")
		_ = w.Add(t.Context(), "a")
		synctest.Wait()
		require.Equal(t, "panic:completed ", states(w))
	})
}

func TestW3_StoppedIsNotCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, until, worker.WithCompletion(func(string) { t.Error("a stopped task must not complete") }))
		require.NoError(t, w.Add(t.Context(), "a"))
		require.NoError(t, w.Remove(t.Context(), "a"))
		synctest.Wait()
	})
}

func TestW3_PanicWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			panic("while stopping")
		})
		require.NoError(t, w.Add(t.Context(), "a"))
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.Empty(t, list(t, w))
	})
}

// pins returns the pinned tasks of a worker, and checks that they are the last of
// its List.
func pins(t *testing.T, w *worker.Worker[string]) (pinned []string) {
	t.Helper()
	_, tasks, err := w.Report(t.Context(), 0)
	require.NoError(t, err)
	for _, s := range tasks {
		if s.Pinned {
			pinned = append(pinned, s.Task)
		}
	}
	all := list(t, w)
	require.Equal(t, pinned, append([]string(nil), all[len(all)-len(pinned):]...))
	return pinned
}

// A job that runs or has ended must not be moved. A job that waits may be moved.
func TestW8_AJobThatRunsIsPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan error)
		w := newWorker(t, func(ctx context.Context, _ string) error {
			select {
			case err := <-end:
				return err
			case <-ctx.Done():
				return nil
			}
		}, worker.WithSlots(1), worker.WithCompletion(func(string) {}), worker.WithBackoff(time.Minute, time.Minute))
		require.Nil(t, w.Apply(t.Context(), add("a", "b", "c")))
		require.Equal(t, []string{"b", "c", "a"}, list(t, w), "movable tasks come first")
		require.Equal(t, []string{"a"}, pins(t, w))

		end <- nil
		synctest.Wait()
		require.Equal(t, "a:completed b:running c:queued ", states(w))
		err := w.Remove(t.Context(), "b")
		require.ErrorIs(t, err, orchestrator.ErrRejected, "b did not run at the last List")
		require.ErrorContains(t, err, "job b is running")
		require.Equal(t, []string{"a", "b"}, pins(t, w))

		end <- errors.New("no disk")
		synctest.Wait()
		require.Equal(t, []string{"a"}, pins(t, w), "b waits for its next run")
		require.NoError(t, w.Remove(t.Context(), "c"))
		<-time.After(time.Minute)
		require.ErrorIs(t, w.Remove(t.Context(), "b"), orchestrator.ErrRejected, "b has begun")
		require.Equal(t, []string{"a", "b"}, pins(t, w))
		require.NoError(t, w.Remove(t.Context(), "b"), "the leader has seen that b runs")
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.Empty(t, list(t, w))
	})
}

// A job that has ended since a List showed it waiting is not removed, because it
// would run again elsewhere.
func TestW8_AJobThatHasEndedSinceIsNotMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan error)
		w := newWorker(t, func(_ context.Context, task string) error {
			if task == "a" {
				return <-end
			}
			return nil
		}, worker.WithSlots(1), worker.WithCompletion(func(string) {}))
		require.Nil(t, w.Apply(t.Context(), add("a", "b")))
		require.Equal(t, []string{"a"}, pins(t, w))
		end <- nil
		synctest.Wait()
		require.ErrorContains(t, w.Remove(t.Context(), "b"), "job b is completed")
		require.Equal(t, []string{"a", "b"}, pins(t, w))
		require.NoError(t, w.Remove(t.Context(), "b"))
	})
}

// A read without a term, such as that of a dry run, is not recorded as the leader's.
func TestW8_ReadsWithoutATermDoNotUnpinAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, except("a", nil), worker.WithSlots(1), worker.WithCompletion(func(string) {}))
		term := orchestrator.ContextWithTerm(t.Context(), orchestrator.Term{Epoch: 1, Number: 1})
		require.Nil(t, w.Apply(term, add("a", "b")))
		n, _, err := w.Report(term, 0)
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, w.Remove(term, "a"))
		synctest.Wait()
		for _, ctx := range []context.Context{t.Context(), term} {
			err := w.Remove(term, "b")
			require.ErrorIs(t, err, orchestrator.ErrRejected)
			require.ErrorContains(t, err, "job b is running, but was movable in the last report")
			_, _, err = w.Report(ctx, n)
			require.NoError(t, err)
			_, err = w.List(collecting(ctx))
			require.NoError(t, err)
		}
		require.NoError(t, w.Remove(term, "b"))
	})
}

// A worker whose List cannot pin does not stop a job that runs, whatever a List before it
// did, and says so once. A job that waits or has ended, and a task that has called Movable,
// can be removed.
func TestC8_WithoutPinsAJobThatRunsIsNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		end := make(chan struct{})
		w := newWorker(t, func(ctx context.Context, task string) error {
			if task == "movable" {
				worker.Movable(ctx)
			}
			select {
			case <-end:
			case <-ctx.Done():
			}
			return nil
		}, worker.WithSlots(2), worker.WithCompletion(func(string) {}), worker.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		term := func(n uint64) context.Context {
			return orchestrator.ContextWithTerm(t.Context(), orchestrator.Term{Epoch: 1, Number: n})
		}
		look := func(ctx context.Context) {
			_, err := w.List(ctx)
			require.NoError(t, err)
		}
		require.Nil(t, w.Apply(term(1), add("job", "movable", "waits")))
		synctest.Wait()
		look(collecting(term(2)))
		for n := range uint64(3) {
			look(term(3 + n))
			for range 2 {
				err := w.Remove(term(3+n), "job")
				require.ErrorIs(t, err, orchestrator.ErrRejected)
				require.ErrorContains(t, err, "job job is running, and the transport does not carry pins")
			}
		}
		require.Equal(t, 1, strings.Count(out.String(), "does not carry pins"), out.String())
		require.NoError(t, w.Remove(term(5), "waits"))
		require.NoError(t, w.Remove(term(5), "movable"))
		require.Equal(t, "job:running ", states(w))

		look(t.Context()) // a read that is not the leader's changes nothing
		look(collecting(t.Context()))
		require.ErrorIs(t, w.Remove(term(5), "job"), orchestrator.ErrRejected)

		_, _, err := w.Report(term(6), 0)
		require.NoError(t, err)
		require.NoError(t, w.Remove(term(6), "job"), "the leader has seen that it runs")

		require.NoError(t, w.Add(term(6), "ends"))
		look(term(7))
		require.ErrorIs(t, w.Remove(term(7), "ends"), orchestrator.ErrRejected)
		close(end)
		synctest.Wait()
		look(term(8))
		require.NoError(t, w.Remove(term(8), "ends"), "it has ended, and nobody needs to wait for it")
	})
}

// The function that collects pins may call the worker.
func TestC8_PinsAreCollectedWithoutALock(t *testing.T) {
	w := newWorker(t, until, worker.WithCompletion(func(string) {}))
	require.NoError(t, w.Add(t.Context(), "a"))
	pins := -1
	_, err := w.List(orchestrator.ContextWithPins(t.Context(), func(n int) {
		pins = n
		require.Len(t, w.Status(), 1)
	}))
	require.NoError(t, err)
	require.Equal(t, 1, pins)
}

// A List of an earlier term that arrives late tells the leader of the present term nothing:
// neither that a job runs now, nor that pins are lost or carried.
func TestC8_AListOfAnEarlierTermIsNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, except("a", nil), worker.WithSlots(1), worker.WithCompletion(func(string) {}))
		term := func(n uint64) context.Context {
			return orchestrator.ContextWithTerm(t.Context(), orchestrator.Term{Epoch: 1, Number: n})
		}
		look := func(ctx context.Context) {
			_, err := w.List(ctx)
			require.NoError(t, err)
		}
		require.Nil(t, w.Apply(term(2), add("a", "b")))
		look(collecting(term(2)))
		require.NoError(t, w.Remove(term(2), "a"))
		synctest.Wait()
		require.Equal(t, "b:running ", states(w))
		look(collecting(term(1)))
		_, _, err := w.Report(term(1), 0)
		require.NoError(t, err)
		require.ErrorIs(t, w.Remove(term(2), "b"), orchestrator.ErrRejected, "b waited in the List of this term")

		look(term(3))
		look(collecting(term(2)))
		require.ErrorIs(t, w.Remove(term(3), "b"), orchestrator.ErrRejected, "pins were lost in this term")
		look(collecting(term(4)))
		look(term(3))
		require.NoError(t, w.Remove(term(4), "b"))
	})
}

// A task that calls Movable is unpinned in the next List.
func TestW8_ATaskThatCallsMovableIsMovable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saved := make(chan struct{})
		w := newWorker(t, func(ctx context.Context, _ string) error {
			<-saved
			worker.Movable(ctx)
			worker.Movable(ctx)
			<-ctx.Done()
			return nil
		}, worker.WithCompletion(func(string) {}))
		require.NoError(t, w.Add(t.Context(), "a"))
		require.Equal(t, []string{"a"}, pins(t, w))
		n, changed := w.Changes()
		close(saved)
		_, changed = rises(t, w, n, changed, "it can be moved")
		require.Empty(t, pins(t, w))
		require.NoError(t, w.Remove(t.Context(), "a"))
		<-changed
		worker.Movable(t.Context())
	})
}

// Without WithCompletion no task is pinned.
func TestW8_WithoutCompletionNothingIsPinned(t *testing.T) {
	w := newWorker(t, until)
	require.Nil(t, w.Apply(t.Context(), add("a", "b")))
	require.Empty(t, pins(t, w))
	require.NoError(t, w.Remove(t.Context(), "a"))
}

// A task that crashed long ago, and runs well since, has no failed runs in a row (D27).
func TestW3_ALongRunEndsTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		w := newWorker(t, func(ctx context.Context, _ string) error {
			if runs++; runs > 3 {
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(time.Hour):
				}
			}
			return errors.New("no disk")
		}, worker.WithBackoff(time.Second, 10*time.Second))
		began := time.Now()
		require.NoError(t, w.Add(t.Context(), "a"))
		time.Sleep(9 * time.Second)
		s := w.Status()[0]
		require.Equal(t, worker.Running, s.State)
		require.Equal(t, 3, s.Attempts)
		require.Equal(t, began, s.Failing)
		known, _ := w.Changes()
		time.Sleep(10 * time.Second)
		s = w.Status()[0]
		require.Zero(t, s.Attempts)
		require.Zero(t, s.Failing)
		n, _ := w.Changes()
		require.Greater(t, n, known, "transports hear of it")
		time.Sleep(time.Hour - 10*time.Second)
		s = w.Status()[0]
		require.Equal(t, 1, s.Attempts, "the next failure begins another one")
		require.Greater(t, s.Failing.Sub(began), time.Hour)
		require.EqualValues(t, 4, w.FailedRuns())
	})
}

// A job fails for good after the allowed number of failures in a row.
func TestW8_AJobFailsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noDisk := errors.New("no disk")
		var fixed atomic.Bool
		failed := make(chan string, 10)
		w := newWorker(t, func(context.Context, string) error {
			<-time.After(time.Hour) // longer than the longest pause
			if fixed.Load() {
				return nil
			}
			return noDisk
		}, worker.WithSlots(1), worker.WithCompletion(func(string) {}), worker.WithBackoff(time.Minute, time.Minute),
			worker.WithAttempts(3, func(task string, err error) {
				require.ErrorIs(t, err, noDisk)
				failed <- task
			}))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		require.NoError(t, w.AddWith(t.Context(), "b", grant("one", 1)))
		<-time.After(time.Hour + time.Second)
		s := w.Status()[0]
		require.Equal(t, worker.Backoff, s.State)
		require.Equal(t, 1, s.Attempts)
		require.Equal(t, noDisk, s.Err)
		require.Positive(t, time.Until(s.Next))
		require.LessOrEqual(t, time.Until(s.Next), time.Minute)
		failing := s.Since
		require.Equal(t, failing, s.Failing)

		<-time.After(3 * time.Hour)
		require.Equal(t, "a", <-failed)
		s = w.Status()[0]
		require.Equal(t, worker.Failed, s.State)
		require.Equal(t, 3, s.Attempts)
		require.Equal(t, noDisk, s.Err)
		require.Zero(t, s.Next)
		require.Equal(t, failing, s.Failing, "it has failed since the first of the three")
		require.Equal(t, "a:failed b:running ", states(w), "the failed job has released its slot")
		require.Equal(t, []string{"a", "b"}, pins(t, w))

		fixed.Store(true)
		require.NoError(t, w.Add(t.Context(), "a"), "the content is not newer")
		require.Equal(t, worker.Failed, w.Status()[0].State)
		require.NoError(t, w.Update(t.Context(), "a", worker.Grant{Content: []byte("two"), Version: 2}))
		<-time.After(3 * time.Hour)
		require.Equal(t, "a:completed b:completed ", states(w), "newer content is run")
		require.Zero(t, w.Status()[0].Failing)
		require.Empty(t, failed)
	})
}

// An error whose Error method panics does not crash the worker.
func TestW3_AnErrorThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, func(context.Context, string) error { return (*treacherous)(nil) },
			worker.WithCompletion(func(string) {}), worker.WithAttempts(1, func(string, error) {}))
		require.NoError(t, w.Add(t.Context(), "a"))
		synctest.Wait()
		require.ErrorContains(t, w.Status()[0].Err, "treacherous, whose Error panics")
	})
}

type treacherous struct{ text string }

func (t *treacherous) Error() string { return t.text }

func TestW8_OptionsOutOfRange(t *testing.T) {
	complete, fail := worker.WithCompletion(func(string) {}), func(string, error) {}
	for _, opts := range [][]worker.Option{
		{worker.WithAttempts(3, fail)},
		{complete, worker.WithAttempts(0, fail)},
		{complete, worker.WithAttempts[string](3, nil)},
		{complete, worker.WithAttempts(3, func(int, error) {})},
	} {
		_, err := worker.New(until, opts...)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.ErrorContains(t, err, "WithAttempts")
	}
}

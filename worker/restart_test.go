package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
					require.Contains(t, log.String(), "restart_test.go", "the stack of the panic")
				}
			})
		})
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

package worker_test

// W5: tasks end before the lease can, which acknowledgements count, and what Check
// reports.

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// A lease of 20 s has a margin of 2 s. With 3 s to stop, tasks are told to stop 15 s
// after the sending of the last acknowledged renewal, and the last resort is called
// after 18 s.
const (
	length = 20 * time.Second
	toStop = 3 * time.Second
	told   = 15 * time.Second
	resort = 18 * time.Second
)

// leased returns a worker whose lease has just been acknowledged.
func leased(t *testing.T, run func(context.Context, string) error, opts ...worker.Option) *worker.Worker[string] {
	t.Helper()
	w := newWorker(t, run, append(opts, worker.WithLease(length, toStop))...)
	w.Sending()()
	return w
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// fenced reports whether the worker has begun to stop all tasks.
func fenced(w *worker.Worker[string]) bool { return isClosed(w.LeaseLost()) }

func TestW5_TasksEndBeforeTheLeaseCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended time.Duration
		var cause error
		began := time.Now()
		w := leased(t, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			ended, cause = time.Since(began), context.Cause(ctx)
			return nil
		}, worker.WithLastResort(func([]string) { t.Error("all tasks stop in time") }))
		require.Equal(t, length, w.Lease())
		require.NoError(t, w.Add(t.Context(), "a"))

		<-w.LeaseLost()
		require.Equal(t, told, time.Since(began))
		synctest.Wait()
		require.Equal(t, told, ended)
		require.ErrorIs(t, cause, worker.ErrLeaseLost)
		require.Empty(t, list(t, w))
		<-time.After(time.Hour)
	})
}

func TestW5_ALateAcknowledgementCountsFromWhenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := leased(t, until)
		<-time.After(4 * time.Second)
		late := w.Sending()
		<-time.After(3 * time.Second)
		w.Sending() // this request is never acknowledged
		<-time.After(3 * time.Second)
		late()
		<-w.LeaseLost()
		require.Equal(t, 4*time.Second+told, time.Since(began))
		late()
		require.True(t, fenced(w), "a late acknowledgement does not restore the lease")
	})
}

func TestW5_AcknowledgementsOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := leased(t, until)
		<-time.After(time.Second)
		first := w.Sending()
		<-time.After(time.Second)
		second := w.Sending()
		second()
		first()
		<-w.LeaseLost()
		require.Equal(t, 2*time.Second+told, time.Since(began))
	})
}

func TestW5_NothingIsAcceptedWithoutTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, stubborn(time.Second, new(int)), worker.WithLease(length, toStop))
		refused := func(want error) {
			t.Helper()
			errs := append(w.Apply(t.Context(), add("b")), w.Add(t.Context(), "a"), w.Remove(t.Context(), "a"),
				w.AddWith(t.Context(), "a", worker.Grant{Token: 1}), w.Update(t.Context(), "a", worker.Grant{Version: 1}))
			for _, err := range errs {
				require.ErrorIs(t, err, orchestrator.ErrRejected)
				if want != nil {
					require.ErrorIs(t, err, want)
				}
			}
		}
		refused(nil)
		acknowledged := w.Sending()
		refused(nil)
		acknowledged()
		require.NoError(t, w.Add(t.Context(), "a"))
		<-w.LeaseLost()
		require.Equal(t, []string{"a"}, list(t, w), "a takes a second to stop")
		refused(worker.ErrLeaseLost)
		<-time.After(time.Minute)
		refused(worker.ErrLeaseLost)
		require.Empty(t, list(t, w))
	})
}

func TestW5_TheLastResortIsCalledOnceWithRunningTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var calls [][]string
		var at time.Duration
		w := leased(t, func(ctx context.Context, task string) error {
			<-ctx.Done()
			if task != "quick" {
				<-time.After(time.Minute)
			}
			return nil
		}, worker.WithLastResort(func(tasks []string) {
			calls = append(calls, tasks)
			at = time.Since(began)
		}))
		require.Nil(t, w.Apply(t.Context(), add("slow", "quick", "slower")))
		<-time.After(30 * time.Second)
		synctest.Wait()
		require.Equal(t, [][]string{{"slow", "slower"}}, calls)
		require.Equal(t, resort, at)
		require.Equal(t, []string{"slow", "slower"}, list(t, w), "until they have stopped")

		require.ErrorContains(t, w.Rejoin(within(t, time.Second)), "2 tasks have not stopped")
		require.NoError(t, w.Rejoin(t.Context()))
		require.Equal(t, told+time.Minute, time.Since(began))
		require.Empty(t, list(t, w))

		// The last resort is called again after a second loss.
		w.Sending()()
		require.NoError(t, w.Add(t.Context(), "slow"))
		<-time.After(time.Minute)
		synctest.Wait()
		require.Len(t, calls, 2)
		require.NoError(t, w.Rejoin(t.Context()))
	})
}

func TestW5_EndLeaseStopsImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left []string
		var at time.Time
		causes := make(chan error, 2)
		w := leased(t, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			<-time.After(10 * time.Second)
			return nil
		}, worker.WithLastResort(func(tasks []string) { left, at = tasks, time.Now() }))
		require.NoError(t, w.Add(t.Context(), "a"))
		<-time.After(time.Second)
		began := time.Now()
		why := errors.New("the coordinator has forgotten us")
		w.EndLease(why)
		w.EndLease(errors.New("again"))
		require.True(t, fenced(w))
		cause := <-causes
		require.ErrorIs(t, cause, worker.ErrLeaseLost)
		require.ErrorIs(t, cause, why)
		require.NoError(t, w.Rejoin(t.Context()))
		require.Equal(t, 10*time.Second, time.Since(began))
		synctest.Wait()
		require.Equal(t, []string{"a"}, left)
		require.Equal(t, toStop, at.Sub(began), "tasks have their usual time to stop")
	})
}

// A transport that cannot join ends each lease before it was granted, perhaps several times a
// second. Only the loss of a granted lease is logged as a warning.
func TestW5_ALeaseThatWasNeverGrantedIsLostQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := newWorker(t, until, worker.WithLease(length, toStop), worker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		for range 3 {
			w.Sending() // is not acknowledged
			w.EndLease(errors.New("no answer"))
			require.NoError(t, w.Rejoin(t.Context()))
		}
		require.Empty(t, log.String())
		w.Sending()()
		w.EndLease(errors.New("no answer"))
		require.Equal(t, 1, strings.Count(log.String(), "lease lost"))
	})
}

// A task does not stop. The last resort is called when the lease leaves no more time,
// whatever is called in the meantime.
func TestW5_WhenTheLastResortIsCalled(t *testing.T) {
	for name, c := range map[string]struct {
		do func(t *testing.T, w *worker.Worker[string])
		at time.Duration
	}{
		"nothing is called": {func(*testing.T, *worker.Worker[string]) {}, resort},
		"the worker is closed": {func(t *testing.T, w *worker.Worker[string]) {
			require.NoError(t, w.Close(t.Context()))
		}, resort},
		"the lease is ended late": {func(t *testing.T, w *worker.Worker[string]) {
			<-time.After(told - time.Second)
			w.EndLease(nil)
			require.NoError(t, w.Rejoin(t.Context()))
		}, told - time.Second + toStop},
		"calls after the loss change nothing": {func(t *testing.T, w *worker.Worker[string]) {
			<-w.LeaseLost()
			synctest.Wait()
			w.EndLease(nil)
			require.ErrorIs(t, w.Rejoin(within(t, time.Second)), context.DeadlineExceeded)
			require.NoError(t, w.Close(t.Context()))
		}, resort},
		"a late acknowledgement delays it, and does not restore the lease": {func(t *testing.T, w *worker.Worker[string]) {
			<-time.After(2 * time.Second)
			late := w.Sending()
			began := time.Now()
			<-w.LeaseLost()
			require.Equal(t, told-2*time.Second, time.Since(began))
			late()
			require.True(t, fenced(w))
			require.NoError(t, w.Close(t.Context()))
		}, 2*time.Second + resort},
	} {
		t.Run(name, inBubble(func(t *testing.T) {
			began := time.Now()
			var at time.Duration
			w := leased(t, stubborn(time.Minute, new(int)), worker.WithLastResort(func([]string) { at = time.Since(began) }))
			require.NoError(t, w.Add(t.Context(), "a"))
			c.do(t, w)
			<-time.After(time.Minute)
			synctest.Wait()
			require.Equal(t, c.at, at)
		}))
	}
}

func TestW5_EndLeaseWhileAddsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := leased(t, stubborn(time.Second, new(int)), worker.WithReadiness(), worker.WithSlots(2))
		answers := make(chan error, 3)
		go func() { answers <- w.Add(t.Context(), "starting") }()
		synctest.Wait()
		go func() { _ = w.Add(t.Context(), "stopping") }()
		synctest.Wait()
		require.ErrorIs(t, w.Remove(within(t, time.Nanosecond), "stopping"), orchestrator.ErrStopping)
		go func() { answers <- w.Add(t.Context(), "stopping") }()
		require.NoError(t, w.Add(t.Context(), "queued"))
		synctest.Wait()
		require.Equal(t, "starting:starting stopping:stopping queued:queued ", states(w))

		w.EndLease(nil)
		require.ErrorIs(t, <-answers, orchestrator.ErrStopping, "the task was starting")
		require.Equal(t, "starting:stopping stopping:stopping ", states(w), "the queue is emptied immediately")
		require.ErrorIs(t, <-answers, orchestrator.ErrRejected, "the Add waited for the stop")
		require.NoError(t, w.Rejoin(t.Context()))
		require.Empty(t, list(t, w))
	})
}

// When the lease ends, calls already find it lost, even if the worker has not told
// its tasks to stop yet.
func TestW5_CallsAtTheEndOfTheLease(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			w := leased(t, func(ctx context.Context, _ string) error {
				if time.Since(began) >= told {
					t.Error("started")
				}
				<-ctx.Done()
				<-time.After(time.Second)
				return nil
			})
			require.NoError(t, w.Add(t.Context(), "a"))
			<-time.After(told - time.Second)
			require.NoError(t, w.Update(t.Context(), "a", worker.Grant{Version: 1}), "restarts the task after a second")
			<-time.After(time.Second)
			require.ErrorIs(t, w.Add(t.Context(), "b"), worker.ErrLeaseLost)
			require.NoError(t, w.Rejoin(t.Context()))
		})
	}
}

func TestW5_NothingStartsAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		w := leased(t, starts(&at, func(context.Context) error { return errors.New("no") }),
			worker.WithBackoff(time.Second, time.Second), worker.WithSlots(1))
		require.Nil(t, w.Apply(t.Context(), add("failing", "queued")))
		<-time.After(time.Hour)
		synctest.Wait()
		require.Less(t, slices.Max(at), told)
		require.Empty(t, list(t, w))
	})
}

func TestW5_ALeaseTooShortIsAnErrorOfNew(t *testing.T) {
	for name, c := range map[string]struct {
		d, stop time.Duration
		text    string
	}{
		"zero":       {0, 0, "WithLease(0s, 0s)"},
		"negative":   {time.Second, -1, "WithLease(1s, -1ns)"},
		"no time":    {time.Second, time.Second, "use a lease of at least 1.539s"},
		"barely not": {2*time.Second - 20, 1300 * time.Millisecond, "use a lease of at least 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := worker.New(until, worker.WithLease(c.d, c.stop))
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			require.ErrorContains(t, err, c.text)
		})
	}
	for _, c := range [][2]time.Duration{{2 * time.Second, 1300 * time.Millisecond}, {1539 * time.Millisecond, time.Second}, {1, 0}} {
		_, err := worker.New(until, worker.WithLease(c[0], c[1]))
		require.NoError(t, err)
	}
	_, err := worker.New(until, worker.WithLastResort(func([]string) {}))
	require.ErrorContains(t, err, "WithLastResort without WithLease")
	_, err = worker.New(until, worker.WithLease(length, toStop), worker.WithLastResort(func([]int) {}))
	require.ErrorContains(t, err, "func([]int)")
}

func TestW5_CheckReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contexts := make(chan context.Context, 1)
		w := leased(t, func(ctx context.Context, _ string) error {
			contexts <- ctx
			<-ctx.Done()
			<-time.After(time.Minute)
			return nil
		})
		require.NoError(t, w.Add(t.Context(), "a"))
		ctx := <-contexts
		unended := context.WithoutCancel(ctx)
		require.NoError(t, worker.Check(ctx))
		<-time.After(told - 1)
		require.NoError(t, worker.Check(ctx))
		<-time.After(1)
		synctest.Wait()
		require.ErrorIs(t, worker.Check(ctx), worker.ErrLeaseLost)
		require.NoError(t, worker.Check(unended), "a stopping task may still write")
		<-time.After(toStop - 1)
		require.NoError(t, worker.Check(unended))
		<-time.After(1)
		require.ErrorIs(t, worker.Check(unended), worker.ErrLeaseLost)
		require.NoError(t, w.Rejoin(t.Context()))
		w.Sending()()
		require.ErrorIs(t, worker.Check(unended), worker.ErrLeaseLost, "the next lease does not cover a task of the last")
	})
}

func TestW5_CheckAfterEndLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contexts := make(chan context.Context, 2)
		run := func(ctx context.Context, _ string) error {
			contexts <- ctx
			<-ctx.Done()
			<-time.After(time.Second)
			return nil
		}
		for _, w := range []*worker.Worker[string]{leased(t, run), newWorker(t, run)} {
			require.NoError(t, w.Add(t.Context(), "a"))
			ctx := <-contexts
			require.NoError(t, worker.Check(ctx))
			w.EndLease(errors.New("gone"))
			require.ErrorContains(t, worker.Check(ctx), "gone")
			require.ErrorIs(t, worker.Check(context.WithoutCancel(ctx)), worker.ErrLeaseLost)
		}
	})
}

func TestW5_CheckReturnsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contexts := make(chan context.Context, 1)
		w := leased(t, func(ctx context.Context, _ string) error {
			contexts <- ctx
			<-ctx.Done()
			return nil
		})
		require.NoError(t, w.Add(t.Context(), "a"))
		ctx := <-contexts
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.ErrorIs(t, worker.Check(ctx), worker.ErrRemoved)
		require.NoError(t, worker.Check(context.WithoutCancel(ctx)), "the lease holds")
		require.NoError(t, worker.Check(t.Context()), "not a task's context")
	})
}

// A lease lost between Stop and Close ends no run, because none is left.
func TestW5_TheLeaseIsLostAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := leased(t, completing, worker.WithCompletion(func(string) {}),
			worker.WithLastResort(func([]string) { t.Error("all tasks have stopped") }))
		require.Nil(t, w.Apply(t.Context(), add("short", "a")))
		synctest.Wait()
		require.NoError(t, w.Stop(t.Context()))
		require.Equal(t, "short:completed ", states(w))
		<-w.LeaseLost()
		require.Empty(t, list(t, w))
		require.NoError(t, w.Close(t.Context()))
		pass(time.Hour)
	})
}

func TestW5_TheFiguresOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		figures := func(w *worker.Worker[string]) worker.LeaseStats {
			s := w.LeaseStats()
			s.Left = s.Left.Round(time.Second) // the lease also reads a real clock, outside the bubble
			return s
		}
		without := newWorker(t, until)
		require.Zero(t, figures(without))

		w := newWorker(t, until, worker.WithLease(length, toStop))
		require.Zero(t, figures(w))
		acknowledged := w.Sending()
		require.Equal(t, worker.LeaseStats{Sent: 1}, figures(w))
		pass(2 * time.Second)
		acknowledged()
		acknowledged()
		require.Equal(t, worker.LeaseStats{Left: told - 2*time.Second, Sent: 1, Acknowledged: 1}, figures(w), "the lease counts from the sending")
		w.Sending() // this request is never acknowledged
		w.Sending()()
		require.Equal(t, worker.LeaseStats{Left: told, Sent: 3, Acknowledged: 2}, figures(w))

		pass(told)
		require.Equal(t, worker.LeaseStats{Sent: 3, Acknowledged: 2}, figures(w), "the lease is lost")
		require.NoError(t, w.Rejoin(t.Context()))
		require.Equal(t, worker.LeaseStats{Sent: 3, Acknowledged: 2, Rejoins: 1}, figures(w))
		w.Sending()()
		require.Equal(t, worker.LeaseStats{Left: told, Sent: 4, Acknowledged: 3, Rejoins: 1}, figures(w))
		w.EndLease(errors.New("gone"))
		require.Zero(t, figures(w).Left)
	})
}

package membership_test

// W6: Close.

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

func TestW6_CloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, &cluster{})
		require.ErrorIs(t, m.runner.Run(t.Context(), nil), orchestrator.ErrInvalid, "a second run")
		m.add("a", "b")
		closed := m.close(t.Context())
		after(10 * lease)
		require.Equal(t, []string{"join", "announce"}, m.noted())
		require.NoError(t, m.worker.Remove(t.Context(), "a"))
		after(time.Second)
		require.False(t, m.ended())
		require.NoError(t, m.worker.Remove(t.Context(), "b"))
		require.NoError(t, <-closed)
		require.True(t, m.ended())
		require.NoError(t, m.err)
		require.Equal(t, []string{"join", "announce", "stopped", "leave"}, m.noted())
		require.NoError(t, m.runner.Close(t.Context()), "again")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, m.runner.Close(ended), "again, with an ended context")
		require.Zero(t, m.said("drain cut short"))
	})
}

func TestW6_CloseWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, &cluster{})
		m.add("a")
		later := m.close(t.Context())
		began := time.Now()
		err := <-m.closeWithin(time.Minute)
		require.EqualError(t, err, "close member w: stopped before everything had moved: drain cut short: context deadline exceeded")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(began))
		require.Equal(t, err, <-later, "a Close with more time")
		require.Equal(t, err, m.runner.Close(t.Context()), "a later Close")
		require.True(t, m.ended())
		require.NoError(t, m.err)
	})
}

// A member that is not in a session has nothing to drain.
func TestW6_CloseBeforeItHasJoined(t *testing.T) {
	for name, c := range map[string]*cluster{
		"while it joins": {join: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }},
		"during a pause": {away: errAway},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := startMember(t, c)
				after(5 * time.Second)
				began := time.Now()
				require.NoError(t, m.runner.Close(t.Context()))
				require.Equal(t, began, time.Now())
				require.True(t, m.ended())
				require.NoError(t, m.err)
				require.NotContains(t, m.noted(), "announce")
			})
		})
	}
}

func TestW6_CloseOfOneThatHasNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, &cluster{}, nil)
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errOver)
		m.worker.Sending()()
		m.stop = time.Second
		m.add("a")
		err := m.runner.Close(ended)
		require.ErrorContains(t, err, "close member w: close worker")
		require.ErrorIs(t, err, errOver)
		require.NoError(t, m.runner.Close(t.Context()), "a retry")
		require.ErrorIs(t, m.runner.Run(t.Context(), nil), orchestrator.ErrInvalid)
	})
}

// A task that does not stop keeps the member. The log says so once, however often
// Close is called, and whatever else has ended by then.
func TestW6_CloseSaysWhatItStillWaitsFor(t *testing.T) {
	for name, earlier := range map[string]func(*member){
		"Close alone":         func(*member) {},
		"Run's context ended": func(m *member) { m.cancel(errOver) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				m := startMember(t, &cluster{}, worker.WithCompletion(func(string) {}), worker.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
				m.stop = time.Hour
				m.add("a", "b")
				earlier(m)
				m.closeWithin(time.Minute)
				m.closeWithin(time.Minute)
				after(59 * time.Second)
				require.Zero(t, m.said("drain cut short, stopping"))
				after(time.Second)
				require.False(t, m.ended())
				require.Equal(t, 1, m.said(`level=WARN msg="drain cut short, stopping remaining tasks" worker=w tasks=2 first=a`))
				after(2 * time.Hour)
				require.True(t, m.ended())
				require.Equal(t, 1, m.said("drain cut short, stopping"))
				require.NotContains(t, out.String(), "pins", "the member's own look is not a leader's List")
			})
		})
	}
}

// A slow end after all tasks have moved is not an error.
func TestW6_ASlowEndIsNotAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, &cluster{leave: func() { <-time.After(time.Hour) }})
		m.add("a")
		closed := m.closeWithin(time.Minute)
		after(59 * time.Second)
		require.NoError(t, m.worker.Remove(t.Context(), "a"))
		require.NoError(t, <-closed)
		require.Zero(t, m.said("level=WARN"), "nothing is left")
		require.True(t, m.ended())
		require.NoError(t, m.err)
	})
}

// What ends the member while it drains stops tasks that have not moved.
func TestW6_ItEndsWhileItDrains(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*member)
		want error
	}{
		"Run's context":  {func(m *member) { m.cancel(errOver) }, errOver},
		"the membership": {func(m *member) { m.lost <- errAway }, worker.ErrLeaseLost},
		"the lease":      {func(m *member) { m.set(func(c *cluster) { c.silent = true }) }, worker.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := startMember(t, &cluster{})
				m.add("a")
				closed := m.close(t.Context())
				c.end(m)
				err := <-closed
				require.ErrorContains(t, err, "close member w: stopped before everything had moved")
				require.ErrorIs(t, err, c.want)
				require.Equal(t, err, m.runner.Close(t.Context()), "again")
				require.True(t, m.ended())
			})
		})
	}
}

// Close reports tasks that had not moved even if Run has already returned.
func TestW6_CloseAfterRunsContextHasEnded(t *testing.T) {
	for _, tasks := range [][]string{nil, {"a", "b"}} {
		synctest.Test(t, func(t *testing.T) {
			m := startMember(t, &cluster{})
			m.add(tasks...)
			m.cancel(errOver)
			require.True(t, m.ended())
			err := m.runner.Close(t.Context())
			if len(tasks) == 0 {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "stopped before everything had moved")
			require.ErrorIs(t, err, errOver)
		})
	}
}

// A lease that was lost before Close does not count, because no task is left to move.
func TestW6_CloseAfterTheLeaseWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, &cluster{})
		m.add("a")
		m.set(func(c *cluster) { c.away = errAway })
		m.lost <- errAway
		after(time.Second)
		require.Contains(t, m.noted(), "leave")
		require.NoError(t, m.runner.Close(t.Context()))
		require.True(t, m.ended())
	})
}

// Completed tasks wait to be removed; they do not count as stopped.
func TestW6_CloseSaysNothingOfWhatHasCompleted(t *testing.T) {
	for name, tasks := range map[string][]string{"all": {"short"}, "not all": {"short", "long"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := startMember(t, &cluster{}, worker.WithCompletion(func(string) {}))
				m.add(tasks...)
				err := <-m.closeWithin(time.Minute)
				if len(tasks) == 1 {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
			})
		})
	}
}

// If no other worker can take its tasks, the member does not wait, and stopping them is
// no error.
func TestW6_TheLastWorkerLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, &cluster{alone: true})
		m.add("a", "b")
		began := time.Now()
		require.NoError(t, m.runner.Close(t.Context()))
		require.Equal(t, began, time.Now())
		require.True(t, m.ended())
		require.NoError(t, m.err)
		require.Empty(t, m.worker.Status())
		require.Equal(t, 1, m.said(`level=INFO msg="no other worker can take tasks, stopping the rest" worker=w tasks=2 first=a`))
	})
}

// The last worker waits only for the jobs that run.
func TestW8_TheLastWorkerFinishesTheJobsThatRun(t *testing.T) {
	for name, c := range map[string]struct {
		within, want time.Duration
		err          error
	}{
		"in time": {time.Hour, time.Minute, nil},
		"not":     {time.Second, time.Second, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				jobs := func(ctx context.Context, task string) error {
					if task == "goes on" {
						worker.Movable(ctx)
						<-ctx.Done()
						return nil
					}
					select {
					case <-time.After(time.Minute):
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				m := newMember(t, &cluster{alone: true}, jobs, worker.WithSlots(2), worker.WithCompletion(func(string) {})).start()
				m.add("goes on", "runs", "waits")
				began := time.Now()
				err := <-m.closeWithin(c.within)
				require.Equal(t, c.want, time.Since(began))
				require.ErrorIs(t, err, c.err)
			})
		})
	}
}

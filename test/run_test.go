package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// T14: when Run starts a term, and when it ends.

const settle = 200 * time.Millisecond

// diary takes note of terms, as a function for WithStats.
type diary struct {
	mu    sync.Mutex
	began time.Time
	terms []orchestrator.TermStats
}

func (d *diary) note(s orchestrator.TermStats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.terms = append(d.terms, s)
}

// starts returns when the terms began, counted from when the diary did.
func (d *diary) starts() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]time.Duration, len(d.terms))
	for i, s := range d.terms {
		all[i] = s.Start.Sub(d.began)
	}
	return all
}

// running starts Run, and returns the diary of its terms and what ends it.
func running(t *testing.T, workers int, every time.Duration, opts ...option) (f *fleet, d *diary, stop func(cause error) error) {
	t.Helper()
	d = &diary{began: time.Now()}
	f = newFleet(t, workers, append(opts, orchestrator.WithStats(d.note))...)
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { result <- f.Run(ctx, every) }()
	wait := sync.OnceValue(func() error { return <-result })
	stop = func(cause error) error {
		cancel(cause)
		return wait()
	}
	t.Cleanup(func() { _ = stop(nil) })
	return f, d, stop
}

func TestT14_AtOnceAndPerTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d, stop := running(t, 2, 10*time.Second)
		time.Sleep(35 * time.Second)
		require.ErrorIs(t, stop(errShutdown), errShutdown)
		require.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second}, d.starts())
	})
}

func TestT14_AfterAChange(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*fleet) error
		none   bool // changes nothing, and leads to no term
	}{
		{"AddTask", func(f *fleet) error { return f.AddTask("new") }, false},
		{"AddTask, redefined", func(f *fleet) error { return f.AddTask("t1", orchestrator.WithTaskInstances(2)) }, false},
		{"AddTask, again", func(f *fleet) error { return f.AddTask("t1") }, true},
		{"RemoveTask", func(f *fleet) error { f.RemoveTask("t1"); return nil }, false},
		{"RemoveTask, unknown", func(f *fleet) error { f.RemoveTask("nobody's"); return nil }, true},
		{"UpdateTasks", func(f *fleet) error { return f.UpdateTasks([]task{{Name: "t1"}}) }, false},
		{"UpdateTasks, the same", func(f *fleet) error { return f.UpdateTasks(f.ListExpectedTasks()) }, true},
		{"AddWorker", func(f *fleet) error { f.Start("w9"); return f.AddWorker("w9") }, false},
		{"AddWorker, again", func(f *fleet) error { return f.AddWorker("w1") }, true},
		{"RemoveWorker", func(f *fleet) error { f.RemoveWorker("w1"); return nil }, false},
		{"RemoveWorker, unknown", func(f *fleet) error { f.RemoveWorker("nobody"); return nil }, true},
		{"UpdateWorkers", func(f *fleet) error { return f.UpdateWorkers([]member{{Name: "w1"}}) }, false},
		{"UpdateWorkers, the same", func(f *fleet) error { return f.UpdateWorkers([]member{{Name: "w1"}, {Name: "w2"}}) }, true},
		{"DrainWorker", func(f *fleet) error { return f.DrainWorker("w1") }, false},
		{"UndrainWorker", func(f *fleet) error { return f.UndrainWorker("w1") }, true},
		{"a bad call", func(f *fleet) error {
			require.Error(f.t, f.AddTask("new", orchestrator.WithTaskInstances(0)))
			return nil
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, d, stop := running(t, 2, time.Hour)
				f.expect(4)
				time.Sleep(time.Minute)
				synctest.Wait()
				before := len(d.starts())

				require.NoError(t, test.change(f))
				time.Sleep(settle - 1)
				synctest.Wait()
				require.Len(t, d.starts(), before)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if test.none {
					require.Len(t, d.starts(), before)
				} else {
					require.Len(t, d.starts(), before+1)
					require.Equal(t, time.Minute+settle, d.starts()[before])
				}
				time.Sleep(time.Minute)
				require.Len(t, d.starts(), before+map[bool]int{false: 1}[test.none])
				_ = stop(nil)
			})
		})
	}
}

func TestT14_ChangesBeforeRunAreNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{began: time.Now()}
		f := newFleet(t, 2, orchestrator.WithStats(d.note))
		f.expect(4)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, f.Run(ctx, time.Hour), context.DeadlineExceeded)
		require.Equal(t, []time.Duration{0}, d.starts())
	})
}

func TestT14_OnceThingsHaveBeenQuiet(t *testing.T) {
	for _, test := range []struct {
		name    string
		opts    []option
		changes int           // one every
		every   time.Duration // so often, the first after a minute
		after   time.Duration // the first
	}{
		{"a change", nil, 1, 0, settle},
		{"a few, each within the settle time of the one before", nil, 10, settle - 1, 9*(settle-1) + settle},
		{"without end", nil, 100, settle / 2, 25 * settle},
		{"another settle time", []option{orchestrator.WithSettle(time.Second)}, 3, 900 * time.Millisecond, 2*900*time.Millisecond + time.Second},
		{"another settle time, without end", []option{orchestrator.WithSettle(time.Second)}, 100, 900 * time.Millisecond, 25 * time.Second},
		{"none", []option{orchestrator.WithSettle(0)}, 1, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, d, stop := running(t, 2, time.Hour, test.opts...)
				time.Sleep(time.Minute)
				for i := range test.changes {
					if i > 0 {
						time.Sleep(test.every)
					}
					require.NoError(t, f.AddTask(fmt.Sprint("t", i)))
				}
				time.Sleep(time.Minute)
				_ = stop(nil)
				require.Equal(t, time.Minute+test.after, d.starts()[1])
			})
		})
	}
}

// What keeps changing does not keep the ticker from its terms.
func TestT14_TickWhileThingsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d, stop := running(t, 2, time.Second)
		for i := range 100 {
			time.Sleep(settle / 2)
			require.NoError(t, f.AddTask(fmt.Sprint("t", i)))
		}
		_ = stop(nil)
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, d.starts()[:4])
	})
}

func TestT14_HundredJoiningMakeOneTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d, stop := running(t, 2, time.Hour)
		f.expect(204)
		time.Sleep(time.Minute)
		before := len(d.starts())
		for i := range 100 { // within a second and a half
			f.join(fmt.Sprint("j", i+1))
			time.Sleep(15 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		require.Len(t, d.starts(), before+1)
		for _, load := range f.loads() {
			require.Equal(t, 2, load)
		}
		_ = stop(nil)
	})
}

func TestT14_ChangeDuringATermLeadsToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d, stop := running(t, 2, time.Hour)
		f.expect(2)
		time.Sleep(time.Minute)
		f.Slow(5*time.Second, "w1")
		require.NoError(t, f.AddTask("a"))
		time.Sleep(settle + time.Second) // the term that this leads to is under way
		began := d.began.Add(time.Minute + settle)
		require.NoError(t, f.AddTask("b"))
		time.Sleep(time.Minute)
		_ = stop(nil)
		require.Len(t, f.Running("b"), 1)
		starts := d.starts()
		require.Equal(t, began, d.began.Add(starts[len(starts)-2]))
		first := d.terms[len(starts)-2]
		require.Equal(t, first.Start.Add(first.Total+settle), d.began.Add(starts[len(starts)-1]), "once it is over, and things are quiet")
	})
}

// Also one in its very last moment.
func TestT14_ChangeAtTheEndOfATermLeadsToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{began: time.Now()}
		var f *fleet
		f = newFleet(t, 1, orchestrator.WithStats(d.note), orchestrator.WithStats(func(orchestrator.TermStats) {
			require.NoError(t, f.AddTask("last moment"))
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, f.Run(ctx, time.Hour), context.DeadlineExceeded)
		require.Equal(t, []time.Duration{0, settle}, d.starts())
		require.Len(t, f.Running("last moment"), 1)
	})
}

func TestT14_TermsNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d, stop := running(t, 3, time.Second)
		f.expect(9)
		f.Slow(700*time.Millisecond, f.workers...)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 5 {
					_ = f.NextTerm(t.Context()) // the wire fails the test where two calls overlap
				}
			})
			wg.Go(func() {
				for range 5 {
					_, _ = f.Plan(orchestrator.Hypothesis[string, string]{})
				}
			})
		}
		wg.Wait()
		_ = stop(nil)
		for i := 1; i < len(d.terms); i++ {
			before := d.terms[i-1]
			require.False(t, d.terms[i].Start.Before(before.Start.Add(before.Total)))
			require.Equal(t, before.Term.Number+1, d.terms[i].Term.Number)
		}
		require.GreaterOrEqual(t, len(d.terms), 16)
	})
}

// A Plan does not wait for a term under way.
func TestT14_PlanDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.term()
		f.Slow(3*time.Second, "w1")
		done := make(chan error, 1)
		go func() { done <- f.NextTerm(t.Context()) }()
		synctest.Wait()
		require.Zero(t, took(func() {
			_, err := f.Plan(orchestrator.Hypothesis[string, string]{})
			require.NoError(t, err)
		}))
		require.NoError(t, <-done)
	})
}

func TestT14_SlowTermsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d, stop := running(t, 1, time.Second, orchestrator.WithStats(func(s orchestrator.TermStats) {
			if s.Term.Number <= 3 {
				time.Sleep(3500 * time.Millisecond)
			}
		}))
		time.Sleep(13500 * time.Millisecond)
		_ = stop(nil)
		require.Equal(t, []time.Duration{0, 3500 * time.Millisecond, 7 * time.Second, // each as soon as it can
			10500 * time.Millisecond, 11 * time.Second, 12 * time.Second, 13 * time.Second}, d.starts())
	})
}

func TestT14_FailuresDoNotEndIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logs
		f, d, stop := running(t, 2, time.Second, orchestrator.WithLogger(l.logger()))
		synctest.Wait()
		f.Cut("w1")
		time.Sleep(10*time.Second + 1)
		require.Len(t, d.starts(), 11)
		require.Len(t, l.lines("term had failures", "w1", "term 2"), 1)
		f.Cut("w2")
		time.Sleep(time.Second)
		require.Len(t, l.lines("term had failures", "w2", "term 12"), 1, "that is news")
		time.Sleep(time.Minute)
		require.Len(t, l.lines("term had failures"), 3, "what goes on is no news, but now and then it is told")
		require.Len(t, l.lines("term had failures", "w1", "w2", "term 72", `"omitted":59`), 1)
		f.Heal()
		time.Sleep(2 * time.Second)
		f.Cut("w1", "w2")
		time.Sleep(time.Second)
		require.Len(t, l.lines("term had failures"), 4, "it had ended meanwhile")
		require.ErrorIs(t, stop(errShutdown), errShutdown)
	})
}

// A leader whose Run begins before it has loaded its tasks, and before it knows
// the workers, stops nothing of what the leader before it had running.
func TestT14_BeforeTasksAreLoadedRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newFleet(t, 3)
		old.expect(9)
		old.term()
		old.forget()

		time.Sleep(time.Second)
		next, err := orchestrator.New(old.wire)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		result := make(chan error, 1)
		go func() { result <- next.Run(ctx, time.Second) }()
		time.Sleep(time.Minute)
		require.NoError(t, next.UpdateWorkers([]member{{Name: "w1"}, {Name: "w2"}, {Name: "w3"}}))
		time.Sleep(time.Minute)
		require.NoError(t, next.UpdateTasks(old.ListExpectedTasks()))
		require.ErrorIs(t, <-result, context.DeadlineExceeded)
		require.Empty(t, old.writes())
		require.Equal(t, []int{3, 3, 3}, old.loads())
	})
}

// A stop that a worker rejects is no warning the first time: a job may have begun to
// run since it was listed. One that lasts is.
func TestT14_ARejectedStopIsNoWarningAtFirst(t *testing.T) {
	rejected := fmt.Errorf("%w: it runs", orchestrator.ErrRejected)
	for name, c := range map[string]struct {
		op    orchestrator.Op
		err   error
		level string
	}{
		"stop rejected":  {orchestrator.OpRemove, rejected, "INFO"},
		"stop failed":    {orchestrator.OpRemove, errors.New("no"), "WARN"},
		"start rejected": {orchestrator.OpAdd, rejected, "WARN"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster, err := memory.New[string, string](nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, cluster.Close(context.WithoutCancel(t.Context()))) }()
				cluster.Start("w1")
				if c.op == orchestrator.OpRemove {
					require.NoError(t, cluster.Add(t.Context(), "w1", "surplus"))
				}
				cluster.Refuse(func(op orchestrator.Op, _, _ string) error {
					if op == c.op {
						return c.err
					}
					return nil
				})
				var log strings.Builder
				o, err := orchestrator.New(cluster, orchestrator.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				require.NoError(t, err)
				require.NoError(t, o.AddWorker("w1"))
				require.NoError(t, o.UpdateTasks(nil))
				if c.op == orchestrator.OpAdd {
					require.NoError(t, o.AddTask("a"))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				require.ErrorIs(t, o.Run(ctx, time.Minute), context.DeadlineExceeded)
				require.Contains(t, log.String(), "level="+c.level+` msg="term had failures"`)
			})
		})
	}
}

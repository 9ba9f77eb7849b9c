package test

// T14: when Run starts a term, and how Run ends.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

const settle = 200 * time.Millisecond

func TestT14_AtOnceAndPerTick(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		stop := f.start(10 * time.Second)
		time.Sleep(35 * time.Second)
		require.ErrorIs(t, stop(errShutdown), errShutdown)
		require.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second}, f.terms.starts())
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
			require.Error(f.t, f.AddTask("new", orchestrator.WithTaskInstances(-2)))
			return nil
		}, true},
	} {
		t.Run(test.name, bubble(given{workers: 2}, func(t *testing.T, f *fleet) {
			stop := f.start(time.Hour)
			f.expect(4)
			time.Sleep(time.Minute)
			synctest.Wait()
			before := len(f.terms.starts())

			require.NoError(t, test.change(f))
			time.Sleep(settle - 1)
			synctest.Wait()
			require.Len(t, f.terms.starts(), before)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if test.none {
				require.Len(t, f.terms.starts(), before)
			} else {
				require.Len(t, f.terms.starts(), before+1)
				require.Equal(t, time.Minute+settle, f.terms.starts()[before])
			}
			time.Sleep(time.Minute)
			require.Len(t, f.terms.starts(), before+map[bool]int{false: 1}[test.none])
			_ = stop(nil)
		}))
	}
}

func TestT14_ChangesBeforeRunAreNoChange(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 4}, func(t *testing.T, f *fleet) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, f.Run(ctx, time.Hour), context.DeadlineExceeded)
		require.Equal(t, []time.Duration{0}, f.terms.starts())
	})
}

func TestT14_OnceThingsHaveBeenQuiet(t *testing.T) {
	for _, test := range []struct {
		name    string
		opts    options
		changes int           // one every
		every   time.Duration // so often, the first after a minute
		after   time.Duration // the first
	}{
		{"a change", nil, 1, 0, settle},
		{"a few, each within the settle time of the one before", nil, 10, settle - 1, 9*(settle-1) + settle},
		{"without end", nil, 100, settle / 2, 25 * settle},
		{"another settle time", options{orchestrator.WithSettle(time.Second)}, 3, 900 * time.Millisecond, 2*900*time.Millisecond + time.Second},
		{"another settle time, without end", options{orchestrator.WithSettle(time.Second)}, 100, 900 * time.Millisecond, 25 * time.Second},
		{"none", options{orchestrator.WithSettle(0)}, 1, 0, 0},
	} {
		t.Run(test.name, bubble(given{workers: 2, opts: test.opts}, func(t *testing.T, f *fleet) {
			stop := f.start(time.Hour)
			time.Sleep(time.Minute)
			for i := range test.changes {
				if i > 0 {
					time.Sleep(test.every)
				}
				require.NoError(t, f.AddTask(fmt.Sprint("t", i)))
			}
			time.Sleep(time.Minute)
			_ = stop(nil)
			require.Equal(t, time.Minute+test.after, f.terms.starts()[1])
		}))
	}
}

// While expectations keep changing, Run still runs a term at each tick.
func TestT14_TickWhileThingsChange(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		stop := f.start(time.Second)
		for i := range 100 {
			time.Sleep(settle / 2)
			require.NoError(t, f.AddTask(fmt.Sprint("t", i)))
		}
		_ = stop(nil)
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, f.terms.starts()[:4])
	})
}

func TestT14_HundredJoiningMakeOneTerm(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		stop := f.start(time.Hour)
		f.expect(204)
		time.Sleep(time.Minute)
		before := len(f.terms.starts())
		for i := range 100 { // within a second and a half
			f.join(fmt.Sprint("j", i+1))
			time.Sleep(15 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		require.Len(t, f.terms.starts(), before+1)
		for _, load := range f.loads() {
			require.Equal(t, 2, load)
		}
		_ = stop(nil)
	})
}

func TestT14_ChangeDuringATermLeadsToAnother(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		stop := f.start(time.Hour)
		f.expect(2)
		time.Sleep(time.Minute)
		f.Slow(5*time.Second, "w1")
		require.NoError(t, f.AddTask("a"))
		time.Sleep(settle + time.Second) // the term that this leads to is under way
		began := f.terms.began.Add(time.Minute + settle)
		require.NoError(t, f.AddTask("b"))
		time.Sleep(time.Minute)
		_ = stop(nil)
		require.Len(t, f.Running("b"), 1)
		starts := f.terms.starts()
		require.Equal(t, began, f.terms.began.Add(starts[len(starts)-2]))
		first := f.terms.stats[len(starts)-2]
		require.Equal(t, first.Start.Add(first.Total+settle), f.terms.began.Add(starts[len(starts)-1]), "once it is over, and things are quiet")
	})
}

// This includes a change at the very end of a term.
func TestT14_ChangeAtTheEndOfATermLeadsToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fleet
		f = newFleet(t, given{workers: 1, opts: options{orchestrator.WithStats(func(orchestrator.TermStats) {
			require.NoError(t, f.AddTask("last moment"))
		})}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, f.Run(ctx, time.Hour), context.DeadlineExceeded)
		require.Equal(t, []time.Duration{0, settle}, f.terms.starts())
		require.Len(t, f.Running("last moment"), 1)
	})
}

func TestT14_TermsNeverOverlap(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		stop := f.start(time.Second)
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
		for i := 1; i < len(f.terms.stats); i++ {
			before := f.terms.stats[i-1]
			require.False(t, f.terms.stats[i].Start.Before(before.Start.Add(before.Total)))
			require.Equal(t, before.Term.Number+1, f.terms.stats[i].Term.Number)
		}
		require.GreaterOrEqual(t, len(f.terms.stats), 16)
	})
}

// A Plan does not wait for a term under way.
func TestT14_PlanDoesNotWait(t *testing.T) {
	inBubble(t, given{workers: 1}, func(t *testing.T, f *fleet) {
		f.term()
		f.Slow(3*time.Second, "w1")
		done := f.beginTerm()
		require.Zero(t, took(func() {
			_, err := f.Plan(orchestrator.Hypothesis[string, string]{})
			require.NoError(t, err)
		}))
		require.NoError(t, <-done)
	})
}

func TestT14_SlowTermsDoNotPileUp(t *testing.T) {
	inBubble(t, given{workers: 1, opts: options{orchestrator.WithStats(func(s orchestrator.TermStats) {
		if s.Term.Number <= 3 {
			time.Sleep(3500 * time.Millisecond)
		}
	})}}, func(t *testing.T, f *fleet) {
		stop := f.start(time.Second)
		time.Sleep(13500 * time.Millisecond)
		_ = stop(nil)
		require.Equal(t, []time.Duration{0, 3500 * time.Millisecond, 7 * time.Second, // each as soon as it can
			10500 * time.Millisecond, 11 * time.Second, 12 * time.Second, 13 * time.Second}, f.terms.starts())
	})
}

func TestT14_FailuresDoNotEndIt(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		stop := f.start(time.Second)
		synctest.Wait()
		f.Cut("w1")
		time.Sleep(10*time.Second + 1)
		require.Len(t, f.terms.starts(), 11)
		require.Len(t, f.log.lines("term had failures", "w1", "term 2"), 1)
		f.Cut("w2")
		time.Sleep(time.Second)
		require.Len(t, f.log.lines("term had failures", "w2", "term 12"), 1, "that is news")
		time.Sleep(time.Minute)
		require.Len(t, f.log.lines("term had failures"), 3, "what goes on is no news, but now and then it is told")
		require.Len(t, f.log.lines("term had failures", "w1", "w2", "term 72", `"omitted":59`), 1)
		f.Heal()
		time.Sleep(2 * time.Second)
		f.Cut("w1", "w2")
		time.Sleep(time.Second)
		require.Len(t, f.log.lines("term had failures"), 4, "it had ended meanwhile")
		require.ErrorIs(t, stop(errShutdown), errShutdown)
	})
}

// Run begins before the leader has loaded its tasks, and before it knows the workers. It
// stops no task that the previous leader started.
func TestT14_BeforeTasksAreLoadedRemovesNothing(t *testing.T) {
	inBubble(t, given{workers: 3, running: 9}, func(t *testing.T, old *fleet) {
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

// A stop that a worker rejects is logged at Info the first time, because a job may have
// begun to run since it was listed. If it lasts, it is logged at Warn.
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
			inBubble(t, given{workers: 1}, func(t *testing.T, f *fleet) {
				require.NoError(t, f.UpdateTasks(nil))
				if c.op == orchestrator.OpRemove {
					f.run("w1", "surplus")
				} else {
					f.expect(1)
				}
				f.refuse(c.op, "", "", c.err)
				stop := f.start(time.Minute)
				time.Sleep(500 * time.Millisecond)
				require.ErrorIs(t, stop(errShutdown), errShutdown)
				require.Len(t, f.log.lines(`"level":"`+c.level+`"`, `"msg":"term had failures"`), 1)
			})
		})
	}
}

func TestT14_ReturnsTheCause(t *testing.T) {
	for _, cause := range []error{errShutdown, orchestrator.ErrDeposed, context.Canceled} {
		for name, at := range map[string]time.Duration{"between terms": 30 * time.Second, "during a term": 61 * time.Second} {
			t.Run(fmt.Sprint(cause, " ", name), bubble(given{workers: 2}, func(t *testing.T, f *fleet) {
				stop := f.start(time.Minute)
				time.Sleep(time.Second)
				f.Slow(2*time.Second, f.workers...)
				time.Sleep(at - time.Second)
				var err error
				require.Zero(t, took(func() { err = stop(cause) }))
				require.Equal(t, cause, err)
			}))
		}
	}
}

func TestT14_EndsWhenAWorkerSaysDeposed(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 2}, func(t *testing.T, f *fleet) {
		f.intercept(on(orchestrator.OpAdd, "", "", fails(fmt.Errorf("epoch 9: %w", orchestrator.ErrDeposed))))
		require.ErrorIs(t, f.Run(t.Context(), time.Minute), orchestrator.ErrDeposed)
	})
}

// The first term of a new leader deposes the old one, through the workers alone.
func TestT14_OldLeaderIsDeposedByTheNewOne(t *testing.T) {
	inBubble(t, given{workers: 3, running: 6}, func(t *testing.T, old *fleet) {
		f := old.successor()
		f.term()
		require.NoError(t, old.AddTask("written by the old leader"))
		require.ErrorIs(t, old.Run(t.Context(), time.Second), orchestrator.ErrDeposed)
		require.Empty(t, f.Running("written by the old leader"))
	})
}

func TestT14_ReturnsAfterEveryGoroutineThatCanEnd(t *testing.T) {
	for _, test := range []struct {
		name   string
		call   func(ctx context.Context, over chan struct{}) error
		within time.Duration // after the stop
		left   int           // goroutines that cannot end
	}{
		{"calls that end with their context", func(ctx context.Context, _ chan struct{}) error { return hang(ctx) }, 0, 0},
		{"calls that take a moment to end", func(ctx context.Context, _ chan struct{}) error { return dawdle(ctx) }, time.Second, 0},
		{"calls that never end", func(_ context.Context, over chan struct{}) error { <-over; return nil }, timeout, 1},
	} {
		t.Run(test.name, bubble(given{workers: 3}, func(t *testing.T, f *fleet) {
			stop := f.start(15 * time.Second)
			time.Sleep(time.Second)
			before := goroutines()
			over := make(chan struct{})
			f.intercept(func(ctx context.Context, c call) error {
				if c.Worker == "w3" {
					return test.call(ctx, over)
				}
				return nil
			})
			time.Sleep(15 * time.Second) // the term that begins at 15 s waits for w3
			d := took(func() { require.Equal(t, errShutdown, stop(errShutdown)) })
			require.LessOrEqual(t, d, test.within)
			require.Equal(t, before-1+test.left, goroutines(), "without Run's own")
			close(over)
		}))
	}
}

// Run also ends a List for which no term waits any more.
func TestT14_EndsWhatLingers(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		stop := f.start(15 * time.Second)
		time.Sleep(time.Second)
		before := goroutines()
		f.Hang("w3")
		time.Sleep(31 * time.Second) // the term at 30 s does not wait for it
		require.Equal(t, before+1, goroutines())
		require.Zero(t, took(func() { require.Equal(t, errShutdown, stop(errShutdown)) }))
		require.Equal(t, before-1, goroutines())
	})
}

// When Run ends, it does not affect a NextTerm or Plan of another goroutine, and does not
// wait for those that begin after it.
func TestT14_RunEndsBesideANextTerm(t *testing.T) {
	for name, neighbour := range map[string]func(*fleet) error{
		"a term": func(f *fleet) error { return f.NextTerm(f.t.Context()) },
		"a plan": func(f *fleet) error { _, err := f.Plan(orchestrator.Hypothesis[string, string]{}); return err },
		"terms without end": func(f *fleet) error {
			for range 20 {
				if err := f.NextTerm(f.t.Context()); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, bubble(given{workers: 2, opts: options{orchestrator.WithGracePeriod(0)}}, func(t *testing.T, f *fleet) {
			stop := f.start(time.Hour)
			f.expect(10)
			time.Sleep(time.Second)
			f.forget()
			f.Slow(2*time.Second, f.workers...)
			result := make(chan error, 1)
			go func() { result <- neighbour(f) }()
			time.Sleep(time.Second)
			var err error
			require.LessOrEqual(t, took(func() { err = stop(errShutdown) }), time.Second)
			require.Equal(t, errShutdown, err)
			require.NoError(t, <-result, "nobody was silent")
			require.Empty(t, f.writes())
			f.requireNeverTwice()
		}))
	}
}

// Run also ends the writes of a leader that is deposed during them.
func TestT14_EndsTheWritesOfADeposedLeader(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 2}, func(t *testing.T, f *fleet) {
		before := goroutines()
		f.intercept(func(ctx context.Context, c call) error {
			switch {
			case c.Op != orchestrator.OpAdd:
				return nil
			case c.Worker == "w2":
				time.Sleep(time.Second)
				return orchestrator.ErrDeposed
			}
			return dawdle(ctx)
		})
		require.Equal(t, 2*time.Second, took(func() {
			require.ErrorIs(t, f.Run(t.Context(), time.Minute), orchestrator.ErrDeposed)
		}))
		require.Equal(t, before, goroutines())
	})
}

func TestT14_BadInterval(t *testing.T) {
	inBubble(t, given{workers: 1}, func(t *testing.T, f *fleet) {
		for _, every := range []time.Duration{0, -time.Second} {
			err := f.Run(t.Context(), every)
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			require.ErrorContains(t, err, every.String())
		}
		require.Empty(t, f.lists())
	})
}

// A task that every worker refuses is logged once a minute, on whichever worker it fails. What fails
// beside it is news.
func TestT14_APoisonTaskIsLoggedOnceAMinute(t *testing.T) {
	inBubble(t, given{workers: 9, running: 300}, func(t *testing.T, f *fleet) {
		stop := f.start(time.Second)
		time.Sleep(5 * time.Second)
		shown := func() int { return len(f.log.lines(`"level":"INFO"`)) + len(f.log.lines(`"level":"WARN"`)) }
		before := shown()
		f.refusePoison()
		f.addPoison()
		time.Sleep(2 * time.Minute)
		require.Len(t, f.log.lines("term had failures", `"epoch":`, `"term":`, "poison"), 2)
		require.LessOrEqual(t, shown()-before, 8)
		f.Cut("w1")
		time.Sleep(2 * time.Second)
		require.Len(t, f.log.lines("term had failures"), 3, "that is news")
		_ = stop(nil)
	})
}

package test

// T4 and T5: when a worker is declared lost, what then starts, and when a mass loss
// prevents it.

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

func TestT4_LostAfterTheGracePeriod(t *testing.T) {
	for _, test := range []struct {
		name  string
		grace time.Duration
		opts  options
	}{
		{"by default after three timeouts", grace, nil},
		{"of which the length can be set", 6 * time.Second, options{orchestrator.WithCommunicatorTimeout(2 * time.Second)}},
		{"or the period itself", time.Minute, options{orchestrator.WithGracePeriod(time.Minute)}},
	} {
		t.Run(test.name, bubble(given{workers: 3, running: 6, opts: test.opts}, func(t *testing.T, f *fleet) {
			answered := time.Now()
			onW1 := f.RunsOn("w1")
			f.Cut("w1")

			f.forget()
			time.Sleep(test.grace - 1)
			f.silentTerm("w1")
			require.Equal(t, orchestrator.Silent, f.state("w1").State)
			require.Empty(t, f.writes())

			time.Sleep(time.Nanosecond)
			f.silentTerm("w1")
			s := f.state("w1")
			require.Equal(t, orchestrator.Lost, s.State)
			require.Equal(t, answered, s.LastAnswer)
			require.Empty(t, s.Tasks, "it runs nothing any more")
			require.ElementsMatch(t, onW1, s.LastTasks)
			for _, name := range onW1 {
				require.Len(t, f.Running(name), 2, "on w1, where nobody sees it, and elsewhere")
				require.Equal(t, orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonLost}, f.changesOf(name)[0].Kind)
			}
			require.Len(t, f.writes(), 2)
			require.Equal(t, 1, f.LastPlan().Stats.Workers.Lost)
			f.forget()
			f.silentTerm("w1")
			require.Empty(t, f.writes())
			require.ElementsMatch(t, onW1, f.state("w1").LastTasks)
		}))
	}
}

func TestT4_GraceOfAWorkerThatNeverAnsweredCountsFromTheFirstTerm(t *testing.T) {
	inBubble(t, given{workers: 3, expected: 3}, func(t *testing.T, f *fleet) {
		time.Sleep(time.Hour)
		f.Cut("w1")
		f.silentTerm("w1")
		time.Sleep(grace - 1)
		f.silentTerm("w1")
		require.Empty(t, f.writes())
		time.Sleep(time.Nanosecond)
		f.silentTerm("w1")
		require.Equal(t, orchestrator.Lost, f.state("w1").State)
		require.Len(t, f.writes(), 3)
	})
}

// A lost worker answers again. Tasks that others run by now stop on one side, and nothing
// runs twice for long.
func TestT4_LostWorkerReturns(t *testing.T) {
	for name, returns := range map[string]func(f *fleet, w string){
		"with what it had": func(*fleet, string) {},
		"empty":            func(f *fleet, w string) { f.Start(w) },
	} {
		t.Run(name, bubble(given{workers: 3, running: 2}, func(t *testing.T, f *fleet) {
			f.term() // in which it lists what it will list again
			lost := f.Running("t1")[0]
			f.Cut(lost)
			time.Sleep(grace)
			f.silentTerm(lost)
			require.Equal(t, orchestrator.Lost, f.state(lost).State)
			require.Len(t, f.Running("t1"), 2)

			f.Heal()
			returns(f, lost)
			_ = f.NextTerm(t.Context())
			synctest.Wait()
			f.term()
			require.Equal(t, orchestrator.Answering, f.state(lost).State)
			f.requireSettled()
			require.ElementsMatch(t, f.RunsOn(lost), f.state(lost).Tasks)
		}))
	}
}

// The grace period counts from a late answer too, even if that arrived after the deadline
// of its call.
func TestT4_LateOnceIsNotLost(t *testing.T) {
	inBubble(t, given{workers: 3, running: 9}, func(t *testing.T, f *fleet) {
		f.Stick("w1")
		f.term()
		time.Sleep(timeout)
		f.Heal()
		synctest.Wait() // w1 answers
		answered := time.Now()

		time.Sleep(grace - 1)
		f.term()
		require.Equal(t, answered, f.state("w1").LastAnswer)
		f.Cut("w1")
		f.anyTerm() // which does not wait for it
		synctest.Wait()
		f.silentTerm("w1")
		require.Equal(t, orchestrator.Silent, f.state("w1").State)
		time.Sleep(time.Nanosecond)
		f.silentTerm("w1")
		require.Equal(t, orchestrator.Lost, f.state("w1").State)
	})
}

func TestT4_HoldUntilRemoved(t *testing.T) {
	inBubble(t, given{workers: 3, running: 6, opts: options{hold}}, func(t *testing.T, f *fleet) {
		onW1 := f.RunsOn("w1")
		f.Cut("w1")
		for range 10 {
			time.Sleep(365 * 24 * time.Hour)
			f.silentTerm("w1")
		}
		require.Empty(t, f.writes())
		require.Equal(t, orchestrator.Silent, f.state("w1").State)
		for _, w := range f.waitingFor(orchestrator.ReasonHeld) {
			require.Equal(t, "w1", w.Worker)
			require.Contains(t, onW1, w.Task)
		}
		require.Len(t, f.waitingFor(orchestrator.ReasonHeld), 2)

		f.Kill("w1")
		f.RemoveWorker("w1")
		f.term()
		f.requireSettled()
	})
}

func TestT4_GraceZeroLosesAtOnce(t *testing.T) {
	inBubble(t, given{workers: 4, running: 12, opts: options{orchestrator.WithGracePeriod(0)}}, func(t *testing.T, f *fleet) {
		f.Cut("w1", "w2", "w3") // no mass loss either
		f.silentTerm("w1", "w2", "w3")
		stats := f.LastPlan().Stats
		require.Equal(t, 3, stats.Workers.Lost)
		require.False(t, stats.MassLoss)
		require.Equal(t, 12, f.loads()[3])

		g := f.successor(orchestrator.WithGracePeriod(0)) // nor is anybody waited for that was never heard
		require.NoError(t, g.AddTask("new"))
		g.silentTerm("w1", "w2", "w3")
		require.Equal(t, []string{"w4"}, g.Running("new"))
	})
}

// As many workers begin to hang as there are slots for calls. No call reaches the others
// for a while, but they do not become silent.
func TestT4_AWorkerThatWasNotAskedIsNotLost(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second} {
		t.Run(every.String(), bubble(given{workers: 40, running: 80, opts: options{orchestrator.WithConcurrency(4)}}, func(t *testing.T, f *fleet) {
			f.Hang("w1", "w2", "w3", "w4")
			for range 40 {
				time.Sleep(every)
				_ = f.NextTerm(t.Context())
				synctest.Wait()
				for _, w := range f.LastActual()[4:] {
					require.NotEqual(t, orchestrator.Lost, w.State, w.Name)
				}
			}
		}))
	}
}

// A call that the leader cancels at the end of Run does not count as a failure of its
// worker.
func TestT4_ACancelledCallLosesNoWorker(t *testing.T) {
	inBubble(t, given{workers: 4, running: 8}, func(t *testing.T, f *fleet) {
		runFor := func(d, list time.Duration) {
			f.intercept(on(orchestrator.OpList, "w4", "", func(ctx context.Context) error { return pass(ctx, list) }))
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			require.ErrorIs(t, f.Run(ctx, time.Second), context.DeadlineExceeded)
		}
		runFor(1500*time.Millisecond, 5*time.Second)
		time.Sleep(time.Minute)
		runFor(500*time.Millisecond, 5*time.Millisecond)
		require.NotEqual(t, orchestrator.Lost, f.state("w4").State)
		f.requireNeverTwice()
	})
}

// One call fails, and then no term runs for longer than the grace period. In the next
// term the worker answers a moment after the others, and is not lost.
func TestT4_AFailureBeforeALongGapLosesNoWorker(t *testing.T) {
	for name, c := range map[string]struct{ gap, late time.Duration }{
		"a little longer than the grace period": {grace - time.Second, 50 * time.Millisecond},
		"an hour":                               {time.Hour, 50 * time.Millisecond},
		"an hour, and a slow answer":            {time.Hour, timeout / 2},
	} {
		t.Run(name, bubble(given{workers: 4, running: 8}, func(t *testing.T, f *fleet) {
			time.Sleep(time.Second)
			f.Cut("w4")
			f.anyTerm()
			f.Heal()
			time.Sleep(c.gap)
			f.Slow(c.late, "w4")
			for range 10 {
				f.anyTerm()
				require.NotEqual(t, orchestrator.Lost, f.state("w4").State)
				time.Sleep(time.Second)
			}
			require.Equal(t, orchestrator.Answering, f.state("w4").State)
			f.requireNeverTwice()
		}))
	}
}

// The ticker is slow and the grace period is the default, so a worker that misses one
// List keeps its tasks.
func TestT4_OneMissedListUnderASlowTickerLosesNoWorker(t *testing.T) {
	for name, fault := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errUnreachable },
		"hangs": hang,
	} {
		for _, every := range []time.Duration{30 * time.Second, time.Minute, 10 * time.Minute} {
			t.Run(fmt.Sprint(name, ", ", every), bubble(given{workers: 4, expected: 20}, func(t *testing.T, f *fleet) {
				f.start(every)
				time.Sleep(every / 2)
				f.intercept(on(orchestrator.OpList, "w2", "", fault))
				time.Sleep(every)
				f.intercept(nil)
				lost := f.losses()
				time.Sleep(3 * every)
				doubled := 0
				for _, task := range f.ListExpectedTasks() {
					if f.Counts(task.Name).Starts > 1 {
						doubled++
					}
				}
				t.Logf("%d workers lost, %d tasks started twice", lost, doubled)
				require.Zero(t, lost)
				require.Zero(t, doubled)
			}))
		}
	}
}

// Three missed Lists in a row still lose a worker.
func TestT4_TheDefaultGraceUnderASlowTickerEnds(t *testing.T) {
	inBubble(t, given{workers: 4, expected: 20}, func(t *testing.T, f *fleet) {
		f.start(time.Minute)
		time.Sleep(30 * time.Second)
		f.Kill("w2")
		time.Sleep(5 * time.Minute)
		require.Equal(t, 1, f.losses())
		require.Zero(t, f.missing())
	})
}

// An explicit grace period shorter than two ticks is a mistake that Run logs.
func TestT4_AGraceShorterThanTwoTicksIsLogged(t *testing.T) {
	for _, test := range []struct {
		name  string
		opts  options
		warns bool
	}{
		{"default", nil, false},
		{"shorter than a tick", options{orchestrator.WithGracePeriod(30 * time.Second)}, true},
		{"shorter than two ticks", options{orchestrator.WithGracePeriod(2*time.Minute - 1)}, true},
		{"two ticks", options{orchestrator.WithGracePeriod(2 * time.Minute)}, false},
		{"for ever", options{hold}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, given{workers: 2, opts: test.opts}, func(t *testing.T, f *fleet) {
				f.start(time.Minute)
				time.Sleep(10 * time.Minute)
				found := f.log.lines(`"level":"WARN"`)
				if test.warns {
					require.Len(t, found, 1, "once, and not in each term")
				} else {
					require.Empty(t, found)
				}
			})
		})
	}
}

func TestT5_MassLoss(t *testing.T) {
	maxLoss := orchestrator.WithMaxLoss
	for _, test := range []struct {
		name            string
		workers, silent int
		opts            options
		lost            bool // after the grace period
	}{
		{"two of three", 3, 2, nil, false},
		{"one of three", 3, 1, nil, true},
		{"all of three", 3, 3, nil, false},
		{"two of four are not more than half", 4, 2, nil, true},
		{"three of four", 4, 3, nil, false},
		{"of two workers, one", 2, 1, nil, true},
		{"of two workers, both", 2, 2, nil, true},
		{"the only one", 1, 1, nil, true},
		{"a quarter is allowed, a quarter is silent", 4, 1, options{maxLoss(0.25)}, true},
		{"a quarter is allowed, half is silent", 4, 2, options{maxLoss(0.25)}, false},
		{"none is allowed", 3, 1, options{maxLoss(0)}, false},
		{"one turns it off", 3, 3, options{maxLoss(1)}, true},
		{"a third of three, in binary fractions", 3, 1, options{maxLoss(1.0 / 3)}, true},
	} {
		t.Run(test.name, bubble(given{workers: test.workers, opts: test.opts}, func(t *testing.T, f *fleet) {
			f.expect(2 * test.workers)
			f.term()
			silent := f.workers[:test.silent]
			f.Cut(silent...)
			f.silentTerm(silent...)
			require.Equal(t, !test.lost, f.LastPlan().Stats.MassLoss)
			f.forget()
			time.Sleep(grace)
			f.silentTerm(silent...)
			stats := f.LastPlan().Stats
			require.Equal(t, !test.lost, stats.MassLoss)
			if test.lost {
				require.Equal(t, test.silent, stats.Workers.Lost)
			} else {
				require.Equal(t, test.silent, stats.Workers.Silent)
				require.Empty(t, f.writes())
			}
		}))
	}
}

func TestT5_ForFiveMinutesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 5 * time.Minute
		f := newFleet(t, given{workers: 4, running: 8})
		f.Cut("w1", "w2", "w3")
		time.Sleep(grace) // it begins when a term sees it
		f.silentTerm("w1", "w2", "w3")
		f.forget()
		time.Sleep(most - 1)
		f.silentTerm("w1", "w2", "w3")
		require.True(t, f.LastPlan().Stats.MassLoss)
		require.Empty(t, f.writes())
		time.Sleep(time.Nanosecond)
		f.silentTerm("w1", "w2", "w3")
		require.False(t, f.LastPlan().Stats.MassLoss)
		require.Equal(t, 3, f.LastPlan().Stats.Workers.Lost)
		require.Equal(t, 8, f.loads()[3])
	})
}

func TestT5_EachHasItsOwnFiveMinutes(t *testing.T) {
	inBubble(t, given{workers: 4, running: 8}, func(t *testing.T, f *fleet) {
		for range 3 {
			f.Cut("w1", "w2", "w3")
			f.silentTerm("w1", "w2", "w3")
			time.Sleep(4 * time.Minute)
			f.silentTerm("w1", "w2", "w3")
			require.True(t, f.LastPlan().Stats.MassLoss)
			f.heal()
			time.Sleep(timeout) // it ends once everybody had time to answer
			f.term()
			require.False(t, f.LastPlan().Stats.MassLoss)
		}
		for _, name := range names("t", 8) {
			require.Equal(t, 1, f.Counts(name).Starts)
		}
	})
}

// When the network returns, a term that does not wait for the silent workers hears some
// of them and continues. The others are about to answer, and are not lost.
func TestT5_NoWorkerIsLostAsTheNetworkReturns(t *testing.T) {
	for _, every := range []time.Duration{time.Second, time.Minute} {
		t.Run(every.String(), bubble(given{workers: 4, running: 8}, func(t *testing.T, f *fleet) {
			f.Cut("w1", "w2", "w3")
			f.silentTerm("w1", "w2", "w3")
			time.Sleep(2 * grace)
			f.silentTerm("w1", "w2", "w3")

			time.Sleep(every)
			f.Heal()
			f.Slow(time.Microsecond, "w4")
			f.Slow(time.Millisecond, "w2", "w3")
			f.forget()
			f.silentTerm("w2", "w3")
			require.Empty(t, f.writes())
			time.Sleep(every)
			f.term()
			require.Empty(t, f.writes())
			require.Equal(t, 4, f.LastPlan().Stats.Workers.Answering)
		}))
	}
}

// Workers that were lost before do not count; only the others decide.
func TestT5_CountsWorkersNotYetLost(t *testing.T) {
	inBubble(t, given{workers: 7}, func(t *testing.T, f *fleet) {
		f.term()
		f.Cut("w1", "w2", "w3")
		time.Sleep(grace)
		f.silentTerm("w1", "w2", "w3")
		require.Equal(t, 3, f.LastPlan().Stats.Workers.Lost)

		f.Cut("w4", "w5", "w6")
		f.silentTerm("w1", "w2", "w3", "w4", "w5", "w6")
		require.True(t, f.LastPlan().Stats.MassLoss, "three of four, and not of seven")
		f.Heal("w6")
		for range 2 {
			_ = f.NextTerm(t.Context())
			time.Sleep(grace)
		}
		f.silentTerm("w1", "w2", "w3", "w4", "w5")
		require.False(t, f.LastPlan().Stats.MassLoss, "two of four")
		require.Equal(t, 5, f.LastPlan().Stats.Workers.Lost)
		f.Cut("w6", "w7")
		time.Sleep(grace)
		f.silentTerm(f.workers...)
		require.False(t, f.LastPlan().Stats.MassLoss, "only two are left")
	})
}

func TestT5_IsLogged(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		f.term()
		require.Empty(t, f.log.lines(`"level":"ERROR"`))
		f.Cut("w1", "w2")
		for range 3 {
			f.silentTerm("w1", "w2")
			require.Contains(t, f.LastPlan().String(), "too many workers silent at once")
		}
		require.Len(t, f.log.lines(`"level":"ERROR"`, `"silent":2`, `"answering":1`), 1, "it is no news")
		time.Sleep(time.Minute)
		f.silentTerm("w1", "w2")
		require.Len(t, f.log.lines(`"level":"ERROR"`, `"omitted":2`), 1)
		require.Empty(t, f.log.lines("no longer"))
		f.Heal()
		for range 2 {
			_ = f.NextTerm(t.Context()) // which need not wait for the answers
			synctest.Wait()
		}
		f.term()
		require.Len(t, f.log.lines("most workers answer again", `"level":"INFO"`), 1)
		f.Cut("w1", "w2")
		f.silentTerm("w1", "w2")
		require.Len(t, f.log.lines(`"level":"ERROR"`), 3, "that is news again")
	})
}

// With HoldUntilRemoved no worker is lost, so the log of a mass loss does not say that it
// protects any.
func TestT5_LoggedWhereNoWorkerIsLost(t *testing.T) {
	inBubble(t, given{workers: 3, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.term()
		f.Cut("w1", "w2")
		f.silentTerm("w1", "w2")
		require.True(t, f.LastPlan().Stats.MassLoss)
		require.Len(t, f.log.lines(`"level":"WARN"`, "this leader may be cut off", `"silent":2`), 1)
		require.Empty(t, f.log.lines("declared lost"))
	})
}

package test

// T3 and T9: starts that hang or take long, on one worker, of one task or everywhere.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// A worker that hangs on Add costs one timeout for each trial.
func TestT9_AWorkerThatHangsMakesFewTermsLong(t *testing.T) {
	onBothWires(t, given{workers: 4}, func(t *testing.T, f *fleet) {
		f.HoldWrites("w3")
		f.expect(40)
		var long int
		for range 40 {
			took, _ := f.timedTerm()
			if took > 0 {
				require.LessOrEqual(t, took, timeout)
				long++
			}
		}
		require.LessOrEqual(t, long, 2+5, "until it is quarantined, and the trials")
		f.requireNeverTwice()
	})
}

// Starts hang, or take long, on one of ten workers, and 1,000 new tasks arrive.
func TestT9_AWorkerWhoseStartsHangKeepsNoShare(t *testing.T) {
	for _, test := range []struct {
		name    string
		runs    int // tasks that run before
		fault   func(ctx context.Context, release <-chan struct{}) error
		limit   time.Duration
		silent  bool // the worker does not answer either, so it is lost after the grace period
		applier bool
	}{
		{"runs nothing", 0, hangs, 45 * time.Second, false, false},
		{"runs 100 tasks", 1000, hangs, 45 * time.Second, false, false},
		{"runs 100 tasks, batches", 1000, hangs, 45 * time.Second, false, true},
		{"runs nothing, ignores the context", 0, ignores, 45 * time.Second, true, false},
		{"runs 100 tasks, ignores the context", 1000, ignores, 45 * time.Second, true, false},
		{"runs nothing, 6 s for each start", 0, takesLong, time.Minute, false, false},
		{"runs 100 tasks, 6 s for each start", 1000, takesLong, time.Minute, false, false},
	} {
		t.Run(test.name, bubble(given{workers: 10, applier: test.applier}, func(t *testing.T, f *fleet) {
			release := make(chan struct{})
			t.Cleanup(func() { close(release) })
			f.expect(test.runs)
			require.NoError(t, f.NextTerm(t.Context()))
			f.intercept(on(orchestrator.OpAdd, "w10", "", func(ctx context.Context) error { return test.fault(ctx, release) }))
			f.start(tick)
			time.Sleep(tick / 2)
			f.addAtOnce(names("new", 1000))
			began := time.Now()
			for len(f.firstStarts()) < test.runs+1000 && time.Since(began) < time.Hour {
				time.Sleep(tick)
			}
			t.Logf("every task has started after %v", time.Since(began))
			require.LessOrEqual(t, time.Since(began), test.limit)
			if !test.silent {
				f.requireNeverTwice()
			}
		}))
	}
}

// addAtOnce adds tasks in one step.
func (f *fleet) addAtOnce(tasks []string) {
	f.t.Helper()
	all := f.ListExpectedTasks()
	for _, name := range tasks {
		all = append(all, task{Name: name})
	}
	require.NoError(f.t, f.UpdateTasks(all))
}

// The faults of starts, which last. Only ignores uses release, which the test closes at
// its end.

func hangs(ctx context.Context, _ <-chan struct{}) error { return hang(ctx) }

func ignores(_ context.Context, release <-chan struct{}) error {
	<-release
	return errBoom
}

func takesLong(ctx context.Context, _ <-chan struct{}) error { return pass(ctx, 6*time.Second) }

// Every worker takes six seconds for each start, so no worker's share is limited. Two
// starts of a worker begin within the ten seconds of a term: 1,000 tasks on ten workers
// need 50 terms of 12 seconds.
func TestT9_AFleetThatIsSlowAlikeIsNotSlowedDown(t *testing.T) {
	inBubble(t, given{workers: 10}, func(t *testing.T, f *fleet) {
		f.intercept(on(orchestrator.OpAdd, "", "", func(ctx context.Context) error { return takesLong(ctx, nil) }))
		f.addAtOnce(names("t", 1000))
		f.start(tick)
		require.LessOrEqual(t, f.untilAllRun(time.Hour), slowAlike)
		f.requireNeverTwice()
	})
}

// slowAlike is how long such a fleet took before the gains of slow workers were limited,
// and one term more.
const slowAlike = 601*time.Second + 12*time.Second

// A worker that could not begin all of its starts gains less in the next term, and only
// in that one.
func TestT9_AGainIsLimitedForOneTerm(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		f.intercept(on(orchestrator.OpAdd, "w1", "", func(ctx context.Context) error { return takesLong(ctx, nil) }))
		f.expect(9)
		f.term()
		require.Equal(t, []int{2, 3, 3}, f.loads())
		f.intercept(nil)
		f.RemoveTask("t9")
		f.RemoveTask(f.RunsOn("w2")[0])
		f.RemoveTask(f.RunsOn("w3")[0])
		f.term() // nothing is missing
		f.expect(60)
		f.term()
		require.Equal(t, []int{20, 20, 20}, f.loads())
	})
}

// The starts of poison tasks hang on every worker.
func TestT3_HangingPoisonMakesFewTermsLong(t *testing.T) {
	for _, test := range []struct{ workers, poison int }{{10, 1}, {64, 1}, {100, 1}, {40, 32}, {100, 32}} {
		t.Run(fmt.Sprintf("%d workers, %d poison", test.workers, test.poison), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := withHangingPoison(t, test.workers, test.poison)
				time.Sleep(2 * time.Minute) // until the pauses no longer grow
				s.requireShortTerms()
				require.Empty(t, s.quarantined())
				require.Equal(t, test.poison, s.missing(), "all others run")
			})
		})
	}
}

// 32 such tasks on ten workers.
func TestT3_HangingPoisonOnFewWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withHangingPoison(t, 10, 32)
		longs, _ := s.observe()
		require.LessOrEqual(t, longs, 50, "long terms")
		require.Empty(t, s.quarantined())
		require.Equal(t, 32, s.missing(), "all others run")
	})
}

// More starts hang than the workers can try. No term waits for those that have hung before.
func TestT3_MuchHangingPoisonMakesFewTermsLong(t *testing.T) {
	for _, test := range []struct{ workers, poison int }{{10, 100}, {3, 30}} {
		t.Run(fmt.Sprintf("%d workers, %d poison", test.workers, test.poison), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := withHangingPoison(t, test.workers, test.poison)
				s.observe() // until the pauses no longer grow
				longs, _ := s.observe()
				require.LessOrEqual(t, longs, 26, "long terms")
			})
		})
	}
}

// A suspect whose starts no longer hang starts soon, though others hang on all workers: a
// try that was skipped because of them was no try.
func TestT9_ASuspectHasItsTurnAmongThoseThatHang(t *testing.T) {
	poison := names("poison", 6)
	for _, cured := range poison {
		t.Run(cured, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := withHangingPoison(t, 2, len(poison))
				s.observe()
				s.intercept(func(ctx context.Context, c call) error {
					if c.Op == orchestrator.OpAdd && c.Task != cured && slices.Contains(poison, c.Task) {
						return hang(ctx)
					}
					return nil
				})
				began := time.Now()
				for s.firstStarts()[cured].IsZero() {
					time.Sleep(tick)
					require.LessOrEqual(t, time.Since(began), 2*time.Minute)
				}
				t.Logf("started after %v", time.Since(began))
			})
		})
	}
}

// Starts hang on all workers: those of missing tasks, and that of one that is to leave a draining
// worker. Whichever no longer hangs starts soon. A start came before the move, term after term.
func TestT9_AMoveHasItsTurnAmongStartsThatHang(t *testing.T) {
	const moves = "t1"
	poison := names("poison", 4)
	for _, cured := range append([]string{moves}, poison...) {
		t.Run(cured, bothWires(given{workers: 5, running: 10}, func(t *testing.T, f *fleet) {
			if cured != moves && strings.HasSuffix(t.Name(), "/batches") {
				t.Skip("a start that hangs holds the others of its batch")
			}
			hanging := func(tasks []string) {
				f.intercept(func(ctx context.Context, c call) error {
					if c.Op == orchestrator.OpAdd && slices.Contains(tasks, c.Task) {
						return hang(ctx)
					}
					return nil
				})
			}
			all := append([]string{moves}, poison...)
			hanging(all)
			require.NoError(t, f.AddTask(moves, orchestrator.WithHandoff(orchestrator.StartThenStop)))
			from := f.Running(moves)
			require.NoError(t, f.DrainWorker(from[0]))
			f.addAtOnce(poison)
			f.start(tick)
			time.Sleep(3 * time.Minute) // until the pauses no longer grow
			require.Equal(t, from, f.Running(moves))
			hanging(slices.DeleteFunc(slices.Clone(all), func(task string) bool { return task == cured }))
			began := time.Now()
			for slices.Equal(f.Running(moves), from) && f.missing() == len(poison) {
				time.Sleep(tick)
				require.LessOrEqual(t, time.Since(began), 2*time.Minute)
			}
			t.Logf("started after %v", time.Since(began))
		}))
	}
}

// T-l: 30 tasks whose starts hang on three workers. Once they are known, another task starts within a
// second, as if they were not there.
func TestT9_OthersStartBesideManyThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withHangingPoison(t, 3, 30)
		time.Sleep(5 * time.Minute)
		var waits []time.Duration
		for i := range 60 {
			name := fmt.Sprint("other", i)
			require.NoError(t, s.AddTask(name))
			began := time.Now()
			for s.firstStarts()[name].IsZero() {
				time.Sleep(100 * time.Millisecond)
				require.LessOrEqual(t, time.Since(began), 2*time.Second)
			}
			waits = append(waits, time.Since(began))
			time.Sleep(3700 * time.Millisecond)
		}
		require.LessOrEqual(t, median(waits), time.Second)
		require.Empty(t, s.quarantined())
		require.Equal(t, 30, s.missing())
	})
}

// withHangingPoison starts a leader of healthy workers and tasks, and adds tasks
// whose starts hang.
func withHangingPoison(t *testing.T, workers, poison int) *fleet {
	t.Helper()
	s := newFleet(t, given{workers: workers, running: 2 * workers})
	s.intercept(func(ctx context.Context, c call) error {
		if c.Op == orchestrator.OpAdd && strings.HasPrefix(c.Task, "poison") {
			return hang(ctx)
		}
		return nil
	})
	s.start(tick)
	s.addAtOnce(names("poison", poison))
	return s
}

package test

// T2, T3, T4 and T8 to T10: faults that do not end. What is healthy must run, move
// and drain while they last.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// losses counts the workers that the last term saw as lost.
func (f *fleet) losses() int { return f.LastPlan().Stats.Workers.Lost }

// The whole fleet is slow: one round of Lists takes longer than the timeout,
// because calls wait for slots. Each call by itself is fast enough.
func TestT2_ASlowFleetLosesNoWorker(t *testing.T) {
	few := orchestrator.WithConcurrency(128)
	for _, test := range []struct {
		name    string
		workers int
		list    time.Duration
		healthy int // terms before the fleet turns slow
		terms   int
		opts    options
	}{
		{"800 workers turn slow, 128 calls", 800, 1900 * time.Millisecond, 1, 100, options{few}},
		{"800 workers are slow from the start, 128 calls", 800, 1900 * time.Millisecond, 0, 40, options{few}},
		{"2,000 workers turn slow", 2000, time.Second, 1, 40, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, given{workers: test.workers, expected: test.workers, opts: test.opts}, func(t *testing.T, f *fleet) {
				for range test.healthy {
					f.term()
				}
				f.intercept(slowLists(func(string, int) time.Duration { return test.list }))
				lost := make(map[string]bool)
				for range test.terms {
					f.steadyTerm()
					if f.losses() == 0 {
						continue
					}
					for _, s := range f.LastActual() {
						if s.State == orchestrator.Lost {
							lost[s.Name] = true
						}
					}
				}
				doubled := 0
				for _, task := range f.ListExpectedTasks() {
					if f.Counts(task.Name).Most > 1 {
						doubled++
					}
				}
				t.Logf("%d workers lost, %d tasks doubled, %d missing, spread %d",
					len(lost), doubled, f.missing(), spread(f.loads()))
				require.Empty(t, slices.Sorted(maps.Keys(lost))[:min(3, len(lost))], "workers lost, the first three of them")
				require.Zero(t, doubled)
				require.Zero(t, f.missing())
				require.LessOrEqual(t, spread(f.loads()), 1)
			})
		})
	}
}

// Each List takes nine of the ten seconds that it may take.
func TestT3_ASlowListDelaysOnlyItsWorker(t *testing.T) {
	for _, workers := range []int{4, 20, 100} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			inBubble(t, given{workers: workers, expected: 2 * workers}, func(t *testing.T, f *fleet) {
				f.intercept(slowLists(func(worker string, _ int) time.Duration {
					if worker == "w3" {
						return 9 * time.Second
					}
					return 0
				}))
				f.start(tick)
				f.requireShortTerms()
				f.requireNeverTwice()
				require.Zero(t, f.losses())
				require.NotEmpty(t, f.RunsOn("w3"), "it is slow, and takes part")
			})
		})
	}
}

// Every second List of one worker takes nine seconds.
func TestT3_AnAlternatingWorkerDelaysOnlyItself(t *testing.T) {
	for _, workers := range []int{4, 20} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			inBubble(t, given{workers: workers, expected: 2 * workers}, func(t *testing.T, f *fleet) {
				f.intercept(slowLists(func(worker string, n int) time.Duration {
					if worker == "w3" && n%2 == 1 {
						return 9 * time.Second
					}
					return 0
				}))
				f.start(tick)
				f.requireShortTerms()
				f.requireNeverTwice()
				require.Zero(t, f.losses())
			})
		})
	}
}

// Of 100 workers each is slow once in a hundred Lists, so that most terms meet
// one slow worker.
func TestT3_RareSlownessOfManyWorkers(t *testing.T) {
	for name, slow := range map[string]func(worker, n int) bool{
		"in turn":   func(worker, n int) bool { return (worker+n)%100 == 0 },
		"at random": func(worker, n int) bool { return rand.New(rand.NewPCG(uint64(worker), uint64(n))).IntN(100) == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, given{workers: 100, expected: 200}, func(t *testing.T, f *fleet) {
				f.intercept(slowLists(func(worker string, n int) time.Duration {
					var i int
					_, err := fmt.Sscanf(worker, "w%d", &i)
					if err == nil && slow(i, n) {
						return 9 * time.Second
					}
					return 0
				}))
				f.start(tick)
				f.requireShortTerms()
				f.requireNeverTwice()
				require.Zero(t, f.losses())
			})
		})
	}
}

var errUnreachable = errors.New("connection refused")

// The workers come up after the first term. The second term has no other worker
// to wait for, so it waits for them.
func TestT3_WorkersUpAfterTheirLeaderCostNoTerm(t *testing.T) {
	for _, test := range []struct{ workers, up int }{{1, 1}, {3, 3}, {3, 1}} {
		t.Run(fmt.Sprintf("%d of %d workers", test.up, test.workers), func(t *testing.T) {
			inBubble(t, given{workers: test.workers, expected: 6}, func(t *testing.T, f *fleet) {
				up := make(map[string]bool)
				f.intercept(func(ctx context.Context, c call) error {
					if !up[c.Worker] {
						return errUnreachable
					}
					return pass(ctx, 5*time.Millisecond)
				})
				require.ErrorIs(t, f.NextTerm(t.Context()), errUnreachable)
				for _, name := range f.workers[:test.up] {
					up[name] = true
				}
				time.Sleep(tick)

				err := f.NextTerm(t.Context())
				t.Logf("second term: %d missing, error %v", f.missing(), err)
				answering := 0
				for _, s := range f.LastActual() {
					if s.State == orchestrator.Answering {
						answering++
					}
				}
				require.Equal(t, test.up, answering, "the term knows the answers")
				if test.up < test.workers {
					require.Len(t, failures(t, err), test.workers-test.up)
					return
				}
				require.NoError(t, err)
				require.Zero(t, f.missing())
			})
		})
	}
}

// The ticker is slow and the grace period the default one, so a worker that
// misses one List keeps its tasks.
func TestT4_OneMissedListUnderASlowTickerLosesNoWorker(t *testing.T) {
	for name, fault := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errUnreachable },
		"hangs": hang,
	} {
		for _, every := range []time.Duration{30 * time.Second, time.Minute, 10 * time.Minute} {
			t.Run(fmt.Sprint(name, ", ", every), func(t *testing.T) {
				inBubble(t, given{workers: 4, expected: 20}, func(t *testing.T, f *fleet) {
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
				})
			})
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

// One of ten workers starts nothing, and 1,000 new tasks arrive.
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
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, given{workers: 10, applier: test.applier}, func(t *testing.T, f *fleet) {
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
			})
		})
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

// The faults of a start, for ever. Only ignores makes use of release, which the
// test closes at its end.

func hangs(ctx context.Context, _ <-chan struct{}) error { return hang(ctx) }

func ignores(_ context.Context, release <-chan struct{}) error {
	<-release
	return errBoom
}

func takesLong(ctx context.Context, _ <-chan struct{}) error { return pass(ctx, 6*time.Second) }

// Every worker takes six seconds for each start, so none of them is given less.
// Two starts of a worker begin within the ten seconds of a term: 1,000 tasks on
// ten workers need 50 terms of 12 seconds.
func TestT9_AFleetThatIsSlowAlikeIsNotSlowedDown(t *testing.T) {
	inBubble(t, given{workers: 10}, func(t *testing.T, f *fleet) {
		f.intercept(on(orchestrator.OpAdd, "", "", func(ctx context.Context) error { return takesLong(ctx, nil) }))
		f.addAtOnce(names("t", 1000))
		f.start(tick)
		require.LessOrEqual(t, f.untilAllRun(time.Hour), slowAlike)
		f.requireNeverTwice()
	})
}

// slowAlike is how long a fleet that is slow alike took before workers were
// given less for being slow, and a term more.
const slowAlike = 601*time.Second + 12*time.Second

// Poison tasks whose starts hang on every worker.
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

// A worker tries one start that hangs in a term, so that 32 on ten workers make
// four terms long in each round of tries.
func TestT3_HangingPoisonOnFewWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withHangingPoison(t, 10, 32)
		longs, _ := s.observe()
		require.LessOrEqual(t, longs, 50, "long terms")
		require.Empty(t, s.quarantined())
		require.Equal(t, 32, s.missing(), "all others run")
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

// A worker that refused every start for a long time, and then recovers, gets its
// share again.
func TestT9_ARecoveredWorkerGetsItsShare(t *testing.T) {
	for _, broken := range []int{3, 20, 200} {
		for name, fault := range map[string]func(context.Context) error{
			"refuses": func(context.Context) error { return errRejected },
			"fails":   func(context.Context) error { return errBoom },
			"hangs":   hang,
		} {
			t.Run(fmt.Sprintf("%s for %d terms", name, broken), func(t *testing.T) {
				onBothWires(t, given{workers: 4}, func(t *testing.T, f *fleet) {
					f.intercept(on(orchestrator.OpAdd, "w3", "", fault))
					f.expect(100)
					for term := range broken {
						f.steadyTerm()
						if term > 0 {
							require.LessOrEqual(t, f.missing(), 1, "the one task that the worker is tried with")
						}
					}
					f.intercept(nil)
					terms := f.untilTerm(100, func() bool { return slices.Equal(f.loads(), []int{25, 25, 25, 25}) })
					t.Logf("its share after %d terms", terms)
					require.LessOrEqual(t, terms, 64)
					f.requireNeverTwice()
				})
			})
		}
	}
}

// A pause ends after a minute, even if that is one term. A worker that refused
// every start for hours has its share a few terms after it recovered.
func TestT9_PausesAreNoLongerThanAMinute(t *testing.T) {
	inBubble(t, given{workers: 4, expected: 100}, func(t *testing.T, f *fleet) {
		f.intercept(on(orchestrator.OpAdd, "w3", "", fails(errRejected)))
		f.start(time.Minute)
		time.Sleep(4 * time.Hour)
		require.Zero(t, f.missing())
		f.intercept(nil)
		began := time.Now()
		for time.Since(began) < 2*time.Hour && spread(f.loads()) > 1 {
			time.Sleep(time.Minute)
		}
		t.Logf("its share after %v", time.Since(began))
		require.LessOrEqual(t, time.Since(began), 5*time.Minute)
	})
}

// stopFaults are the answers to every Remove of a stuck task.
var stopFaults = []struct {
	name  string
	fault func(context.Context) error
}{
	{"stopping", func(context.Context) error { return orchestrator.ErrStopping }},
	{"hangs", hang},
	{"fails", func(context.Context) error { return errBoom }},
	{"refused", func(context.Context) error { return errRejected }},
}

// stuck makes the first n tasks that the leader stops impossible to stop, each
// where it runs then.
type stuck struct {
	mu     sync.Mutex
	n      int
	fault  func(context.Context) error
	copies []string // worker and task
}

// tap is for wire.intercept.
func (s *stuck) tap(ctx context.Context, c call) error {
	if c.Op != orchestrator.OpRemove {
		return nil
	}
	s.mu.Lock()
	instance := c.Worker + " " + c.Task
	if !slices.Contains(s.copies, instance) && len(s.copies) < s.n {
		s.copies = append(s.copies, instance)
	}
	fails := slices.Contains(s.copies, instance)
	s.mu.Unlock()
	if fails {
		return s.fault(ctx)
	}
	return nil
}

// left counts the stuck tasks on w1.
func (s *stuck) left(f *fleet) (n int) {
	for _, task := range f.RunsOn("w1") {
		if slices.Contains(s.copies, "w1 "+task) {
			n++
		}
	}
	return n
}

// withStuckStops runs test for every kind of fault, for every budget from 1 to
// 10, and for one stuck task and as many as the budget.
func withStuckStops(t *testing.T, test func(f *fleet, s *stuck)) {
	t.Helper()
	for _, kind := range stopFaults {
		for n := 1; n <= 10; n++ {
			for _, count := range slices.Compact([]int{1, n}) {
				t.Run(fmt.Sprintf("%s, budget %d, %d stuck", kind.name, n, count), func(t *testing.T) {
					inBubble(t, given{workers: 4, running: 80, opts: options{orchestrator.WithMaxMoves(n)}}, func(_ *testing.T, f *fleet) {
						s := &stuck{n: count, fault: kind.fault}
						f.intercept(s.tap)
						test(f, s)
						f.requireAllRun()
						f.requireNeverTwice()
					})
				})
			}
		}
	}
}

// untilTerm runs terms until done, and at most limit. It returns how many.
func (f *fleet) untilTerm(limit int, done func() bool) (terms int) {
	f.t.Helper()
	for terms < limit && !done() {
		f.steadyTerm()
		terms++
	}
	return terms
}

// The drained worker ends with the stuck tasks alone, and the worker that joined
// with its share of the others.
func TestT10_StuckStopsDelayNoDrain(t *testing.T) {
	withStuckStops(t, func(f *fleet, s *stuck) {
		f.join("w5")
		require.NoError(f.t, f.DrainWorker("w1"))
		share := func() int { return (80 - s.left(f)) / 4 }
		terms := f.untilTerm(60, func() bool {
			return len(f.RunsOn("w1")) == s.left(f) && len(f.RunsOn("w5")) >= share()
		})
		f.t.Logf("after %d terms: loads %v, stuck on w1: %d", terms, f.loads(), s.left(f))
		require.Len(f.t, f.RunsOn("w1"), s.left(f), "the drained worker holds the stuck tasks alone")
		require.GreaterOrEqual(f.t, len(f.RunsOn("w5")), share(), "the share of the new worker")
	})
}

func TestT10_StuckStopsDelayNoJoin(t *testing.T) {
	withStuckStops(t, func(f *fleet, _ *stuck) {
		f.join("w5")
		terms := f.untilTerm(60, func() bool { return len(f.RunsOn("w5")) == 16 })
		f.t.Logf("after %d terms: loads %v", terms, f.loads())
		require.Equal(f.t, []int{16, 16, 16, 16, 16}, f.loads())
	})
}

// A Remove that hangs concerns one worker.
func TestT3_AHangingRemoveMakesFewTermsLong(t *testing.T) {
	inBubble(t, given{workers: 4, running: 20}, func(_ *testing.T, f *fleet) {
		f.intercept(on(orchestrator.OpRemove, "", "t1", hang))
		f.start(tick)
		f.RemoveTask("t1")
		f.requireShortTerms()
	})
}

// Two copies run and one is wanted. The first one that the leader tries to stop
// cannot be stopped, so it stops the other one.
func TestT10_TheOtherSurplusCopyIsStopped(t *testing.T) {
	for _, kind := range stopFaults[1:] {
		t.Run(kind.name, func(t *testing.T) {
			onBothWires(t, given{workers: 3, expected: 6}, func(t *testing.T, f *fleet) {
				f.run("w1", "t1")
				f.run("w2", "t1")
				s := &stuck{n: 1, fault: kind.fault}
				f.intercept(s.tap)
				terms := f.untilTerm(20, func() bool { return len(f.Running("t1")) == 1 && f.missing() == 0 })
				t.Logf("after %d terms t1 runs on %v", terms, f.Running("t1"))
				require.Len(t, f.Running("t1"), 1)
				f.requireAllRun()
				require.LessOrEqual(t, terms, 10)
				for range 20 {
					f.steadyTerm()
					f.requireAllRun()
				}
				require.LessOrEqual(t, spread(f.loads()), 1)
			})
		})
	}
}

// A hundred groups, each with a leader and two tasks of its own, share five
// workers. Each worker gets a fifth of the tasks: 40, give or take five standard
// deviations.
func TestT10_SmallGroupsSpreadOverTheirWorkers(t *testing.T) {
	loads := make(map[string]int)
	for range 100 {
		lists := make(map[string][]string)
		o, err := orchestrator.New(recorder[string, string](lists))
		require.NoError(t, err)
		for _, name := range names("w", 5) {
			require.NoError(t, o.AddWorker(name))
		}
		require.NoError(t, o.UpdateTasks([]task{{Name: "a"}, {Name: "b"}}))
		require.NoError(t, o.NextTerm(t.Context()))
		for worker, tasks := range lists {
			loads[worker] += len(tasks)
		}
		require.NoError(t, o.NextTerm(t.Context()))
		require.Empty(t, o.LastPlan().Changes)
	}
	t.Logf("tasks by worker: %v", loads)
	for _, name := range names("w", 5) {
		require.GreaterOrEqual(t, loads[name], 15, name)
		require.LessOrEqual(t, loads[name], 65, name)
	}
}

// Under StartThenStop a single task runs on two workers at most, whatever else
// has a copy.
func TestT8_StartThenStop_NeverOnThreeWorkers(t *testing.T) {
	for _, test := range []struct {
		name   string
		silent bool // the other copy is on a silent worker; otherwise its stop fails
	}{
		{"a silent worker holds a copy", true},
		{"a surplus copy does not stop", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			onBothWires(t, given{workers: 4, opts: options{orchestrator.WithHandoff(orchestrator.StartThenStop), hold}}, func(t *testing.T, f *fleet) {
				f.run("w1", "t1")
				f.run("w2", "t1")
				f.expect(1)
				f.intercept(on(orchestrator.OpRemove, "", "", fails(errRejected)))
				f.failingTerm() // both copies are known, and neither was stopped
				require.Len(t, f.Running("t1"), 2)
				if test.silent {
					f.intercept(nil)
					f.Cut("w1")
				}
				require.NoError(t, f.DrainWorker("w2"))
				for range 20 {
					f.steadyTerm()
				}
				t.Logf("at most %d copies at the same time", f.Counts("t1").Most)
				require.LessOrEqual(t, f.Counts("t1").Most, 2)

				f.intercept(nil)
				f.Heal()
				f.untilTerm(64, func() bool { return len(f.Running("t1")) == 1 && len(f.RunsOn("w2")) == 0 })
				require.LessOrEqual(t, f.Counts("t1").Most, 2)
				require.Len(t, f.Running("t1"), 1)
				require.Empty(t, f.RunsOn("w2"), "drained in the end")
			})
		})
	}
}

// Of two copies one is surplus, and their workers are drained.
func TestT8_StartThenStop_SurplusAndDrain(t *testing.T) {
	for _, drained := range [][]string{{"w1"}, {"w2"}, {"w1", "w2"}} {
		t.Run(fmt.Sprint(drained), func(t *testing.T) {
			onBothWires(t, given{workers: 3, opts: options{orchestrator.WithHandoff(orchestrator.StartThenStop)}}, func(t *testing.T, f *fleet) {
				f.run("w1", "t1")
				f.run("w2", "t1")
				f.expect(1)
				for _, name := range drained {
					require.NoError(t, f.DrainWorker(name))
				}
				f.intercept(func(ctx context.Context, c call) error { // a start ends before a stop
					switch c.Op {
					case orchestrator.OpAdd:
						return pass(ctx, time.Second)
					case orchestrator.OpRemove:
						return pass(ctx, 3*time.Second)
					}
					return nil
				})
				f.untilTerm(5, func() bool { return false })
				t.Logf("at most %d copies at the same time", f.Counts("t1").Most)
				require.LessOrEqual(t, f.Counts("t1").Most, 2)
				require.Len(t, f.Running("t1"), 1)
				require.NotSubset(t, drained, f.Running("t1"))
			})
		})
	}
}

// A task that is removed while it moves strands nothing: the transport refuses its
// start, and other tasks go on moving.
func TestT9_ARemovedTaskPausesNoMoves(t *testing.T) {
	onBothWires(t, given{workers: 1, running: 4}, func(t *testing.T, f *fleet) {
		f.join("w2")
		removed := ""
		f.intercept(func(_ context.Context, c call) error {
			switch {
			case c.Op == orchestrator.OpRemove && removed == "":
				removed = c.Task
				f.RemoveTask(c.Task)
			case c.Op == orchestrator.OpAdd && c.Task == removed:
				return errRejected
			}
			return nil
		})
		f.anyTerm()
		require.NotEmpty(t, removed)
		require.Empty(t, f.paused(orchestrator.PauseMoves))
		f.untilTerm(3, func() bool { return len(f.RunsOn("w2")) == 1 })
		require.Equal(t, []int{2, 1}, f.loads())
	})
}

// All starts are answered with ErrStopping. Moves pause as they do in any outage.
func TestT9_StartsThatAreBeingStoppedPauseMoves(t *testing.T) {
	inBubble(t, given{workers: 2, running: 40}, func(t *testing.T, f *fleet) {
		f.join("w3")
		f.intercept(on(orchestrator.OpAdd, "", "", fails(orchestrator.ErrStopping)))
		for range 40 {
			f.steadyTerm()
		}
		require.NotEmpty(t, f.paused(orchestrator.PauseMoves))
		require.LessOrEqual(t, f.missing(), 8)
	})
}

// LastPlan names a stop that is paused, until when and why.
func TestT9_PausedStopsCanBeRead(t *testing.T) {
	inBubble(t, given{workers: 2, running: 8}, func(t *testing.T, f *fleet) {
		s := &stuck{n: 1, fault: stopFaults[2].fault}
		f.intercept(s.tap)
		require.NoError(t, f.DrainWorker("w1"))
		f.failingTerm()
		i := slices.IndexFunc(f.LastPlan().Paused, func(p orchestrator.Pause[string, string]) bool { return p.Kind == "stop" })
		require.GreaterOrEqual(t, i, 0, "%v", f.LastPlan().Paused)
		p := f.LastPlan().Paused[i]
		require.Equal(t, s.copies[0], p.Worker+" "+p.Task)
		require.Equal(t, 1, p.Failures)
		require.ErrorIs(t, p.Err, errBoom)
		require.Greater(t, p.Until, f.termNumber())

		f.intercept(nil)
		f.untilTerm(20, func() bool { return len(f.RunsOn("w1")) == 0 })
		require.Empty(t, f.RunsOn("w1"))
		f.steadyTerm()
		require.Empty(t, f.LastPlan().Paused)
	})
}

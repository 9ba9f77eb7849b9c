package test

// T10 and P2: how many tasks a term may move, which, and tasks that do not stop.

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

// sumOfSquares is what the planner minimizes: the lower, the more even.
func sumOfSquares(loads []int) (sum int) {
	for _, n := range loads {
		sum += n * n
	}
	return sum
}

// starts returns the starts of the last term.
func (f *fleet) starts() []change {
	return filter(f.LastPlan().Changes, func(c change) bool { return c.Kind.Op == orchestrator.Start })
}

// A worker joins 100 tasks on 4 workers: 20 moves in ⌈20/n⌉ terms.
func TestT10_AtMostNMovesATerm(t *testing.T) {
	for _, c := range []struct{ n, terms int }{{1, 20}, {3, 7}, {7, 3}, {19, 2}, {20, 1}, {1000, 1}} {
		t.Run(fmt.Sprint(c.n), bubble(given{workers: 4, running: 100, opts: options{orchestrator.WithMaxMoves(c.n)}}, func(t *testing.T, f *fleet) {
			f.join("w5")
			left := 20
			for range c.terms {
				require.Positive(t, left)
				f.freshTerm()
				require.Len(t, f.moves(), min(c.n, left))
				require.Len(t, f.sent(orchestrator.OpAdd), min(c.n, left))
				left -= min(c.n, left)
				require.Equal(t, left, f.LastPlan().Stats.Deferred)
			}
			require.Equal(t, []int{20, 20, 20, 20, 20}, f.loads())
			f.requireSettled()
		}))
	}
}

// While a draining worker has tasks to move, no other task moves.
func TestT10_DrainsFirst(t *testing.T) {
	for _, n := range []int{1, 4, 10} {
		t.Run(fmt.Sprint(n), bubble(given{workers: 4, running: 40, opts: options{orchestrator.WithMaxMoves(n)}}, func(t *testing.T, f *fleet) {
			f.join("w5")
			require.NoError(t, f.DrainWorker("w2"))
			for left := 10; left > 0; {
				f.term()
				require.LessOrEqual(t, len(f.moves()), n)
				drains := 0
				for _, c := range f.moves() {
					if c.Kind.Reason == orchestrator.ReasonDrain {
						drains++
					}
				}
				require.Equal(t, min(n, left), drains)
				left -= drains
				require.Len(t, f.RunsOn("w2"), left)
			}
			for range 10 {
				f.term()
			}
			require.Equal(t, []int{10, 0, 10, 10, 10}, f.loads())
			f.requireSettled()
		}))
	}
}

// Missing instances start at once, however many there are and however low the limit on
// moves.
func TestT10_MissingIsNeverLimited(t *testing.T) {
	for _, n := range []int{0, 1} {
		t.Run(fmt.Sprint(n), bubble(given{workers: 4, running: 100, opts: options{orchestrator.WithMaxMoves(n)}}, func(t *testing.T, f *fleet) {
			f.requireAllRun()

			f.Kill("w1")
			f.RemoveWorker("w1")
			f.term()
			require.Len(t, f.starts(), 25)
			require.LessOrEqual(t, len(f.moves()), n)
			f.requireAllRun()
		}))
	}
}

// Surplus copies and unexpected tasks stop at once too.
func TestT10_SurplusIsNeverLimited(t *testing.T) {
	inBubble(t, given{workers: 4, opts: options{orchestrator.WithMaxMoves(0)}}, func(t *testing.T, f *fleet) {
		f.expect(30, orchestrator.WithTaskInstances(3))
		f.term()
		f.requireAllRun()
		f.expect(20) // of t1 to t20 one instance will do
		for _, name := range names("t", 30)[20:] {
			f.RemoveTask(name)
		}
		f.freshTerm()
		require.Len(t, f.sent(orchestrator.OpRemove), 20*2+10*3)
		require.Empty(t, f.sent(orchestrator.OpAdd))
		f.requireSettled()
	})
}

// A missing instance overfills a worker instead of waiting for a move.
func TestT10_MissingOverfillsRatherThanWaits(t *testing.T) {
	inBubble(t, given{workers: 2, opts: options{orchestrator.WithMaxMoves(0)}}, func(t *testing.T, f *fleet) {
		// w1 runs t1, t2 and t3, and w2 runs x, of which two are wanted now: the
		// other one can only go to w1, which has too much already.
		for _, task := range names("t", 3) {
			require.NoError(t, f.Cluster.Add(t.Context(), "w1", task))
		}
		require.NoError(t, f.Cluster.Add(t.Context(), "w2", "x"))
		f.expect(3)
		require.NoError(t, f.AddTask("x", orchestrator.WithTaskInstances(2)))
		f.term()
		require.Equal(t, []string{"add x w1"}, f.writes())
		require.Equal(t, []int{4, 1}, f.loads())
		require.Equal(t, 1, f.LastPlan().Stats.Deferred)
	})
}

// A limit of zero allows no move, neither for the spread nor for a drain.
func TestT10_ZeroMovesNothing(t *testing.T) {
	inBubble(t, given{workers: 2, running: 8, opts: options{orchestrator.WithMaxMoves(0)}}, func(t *testing.T, f *fleet) {
		f.join("w3")
		require.NoError(t, f.DrainWorker("w1"))
		f.requireQuiet(5)
		require.Equal(t, []int{4, 4, 0}, f.loads())
		require.Positive(t, f.LastPlan().Stats.Deferred)
	})
}

// The trial of a quarantined worker counts as a move. A limit of zero allows none with a
// healthy task; a missing task may be a trial.
func TestT10_TrialsCount(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 8, opts: options{orchestrator.WithMaxMoves(0)}}, func(t *testing.T, f *fleet) {
		f.quarantine("w2")
		f.Refuse(nil)
		f.requireQuiet(5)

		require.NoError(t, f.AddTask("new"))
		f.term()
		require.Equal(t, []string{"add new w2"}, f.writes())
	})
}

// A trial with a task of a draining worker counts too.
func TestT10_TrialsThatDrainCount(t *testing.T) {
	for _, n := range []int{0, 2} {
		t.Run(fmt.Sprint(n), bubble(given{workers: 1, running: 8, opts: options{orchestrator.WithMaxMoves(n)}}, func(t *testing.T, f *fleet) {
			f.join("w2", "w3", "w4")
			require.NoError(t, f.DrainWorker("w1"))
			f.failAdds(errRejected, "w2", "w3", "w4")
			for range 10 {
				f.anyTerm()
				require.LessOrEqual(t, len(f.moves()), n)
			}
			f.Refuse(nil)
			for range 20 {
				f.anyTerm()
				require.LessOrEqual(t, len(f.moves()), n)
			}
			if n == 0 {
				require.Equal(t, []int{8, 0, 0, 0}, f.loads())
				return
			}
			require.Zero(t, f.loads()[0])
			f.requireSettled()
		}))
	}
}

// A stop under way uses the budget until it is three timeouts old.
func TestT10_AStopUnderWayUsesTheBudget(t *testing.T) {
	inBubble(t, given{workers: 2, running: 8, opts: options{orchestrator.WithMaxMoves(1)}}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.DrainWorker("w1"))
		began := time.Now()
		var stuck string
		f.intercept(func(_ context.Context, c call) error {
			if c.Op == orchestrator.OpRemove && (stuck == "" || c.Task == stuck) {
				stuck = c.Task
				return orchestrator.ErrStopping
			}
			return nil
		})
		for time.Since(began) < 3*timeout {
			f.term()
			require.Len(t, f.moves(), 1)
			require.Equal(t, stuck, f.moves()[0].Task, "the same task again")
			require.Empty(t, f.LastPlan().Paused)
			time.Sleep(timeout / 2)
		}
		f.anyTerms(5)
		require.Equal(t, []string{stuck}, f.RunsOn("w1"), "the others have moved")
		f.untilTerm(20, func() bool { return len(f.paused(orchestrator.PauseStop)) > 0 })
		require.Equal(t, stuck, f.paused(orchestrator.PauseStop)[0].Task)
		f.intercept(nil)
		f.untilTerm(20, func() bool { return len(f.RunsOn("w1")) == 0 })
		f.requireSettled()
	})
}

// A stop that failed without a timeout comes last in the next term, and its task moves if
// the budget is not used up.
func TestT10_FailedStopsComeLast(t *testing.T) {
	inBubble(t, given{workers: 2, running: 12, opts: options{orchestrator.WithMaxMoves(2)}}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.DrainWorker("w1"))
		first := f.RunsOn("w1")[0]
		f.intercept(on(orchestrator.OpRemove, "w1", first, fails(errBoom)))
		last := f.untilTerm(20, func() bool { return len(f.RunsOn("w1")) == 1 })
		require.LessOrEqual(t, last, 4, "five others, two in each term")
		require.Equal(t, []string{first}, f.RunsOn("w1"))
		f.intercept(nil)
		f.untilTerm(20, func() bool { return len(f.RunsOn("w1")) == 0 })
		f.requireSettled()
	})
}

// A surplus copy whose stop pauses counts as gone, unless too few others remain.
func TestT10_ALeavingCopyCountsIfItIsNeeded(t *testing.T) {
	onBothWires(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		f.run("w1", "t1")
		f.run("w2", "t1")
		f.expect(1)
		stays := ""
		f.intercept(func(_ context.Context, c call) error {
			if c.Op == orchestrator.OpRemove {
				stays = c.Worker
				return errBoom
			}
			return nil
		})
		f.failingTerm()
		require.Len(t, f.paused(orchestrator.PauseStop), 1)
		for _, name := range f.workers {
			if name != stays {
				f.Start(name) // restarted empty
			}
		}
		f.requireQuiet(5)
		require.Equal(t, []string{stays}, f.Running("t1"))
	})
}

// From any start, with any budget: no term moves more than its budget, no move makes the
// spread worse, and after ⌈moves/n⌉ terms nothing changes.
func TestT10_RepeatedTermsConverge(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { converge(t, rand.New(rand.NewPCG(seed, 10))) })
		})
	}
}

func converge(t *testing.T, r *rand.Rand) {
	n := 1 + r.IntN(5)
	f := newFleet(t, given{workers: 2 + r.IntN(6), opts: options{orchestrator.WithMaxMoves(n)}})
	instances := 1 + r.IntN(2)
	f.expect(r.IntN(40), orchestrator.WithTaskInstances(instances))
	for _, task := range f.ListExpectedTasks() {
		for _, i := range r.Perm(len(f.workers))[:instances] {
			// The minimum of two favours the first workers.
			i = min(i, r.IntN(len(f.workers)))
			require.NoError(t, f.Cluster.Add(t.Context(), f.workers[i], task.Name))
		}
	}
	f.term() // everything is running now
	f.requireAllRun()
	left := f.LastPlan().Stats.Deferred
	for terms := (left + n - 1) / n; terms > 0; terms-- {
		before := sumOfSquares(f.loads())
		f.freshTerm()
		require.NotEmpty(t, f.moves())
		require.LessOrEqual(t, len(f.moves()), n)
		require.Len(t, f.sent(orchestrator.OpAdd), len(f.moves()), "nothing but moves")
		require.LessOrEqual(t, sumOfSquares(f.loads()), before)
		f.requireAllRun()
	}
	f.requireSettled()
	require.LessOrEqual(t, spread(f.loads()), 1)
}

// Two leaders with the same seed break ties alike, and different seeds do not
// prefer the same workers.
func TestT10_TheSeedDecidesTies(t *testing.T) {
	place := func(seed uint64) string {
		lists := make(map[string][]string)
		o, err := orchestrator.New(recorder[string, string](lists), orchestrator.WithSeed(seed))
		require.NoError(t, err)
		for _, name := range names("w", 5) {
			require.NoError(t, o.AddWorker(name))
		}
		require.NoError(t, o.UpdateTasks([]task{{Name: "a"}, {Name: "b"}}))
		require.NoError(t, o.NextTerm(t.Context()))
		return fmt.Sprint(lists)
	}
	different := make(map[string]bool)
	for seed := range uint64(50) {
		placed := place(seed)
		require.Equal(t, placed, place(seed), "seed %d", seed)
		different[placed] = true
	}
	require.Len(t, different, 5, "each worker comes first for some seed")
	require.Contains(t, different, place(math.MaxUint64))
}

// The planner moves the tasks that a worker lists first, so that a transport can list the
// cheapest first: all that move to a joining worker come from the fronts of the lists.
func TestP2_TasksListedFirstMoveFirst(t *testing.T) {
	for _, instances := range []int{1, 2} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(instances)))
			lists := map[string][]string{"w4": nil}
			var tasks []task
			for i := range 30 {
				tasks = append(tasks, task{Name: fmt.Sprint("t", i), Instances: instances})
				for k := range instances {
					w := fmt.Sprint("w", 1+(i+k)%3)
					lists[w] = append(lists[w], fmt.Sprint("t", i))
				}
			}
			for _, list := range lists {
				r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			}
			o, err := orchestrator.New(communicator.Func[string, string]{
				ListFunc: func(_ context.Context, w string) ([]string, error) { return lists[w], nil },
			}, orchestrator.WithDryRun())
			require.NoError(t, err)
			require.NoError(t, o.UpdateTasks(tasks))
			require.NoError(t, o.UpdateWorkers([]member{{Name: "w1"}, {Name: "w2"}, {Name: "w3"}, {Name: "w4"}}))
			_ = o.NextTerm(t.Context())
			plan := o.LastPlan()
			require.Len(t, plan.Changes, 30*instances/4)
			from := make(map[string]string) // by task
			for _, c := range plan.Changes {
				require.Equal(t, "w4", c.To)
				from[c.Task] = c.From
			}
			for _, w := range []string{"w1", "w2", "w3"} {
				stayed := false
				for _, name := range lists[w] {
					switch from[name] {
					case w:
						require.False(t, stayed, "%s goes from %s, and what is listed before it stays", name, w)
					case "": // what w4 gets from another it cannot get from here
						stayed = true
					}
				}
			}
		})
	}
}

// stopFaults are the answers to each Remove of a stuck task.
var stopFaults = []struct {
	name  string
	fault func(context.Context) error
}{
	{"stopping", func(context.Context) error { return orchestrator.ErrStopping }},
	{"hangs", hang},
	{"fails", func(context.Context) error { return errBoom }},
	{"refused", func(context.Context) error { return errRejected }},
}

// stuck makes the first n tasks that the leader stops impossible to stop on their
// workers.
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
				t.Run(fmt.Sprintf("%s, budget %d, %d stuck", kind.name, n, count), bubble(given{workers: 4, running: 80, opts: options{orchestrator.WithMaxMoves(n)}}, func(_ *testing.T, f *fleet) {
					s := &stuck{n: count, fault: kind.fault}
					f.intercept(s.tap)
					test(f, s)
					f.requireAllRun()
					f.requireNeverTwice()
				}))
			}
		}
	}
}

// untilTerm runs terms until done returns true, but at most limit. It returns how many it
// ran.
func (f *fleet) untilTerm(limit int, done func() bool) (terms int) {
	f.t.Helper()
	for terms < limit && !done() {
		f.steadyTerm()
		terms++
	}
	return terms
}

// The drained worker keeps only the stuck tasks, and the worker that joined gets its
// share of the others.
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

// A Remove that hangs delays only its worker. A run adds only 44 tasks, and its median wait
// depends on when the removal comes between two ticks: it varies from 0.5 s to 2.4 s. So the
// bound is checked for the waits of ten runs, whose removals come a tenth of a tick apart.
func TestT3_AHangingRemoveMakesFewTermsLong(t *testing.T) {
	var waits []time.Duration
	for phase := range 10 {
		inBubble(t, given{workers: 4, running: 20}, func(t *testing.T, f *fleet) {
			f.intercept(on(orchestrator.OpRemove, "", "t1", hang))
			f.start(tick)
			time.Sleep(time.Duration(2*phase+1) * tick / 20) // no new task comes just as a term begins
			f.RemoveTask("t1")
			longs, waited := f.observe()
			require.LessOrEqual(t, longs, 20, "long terms")
			waits = append(waits, waited...)
		})
	}
	t.Logf("a new task waited %v in the median of %d", median(waits), len(waits))
	require.LessOrEqual(t, median(waits), 2*time.Second, "wait of a new task")
}

// Two copies run and one is wanted. The first one that the leader tries to stop cannot be
// stopped, so it stops the other one.
func TestT10_TheOtherSurplusCopyIsStopped(t *testing.T) {
	for _, kind := range stopFaults[1:] {
		t.Run(kind.name, bothWires(given{workers: 3, expected: 6}, func(t *testing.T, f *fleet) {
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
		}))
	}
}

// LastPlan lists a paused stop, with the end of its pause and the cause.
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

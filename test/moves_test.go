package test

// T10, P2, P24 and C8: how many tasks a term may move, and which.

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

// sumOfSquares is what the planner makes small: the lower, the more even.
func sumOfSquares(loads []int) (sum int) {
	for _, n := range loads {
		sum += n * n
	}
	return sum
}

// starts returns the starts of the last term.
func (f *fleet) starts() (found []change) {
	for _, c := range f.LastPlan().Changes {
		if c.Kind.Op == orchestrator.Start {
			found = append(found, c)
		}
	}
	return found
}

// A worker joins 100 tasks on 4 workers: 20 moves in ⌈20/n⌉ terms.
func TestT10_AtMostNMovesATerm(t *testing.T) {
	for _, c := range []struct{ n, terms int }{{1, 20}, {3, 7}, {7, 3}, {19, 2}, {20, 1}, {1000, 1}} {
		t.Run(fmt.Sprint(c.n), func(t *testing.T) {
			inBubble(t, given{workers: 4, running: 100, opts: options{orchestrator.WithMaxMoves(c.n)}}, func(t *testing.T, f *fleet) {
				f.join("w5")
				left := 20
				for range c.terms {
					require.Positive(t, left)
					f.forget()
					f.term()
					require.Len(t, f.moves(), min(c.n, left))
					require.Len(t, f.sent(orchestrator.OpAdd), min(c.n, left))
					left -= min(c.n, left)
					require.Equal(t, left, f.LastPlan().Stats.Deferred)
				}
				require.Equal(t, []int{20, 20, 20, 20, 20}, f.loads())
				f.requireSettled()
			})
		})
	}
}

// Drains come first: as long as there is one to move, nothing else moves.
func TestT10_DrainsFirst(t *testing.T) {
	for _, n := range []int{1, 4, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, given{workers: 4, running: 40, opts: options{orchestrator.WithMaxMoves(n)}}, func(t *testing.T, f *fleet) {
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
			})
		})
	}
}

// What is missing is started at once, however many there are and however few
// may move.
func TestT10_MissingIsNeverLimited(t *testing.T) {
	for _, n := range []int{0, 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, given{workers: 4, running: 100, opts: options{orchestrator.WithMaxMoves(n)}}, func(t *testing.T, f *fleet) {
				f.requireAllRun()

				f.Kill("w1")
				f.RemoveWorker("w1")
				f.term()
				require.Len(t, f.starts(), 25)
				require.LessOrEqual(t, len(f.moves()), n)
				f.requireAllRun()
			})
		})
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
		f.forget()
		f.term()
		require.Len(t, f.sent(orchestrator.OpRemove), 20*2+10*3)
		require.Empty(t, f.sent(orchestrator.OpAdd))
		f.requireSettled()
	})
}

// A missing instance overfills a worker rather than wait for a move.
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

// Zero moves nothing: neither for the spread nor for a drain.
func TestT10_ZeroMovesNothing(t *testing.T) {
	inBubble(t, given{workers: 2, running: 8, opts: options{orchestrator.WithMaxMoves(0)}}, func(t *testing.T, f *fleet) {
		f.join("w3")
		require.NoError(t, f.DrainWorker("w1"))
		for range 5 {
			f.term()
		}
		require.Empty(t, f.writes())
		require.Equal(t, []int{4, 4, 0}, f.loads())
		require.Positive(t, f.LastPlan().Stats.Deferred)
	})
}

// The trial of a quarantined worker counts as well: zero allows none with a healthy
// task. A missing task may be a trial.
func TestT10_TrialsCount(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 8, opts: options{orchestrator.WithMaxMoves(0)}}, func(t *testing.T, f *fleet) {
		f.quarantine("w2")
		f.Refuse(nil)
		f.forget()
		for range 5 {
			f.term()
		}
		require.Empty(t, f.writes())

		require.NoError(t, f.AddTask("new"))
		f.term()
		require.Equal(t, []string{"add new w2"}, f.writes())
	})
}

// So does one that drains.
func TestT10_TrialsThatDrainCount(t *testing.T) {
	for _, n := range []int{0, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, given{workers: 1, running: 8, opts: options{orchestrator.WithMaxMoves(n)}}, func(t *testing.T, f *fleet) {
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
			})
		})
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
		for range 5 {
			f.anyTerm()
		}
		require.Equal(t, []string{stuck}, f.RunsOn("w1"), "the others have moved")
		f.untilTerm(20, func() bool { return len(f.paused(orchestrator.PauseStop)) > 0 })
		require.Equal(t, stuck, f.paused(orchestrator.PauseStop)[0].Task)
		f.intercept(nil)
		f.untilTerm(20, func() bool { return len(f.RunsOn("w1")) == 0 })
		f.requireSettled()
	})
}

// A stop that failed in another way than by a timeout comes last in the next term,
// and its task moves when there is budget left.
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

// A surplus copy whose stop pauses counts as gone, unless the others are too few.
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
		f.forget()
		for range 5 {
			f.term()
		}
		require.Empty(t, f.writes())
		require.Equal(t, []string{stays}, f.Running("t1"))
	})
}

// From any start, with any budget: no term moves more than it may, no move
// makes the spread worse, and after ⌈moves/n⌉ terms there is nothing left.
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
		f.forget()
		f.term()
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

// What a worker lists first is given up first, so that a transport can list first
// what costs least to move: all that moves to a worker that joins are the first of
// what the others list.
func TestP2_WhatIsListedFirstMovesFirst(t *testing.T) {
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

// pinning is a Communicator that pins tasks. It embeds a wire, so that it is no
// Applier.
type pinning struct {
	*wire
	pins map[string]bool // by task
	on   string          // the worker that pins them; "": all
	n    func(listed, pinned int) int
}

// List lists the pinned tasks last, and pins as many as n says.
func (p *pinning) List(ctx context.Context, worker string) ([]string, error) {
	tasks, err := p.wire.List(ctx, worker)
	slices.SortStableFunc(tasks, func(a, b string) int {
		switch {
		case p.pins[a] == p.pins[b]:
			return 0
		case p.pins[a]:
			return 1
		}
		return -1
	})
	pinned := 0
	for _, task := range tasks {
		if p.pins[task] && (p.on == "" || p.on == worker) {
			pinned++
		}
	}
	if p.n != nil {
		pinned = p.n(len(tasks), pinned)
	}
	orchestrator.Pin(ctx, pinned)
	return tasks, err
}

// batchPinning is a pinning that is an Applier.
type batchPinning struct{ *pinning }

func (p *batchPinning) Apply(ctx context.Context, worker string, writes []orchestrator.Write[string]) []error {
	return (&batchWire{p.wire}).Apply(ctx, worker, writes)
}

// withPins runs a test with both kinds of Communicators that pin the tasks in pins.
func withPins(t *testing.T, g given, test func(t *testing.T, f *fleet, p *pinning)) {
	t.Helper()
	for _, batches := range []bool{false, true} {
		t.Run(fmt.Sprint("batches ", batches), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pinning{wire: newWire(t), pins: make(map[string]bool)}
				var comm orchestrator.Communicator[string, string] = p
				if batches {
					comm = &batchPinning{p}
				}
				test(t, newFleetOn(t, p.wire, comm, g), p)
			})
		})
	}
}

// pin pins the tasks that run on a worker.
func (p *pinning) pin(tasks ...string) {
	for _, task := range tasks {
		p.pins[task] = true
	}
}

// A drain waits for pinned tasks, says so, and uses no budget for them.
func TestP24_ADrainWaitsForPinnedTasks(t *testing.T) {
	withPins(t, given{workers: 2, running: 8, opts: options{orchestrator.WithMaxMoves(1)}}, func(t *testing.T, f *fleet, p *pinning) {
		has := f.RunsOn("w1")
		p.pin(has[0], has[1])
		require.NoError(t, f.DrainWorker("w1"))
		for left := 2; left > 0; left-- {
			f.term()
			require.Len(t, f.moves(), 1)
			require.Len(t, f.RunsOn("w1"), left+1)
			require.Equal(t, left-1, f.LastPlan().Stats.Deferred, "pinned tasks are not left for later")
		}
		f.forget()
		for range 3 {
			f.term()
		}
		require.Empty(t, f.writes())
		pinned := f.waitingFor(orchestrator.ReasonPinned)
		require.ElementsMatch(t, []waiting{
			{Task: has[0], Instances: 1, Reason: orchestrator.ReasonPinned, Worker: "w1", Named: true},
			{Task: has[1], Instances: 1, Reason: orchestrator.ReasonPinned, Worker: "w1", Named: true},
		}, pinned)
		require.Empty(t, f.LastPlan().Paused)
		require.Zero(t, f.LastPlan().Stats.Instances.Missing)
		require.Zero(t, f.LastPlan().Stats.Instances.Unplaceable)
		require.Equal(t, pinned, f.plan(hypothesis{}).Waiting, "Plan knows it")

		clear(p.pins)
		f.term()
		f.term()
		require.Empty(t, f.RunsOn("w1"))
		f.requireSettled()
	})
}

// Pinned tasks count, and do not move for an even spread: others do.
func TestP24_PinnedTasksDoNotMove(t *testing.T) {
	withPins(t, given{workers: 2, running: 12}, func(t *testing.T, f *fleet, p *pinning) {
		stays := slices.Concat(f.RunsOn("w1"), f.RunsOn("w2")[:2])
		p.pin(stays...)
		f.join("w3")
		f.term()
		require.Equal(t, []int{6, 3, 3}, f.loads(), "as even as it can be")
		for _, task := range stays {
			require.NotEqual(t, []string{"w3"}, f.Running(task))
		}
		f.forget()
		f.term()
		require.Empty(t, f.writes())
		clear(p.pins)
		f.term()
		require.Equal(t, []int{4, 4, 4}, f.loads())
		f.requireNeverTwice()
	})
}

// Of surplus copies those stop first that are not pinned.
func TestP24_SurplusIsTrimmedElsewhereFirst(t *testing.T) {
	withPins(t, given{workers: 3}, func(t *testing.T, f *fleet, p *pinning) {
		f.run("w1", "a b c d e") // w1 has the most, and would lose its copy
		f.run("w2", "a")
		f.run("w3", "a")
		f.expectNamed("a", "b", "c", "d", "e")
		p.n = func(listed, _ int) int {
			if listed == 5 { // w1
				return 5
			}
			return 0
		}
		f.term()
		require.Equal(t, []string{"w1"}, f.Running("a"))
		require.Equal(t, []int{5, 0, 0}, f.loads())
	})
}

// expectNamed replaces what is expected by these tasks.
func (f *fleet) expectNamed(names ...string) {
	f.t.Helper()
	all := make([]task, len(names))
	for i, name := range names {
		all[i].Name = name
	}
	require.NoError(f.t, f.UpdateTasks(all))
}

// If all copies are pinned, surplus ones stop nevertheless, and so do tasks that are
// expected no longer.
func TestP24_PinnedTasksStop(t *testing.T) {
	withPins(t, given{workers: 2}, func(t *testing.T, f *fleet, p *pinning) {
		f.run("w1", "a b")
		f.run("w2", "a")
		p.pin("a", "b")
		f.expectNamed("a")
		f.term()
		require.Len(t, f.Running("a"), 1)
		require.Empty(t, f.Running("b"))
	})
}

// n counts from the end of the list; what is too much or too little is cut off.
func TestC8_PinCounts(t *testing.T) {
	for _, test := range []struct{ n, stay int }{{-5, 0}, {0, 0}, {1, 1}, {3, 3}, {4, 4}, {1000, 4}} {
		t.Run(fmt.Sprint(test.n), func(t *testing.T) {
			withPins(t, given{workers: 2, running: 8}, func(t *testing.T, f *fleet, p *pinning) {
				list, err := f.Cluster.List(t.Context(), "w1")
				require.NoError(t, err)
				p.n = func(int, int) int { return test.n }
				require.NoError(t, f.DrainWorker("w1"))
				f.term()
				require.ElementsMatch(t, list[4-test.stay:], f.RunsOn("w1"))
			})
		})
	}
}

// The answer of this term counts, and no earlier one. A worker that does not answer
// keeps everything anyway.
func TestC8_PinHoldsForOneAnswer(t *testing.T) {
	withPins(t, given{workers: 3, running: 9}, func(t *testing.T, f *fleet, p *pinning) {
		p.pin(f.RunsOn("w1")...)
		require.NoError(t, f.DrainWorker("w1"))
		f.term()
		require.Len(t, f.waitingFor(orchestrator.ReasonPinned), 3)
		f.Cut("w1")
		f.anyTerm()
		require.Len(t, f.waitingFor(orchestrator.ReasonHeld), 3)
		clear(p.pins)
		f.heal()
		f.term()
		require.Empty(t, f.RunsOn("w1"))
		f.requireNeverTwice()
	})
}

// A call of List that fails after it has pinned pins nothing, and outside of List
// Pin does nothing.
func TestC8_PinOutsideOfList(t *testing.T) {
	require.NotPanics(t, func() { orchestrator.Pin(t.Context(), 3) })
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		pins := 4
		f := newFleetOn(t, w, communicator.Func[string, string]{
			ListFunc: func(ctx context.Context, worker string) ([]string, error) {
				if pins > 0 {
					orchestrator.Pin(ctx, pins)
					return nil, errBoom
				}
				return w.List(ctx, worker)
			},
			AddFunc: func(ctx context.Context, worker, task string) error {
				orchestrator.Pin(ctx, 5)
				return w.Add(ctx, worker, task)
			},
			RemoveFunc: w.Remove,
		}, given{workers: 2})
		pins = 0
		f.expect(8)
		f.term()
		pins = 4
		f.anyTerm()
		pins = 0
		require.NoError(t, f.DrainWorker("w1"))
		f.untilTerm(3, func() bool { return len(f.RunsOn("w1")) == 0 })
		require.Empty(t, f.RunsOn("w1"))
	})
}

// A late answer that pins serves the next term with its pins.
func TestC8_ALateAnswerPins(t *testing.T) {
	withPins(t, given{workers: 3, running: 9}, func(t *testing.T, f *fleet, p *pinning) {
		p.pin(f.RunsOn("w1")[0])
		f.Slow(3*time.Second, "w1")
		require.NoError(t, f.DrainWorker("w1"))
		f.term()
		require.Equal(t, []string{"w1"}, f.late())
		time.Sleep(5 * time.Second)
		f.Slow(0, "w1")
		f.term()
		require.Len(t, f.RunsOn("w1"), 1)
		require.Len(t, f.waitingFor(orchestrator.ReasonPinned), 1)
	})
}

// The stop of a surplus copy fails, and then its worker pins it. The other copy stops.
func TestP24_APinnedCopyIsNotStoppedAgain(t *testing.T) {
	withPins(t, given{workers: 3}, func(t *testing.T, f *fleet, p *pinning) {
		require.NoError(t, f.AddTask("x", orchestrator.WithTaskInstances(2)))
		f.term()
		require.NoError(t, f.AddTask("x"))
		f.intercept(on(orchestrator.OpRemove, "", "", fails(errBoom)))
		f.anyTerm()
		stop := f.changesOf("x")[0]
		p.on, p.pins["x"] = stop.From, true
		f.intercept(nil)
		f.untilTerm(10, func() bool { return len(f.Running("x")) == 1 })
		require.Equal(t, []string{stop.From}, f.Running("x"))
	})
}

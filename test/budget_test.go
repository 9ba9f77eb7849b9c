package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T10: how many healthy tasks a term may move.

// sumOfSquares is what the planner makes small: the lower, the more even.
func sumOfSquares(loads []int) (sum int) {
	for _, n := range loads {
		sum += n * n
	}
	return sum
}

// starts tells which tasks the last term started that nobody ran.
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
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4, orchestrator.WithMaxMoves(c.n))
				f.expect(100)
				f.term()
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
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4, orchestrator.WithMaxMoves(n))
				f.expect(40)
				f.term()
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
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4, orchestrator.WithMaxMoves(n))
				f.expect(100)
				f.term()
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

// What is surplus, and what nobody expects, is stopped at once too.
func TestT10_SurplusIsNeverLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4, orchestrator.WithMaxMoves(0))
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
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, orchestrator.WithMaxMoves(0))
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
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, orchestrator.WithMaxMoves(0))
		f.expect(8)
		f.term()
		f.join("w3")
		require.NoError(t, f.DrainWorker("w1"))
		f.forget()
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
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, orchestrator.WithMaxMoves(0))
		f.expect(8)
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
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, orchestrator.WithMaxMoves(n))
				f.expect(8)
				f.term()
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
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, orchestrator.WithMaxMoves(1))
		f.expect(8)
		f.term()
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
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, orchestrator.WithMaxMoves(2))
		f.expect(12)
		f.term()
		require.NoError(t, f.DrainWorker("w1"))
		first := f.RunsOn("w1")[0]
		f.intercept(on(orchestrator.OpRemove, "w1", first, func(context.Context) error { return errBoom }))
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
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 2)
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
	f := newFleet(t, 2+r.IntN(6), orchestrator.WithMaxMoves(n))
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

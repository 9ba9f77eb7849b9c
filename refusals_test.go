package orchestrator_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T9: what failed is avoided for a while, and who is to blame for it.

type avoided = orchestrator.Avoided[string, string]

// avoidedWorkers returns the workers that get nothing, by the last term.
func (f *fleet) avoidedWorkers() (found []string) {
	for _, a := range f.LastPlan().Avoided {
		if a.Whole {
			found = append(found, a.Worker)
		}
	}
	return found
}

// avoidedPairs returns the pairs that are avoided, by the last term.
func (f *fleet) avoidedPairs() (found []avoided) {
	for _, a := range f.LastPlan().Avoided {
		if !a.Whole {
			found = append(found, a)
		}
	}
	return found
}

// termNumber returns the number of the last term.
func (f *fleet) termNumber() uint64 { return f.LastPlan().Stats.Term.Number }

// addsTo returns the Adds to a worker since the last forget.
func (f *fleet) addsTo(worker string) []call {
	return f.calls(func(c call) bool { return c.Op == orchestrator.OpAdd && c.Worker == worker })
}

// refusePoison has every worker refuse the task called poison.
func (f *fleet) refusePoison() {
	f.Refuse(func(op orchestrator.Op, _, task string) error {
		if op == orchestrator.OpAdd && task == "poison" {
			return errRejected
		}
		return nil
	})
}

func TestT9_OneOfFourWorkersRejectsEverything(t *testing.T) {
	for name, err := range map[string]error{"rejected": errRejected, "unknown": errBoom} {
		t.Run(name, func(t *testing.T) {
			onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
				f := start(t, 4)
				f.failAdds(err, "w3")
				f.expect(100)
				f.failingTerm()
				f.term()
				f.requireAllRun()
				require.Zero(t, f.loads()[2])
				require.LessOrEqual(t, spread([]int{f.loads()[0], f.loads()[1], f.loads()[3]}), 1)
				require.Equal(t, []string{"w3"}, f.avoidedWorkers())
				require.Equal(t, 1, f.LastPlan().Stats.Workers.Avoided)
			})
		})
	}
	t.Run("hangs", func(t *testing.T) {
		onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
			f := start(t, 4)
			f.HoldWrites("w3")
			f.expect(100)
			f.failingTerm()
			f.term()
			f.requireAllRun()
		})
	})
}

// However long it lasts: every task runs at the end of every term, and one task
// at most is tried.
func TestT9_ABrokenWorkerDoesLittleHarm(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.failAdds(errRejected, "w3")
		f.expect(100)
		f.failingTerm()
		last := f.termNumber()
		f.term()
		var waits []uint64
		for range 299 {
			f.forget()
			err := f.NextTerm(t.Context())
			f.requireAllRun()
			if tried := f.addsTo("w3"); len(tried) > 0 {
				require.Len(t, tried, 1, "a probe is one task")
				require.Len(t, f.LastPlan().Changes, 1)
				require.Error(t, err)
				waits = append(waits, f.termNumber()-last-1)
				last = f.termNumber()
			} else {
				require.NoError(t, err)
				require.Empty(t, f.writes())
			}
		}
		require.Equal(t, []uint64{1, 2, 4, 8, 16, 32, 64, 64, 64}, waits, "terms between two probes")
		require.Equal(t, []string{"w3"}, f.avoidedWorkers())
	})
}

// A poison task is avoided pair by pair, for 1, 2, 4, … terms, 64 at most.
func TestT9_PoisonTask_Backoff(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 1)
		f.refusePoison()
		f.expect(3)
		require.NoError(t, f.AddTask("poison"))
		var tried []uint64
		for range 300 {
			f.forget()
			_ = f.NextTerm(t.Context())
			for _, c := range f.sent(orchestrator.OpAdd) {
				if c.Task == "poison" {
					tried = append(tried, f.termNumber())
				}
			}
			require.Len(t, f.RunsOn("w1"), 3)
			require.Empty(t, f.avoidedWorkers())
			require.Equal(t, 1, f.LastPlan().Stats.Instances.Missing)
		}
		var waits []uint64
		for i := range tried[1:] {
			waits = append(waits, tried[i+1]-tried[i]-1)
		}
		require.Equal(t, []uint64{1, 2, 4, 8, 16, 32, 64, 64, 64}, waits)
	})
}

// It goes from worker to worker, closes none of them, and LastPlan tells who,
// until when and why.
func TestT9_PoisonTask_ClosesNobody(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 3)
		f.refusePoison()
		f.expect(6)
		f.term()
		require.NoError(t, f.AddTask("poison"))
		tried := make(map[string]int)
		for range 20 {
			f.forget()
			_ = f.NextTerm(t.Context())
			require.Equal(t, []int{2, 2, 2}, f.loads())
			adds := f.sent(orchestrator.OpAdd)
			if len(adds) == 0 {
				continue
			}
			require.Len(t, adds, 1)
			require.Equal(t, "poison", adds[0].Task)
			tried[adds[0].Worker]++

			require.Empty(t, f.avoidedWorkers())
			require.Zero(t, f.LastPlan().Stats.Workers.Avoided)
			for _, row := range f.LastPlan().Workers {
				require.False(t, row.Avoided)
			}
			at := slices.IndexFunc(f.avoidedPairs(), func(a avoided) bool { return a.Worker == adds[0].Worker })
			require.GreaterOrEqual(t, at, 0)
			a := f.avoidedPairs()[at]
			require.Equal(t, "poison", a.Task)
			require.Equal(t, tried[a.Worker], a.Failures)
			require.Equal(t, f.termNumber()+1+1<<(a.Failures-1), a.Until, "1, 2, 4, … terms go by")
			require.ErrorIs(t, a.Err, orchestrator.ErrRejected)
		}
		require.Len(t, tried, 3, "each of them")

		// Everyone gets healthy tasks all the same.
		for _, name := range names("more", 9) {
			require.NoError(t, f.AddTask(name))
		}
		_ = f.NextTerm(t.Context())
		require.GreaterOrEqual(t, slices.Min(f.loads()), 4)
		require.Len(t, slices.Concat(f.RunsOn("w1"), f.RunsOn("w2"), f.RunsOn("w3")), 15)
	})
}

// No try has anything healthy moved out of its way, though an even spread with
// the poison in it would be another one. Once it runs the spread is made even.
func TestT9_PoisonTask_MovesNobody(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 3)
		f.refusePoison()
		f.expect(6)
		f.term()
		require.NoError(t, f.AddTask("poison", orchestrator.WithTaskInstances(2)))
		_ = f.NextTerm(t.Context())
		_ = f.NextTerm(t.Context())
		require.NoError(t, f.AddTask("more1"))
		require.NoError(t, f.AddTask("more2"))
		_ = f.NextTerm(t.Context())
		f.forget()
		tries := 0
		for range 150 {
			_ = f.NextTerm(t.Context())
			stats := f.LastPlan().Stats
			require.Empty(t, f.sent(orchestrator.OpRemove))
			require.Equal(t, stats.LowerBound, stats.Adds)
			require.Equal(t, 2, stats.Instances.Missing)
			tries += stats.Adds
		}
		require.Greater(t, tries, 10)
		require.Len(t, f.sent(orchestrator.OpAdd), tries, "of poison alone")

		f.Refuse(nil)
		for range 70 {
			f.term()
		}
		f.requireSettled()
		require.Len(t, f.Running("poison"), 2)
		loads := f.loads()
		slices.Sort(loads)
		require.Equal(t, []int{3, 3, 4}, loads)
	})
}

// Where every worker is avoided, the task waits, and says so.
func TestT9_PoisonTask_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.refusePoison()
		f.expect(1)
		require.NoError(t, f.AddTask("poison"))
		f.failingTerm()
		f.forget()
		f.term()
		require.Empty(t, f.writes())
		require.Equal(t, []waiting{{Task: "poison", Instances: 1, Reason: orchestrator.ReasonAvoided}}, f.LastPlan().Waiting)
		require.Equal(t, 1, f.LastPlan().Stats.Instances.Unplaceable)
	})
}

// A task that is poisonous no longer runs at the next try, and its record is
// clean.
func TestT9_PoisonTask_Cured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.refusePoison()
		f.expect(1)
		require.NoError(t, f.AddTask("poison"))
		f.failingTerm()
		f.term()
		f.Refuse(nil)
		f.term()
		require.Equal(t, []string{"w1"}, f.Running("poison"))
		require.Empty(t, f.LastPlan().Avoided)
	})
}

// What a broken worker refused is avoided there, and nowhere else.
func TestT9_BrokenWorkerMakesNoTaskLookPoisonous(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.failAdds(errRejected, "w3")
		f.expect(100)
		f.failingTerm()
		require.Equal(t, []string{"w3"}, f.avoidedWorkers())
		for _, a := range f.avoidedPairs() {
			require.Equal(t, "w3", a.Worker)
		}
		f.term()
		f.requireAllRun() // also those that w3 refused

		// Repaired, it takes any of them again.
		f.Refuse(nil)
		f.term()
		f.term()
		require.Equal(t, []int{25, 25, 25, 25}, f.loads())
		require.Empty(t, f.LastPlan().Avoided)
	})
}

// To be fenced off is nobody's fault.
func TestT9_FencedOffIsNobodysFault(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 3)
		f.expect(9)
		f.failAdds(fmt.Errorf("seen a later one: %w", orchestrator.ErrStale), "w2")
		for range 3 {
			require.ErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrStale)
			require.Empty(t, f.LastPlan().Avoided)
			f.forget()
		}
		f.Refuse(nil)
		f.term()
		require.Equal(t, []int{3, 3, 3}, f.loads())
		f.requireNeverTwice()
	})
}

// Nor is a stop that is still under way.
func TestT9_StoppingIsNobodysFault(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 2)
		f.expect(4)
		f.failAdds(orchestrator.ErrStopping, "w2")
		require.NoError(t, f.NextTerm(t.Context()))
		require.Empty(t, f.LastPlan().Avoided)
	})
}

// An Add that seemed to fail, but is listed, did not fail.
func TestT9_ListedAfterAllIsForgiven(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 2)
		f.expect(1)
		f.intercept(func(_ context.Context, c call) error {
			if c.Op == orchestrator.OpAdd {
				f.LoseAnswers(c.Worker)
			}
			return nil
		})
		f.failingTerm()
		require.Len(t, f.avoidedWorkers(), 1, "it runs nothing, as far as is known")
		require.Len(t, f.avoidedPairs(), 1)

		f.intercept(nil)
		f.Heal()
		f.expect(2)
		f.term()
		require.Empty(t, f.LastPlan().Avoided)
		require.Equal(t, []int{1, 1}, f.loads())
		f.requireSettled()
	})
}

// A worker that is removed and added again starts with a clean record.
func TestT9_ANewWorkerOfTheSameNameIsInnocent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.failAdds(errRejected, "w2")
		f.expect(8)
		f.failingTerm()
		require.Equal(t, []string{"w2"}, f.avoidedWorkers())
		f.Refuse(nil)
		f.RemoveWorker("w2")
		f.join("w2")
		f.term()
		require.Empty(t, f.LastPlan().Avoided)
		require.Equal(t, []int{4, 4}, f.loads())
	})
}

// What is held against a task goes with it.
func TestT9_ARemovedTaskIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.refusePoison()
		f.expect(1)
		require.NoError(t, f.AddTask("poison"))
		f.failingTerm()
		f.RemoveTask("poison")
		f.term()
		require.Empty(t, f.LastPlan().Avoided)
	})
}

// A worker that comes back from silence while it is avoided stays avoided.
func TestT9_SilenceDoesNotForgive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.failAdds(errRejected, "w3")
		f.expect(9)
		f.failingTerm()
		f.Cut("w3")
		f.failingTerm()
		f.Heal()
		f.forget()
		_ = f.NextTerm(t.Context())
		require.LessOrEqual(t, len(f.addsTo("w3")), 1, "a probe at most")
		require.Equal(t, []string{"w3"}, f.avoidedWorkers())
		f.requireAllRun()
	})
}

// A worker that hangs on Add, every time: one timeout for each probe.
func TestT9_HangingWorker(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.HoldWrites("w3")
		f.expect(40)
		var long int
		for range 19 {
			took, _ := f.timedTerm()
			if took > 0 {
				require.LessOrEqual(t, took, timeout+time.Second)
				long++
			}
		}
		require.Equal(t, 4, long, "the terms 1, 3, 6 and 11")
		f.requireNeverTwice()
	})
}

// What was held against a pair is forgotten when it could have been tried again
// for long: the next failure is a first one.
func TestT9_OldFailuresAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(2)
		f.term()
		require.NoError(t, f.AddTask("picky"))
		f.Refuse(func(op orchestrator.Op, worker, task string) error {
			if op == orchestrator.OpAdd && worker == "w1" && task == "picky" {
				return errRejected
			}
			return nil
		})
		f.failingTerm()
		for range 2 * 64 { // the longest backoff, and as long again
			f.term()
		}
		require.Equal(t, []string{"w2"}, f.Running("picky"))
		f.Kill("w2")
		f.RemoveWorker("w2")
		f.failingTerm()
		require.Len(t, f.avoidedPairs(), 1)
		require.Equal(t, 1, f.avoidedPairs()[0].Failures)
	})
}

// A task that ran once, and now fails wherever it comes, keeps nobody from
// starting others: after its first failure it is the task that looks bad.
func TestT9_ATaskThatTurnsPoisonousStarvesNobody(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.expect(20)
		f.term()
		f.Refuse(func(op orchestrator.Op, _, task string) error {
			if op == orchestrator.OpAdd && task == "t1" {
				return orchestrator.ErrRejected
			}
			return nil
		})
		f.Start(f.Running("t1")...) // restarted empty
		for range 150 {
			_ = f.NextTerm(t.Context())
			require.LessOrEqual(t, f.LastPlan().Stats.Workers.Avoided, 1)
		}
		for i := range 40 {
			name := fmt.Sprint("fresh", i)
			require.NoError(t, f.AddTask(name))
			_ = f.NextTerm(t.Context())
			require.Len(t, f.Running(name), 1, "after one term")
		}
	})
}

package orchestrator_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T9: workers that are closed, and the probes that open them again.

// A worker that runs something and then refuses what has run elsewhere is
// closed: it keeps what it has, and gets nothing more.
func TestT9_ClosedWorkerKeepsWhatItHas(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.expect(40)
		f.term()
		kept := f.RunsOn("w2")
		f.failAdds(errRejected, "w2")
		f.Kill("w1")
		f.RemoveWorker("w1")
		f.workers = f.workers[1:]
		f.failingTerm()
		number := f.termNumber()
		require.Equal(t, []string{"w2"}, f.avoidedWorkers())
		a := f.LastPlan().Avoided[0]
		require.Equal(t, number+2, a.Until)
		require.Equal(t, 1, a.Failures)
		require.ErrorIs(t, a.Err, orchestrator.ErrRejected)

		f.forget()
		f.term()
		f.requireAllRun()
		require.Empty(t, f.addsTo("w2"))
		require.Equal(t, kept, f.RunsOn("w2"))
		require.Equal(t, []string{"w2"}, f.avoidedWorkers(), "it is not forgiven for what it has had all along")
		require.True(t, f.LastPlan().Workers[0].Avoided)

		var probes []uint64
		for range 30 {
			f.forget()
			_ = f.NextTerm(t.Context())
			require.Equal(t, kept, f.RunsOn("w2"))
			f.requireAllRun()
			if tried := f.addsTo("w2"); len(tried) > 0 {
				require.Len(t, tried, 1)
				probes = append(probes, f.termNumber()-number)
			}
		}
		require.Equal(t, []uint64{2, 5, 10, 19}, probes, "1, 2, 4, 8 terms in between")
	})
}

// It may lose what nobody expects any more, and what is surplus.
func TestT9_ClosedWorkerMayLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(8)
		f.term()
		f.failAdds(errRejected, "w1")
		f.Kill("w2")
		f.RemoveWorker("w2")
		f.failingTerm()
		require.Equal(t, []string{"w1"}, f.avoidedWorkers())

		gone := f.RunsOn("w1")[0]
		f.RemoveTask(gone)
		f.forget()
		_ = f.NextTerm(t.Context())
		require.Contains(t, f.writes(), "remove "+gone+" w1")
		require.Len(t, f.RunsOn("w1"), 3)
	})
}

// After its backoff it is probed with one task, and then gets its share.
func TestT9_ProbedWithOneTask_ThenItsShare(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.failAdds(errRejected, "w3")
		f.expect(100)
		f.failingTerm()
		f.Refuse(nil) // it is repaired at once, but nobody knows
		f.forget()
		f.term()
		require.Empty(t, f.addsTo("w3"), "its backoff")

		f.forget()
		f.term()
		require.Len(t, f.addsTo("w3"), 1, "the probe")
		probe := f.LastPlan().Changes[0]
		require.Equal(t, orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonProbe}, probe.Kind)
		require.Equal(t, "w3", probe.To)
		require.Equal(t, []string{"w3"}, f.Running(probe.Task))
		require.Empty(t, f.LastPlan().Avoided)

		f.forget()
		f.term()
		require.Len(t, f.addsTo("w3"), 24, "its share")
		require.Equal(t, []int{25, 25, 25, 25}, f.loads())
		f.requireNeverTwice()
		f.requireSettled()
	})
}

// A probe is something missing where there is something: that puts nothing at
// risk.
func TestT9_ProbedWithWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.failAdds(errRejected, "w3")
		f.expect(9)
		f.failingTerm()
		f.term()
		f.Refuse(nil)
		for _, name := range names("new", 4) {
			require.NoError(t, f.AddTask(name))
		}
		f.forget()
		f.term()
		require.Len(t, f.addsTo("w3"), 1)
		require.Empty(t, f.sent(orchestrator.OpRemove))
		f.requireAllRun()
	})
}

// What failed elsewhere too and never ran is no probe: it would say nothing
// about the worker.
func TestT9_PoisonIsNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(4)
		f.Refuse(func(op orchestrator.Op, worker, task string) error {
			if op == orchestrator.OpAdd && (worker == "w2" || task == "poison") {
				return errRejected
			}
			return nil
		})
		f.failingTerm() // w2 is closed
		require.NoError(t, f.AddTask("poison"))
		f.failingTerm() // w1 refuses the poison
		f.refusePoison()
		f.forget()
		_ = f.NextTerm(t.Context()) // w2 is on probation, and repaired
		require.Len(t, f.addsTo("w2"), 1)
		require.NotEqual(t, "poison", f.addsTo("w2")[0].Task)
		require.Len(t, f.RunsOn("w2"), 1)
		require.Empty(t, f.avoidedWorkers())
	})
}

// With several workers on probation each is probed with a task of its own.
func TestT9_EachIsProbedOnItsOwn(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 5)
		f.failAdds(errRejected, "w1", "w2", "w3")
		f.expect(20)
		f.failingTerm()
		f.term()
		f.forget()
		f.failingTerm()
		probed := make(map[string]string)
		for _, w := range []string{"w1", "w2", "w3"} {
			adds := f.addsTo(w)
			require.Len(t, adds, 1)
			probed[adds[0].Task] = w
		}
		require.Len(t, probed, 3)
		f.requireAllRun()
	})
}

// One that took something in the same term is not closed, whatever else it
// refused.
func TestT9_AStartInTheSameTermKeepsItOpen(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 2)
		f.expect(10)
		f.refuseOne("w1", 2)
		require.Len(t, f.failingTerm(), 1)
		require.Empty(t, f.avoidedWorkers())
		require.Len(t, f.avoidedPairs(), 1)
		f.term()
		f.requireAllRun()
		require.Equal(t, []int{5, 5}, f.loads())
	})
}

// Where nobody else could take what is missing, the probe is one of that.
func TestT9_NobodyIsOpen(t *testing.T) {
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
				f := start(t, workers)
				f.failAdds(errRejected)
				f.expect(12)
				f.failingTerm()
				require.Len(t, f.avoidedWorkers(), workers)
				f.term() // their backoff
				require.Equal(t, 12, f.LastPlan().Stats.Instances.Unplaceable)
				f.Refuse(nil)
				f.forget()
				f.term()
				for _, w := range f.workers {
					require.Len(t, f.addsTo(w), 1, "the probe of %s", w)
				}
				require.Equal(t, 12-workers, f.LastPlan().Stats.Instances.Missing)
				require.Empty(t, f.LastPlan().Avoided)
				f.term()
				f.requireSettled()
			})
		})
	}
}

// Also where everyone has refused everything for a while: no task is left that
// failed nowhere else, and yet they go on trying.
func TestT9_EverybodyRefusedEverything(t *testing.T) {
	for _, tasks := range []int{1, 4} {
		t.Run(fmt.Sprint(tasks, " tasks"), func(t *testing.T) {
			onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
				f := start(t, 3)
				f.failAdds(errRejected)
				f.expect(tasks)
				for range 100 {
					_ = f.NextTerm(t.Context())
				}
				f.Refuse(nil)
				for range 66 { // the longest backoff, the probe, and the others' share
					_ = f.NextTerm(t.Context())
				}
				f.requireAllRun()
			})
		})
	}
}

// Nor is anything healthy moved for a probe where something has no place.
func TestT9_ProbedWithWhatHasNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.failAdds(errRejected, "w2")
		f.expect(4, orchestrator.WithTaskInstances(2))
		f.failingTerm()
		f.term()
		require.Equal(t, 4, f.LastPlan().Stats.Instances.Unplaceable)
		f.Refuse(nil)
		f.forget()
		f.term()
		require.Len(t, f.addsTo("w2"), 1)
		require.Empty(t, f.sent(orchestrator.OpRemove))
		require.Equal(t, 3, f.LastPlan().Stats.Instances.Unplaceable)
		f.term()
		f.requireSettled()
	})
}

// A worker on probation is not probed with something healthy where the spread
// would be no better for it.
func TestT9_NoProbeForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(9)
		f.term()
		f.failAdds(errRejected, "w2")
		f.Kill("w3")
		f.RemoveWorker("w3")
		f.failingTerm()
		for _, task := range f.RunsOn("w1")[:2] {
			f.RemoveTask(task)
		}
		f.term()
		require.Equal(t, []int{4, 3, 0}, f.loads())
		f.forget()
		for range 30 {
			f.term()
		}
		require.Empty(t, f.writes())
		require.Equal(t, []string{"w2"}, f.avoidedWorkers())
	})
}

// A worker that is closed for tasks that are gone by now is probed all the same.
func TestT9_ClosedForTasksThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.failAdds(errRejected, "w2")
		f.expect(12)
		for _, failure := range f.failingTerm() {
			f.RemoveTask(failure.Task)
		}
		f.Refuse(nil)
		f.term()
		require.Equal(t, []string{"w2"}, f.avoidedWorkers())
		f.term()
		require.Len(t, f.RunsOn("w2"), 1, "the probe")
		f.term()
		require.Equal(t, []int{3, 3}, f.loads())
	})
}

// What waits on a draining worker, because nobody else is open, is a probe too:
// newcomers that failed while they were starting up get their share after all.
func TestT9_DrainOntoAWorkerOnProbation(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n, " replaced"), func(t *testing.T) {
			onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
				f := start(t, n)
				f.expect(12)
				f.term()
				old := f.workers
				fresh := names("new", n)
				f.join(fresh...)
				for _, name := range old {
					require.NoError(t, f.DrainWorker(name))
				}
				f.failAdds(errRejected, fresh...)
				f.failingTerm()
				require.Equal(t, fresh, f.avoidedWorkers())
				f.Refuse(nil)
				f.term() // their backoff

				f.forget()
				f.term()
				for _, name := range fresh {
					require.Len(t, f.addsTo(name), 1, "the probe")
				}
				require.Empty(t, f.LastPlan().Avoided)
				for _, c := range f.LastPlan().Changes {
					require.Equal(t, orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonDrain}, c.Kind)
				}
				require.Len(t, f.waitingFor(orchestrator.ReasonNoWorker), 12-n, "the rest")

				f.term()
				for i, load := range f.loads() {
					require.Equal(t, []int{0, 12 / n}[i/n], load)
				}
				f.requireNeverTwice()
				f.requireSettled()
			})
		})
	}
}

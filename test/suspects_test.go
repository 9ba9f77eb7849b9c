package test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T9: tasks that fail to start. quarantine_test.go holds the tests of workers that
// fail to start tasks.

// refusePoison makes every worker refuse the task called poison.
func (f *fleet) refusePoison() {
	f.Refuse(func(op orchestrator.Op, _, task string) error {
		if op == orchestrator.OpAdd && task == "poison" {
			return errRejected
		}
		return nil
	})
}

// withPoison starts a fleet on which a task runs for each of n names, and adds the
// task poison, which every worker refuses.
func withPoison(t *testing.T, start func(*testing.T, int, ...option) *fleet, workers, n int, opts ...orchestrator.TaskOption) *fleet {
	t.Helper()
	f := start(t, workers)
	f.expect(n)
	f.term()
	f.refusePoison()
	require.NoError(t, f.AddTask("poison", opts...))
	return f
}

// A single worker tries it again after 1, 2, 4, 8 and then 16 terms.
func TestT9_PoisonOnOneWorker(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := withPoison(t, start, 1, 3)
		var tried []uint64
		for range 100 {
			f.anyTerm()
			if len(f.sent(orchestrator.OpAdd)) > 0 {
				tried = append(tried, f.termNumber())
			}
			require.Len(t, f.RunsOn("w1"), 3)
			require.Empty(t, f.quarantined())
			require.Equal(t, 1, f.LastPlan().Stats.Instances.Missing)
		}
		var waits []uint64
		for i := range tried[1:] {
			waits = append(waits, tried[i+1]-tried[i]-1)
		}
		require.Equal(t, []uint64{1, 2, 4, 8, 16, 16, 16, 16}, waits)
	})
}

// It goes from worker to worker and quarantines none. LastPlan tells where it failed
// last, until when it pauses, and why.
func TestT9_PoisonQuarantinesNoWorker(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := withPoison(t, start, 3, 6)
		tried := make(map[string]int)
		last := ""
		for range 50 {
			f.anyTerm()
			require.Equal(t, []int{2, 2, 2}, f.loads())
			require.Empty(t, f.quarantined())
			require.Zero(t, f.LastPlan().Stats.Workers.Quarantined)
			adds := f.sent(orchestrator.OpAdd)
			if len(adds) == 0 {
				require.Equal(t, []waiting{{Task: "poison", Instances: 1, Reason: orchestrator.ReasonPaused}}, f.LastPlan().Waiting)
				continue
			}
			require.Len(t, adds, 1)
			require.NotEqual(t, last, adds[0].Worker, "another worker than the last")
			last = adds[0].Worker
			tried[last]++
			require.Len(t, f.LastPlan().Paused, 1)
			p := f.LastPlan().Paused[0]
			failures := tried["w1"] + tried["w2"] + tried["w3"]
			kind := orchestrator.PauseTask
			if failures == 1 {
				kind = orchestrator.PauseStart
			}
			require.Equal(t, pause{Kind: kind, Worker: last, Task: "poison", Until: p.Until, Failures: failures, Err: p.Err}, p)
			require.Greater(t, p.Until, f.termNumber()+1)
			require.ErrorIs(t, p.Err, orchestrator.ErrRejected)
		}
		require.Len(t, tried, 3)

		// All workers get healthy tasks meanwhile.
		for _, name := range names("more", 9) {
			require.NoError(t, f.AddTask(name))
		}
		f.anyTerm()
		require.Equal(t, []int{5, 5, 5}, f.loads())
	})
}

// No healthy task moves out of its way, though an even spread with the poison in it
// would be another one. Once it runs the spread becomes even.
func TestT9_PoisonMovesNoHealthyTask(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := withPoison(t, start, 3, 6, orchestrator.WithTaskInstances(2))
		f.anyTerm()
		f.anyTerm()
		require.NoError(t, f.AddTask("more1"))
		require.NoError(t, f.AddTask("more2"))
		f.anyTerm()
		tries := 0
		for range 150 {
			f.anyTerm()
			stats := f.LastPlan().Stats
			require.Empty(t, f.sent(orchestrator.OpRemove))
			require.Len(t, f.sent(orchestrator.OpAdd), stats.Adds, "of poison alone")
			require.Equal(t, stats.LowerBound, stats.Adds)
			require.Equal(t, 2, stats.Instances.Missing)
			tries += stats.Adds
		}
		require.Greater(t, tries, 10)

		f.Refuse(nil)
		for range 20 {
			f.anyTerm()
		}
		f.requireSettled()
		require.Equal(t, []int{4, 3, 3}, descending(f.loads()))
	})
}

// A copy of a suspect that runs stays, and moves only for a drain.
func TestT9_ARunningCopyOfASuspectStays(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.expect(8)
		require.NoError(t, f.AddTask("poison"))
		f.term()
		home := f.Running("poison")[0]
		f.refusePoison()
		require.NoError(t, f.AddTask("poison", orchestrator.WithTaskInstances(3)))
		for range 20 {
			f.anyTerm()
			require.Equal(t, []string{home}, f.Running("poison"))
		}
		require.Len(t, f.paused(orchestrator.PauseTask), 1)

		require.NoError(t, f.DrainWorker(home))
		for range 20 {
			f.anyTerm()
			require.Equal(t, []string{home}, f.Running("poison"), "it is given back")
		}
		require.Equal(t, []string{"poison"}, f.RunsOn(home))
		f.Refuse(nil)
		f.untilTerm(40, func() bool { return f.missing() == 0 && len(f.RunsOn(home)) == 0 })
		f.requireSettled()
		require.Empty(t, f.RunsOn(home))
	})
}

// If every worker failed to start it, the task waits, and LastPlan says so.
func TestT9_PoisonWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := withPoison(t, newFleet, 1, 1)
		f.failingTerm()
		f.forget()
		f.term()
		require.Empty(t, f.writes())
		require.Equal(t, []waiting{{Task: "poison", Instances: 1, Reason: orchestrator.ReasonPaused}}, f.LastPlan().Waiting)
		require.Equal(t, 1, f.LastPlan().Stats.Instances.Unplaceable)
	})
}

// A task that is poison no longer runs at the next try, and its record is clean.
func TestT9_PoisonThatIsCured(t *testing.T) {
	for _, failed := range []int{1, 2, 10} {
		onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
			f := withPoison(t, start, 2, 1)
			for range failed {
				f.anyTerm()
			}
			f.Refuse(nil)
			for range 20 {
				f.term()
			}
			require.Len(t, f.Running("poison"), 1)
			require.Empty(t, f.LastPlan().Paused)
		})
	}
}

// What a broken worker refused pauses there, and nowhere else.
func TestT9_ABrokenWorkerMakesNoTaskSuspect(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.failAdds(errRejected, "w3")
		f.expect(100)
		f.failingTerm()
		require.Len(t, f.paused(orchestrator.PauseStart), 25)
		for _, p := range f.LastPlan().Paused {
			require.Equal(t, "w3", p.Worker)
		}
		f.anyTerm()
		f.requireAllRun() // also those that w3 refused
		for range 10 {
			f.anyTerm()
			require.Empty(t, f.paused(orchestrator.PauseTask))
		}

		// Repaired, it takes any of them again.
		f.Refuse(nil)
		f.untilTerm(20, func() bool { return len(f.LastPlan().Paused) == 0 && spread(f.loads()) == 0 })
		require.Equal(t, []int{25, 25, 25, 25}, f.loads())
	})
}

// A task that ran, and now fails wherever it comes, keeps no worker from starting
// others.
func TestT9_ATaskThatTurnsPoisonousStarvesNoWorker(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.expect(19)
		require.NoError(t, f.AddTask("poison"))
		f.term()
		f.refusePoison()
		f.Start(f.Running("poison")...) // restarted empty
		for range 50 {
			f.anyTerm()
			require.Empty(t, f.quarantined())
		}
		for _, name := range names("fresh", 40) {
			require.NoError(t, f.AddTask(name))
			f.anyTerm()
			require.Len(t, f.Running(name), 1, "after one term")
		}
	})
}

// A start that seemed to fail, but is listed, did not fail.
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
		require.Len(t, f.paused(orchestrator.PauseStart), 1)
		f.intercept(nil)
		f.Heal()
		f.expect(2)
		f.term()
		require.Empty(t, f.LastPlan().Paused)
		require.Equal(t, []int{1, 1}, f.loads())
		f.requireSettled()
	})
}

// What is held against a task goes with it.
func TestT9_ARemovedTaskIsForgotten(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := withPoison(t, start, 2, 1)
		f.failingTerm()
		f.failingTerm()
		require.Len(t, f.paused(orchestrator.PauseTask), 1)
		f.RemoveTask("poison")
		f.term()
		require.Empty(t, f.LastPlan().Paused)
		require.NoError(t, f.AddTask("poison"))
		f.failingTerm()
		require.Equal(t, 1, f.LastPlan().Paused[0].Failures)
	})
}

// A suspect is not tried where it runs, and waits if there is no other worker.
func TestT9_ASuspectOnEveryWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(3)
		f.term()
		f.failAdds(errRejected, "w1", "w2")
		require.NoError(t, f.AddTask("picky", orchestrator.WithTaskInstances(3)))
		for range 30 {
			f.anyTerm()
			require.Equal(t, []string{"w3"}, f.Running("picky"))
			require.Empty(t, f.sent(orchestrator.OpRemove))
		}
		f.Refuse(nil)
		f.untilTerm(40, func() bool { return f.missing() == 0 })
		require.Equal(t, []string{"w1", "w2", "w3"}, slices.Sorted(slices.Values(f.Running("picky"))))
	})
}

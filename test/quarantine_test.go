package test

// T9: workers that fail to start tasks. suspects_test.go holds the tests of tasks
// that fail to start.

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

type pause = orchestrator.Pause[string, string]

// paused returns the pauses of a kind in the last plan.
func (f *fleet) paused(kind orchestrator.PauseKind) []pause {
	return filter(f.LastPlan().Paused, func(p pause) bool { return p.Kind == kind })
}

// quarantined returns the quarantined workers in the last plan.
func (f *fleet) quarantined() (found []string) {
	for _, p := range f.paused(orchestrator.PauseWorker) {
		found = append(found, p.Worker)
	}
	return found
}

// termNumber returns the number of the last term.
func (f *fleet) termNumber() uint64 { return f.LastPlan().Stats.Term.Number }

// addsTo returns the Adds to a worker since the last forget.
func (f *fleet) addsTo(worker string) []call {
	return f.calls(func(c call) bool { return c.Op == orchestrator.OpAdd && c.Worker == worker })
}

// anyTerm runs a term, with or without failures.
func (f *fleet) anyTerm() {
	f.forget()
	_ = f.NextTerm(f.t.Context())
}

// anyTerms runs n terms, with or without failures.
func (f *fleet) anyTerms(n int) {
	for range n {
		f.anyTerm()
	}
}

func TestT9_OneOfFourWorkersStartsNothing(t *testing.T) {
	for name, err := range map[string]error{"rejects": errRejected, "fails": errBoom} {
		t.Run(name, bothWires(given{workers: 4}, func(t *testing.T, f *fleet) {
			f.failAdds(err, "w3")
			f.expect(100)
			f.failingTerm()
			require.Empty(t, f.quarantined(), "no other worker has started its tasks yet")
			f.anyTerm()
			if name == "rejects" { // otherwise one task is not given back: it may have started
				f.requireAllRun()
			}
			require.Equal(t, []string{"w3"}, f.quarantined())
			require.Equal(t, 1, f.LastPlan().Stats.Workers.Quarantined)
			require.Empty(t, f.paused(orchestrator.PauseTask), "no task is to blame")
			f.anyTerm()
			f.requireAllRun()
			require.Zero(t, f.loads()[2])
			require.LessOrEqual(t, spread([]int{f.loads()[0], f.loads()[1], f.loads()[3]}), 1)
		}))
	}
	t.Run("hangs", bothWires(given{workers: 4}, func(_ *testing.T, f *fleet) {
		f.HoldWrites("w3")
		f.expect(100)
		f.anyTerms(3)
		f.requireAllRun()
	}))
}

// However long the fault lasts, every task runs at the end of every term, and the worker
// is tried with one task after 1, 2, 4, 8 and then 16 terms.
func TestT9_ABrokenWorkerDoesLittleHarm(t *testing.T) {
	onBothWires(t, given{workers: 4}, func(t *testing.T, f *fleet) {
		f.failAdds(errRejected, "w3")
		f.expect(100)
		f.failingTerm()
		f.anyTerm()
		f.anyTerm() // the others are even
		last := f.termNumber() - 1
		var waits []uint64
		for range 99 {
			f.forget()
			err := f.NextTerm(t.Context())
			f.requireAllRun()
			if tried := f.addsTo("w3"); len(tried) > 0 {
				require.Len(t, tried, 1)
				require.Len(t, f.LastPlan().Changes, 1)
				require.Equal(t, orchestrator.OutcomeReturned, f.LastPlan().Changes[0].Outcome)
				require.Error(t, err)
				waits = append(waits, f.termNumber()-last-1)
				last = f.termNumber()
			} else {
				require.NoError(t, err)
				require.Empty(t, f.writes())
			}
		}
		require.Equal(t, []uint64{1, 2, 4, 8, 16, 16, 16, 16}, waits)
		require.Equal(t, []string{"w3"}, f.quarantined())
		f.requireNeverTwice()
	})
}

// A worker that runs tasks, and fails to start those of another one, keeps its tasks and
// gains none.
func TestT9_AQuarantinedWorkerKeepsItsTasks(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 40}, func(t *testing.T, f *fleet) {
		kept := f.RunsOn("w2")
		f.failAdds(errRejected, "w2")
		f.Kill("w1")
		f.RemoveWorker("w1")
		f.workers = f.workers[1:]
		f.failingTerm()
		f.anyTerm()
		f.requireAllRun()
		require.Equal(t, []string{"w2"}, f.quarantined())
		p := f.paused(orchestrator.PauseWorker)[0]
		require.Equal(t, f.termNumber()+2, p.Until)
		require.Equal(t, 1, p.Failures)
		require.ErrorIs(t, p.Err, orchestrator.ErrRejected)
		require.True(t, f.LastPlan().Workers[0].Quarantined)
		for range 30 {
			f.anyTerm()
			require.Equal(t, kept, f.RunsOn("w2"))
			require.LessOrEqual(t, len(f.addsTo("w2")), 1, "a trial is one task")
			f.requireAllRun()
		}
		require.Equal(t, []string{"w2"}, f.quarantined(), "its tasks of before speak for nothing")
	})
}

// quarantine empties a worker of f and makes it quarantined.
func (f *fleet) quarantine(worker string) {
	f.t.Helper()
	f.failAdds(errRejected, worker)
	for range 5 {
		if len(f.quarantined()) > 0 {
			break
		}
		f.anyTerm()
	}
	require.Equal(f.t, []string{worker}, f.quarantined())
}

// A quarantined worker may lose unexpected tasks.
func TestT9_AQuarantinedWorkerMayLoseTasks(t *testing.T) {
	inBubble(t, given{workers: 3, running: 12}, func(t *testing.T, f *fleet) {
		f.failAdds(errRejected, "w1")
		f.Kill("w2")
		f.RemoveWorker("w2")
		f.failingTerm()
		f.anyTerm()
		require.Equal(t, []string{"w1"}, f.quarantined())
		gone := f.RunsOn("w1")[0]
		f.RemoveTask(gone)
		f.anyTerm()
		require.Contains(t, f.writes(), "remove "+gone+" w1")
		require.Equal(t, []string{"w1"}, f.quarantined())
	})
}

// After its pause, a quarantined worker gains one task, and then its share.
func TestT9_ATrialAndThenItsShare(t *testing.T) {
	onBothWires(t, given{workers: 4, expected: 100}, func(t *testing.T, f *fleet) {
		f.quarantine("w3")
		f.Refuse(nil) // it is repaired
		f.anyTerm()
		require.Empty(t, f.addsTo("w3"), "its pause")

		f.freshTerm()
		require.Len(t, f.addsTo("w3"), 1, "the trial")
		trial := f.LastPlan().Changes[0]
		require.Equal(t, orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance}, trial.Kind)
		require.Equal(t, "w3", trial.To)
		require.Empty(t, f.LastPlan().Paused)

		f.freshTerm()
		require.Len(t, f.addsTo("w3"), 24, "its share")
		require.Equal(t, []int{25, 25, 25, 25}, f.loads())
		f.requireNeverTwice()
		f.requireSettled()
	})
}

// A worker that refused every start for a long time, and then recovers, gets its share
// again.
func TestT9_ARecoveredWorkerGetsItsShare(t *testing.T) {
	for _, broken := range []int{3, 20, 200} {
		for name, fault := range map[string]func(context.Context) error{
			"refuses": func(context.Context) error { return errRejected },
			"fails":   func(context.Context) error { return errBoom },
			"hangs":   hang,
		} {
			t.Run(fmt.Sprintf("%s for %d terms", name, broken), bothWires(given{workers: 4}, func(t *testing.T, f *fleet) {
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
			}))
		}
	}
}

// If an instance is missing that has run, the trial starts it, and no healthy task moves. A new task
// is not used if a healthy one may move.
func TestT9_ATrialWithAMissingTask(t *testing.T) {
	inBubble(t, given{workers: 3, expected: 9}, func(t *testing.T, f *fleet) {
		f.quarantine("w3")
		f.anyTerm()
		f.Refuse(nil)
		lost := f.RunsOn("w2")
		f.Kill("w2")
		f.Start("w2")
		f.freshTerm()
		require.Len(t, f.addsTo("w3"), 1)
		require.Contains(t, lost, f.addsTo("w3")[0].Task)
		require.Empty(t, f.sent(orchestrator.OpRemove))
		f.requireAllRun()
		f.quarantine("w3")
		f.anyTerm()
		f.Refuse(nil)
		for _, name := range names("new", 4) {
			require.NoError(t, f.AddTask(name))
		}
		f.freshTerm()
		require.Len(t, f.addsTo("w3"), 1)
		require.NotContains(t, f.addsTo("w3")[0].Task, "new")
		f.requireAllRun()
	})
}

// The trial may also start an instance that has no place elsewhere.
func TestT9_ATrialWithATaskWithoutAPlace(t *testing.T) {
	inBubble(t, given{workers: 3, expected: 6}, func(t *testing.T, f *fleet) {
		f.quarantine("w3")
		f.expect(4, orchestrator.WithTaskInstances(3))
		f.anyTerm()
		require.Equal(t, 4, f.LastPlan().Stats.Instances.Unplaceable)
		f.Refuse(nil)
		f.freshTerm()
		require.Len(t, f.addsTo("w3"), 1)
		require.Empty(t, f.sent(orchestrator.OpRemove))
		require.Equal(t, 3, f.LastPlan().Stats.Instances.Unplaceable)
		f.term()
		f.requireSettled()
	})
}

// There is no trial with a healthy task if it would not make the spread more even.
func TestT9_NoTrialForNothing(t *testing.T) {
	inBubble(t, given{workers: 3, running: 9}, func(t *testing.T, f *fleet) {
		f.failAdds(errRejected, "w2")
		f.Kill("w3")
		f.RemoveWorker("w3")
		f.failingTerm()
		f.anyTerm()
		require.Equal(t, []string{"w2"}, f.quarantined())
		for _, task := range f.RunsOn("w1")[:2] {
			f.RemoveTask(task)
		}
		f.term()
		require.Equal(t, []int{4, 3, 0}, f.loads())
		f.requireQuiet(30)
		require.Equal(t, []string{"w2"}, f.quarantined())
	})
}

// Each of several quarantined workers is tried with a different task.
func TestT9_EachHasItsTrial(t *testing.T) {
	onBothWires(t, given{workers: 5}, func(t *testing.T, f *fleet) {
		f.failAdds(errRejected, "w1", "w2", "w3")
		f.expect(20)
		f.anyTerms(4)
		require.Equal(t, []string{"w1", "w2", "w3"}, f.quarantined())
		f.requireAllRun()
		tried := make(map[string]int)
		for range 16 {
			f.anyTerm()
			for _, w := range []string{"w1", "w2", "w3"} {
				require.LessOrEqual(t, len(f.addsTo(w)), 1)
				tried[w] += len(f.addsTo(w))
			}
			f.requireAllRun()
		}
		for _, w := range []string{"w1", "w2", "w3"} {
			require.GreaterOrEqual(t, tried[w], 2, w)
		}
		require.Empty(t, f.paused(orchestrator.PauseTask))
	})
}

// A worker that refuses one task, and starts others, is not quarantined.
func TestT9_OneTaskIsNotEnough(t *testing.T) {
	onBothWires(t, given{workers: 2, expected: 10}, func(t *testing.T, f *fleet) {
		f.refuseOne("w1", 2)
		require.Len(t, f.failingTerm(), 1)
		require.Len(t, f.paused(orchestrator.PauseStart), 1)
		for range 5 {
			f.term()
			require.Empty(t, f.quarantined())
			f.requireAllRun()
		}
		require.Equal(t, []int{5, 5}, f.loads())
	})
}

// A failure counts against its worker even after its task is no longer expected.
func TestT9_RemovedTasksStillCountAgainstTheirWorker(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 12}, func(t *testing.T, f *fleet) {
		failed := f.refusedTasks("w2")
		f.quarantine("w2")
		for task := range failed {
			f.RemoveTask(task)
		}
		f.Refuse(nil)
		f.term()
		require.Equal(t, []string{"w2"}, f.quarantined())
		f.term()
		require.Len(t, f.RunsOn("w2"), 1, "the trial")
		f.term()
		require.LessOrEqual(t, spread(f.loads()), 1)
	})
}

// refusedTasks returns the tasks that a worker was called to start. The set grows with
// each such call.
func (f *fleet) refusedTasks(worker string) map[string]bool {
	tasks := make(map[string]bool)
	f.intercept(func(_ context.Context, c call) error {
		if c.Op == orchestrator.OpAdd && c.Worker == worker {
			tasks[c.Task] = true
		}
		return nil
	})
	return tasks
}

// If all open workers would be quarantined, none is: missing instances start where they
// can.
func TestT9_TheLastOpenWorkerGetsWhatIsMissing(t *testing.T) {
	onBothWires(t, given{workers: 2, expected: 8}, func(t *testing.T, f *fleet) {
		f.quarantine("w2")
		f.Refuse(nil)
		f.Kill("w1")
		f.RemoveWorker("w1")
		f.term()
		require.Len(t, f.RunsOn("w2"), 8)
		f.term()
		require.Empty(t, f.LastPlan().Paused)
	})
}

// In that case no healthy task moves during the pause, and one at a time after it. So a
// drain continues once the receivers are repaired.
func TestT9_ADrainOntoQuarantinedWorkers(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n, " replaced"), bothWires(given{workers: n, running: 12}, func(t *testing.T, f *fleet) {
			old, fresh := f.workers, names("new", n)
			f.join(fresh...)
			for _, name := range old {
				require.NoError(t, f.DrainWorker(name))
			}
			f.failAdds(errRejected, fresh...)
			for len(f.quarantined()) < n {
				f.failingTerm()
			}
			tries := 0
			for range 40 {
				f.anyTerm()
				f.requireAllRun()
				require.LessOrEqual(t, len(f.moves()), 1)
				tries += len(f.moves())
			}
			require.Positive(t, tries)
			require.LessOrEqual(t, tries, 6*n)

			f.Refuse(nil)
			f.untilTerm(16+2*n, func() bool { return spread(f.loads()[n:]) == 0 && f.loads()[0] == 0 })
			for i, load := range f.loads() {
				require.Equal(t, []int{0, 12 / n}[i/n], load)
			}
			f.requireNeverTwice()
			f.requireSettled()
		}))
	}
}

// If every start was refused for a long time, all tasks run soon after the fault has
// ended.
func TestT9_AfterEveryWorkerRefusedEverything(t *testing.T) {
	for _, tasks := range []int{1, 4, 40} {
		t.Run(fmt.Sprint(tasks, " tasks"), bothWires(given{workers: 3}, func(t *testing.T, f *fleet) {
			f.failAdds(errRejected)
			f.expect(tasks)
			f.anyTerms(100)
			require.Empty(t, f.quarantined())
			f.Refuse(nil)
			f.anyTerms(20)
			f.requireAllRun()
		}))
	}
}

// Moves whose give-back fails count against no worker. No healthy task moves for 1, 2, 4,
// … terms, and then one at a time.
func TestT9_AFailedGiveBackPausesAllMoves(t *testing.T) {
	onBothWires(t, given{workers: 3, running: 30}, func(t *testing.T, f *fleet) {
		f.join("w4")
		f.failAdds(errRejected)
		f.failingTerm()
		last := f.termNumber()
		p := f.paused(orchestrator.PauseMoves)
		require.Len(t, p, 1)
		require.Equal(t, pause{Kind: orchestrator.PauseMoves, Until: last + 2, Failures: 1, Err: p[0].Err}, p[0])
		require.ErrorIs(t, p[0].Err, orchestrator.ErrRejected)
		var waits []uint64
		for range 40 {
			f.anyTerm()
			require.Empty(t, f.quarantined())
			require.LessOrEqual(t, len(f.moves()), 1)
			if len(f.moves()) == 1 {
				waits = append(waits, f.termNumber()-last-1)
				last = f.termNumber()
			}
		}
		require.Equal(t, []uint64{1, 2, 4, 8, 16}, waits)

		f.Refuse(nil)
		f.untilTerm(20, func() bool { return f.missing() == 0 && spread(f.loads()) <= 1 })
		require.Empty(t, f.paused(orchestrator.PauseMoves))
		f.requireAllRun()
		f.requireNeverTwice()
	})
}

// A worker that is removed and added again starts with a clean record.
func TestT9_ANewWorkerOfTheSameNameHasACleanRecord(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 8}, func(t *testing.T, f *fleet) {
		f.quarantine("w2")
		f.Refuse(nil)
		f.RemoveWorker("w2")
		f.join("w2")
		f.term()
		require.Empty(t, f.LastPlan().Paused)
		require.Equal(t, []int{4, 4}, f.loads())
	})
}

// Silence ends no quarantine.
func TestT9_SilenceEndsNoQuarantine(t *testing.T) {
	inBubble(t, given{workers: 3, expected: 9}, func(t *testing.T, f *fleet) {
		f.quarantine("w3")
		f.Cut("w3")
		f.failingTerm()
		require.Equal(t, []string{"w3"}, f.quarantined())
		f.Heal()
		f.anyTerm()
		require.LessOrEqual(t, len(f.addsTo("w3")), 1, "a trial")
		require.Equal(t, []string{"w3"}, f.quarantined())
		f.requireAllRun()
	})
}

// A write that a worker refused because of its fence counts against no worker.
func TestT9_FencedOffCountsAgainstNoWorker(t *testing.T) {
	onBothWires(t, given{workers: 3, expected: 9}, func(t *testing.T, f *fleet) {
		f.failAdds(fmt.Errorf("seen a later one: %w", orchestrator.ErrStale), "w2")
		for range 3 {
			require.ErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrStale)
			require.Empty(t, f.LastPlan().Paused)
			f.forget()
		}
		f.Refuse(nil)
		f.term()
		require.Equal(t, []int{3, 3, 3}, f.loads())
		f.requireNeverTwice()
	})
}

// A start that waits for a stop (ErrStopping) counts against no worker.
func TestT9_StoppingCountsAgainstNoWorker(t *testing.T) {
	onBothWires(t, given{workers: 2, expected: 4}, func(t *testing.T, f *fleet) {
		f.failAdds(orchestrator.ErrStopping, "w2")
		require.NoError(t, f.NextTerm(t.Context()))
		require.Empty(t, f.LastPlan().Paused)
	})
}

// Neither does a refused start of a task that was removed meanwhile: the transport may
// have refused it for that reason.
func TestT9_ARemovedTaskCountsAgainstNoWorker(t *testing.T) {
	onBothWires(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.AddTask("t1", orchestrator.WithTaskInstances(2)))
		f.intercept(on(orchestrator.OpAdd, "w2", "", func(context.Context) error {
			f.RemoveTask("t1")
			return errRejected
		}))
		f.anyTerm()
		require.Equal(t, []string{"t1"}, f.RunsOn("w1"))
		require.Empty(t, f.LastPlan().Paused)
		require.Empty(t, f.quarantined())
	})
}

// A task is removed while it moves, and the transport refuses its start. This does not
// pause moves.
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

// The log says when a quarantine begins and ends, that all moves pause, that tasks fail
// on several workers, and that missing tasks wait for a worker that never answered: once,
// and then once a minute.
func TestT9_TheLogSaysWhatPauses(t *testing.T) {
	inBubble(t, given{workers: 4}, func(t *testing.T, f *fleet) {
		f.failAdds(errRejected, "w3")
		f.expect(40)
		f.anyTerms(3)
		require.Len(t, f.log.lines("worker quarantined", `"level":"WARN"`, `"worker":"w3"`), 1)
		f.Refuse(nil)
		f.untilTerm(20, func() bool { return len(f.quarantined()) == 0 })
		require.Len(t, f.log.lines("worker no longer quarantined", `"level":"INFO"`, `"worker":"w3"`), 1)

		f.refusePoison()
		require.NoError(t, f.AddTask("poison"))
		f.anyTerms(10)
		require.Len(t, f.log.lines("tasks fail on several workers", `"level":"WARN"`, `"task":"poison"`), 1)
		f.RemoveTask("poison")

		f.failAdds(errBoom, "w1", "w2", "w3", "w4")
		require.NoError(t, f.DrainWorker("w1"))
		f.anyTerms(5)
		require.Len(t, f.log.lines("starts fail, moves paused", `"level":"WARN"`), 1)

		next := f.successor(orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
		next.Cut("w2")
		for range 3 {
			_ = next.NextTerm(t.Context())
		}
		require.Len(t, f.log.lines("worker never answered, missing tasks wait", `"level":"WARN"`, `"worker":"w2"`), 1)
	})
}

// WithMaxPause ends a pause even if few terms have run.
func TestT9_WithMaxPause(t *testing.T) {
	inBubble(t, given{workers: 2, opts: options{orchestrator.WithMaxPause(5 * time.Second)}}, func(t *testing.T, f *fleet) {
		f.refusePoison()
		f.expect(4)
		require.NoError(t, f.AddTask("poison"))
		tries := 0
		for range 50 {
			f.forget()
			_ = f.NextTerm(t.Context())
			tries += len(f.sent(orchestrator.OpAdd))
			time.Sleep(10 * time.Second)
		}
		require.GreaterOrEqual(t, tries, 4+25, "it is tried in every other term")
	})
}

// A pause ends after a minute, even if that is one term. A worker that refused every
// start for hours has its share a few terms after it recovered.
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

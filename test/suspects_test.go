package test

// T9: tasks that fail to start, and outages in which all starts fail.
// quarantine_test.go holds the tests of workers that fail to start tasks.

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// refusePoison makes every worker refuse the task called poison.
func (f *fleet) refusePoison() {
	f.refuse(orchestrator.OpAdd, "", "poison", errRejected)
}

// addPoison adds the task poison, which every worker refuses.
func (f *fleet) addPoison(opts ...orchestrator.TaskOption) {
	f.t.Helper()
	f.refusePoison()
	require.NoError(f.t, f.AddTask("poison", opts...))
}

// A single worker is tried again after 1, 2, 4, 8 and then 16 terms.
func TestT9_PoisonOnOneWorker(t *testing.T) {
	onBothWires(t, given{workers: 1, running: 3}, func(t *testing.T, f *fleet) {
		f.addPoison()
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

// The task is tried on one worker after the other, and none is quarantined. LastPlan says
// where it failed last, until when it pauses, and why.
func TestT9_PoisonQuarantinesNoWorker(t *testing.T) {
	onBothWires(t, given{workers: 3, running: 6}, func(t *testing.T, f *fleet) {
		f.addPoison()
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

// No healthy task makes room for the poison task, even if the spread with that task would
// be another. Once it runs, the spread becomes even.
func TestT9_PoisonMovesNoHealthyTask(t *testing.T) {
	onBothWires(t, given{workers: 3, running: 6}, func(t *testing.T, f *fleet) {
		f.addPoison(orchestrator.WithTaskInstances(2))
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
		f.anyTerms(20)
		f.requireSettled()
		require.Equal(t, []int{4, 3, 3}, descending(f.loads()))
	})
}

// A copy of a suspect that runs stays, and moves only for a drain.
func TestT9_ARunningCopyOfASuspectStays(t *testing.T) {
	onBothWires(t, given{workers: 4, expected: 8}, func(t *testing.T, f *fleet) {
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

// If every worker failed to start the task, it waits, and LastPlan gives the reason.
func TestT9_PoisonWaits(t *testing.T) {
	inBubble(t, given{workers: 1, running: 1}, func(t *testing.T, f *fleet) {
		f.addPoison()
		f.failingTerm()
		f.freshTerm()
		require.Empty(t, f.writes())
		require.Equal(t, []waiting{{Task: "poison", Instances: 1, Reason: orchestrator.ReasonPaused}}, f.LastPlan().Waiting)
		require.Equal(t, 1, f.LastPlan().Stats.Instances.Unplaceable)
	})
}

// A task that can be started again runs at its next try, and its failures are forgotten.
func TestT9_PoisonThatIsCured(t *testing.T) {
	for _, failed := range []int{1, 2, 10} {
		onBothWires(t, given{workers: 2, running: 1}, func(t *testing.T, f *fleet) {
			f.addPoison()
			f.anyTerms(failed)
			f.Refuse(nil)
			for range 20 {
				f.term()
			}
			require.Len(t, f.Running("poison"), 1)
			require.Empty(t, f.LastPlan().Paused)
		})
	}
}

// A task that a broken worker refused pauses there, and on no other worker.
func TestT9_ABrokenWorkerMakesNoTaskSuspect(t *testing.T) {
	onBothWires(t, given{workers: 4}, func(t *testing.T, f *fleet) {
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

// A task ran, and now fails wherever it is started. It does not keep a worker from
// starting others.
func TestT9_ATaskThatTurnsPoisonousStarvesNoWorker(t *testing.T) {
	onBothWires(t, given{workers: 4, expected: 19}, func(t *testing.T, f *fleet) {
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

// A start that failed, but whose task is listed, counts as done.
func TestT9_ATaskThatIsListedHasNotFailed(t *testing.T) {
	onBothWires(t, given{workers: 2, expected: 1}, func(t *testing.T, f *fleet) {
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

// The failures of a removed task are forgotten.
func TestT9_ARemovedTaskIsForgotten(t *testing.T) {
	onBothWires(t, given{workers: 2, running: 1}, func(t *testing.T, f *fleet) {
		f.addPoison()
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

// A suspect is not tried on a worker that runs it, and waits if there is no other.
func TestT9_ASuspectOnEveryWorker(t *testing.T) {
	inBubble(t, given{workers: 3, running: 3}, func(t *testing.T, f *fleet) {
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

// running counts the tasks that run.
func (f *fleet) running() (n int) {
	for _, load := range f.loads() {
		n += load
	}
	return n
}

// leastRunning returns the lowest number of tasks that ran at the same time after n of
// them ran.
func (f *fleet) leastRunning(n int) (least int) {
	least = n
	running, reached := 0, false
	for _, e := range f.Events() {
		switch e.Kind {
		case memory.TaskStarted:
			running++
		case memory.TaskStopped:
			running--
		}
		reached = reached || running == n
		if reached {
			least = min(least, running)
		}
	}
	return least
}

// Every start fails for ten minutes. The leader has a reason to move tasks, and each move
// stops one.
func TestT9_AnOutageOfAllStartsStopsLittle(t *testing.T) {
	reasons := []struct {
		name string
		give func(*fleet)
	}{
		{"a joiner", func(f *fleet) { f.join("w11") }},
		{"a drain", func(f *fleet) { require.NoError(f.t, f.DrainWorker("w1")) }},
	}
	faults := []struct {
		name  string
		fault func(context.Context) error
	}{
		{"refused", func(context.Context) error { return errRejected }},
		{"fail", func(context.Context) error { return errBoom }},
		{"hang", hang},
	}
	for _, reason := range reasons {
		for _, fault := range faults {
			t.Run(reason.name+", starts "+fault.name, bubble(given{workers: 10, running: 1000}, func(t *testing.T, f *fleet) {
				f.intercept(on(orchestrator.OpAdd, "", "", fault.fault))
				f.start(tick)
				reason.give(f)
				time.Sleep(10 * time.Minute)
				least := f.leastRunning(1000) // after it, healthy moves stop some too
				f.intercept(nil)
				after := f.untilAllRun(10 * time.Minute)
				t.Logf("at least %d of 1,000 ran on", least)
				require.GreaterOrEqual(t, least, 950)
				require.LessOrEqual(t, after, 20*time.Second)
				f.requireNeverTwice()
			}))
		}
	}
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

var poisonTerms = flag.Int("poison.terms", 50, "how many terms bring new tasks in TestT9_NewPoisonEveryTermHurtsNoHealthyWorker")

// In each of 50 terms some new tasks arrive that no worker can start, and two
// that are healthy. A worker joins after half of them.
func TestT9_NewPoisonEveryTermHurtsNoHealthyWorker(t *testing.T) {
	for _, test := range []struct {
		name    string
		poison  int
		fault   error
		applier bool
	}{
		{"5 refused, calls", 5, errRejected, false},
		{"5 failing, batches", 5, errBoom, true},
		{"30 refused, batches", 30, errRejected, true},
		{"30 failing, calls", 30, errBoom, false},
	} {
		t.Run(test.name, bubble(given{workers: 10, running: 100, applier: test.applier}, func(t *testing.T, f *fleet) {
			f.Refuse(func(op orchestrator.Op, _, task string) error {
				if op == orchestrator.OpAdd && strings.HasPrefix(task, "poison") {
					return test.fault
				}
				return nil
			})
			p := poisoned{fleet: f, added: make(map[string]int)}
			for term := range *poisonTerms {
				if term == *poisonTerms/2 {
					f.join("w11")
					p.joined = term
				}
				p.step(term, test.poison)
			}
			for term := *poisonTerms; term < *poisonTerms+64 && !p.settled(); term++ {
				p.step(term, 0)
			}
			t.Logf("joiner's share after %d terms; a healthy task waited %d terms at most; quarantined at some time: %v",
				p.share, p.worst, p.blamed)
			require.Empty(t, p.blamed)
			require.LessOrEqual(t, p.worst, 5, "terms that a healthy task waited")
			require.Positive(t, p.share)
			require.LessOrEqual(t, p.share, 10, "terms until the joiner has its share")
		}))
	}
}

// poisoned is a fleet to which poison tasks are added.
type poisoned struct {
	*fleet
	added  map[string]int // healthy tasks that do not run yet, and the term that they came in
	worst  int            // terms that a healthy task waited at most
	joined int            // the term that w11 joined in
	share  int            // terms until w11 had its share, 0: not yet
	blamed []string       // workers that were quarantined at some time
}

// step adds tasks, runs a term and checks its outcome.
func (p *poisoned) step(term, poison int) {
	if poison > 0 {
		var tasks []string
		for i := range poison {
			tasks = append(tasks, fmt.Sprintf("poison%d-%d", term, i))
		}
		for i := range 2 {
			name := fmt.Sprintf("healthy%d-%d", term, i)
			tasks = append(tasks, name)
			p.added[name] = term
		}
		p.addAtOnce(tasks)
	}
	p.steadyTerm()
	for name, since := range p.added {
		p.worst = max(p.worst, term-since)
		if len(p.Running(name)) == 1 {
			delete(p.added, name)
		}
	}
	for _, name := range p.quarantined() {
		if !slices.Contains(p.blamed, name) {
			p.blamed = append(p.blamed, name)
		}
	}
	if p.joined > 0 && p.share == 0 && len(p.RunsOn("w11")) >= p.running()/len(p.workers) {
		p.share = term - p.joined + 1
	}
}

// settled reports whether everything healthy runs and w11 has its share.
func (p *poisoned) settled() bool { return len(p.added) == 0 && p.share > 0 }

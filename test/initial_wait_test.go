package test

// T4: a leader that does not know its workers yet (WithInitialWait).

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// initialWait is that of these tests.
const initialWait = 5 * time.Second

// stranger returns a new leader of the same tasks that knows no worker, with an initial wait.
func (f *fleet) stranger(opts ...option) *fleet {
	f.t.Helper()
	time.Sleep(time.Millisecond)
	next := *f
	next.workers = nil
	next.lead(f.wire, append(options{orchestrator.WithInitialWait(initialWait)}, opts...))
	require.NoError(f.t, next.UpdateTasks(f.ListExpectedTasks()))
	next.forget()
	return &next
}

// register adds workers that run already.
func (f *fleet) register(workers ...string) {
	f.t.Helper()
	for _, name := range workers {
		require.NoError(f.t, f.AddWorker(name))
		f.workers = append(f.workers, name)
	}
}

// requireWaits checks that so many instances wait for the end of the initial wait, and that the
// figures of the term say the same.
func (f *fleet) requireWaits(instances int) {
	f.t.Helper()
	stats, n := f.LastPlan().Stats, 0
	for _, w := range f.waitingFor(orchestrator.ReasonInitialWait) {
		require.False(f.t, w.Named)
		require.Equal(f.t, orchestrator.WaitingUnplaced, w.Kind())
		n += w.Instances
	}
	require.Equal(f.t, instances, n)
	require.Equal(f.t, instances, stats.Instances.Missing)
	require.True(f.t, stats.Start.Before(stats.InitialWait))
	f.explained()
}

// requireNoWait checks that the last term was not in the initial wait.
func (f *fleet) requireNoWait() {
	f.t.Helper()
	require.Zero(f.t, f.LastPlan().Stats.InitialWait)
	require.Empty(f.t, f.waitingFor(orchestrator.ReasonInitialWait))
}

// A leader restarts, and its workers register themselves one by one.
func TestT4_InitialWait_WorkersRegisterOneByOne(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 12}, func(t *testing.T, old *fleet) {
		f := old.stranger()
		for i, name := range old.workers {
			f.term()
			f.requireWaits(12 - 3*i)
			time.Sleep(time.Second)
			f.register(name)
		}
		f.term()
		f.requireWaits(0)
		time.Sleep(time.Second)
		f.term()
		f.requireNoWait()
		f.requireAllRun()
		f.requireNeverTwice()
		require.Empty(t, f.writes())
	})
}

// What nobody runs starts in the first term that begins after the wait.
func TestT4_InitialWait_Ends(t *testing.T) {
	onBothWires(t, given{workers: 3, running: 9}, func(t *testing.T, old *fleet) {
		f := old.stranger()
		require.NoError(t, f.AddTask("new", orchestrator.WithTaskInstances(2)))
		f.register(old.workers...)
		for range initialWait / time.Second {
			f.term()
			f.requireWaits(2)
			require.Empty(t, f.writes())
			time.Sleep(time.Second)
		}
		f.term()
		f.requireNoWait()
		f.requireAllRun()
		require.Len(t, f.writes(), 2)
	})
}

// The wait counts from the first term, whether it had workers or not.
func TestT4_InitialWait_CountsFromTheFirstTerm(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, old *fleet) {
		f := old.stranger()
		time.Sleep(time.Minute)
		f.term()
		f.requireWaits(4)
		began := f.LastPlan().Stats.Start
		require.Equal(t, began.Add(initialWait), f.LastPlan().Stats.InitialWait)
		time.Sleep(initialWait - 1)
		f.term()
		f.requireWaits(4)
		f.register(old.workers...)
		time.Sleep(time.Nanosecond)
		f.term()
		f.requireNoWait()
		require.Empty(t, f.writes())
	})
}

// A term that began in the wait does not know the workers that registered since, however late it
// decides.
func TestT4_InitialWait_OutlastedByATerm(t *testing.T) {
	inBubble(t, given{workers: 4, running: 12}, func(t *testing.T, old *fleet) {
		f := old.stranger()
		f.register("w1", "w2")
		f.term()
		time.Sleep(initialWait - time.Second)
		f.Slow(3*time.Second, "w1", "w2")
		term := f.beginTerm()
		f.register("w3", "w4")
		time.Sleep(3 * time.Second)
		require.NoError(t, <-term)
		f.requireWaits(6)
		f.Heal()
		f.term()
		f.requireNoWait()
		require.Empty(t, f.writes())
		f.requireAllRun()
	})
}

// A worker that registered in the wait and has not answered may run any task, also after the wait.
func TestT4_InitialWait_SilentSinceItRegistered(t *testing.T) {
	for _, test := range []struct {
		name  string
		end   func(*fleet)
		stays bool
	}{
		{"until it answers", (*fleet).heal, true},
		{"until it is lost", (*fleet).waitOutGrace, false},
		{"until it is removed", func(f *fleet) { f.RemoveWorker("w3") }, false},
	} {
		for _, after := range []time.Duration{0, initialWait - 1} { // when it registers
			t.Run(fmt.Sprint(test.name, ", ", after), bubble(given{workers: 3, running: 9}, func(t *testing.T, old *fleet) {
				f := old.stranger()
				f.register("w1", "w2")
				f.Cut("w3")
				f.term()
				f.requireWaits(3)
				time.Sleep(after)
				f.register("w3")
				time.Sleep(initialWait - after)
				for range 3 {
					f.silentTerm("w3")
					f.requireNoWait()
					require.Len(t, f.waitingFor(orchestrator.ReasonNeverAnswered), 3)
				}
				require.Empty(t, f.writes())
				test.end(f)
				_ = f.NextTerm(t.Context())
				require.Empty(t, f.waitingFor(orchestrator.ReasonNeverAnswered))
				if test.stays {
					require.Empty(t, f.writes())
					return
				}
				require.Equal(t, 9, f.LastPlan().Stats.Instances.Running)
			}))
		}
	}
}

// A worker that comes later cannot hold what the leader has not given it.
func TestT4_InitialWait_JoinedLater(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, old *fleet) {
		f := old.stranger()
		f.register("w1", "w2")
		f.term()
		time.Sleep(initialWait)
		f.term()
		f.join("w3")
		f.Cut("w3")
		require.NoError(t, f.AddTask("new"))
		f.silentTerm("w3")
		require.Len(t, f.Running("new"), 1)
	})
}

// Drains, surplus copies, tasks that are not expected and moves for an even spread do not wait, and
// WithMaxMoves limits them as ever.
func TestT4_InitialWait_WhatWorkersReportGoesOn(t *testing.T) {
	inBubble(t, given{workers: 3, running: 12}, func(t *testing.T, old *fleet) {
		f := old.stranger(orchestrator.WithMaxMoves(3))
		f.register("w1", "w2")
		f.join("w4")
		require.NoError(t, f.DrainWorker("w1"))
		surplus := orchestrator.ContextWithTerm(t.Context(), old.LastPlan().Stats.Term)
		require.NoError(t, f.Cluster.Add(surplus, "w1", old.RunsOn("w2")[0]))
		unexpected := old.RunsOn("w1")[0]
		f.RemoveTask(unexpected)
		f.term()
		require.Len(t, f.moves(), 3)
		f.requireWaits(4)
		f.term()
		f.requireWaits(4)
		require.Empty(t, f.RunsOn("w1"))
		require.Empty(t, f.Running(unexpected))
		require.LessOrEqual(t, spread([]int{len(f.RunsOn("w2")), len(f.RunsOn("w4"))}), 1)
		require.Zero(t, f.LastPlan().Stats.Deferred)
		f.register("w3")
		time.Sleep(initialWait)
		f.term()
		f.requireNoWait()
		f.requireAllRun()
	})
}

// A move stops its task first, because an unknown worker may run another copy.
func TestT4_InitialWait_MovesStopFirst(t *testing.T) {
	inBubble(t, given{workers: 1, running: 4}, func(t *testing.T, old *fleet) {
		f := old.stranger(orchestrator.WithHandoff(orchestrator.StartThenStop))
		f.register("w1")
		f.join("w2")
		f.term()
		require.Len(t, f.moves(), 2)
		f.requireNeverTwice()
	})
}

// What a worker ran that is lost or removed in the wait starts after it.
func TestT4_InitialWait_LostAndRemovedWorkers(t *testing.T) {
	inBubble(t, given{workers: 4, running: 12}, func(t *testing.T, old *fleet) {
		f := old.stranger(orchestrator.WithGracePeriod(time.Second))
		f.register(old.workers...)
		f.term()
		f.Cut("w1")
		time.Sleep(time.Second)
		_ = f.NextTerm(t.Context())
		require.Equal(t, orchestrator.Lost, f.state("w1").State)
		f.requireWaits(3)
		f.Kill("w2")
		f.RemoveWorker("w2")
		_ = f.NextTerm(t.Context())
		f.requireWaits(6)
		require.Empty(t, f.writes())
		time.Sleep(initialWait)
		_ = f.NextTerm(t.Context())
		f.requireNoWait()
		require.Equal(t, 12, f.LastPlan().Stats.Instances.Running)
		require.Equal(t, 6, f.LastPlan().Stats.Adds)
	})
}

// Mass loss protects from losses as ever, and the wait ends in the meantime.
func TestT4_InitialWait_DuringAMassLoss(t *testing.T) {
	inBubble(t, given{workers: 3, running: 9}, func(t *testing.T, old *fleet) {
		f := old.stranger(orchestrator.WithGracePeriod(time.Second))
		f.register(old.workers...)
		f.term()
		f.Cut("w1", "w2")
		time.Sleep(initialWait)
		_ = f.NextTerm(t.Context())
		f.requireNoWait()
		require.True(t, f.LastPlan().Stats.MassLoss)
		require.Len(t, f.waitingFor(orchestrator.ReasonHeld), 6)
		require.Empty(t, f.writes())
	})
}

// The leader starts nothing before it knows its tasks, and stops nothing (T15).
func TestT4_InitialWait_NoTasksLoaded(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, old *fleet) {
		f := old.stranger()
		f.Orchestrator, _ = orchestrator.New(f.wire, orchestrator.WithInitialWait(initialWait))
		f.register("w1")
		f.term()
		require.Empty(t, f.LastPlan().Waiting)
		require.NotZero(t, f.LastPlan().Stats.InitialWait)
		require.NoError(t, f.UpdateTasks(old.ListExpectedTasks()))
		f.term()
		f.requireWaits(2)
		require.Empty(t, f.writes())
	})
}

// Plan says what the next term does: within the wait nothing, and after it the starts. It counts the
// workers of its hypothesis as answering.
func TestT4_InitialWait_Plan(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, old *fleet) {
		f := old.stranger()
		_, err := f.Plan(hypothesis{})
		require.ErrorIs(t, err, orchestrator.ErrNoTerm)
		f.register("w1")
		f.term()
		for _, h := range []hypothesis{{}, {AddWorkers: []member{{Name: "w2"}}}, {AddTasks: []task{{Name: "t1"}}}} {
			p := f.plan(h)
			for _, c := range p.Changes {
				require.Equal(t, orchestrator.Move, c.Kind.Op)
			}
			require.Equal(t, f.LastPlan().Stats.InitialWait, p.Stats.InitialWait)
			require.Equal(t, 2, p.Stats.Instances.Missing)
		}
		lost := f.plan(hypothesis{Lose: []string{"w1"}})
		require.Empty(t, lost.Changes)
		require.Equal(t, 4, lost.Stats.Instances.Missing)
		time.Sleep(initialWait)
		p := f.plan(hypothesis{})
		require.Zero(t, p.Stats.InitialWait)
		require.Equal(t, map[orchestrator.ChangeKind]int{{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}: 2}, p.Stats.Changes)
	})
}

// A dry run waits like the leader that it looks ahead for.
func TestT4_InitialWait_DryRun(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, old *fleet) {
		f := old.stranger(orchestrator.WithDryRun())
		f.register("w1")
		f.term()
		f.requireWaits(2)
		require.Empty(t, f.LastPlan().Changes)
		time.Sleep(initialWait)
		f.term()
		f.requireNoWait()
		require.Len(t, f.LastPlan().Changes, 2)
		require.Empty(t, f.writes())
	})
}

// Each period of leadership waits anew, and the wait of one says nothing of the next.
func TestT4_InitialWait_SecondEpoch(t *testing.T) {
	inBubble(t, given{workers: 3, running: 9}, func(t *testing.T, old *fleet) {
		first := old.stranger()
		first.register("w1")
		first.term()
		time.Sleep(initialWait - time.Second)
		second := first.stranger()
		second.register("w2")
		second.term()
		second.requireWaits(6)
		time.Sleep(2 * time.Second)
		_ = first.NextTerm(t.Context()) // its wait is over, and w1 has not heard of its successor
		second.register("w1", "w3")
		second.term()
		second.requireWaits(0)
	})
}

// Explain says why the task has no place.
func TestT4_InitialWait_Explain(t *testing.T) {
	inBubble(t, given{workers: 2, running: 2}, func(t *testing.T, old *fleet) {
		f := old.stranger()
		f.register("w1")
		f.term()
		e, ok := f.Last().Explain(old.RunsOn("w2")[0])
		require.True(t, ok)
		require.Equal(t, 1, e.Missing)
		require.Equal(t, orchestrator.ReasonInitialWait, e.Workers[0].Reason)
	})
}

// Run runs a term when the wait ends, however long its interval is. The log says when the wait
// begins and ends.
func TestT4_InitialWait_Run(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, old *fleet) {
		f := old.stranger(orchestrator.WithStats(old.terms.add))
		f.register("w1")
		stop := f.start(time.Hour)
		synctest.Wait()
		f.requireWaits(2)
		require.Len(t, f.log.lines("waiting for workers to register", `"level":"INFO"`, `"until":`), 1)
		time.Sleep(time.Second)
		f.register("w2")
		require.NoError(t, f.AddTask("new"))
		time.Sleep(time.Second)
		f.requireWaits(1)
		time.Sleep(initialWait)
		f.requireNoWait()
		f.requireAllRun()
		f.requireNeverTwice()
		require.Len(t, f.terms.all(), 1+3, "that of the predecessor, and three")
		require.Len(t, f.log.lines("waiting for workers to register"), 2)
		require.Len(t, f.log.lines("no longer waiting for workers to register", `"level":"INFO"`, `"workers":2`), 1)
		require.ErrorIs(t, stop(nil), context.Canceled)
	})
}

// Without the option the tasks of workers that are not known start at once: all workers are added
// before the first term.
func TestT4_InitialWait_Without(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, old *fleet) {
		f := old.stranger(orchestrator.WithInitialWait(0))
		f.register("w1")
		f.term()
		f.requireNoWait()
		require.Len(t, f.writes(), 2)
	})
}

package test

// T4: what a leader concludes from a worker's silence.

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

// grace is how long a worker may be silent, unless a test sets another period.
const grace = 3 * timeout

// hold keeps silent workers from being lost.
var hold = orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved)

// silentTerm runs a term in which exactly the named workers are silent, and nothing else
// fails.
func (f *fleet) silentTerm(workers ...string) {
	f.t.Helper()
	var silent []string
	for _, e := range failures(f.t, f.NextTerm(f.t.Context())) {
		require.Equal(f.t, orchestrator.OpList, e.Op)
		silent = append(silent, e.Worker)
	}
	require.Equal(f.t, workers, silent)
	synctest.Wait() // those that nobody waited for have been asked, too
}

// waitOutGrace lets the grace period pass.
func (f *fleet) waitOutGrace() { time.Sleep(grace) }

// waitOutCalls waits until every call has had its whole timeout.
func (f *fleet) waitOutCalls() { time.Sleep(timeout) }

// waitingFor returns the instances that wait for a reason in the last plan.
func (f *fleet) waitingFor(r orchestrator.Reason) []waiting {
	return filter(f.LastPlan().Waiting, func(w waiting) bool { return w.Reason == r })
}

// Neither a missed List nor the answer after it changes anything.
func TestT4_SilentIsNotEmpty(t *testing.T) {
	for name, silence := range map[string]func(*fleet, ...string){
		"cut off": func(f *fleet, w ...string) { f.Cut(w...) },
		"hanging": func(f *fleet, w ...string) { f.Hang(w...); f.term(); f.waitOutCalls() },
		"stuck":   func(f *fleet, w ...string) { f.Stick(w...); f.term(); f.waitOutCalls() },
	} {
		t.Run(name, bothWires(given{workers: 4, running: 20}, func(t *testing.T, f *fleet) {
			before := f.RunsOn("w2")
			require.Len(t, before, 5)

			f.forget()
			silence(f, "w2")
			for range 3 {
				f.silentTerm("w2")
			}
			require.Empty(t, f.writes(), "nothing of what it holds is started elsewhere")
			s := f.state("w2")
			require.Equal(t, orchestrator.Silent, s.State)
			require.ElementsMatch(t, before, s.Tasks, "its last answer, and the writes since")
			stats := f.LastPlan().Stats
			require.Equal(t, []int{3, 1, 0}, []int{stats.Workers.Answering, stats.Workers.Silent, stats.Workers.Lost})
			require.Equal(t, []int{15, 5, 0}, []int{stats.Instances.Running, stats.Instances.Held, stats.Instances.Missing})

			f.Heal()
			time.Sleep(timeout)
			_ = f.NextTerm(t.Context()) // may go on before w2 has answered
			synctest.Wait()
			require.Empty(t, f.writes())
			f.requireSettled()
			f.requireQuiet(5)
			require.ElementsMatch(t, before, f.RunsOn("w2"))
		}))
	}
}

func TestT4_HeldCopiesAreNotTrimmed(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		f.expect(1, orchestrator.WithTaskInstances(3))
		f.term()
		f.Cut("w1")
		f.expect(1) // one instance is enough now
		f.forget()
		f.silentTerm("w1")
		require.Len(t, f.writes(), 1, "a copy that answers stays, so that a blip stops nothing: %v", f.writes())
		require.Len(t, f.Running("t1"), 2)
		require.Contains(t, f.Running("t1"), "w1")

		f.RemoveTask("t1")
		f.forget()
		f.silentTerm("w1")
		require.Len(t, f.writes(), 1)
		require.Equal(t, []string{"w1"}, f.Running("t1"), "nothing is written to a silent worker")

		f.heal()
		f.term()
		require.Empty(t, f.Running("t1"))
	})
}

func TestT4_HolderIsNamed(t *testing.T) {
	inBubble(t, given{workers: 2, running: 2}, func(t *testing.T, f *fleet) {
		held := f.RunsOn("w1")
		f.Cut("w1")
		f.silentTerm("w1")
		require.Equal(t, []waiting{{
			Task: held[0], Instances: 1, Reason: orchestrator.ReasonHeld, Worker: "w1", Named: true,
		}}, f.LastPlan().Waiting)
	})
}

// A start that was sent and not answered may have happened. Once the worker is silent, it
// holds the task, and the task does not start elsewhere.
func TestT4_UnknownStartIsHeld(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(f *fleet, ctx context.Context, c call) error
		held   bool
	}{
		{"acknowledged", func(*fleet, context.Context, call) error { return nil }, true},
		{"timed out", func(_ *fleet, ctx context.Context, _ call) error { return hang(ctx) }, true},
		{"failed", func(*fleet, context.Context, call) error { return errors.New("connection reset") }, true},
		{"done, and the answer lost", func(f *fleet, ctx context.Context, c call) error {
			if err := f.cluster.Add(ctx, c.Worker, c.Task); err != nil {
				return err
			}
			return errors.New("connection reset")
		}, true},
		{"refused", func(*fleet, context.Context, call) error { return orchestrator.ErrRejected }, false},
	} {
		t.Run(test.name, bubble(given{workers: 3, running: 2, opts: options{orchestrator.WithGracePeriod(time.Hour)}}, func(t *testing.T, f *fleet) {
			idle := f.workers[slices.Index(f.loads(), 0)]
			f.intercept(func(ctx context.Context, c call) error {
				if c.Op == orchestrator.OpAdd {
					return test.answer(f, ctx, c)
				}
				return nil
			})
			require.NoError(t, f.AddTask("new"))
			_ = f.NextTerm(t.Context())
			require.Equal(t, idle, f.changesOf("new")[0].To)

			f.intercept(nil)
			f.Cut(idle)
			f.forget()
			for range 3 {
				f.silentTerm(idle)
			}
			if test.held {
				require.Empty(t, f.writes())
				require.Equal(t, []waiting{{
					Task: "new", Instances: 1, Reason: orchestrator.ReasonHeld, Worker: idle, Named: true,
				}}, f.LastPlan().Waiting)
			} else {
				require.Len(t, f.writes(), 1)
				require.Len(t, f.Running("new"), 1)
			}

			time.Sleep(time.Hour)
			require.Error(t, f.NextTerm(t.Context()))
			require.Equal(t, orchestrator.Lost, f.state(idle).State)
			require.Subset(t, slices.Concat(f.RunsOn("w1"), f.RunsOn("w2"), f.RunsOn("w3")), []string{"t1", "t2", "new"})
			require.Zero(t, f.LastPlan().Stats.Instances.Missing)
		}))
	}
}

// A task was stopped on a worker, refused by another, and given back without an answer.
// It may run on the first worker.
func TestT4_UnknownGiveBackIsHeld(t *testing.T) {
	inBubble(t, given{workers: 2, running: 6, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.join("w3")
		var moved, from string
		f.intercept(func(_ context.Context, c call) error {
			switch {
			case c.Op != orchestrator.OpAdd:
				return nil
			case c.Worker == "w3":
				return orchestrator.ErrRejected
			}
			moved, from = c.Task, c.Worker
			return errors.New("connection reset")
		})
		require.Error(t, f.NextTerm(t.Context()))
		require.NotEmpty(t, moved, "given back")

		f.intercept(nil)
		f.Cut(from)
		f.forget()
		f.silentTerm(from)
		require.NotContains(t, f.writes(), "add "+moved+" w1")
		require.NotContains(t, f.writes(), "add "+moved+" w2")
		require.NotContains(t, f.writes(), "add "+moved+" w3")
		require.Contains(t, f.waitingFor(orchestrator.ReasonHeld), waiting{
			Task: moved, Instances: 1, Reason: orchestrator.ReasonHeld, Worker: from, Named: true,
		})
	})
}

// A worker does not hold a task whose stop it has acknowledged, whatever it answered
// before.
func TestT4_AcknowledgedStopIsNotHeld(t *testing.T) {
	inBubble(t, given{workers: 1, running: 2, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.join("w2", "w3")
		f.term() // one of the two moves
		moved := f.LastPlan().Changes[0]
		require.Equal(t, "w1", moved.From)

		f.Cut("w1")
		f.Kill(moved.To)
		f.RemoveWorker(moved.To)
		f.silentTerm("w1")
		require.Len(t, f.Running(moved.Task), 1, "started anew: w1 gave it away")
		require.NotContains(t, f.state("w1").Tasks, moved.Task)
		require.Len(t, f.waitingFor(orchestrator.ReasonHeld), 1)
	})
}

func TestT4_NewLeaderKnowsNothing(t *testing.T) {
	// The outcome that ends the wait, and whether w2 keeps its tasks.
	for _, test := range []struct {
		name  string
		end   func(*fleet)
		stays bool
	}{
		{"until it answers", (*fleet).heal, true},
		{"until it is lost", (*fleet).waitOutGrace, false},
		{"until it is removed", func(f *fleet) { f.RemoveWorker("w2") }, false},
	} {
		t.Run(test.name, bubble(given{workers: 4, running: 20}, func(t *testing.T, old *fleet) {
			onW2 := old.RunsOn("w2")

			f := old.successor()
			require.NoError(t, f.AddTask("nobody runs it"))
			f.Cut("w2")
			f.forget()
			for range 3 {
				f.silentTerm("w2")
				require.Empty(t, f.writes())
			}
			var tasks []string
			for _, w := range f.waitingFor(orchestrator.ReasonNeverAnswered) {
				require.Equal(t, waiting{Task: w.Task, Instances: 1, Reason: orchestrator.ReasonNeverAnswered, Worker: "w2", Named: true}, w)
				tasks = append(tasks, w.Task)
			}
			require.ElementsMatch(t, append(onW2, "nobody runs it"), tasks)
			require.Equal(t, 6, f.LastPlan().Stats.Instances.Missing)

			test.end(f)
			_ = f.NextTerm(t.Context())
			require.Empty(t, f.waitingFor(orchestrator.ReasonNeverAnswered))
			require.Len(t, f.Running("nobody runs it"), 1)
			for _, name := range onW2 {
				if test.stays {
					require.Equal(t, []string{"w2"}, f.Running(name))
				} else {
					require.Len(t, f.Running(name), 2, "on w2, which is given up, and on another")
				}
			}
		}))
	}
}

// While a worker has never answered, reported tasks are still spread evenly, and surplus
// copies of them stop.
func TestT4_ReportedTasksStillMove(t *testing.T) {
	inBubble(t, given{workers: 3, running: 12}, func(t *testing.T, old *fleet) {
		f := old.successor()
		f.Cut("w1")
		f.join("w4")
		require.NoError(t, f.DrainWorker("w2"))
		f.silentTerm("w1")
		require.Equal(t, []int{4, 0, 4, 4}, f.loads())
	})
}

// A leader starts, and its first List misses a worker that is only slow.
func TestT4_NewLeaderMissesASlowWorker(t *testing.T) {
	inBubble(t, given{workers: 4, running: 20}, func(t *testing.T, old *fleet) {
		f := old.successor()
		f.Slow(3*time.Second, "w3")
		f.forget()
		f.silentTerm("w3")
		time.Sleep(3 * time.Second)
		f.term()
		require.Empty(t, f.writes())
		for _, name := range names("t", 20) {
			require.Equal(t, 1, f.Counts(name).Starts, name)
		}
	})
}

func TestT4_OnlyInitialWorkersMayHoldAnything(t *testing.T) {
	inBubble(t, given{workers: 0}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.AddWorker("gone before the first term"))
		f.RemoveWorker("gone before the first term")
		f.expect(4)
		f.term() // had no workers: those that come now are initial workers
		f.join("w1", "w2")
		f.Cut("w2")
		f.silentTerm("w2")
		require.Len(t, f.waitingFor(orchestrator.ReasonNeverAnswered), 4)

		f.heal()
		f.term()
		require.Equal(t, []int{2, 2}, f.loads())

		f.join("w3") // came later, and cannot hold what the leader has not given it
		f.Cut("w3")
		require.NoError(t, f.AddTask("new"))
		f.silentTerm("w3")
		require.Len(t, f.Running("new"), 1)
		require.Empty(t, f.LastPlan().Waiting)
	})
}

func TestT4_SilenceOutranksDraining(t *testing.T) {
	inBubble(t, given{workers: 3, running: 9}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.DrainWorker("w1"))
		f.Cut("w1")
		f.silentTerm("w1")
		require.Empty(t, f.writes())
		require.Len(t, f.waitingFor(orchestrator.ReasonHeld), 3)
		require.True(t, f.state("w1").Draining)

		f.heal()
		f.term()
		require.Zero(t, f.loads()[0])
		f.requireSettled()
	})
}

// A late answer of a removed worker does not count for a new worker of the same name.
func TestT4_LateAnswerOfAPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var mu sync.Mutex
		lists := 0 // of w1
		o, err := orchestrator.New(communicator.Func[string, string]{
			ListFunc: func(context.Context, string) ([]string, error) {
				mu.Lock()
				lists++
				n := lists
				mu.Unlock()
				if n == 2 {
					<-release
				}
				return []string{"t1"}, map[bool]error{true: errors.New("down")}[n > 2]
			},
		}, hold)
		require.NoError(t, err)
		require.NoError(t, o.AddWorker("w1"))
		require.NoError(t, o.AddTask("t1"))
		require.NoError(t, o.NextTerm(t.Context()))
		require.Error(t, o.NextTerm(t.Context()))

		o.RemoveWorker("w1")
		require.NoError(t, o.AddWorker("w1"))
		require.Error(t, o.NextTerm(t.Context()), "it is not asked before that call has returned")
		close(release)
		synctest.Wait()
		require.Error(t, o.NextTerm(t.Context()))
		require.Empty(t, o.LastActual()[0].Tasks)
		require.Zero(t, o.LastActual()[0].LastAnswer)
	})
}

func TestT4_RemovedAndAddedAgainStartsAfresh(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.Kill("w1")
		f.silentTerm("w1")
		f.RemoveWorker("w1")
		f.join("w1")
		f.term()
		require.Equal(t, []int{2, 2}, f.loads())
	})
}

// A worker that is removed while a term lists it refuses the call. That is not a failure.
func TestT4_AWorkerThatLeavesMeanwhileFailsNoTerm(t *testing.T) {
	inBubble(t, given{workers: 3, running: 6}, func(t *testing.T, f *fleet) {
		f.intercept(on(orchestrator.OpList, "w2", "", func(context.Context) error {
			f.RemoveWorker("w2")
			return errBoom
		}))
		f.freshTerm()
		require.Empty(t, f.writes(), "what it had waits for the next term")
		f.Kill("w2")
		f.term()
		f.requireAllRun()
	})
}

// A worker is replaced by one of the same name while a term is under way. The tasks that
// the term starts there reach the new worker, which holds them until it answers.
func TestT4_WhatATermStartedOnASuccessor(t *testing.T) {
	onBothWires(t, given{workers: 2, expected: 4, opts: options{orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved)}}, func(t *testing.T, f *fleet) {
		replaced := false
		f.intercept(func(_ context.Context, c call) error {
			if c.Op != orchestrator.OpList && c.Worker == "w2" && !replaced {
				replaced = true
				f.RemoveWorker("w2")
				require.NoError(t, f.AddWorker("w2"))
			}
			return nil
		})
		f.term()
		require.True(t, replaced)
		require.Len(t, f.RunsOn("w2"), 2)

		f.Cut("w2")
		f.forget()
		f.silentTerm("w2")
		require.Empty(t, f.writes(), "nothing of w2 is started elsewhere")
		require.Len(t, f.LastPlan().Waiting, 2)
		for _, w := range f.LastPlan().Waiting {
			require.Equal(t, orchestrator.ReasonHeld, w.Reason)
			require.Equal(t, "w2", w.Worker)
		}
		f.Heal()
		_ = f.NextTerm(t.Context())
		synctest.Wait()
		f.requireSettled()
	})
}

// The start hangs while its worker is removed, and a worker of the same name is added
// some terms later. The start may still take effect there.
func TestT4_AStartThatMayLandOnASuccessor(t *testing.T) {
	inBubble(t, given{workers: 2, opts: options{orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved)}}, func(t *testing.T, f *fleet) {
		f.expect(1)
		release := make(chan struct{})
		f.intercept(on(orchestrator.OpAdd, "w1", "", func(context.Context) error {
			<-release
			return nil
		}))
		f.failingTerm()
		f.Cut("w2")
		f.RemoveWorker("w1")
		_ = f.NextTerm(t.Context())
		require.NoError(t, f.AddWorker("w1"))
		_ = f.NextTerm(t.Context())
		f.Heal("w2")
		f.forget()
		for range 4 {
			_ = f.NextTerm(t.Context())
			synctest.Wait()
		}
		require.Equal(t, orchestrator.Answering, f.state("w2").State)
		require.Empty(t, f.writes(), "t1 may yet be started on w1")
		close(release)
		synctest.Wait()
		for range 2 { // it has come too late, and w1 says so
			_ = f.NextTerm(t.Context())
			synctest.Wait()
		}
		require.Len(t, f.Running("t1"), 1)
		f.requireSettled()
	})
}

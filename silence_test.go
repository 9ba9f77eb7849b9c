package orchestrator_test

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

// T4 and T5: what a leader concludes from a worker's silence, and when.

// grace is how long a worker may be silent where a test says nothing else.
const grace = 3 * timeout

// hold keeps silent workers from being lost.
var hold = orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved)

// silentTerm runs a term in which the workers named, and no others, are silent,
// and which fails in nothing else.
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

// waitingFor returns what the last plan has waiting for a reason.
func (f *fleet) waitingFor(r orchestrator.Reason) (found []waiting) {
	for _, w := range f.LastPlan().Waiting {
		if w.Reason == r {
			found = append(found, w)
		}
	}
	return found
}

func TestT4_SilentIsNotEmpty(t *testing.T) {
	for name, silence := range map[string]func(*fleet, ...string){
		"cut off": func(f *fleet, w ...string) { f.Cut(w...) },
		"hanging": func(f *fleet, w ...string) { f.Hang(w...) },
		"stuck":   func(f *fleet, w ...string) { f.Stick(w...) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4)
				f.expect(20)
				f.term()
				before := f.RunsOn("w2")
				require.Len(t, before, 5)

				silence(f, "w2")
				f.forget()
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
				f.requireSettled()
				require.ElementsMatch(t, before, f.RunsOn("w2"))
			})
		})
	}
}

func TestT4_WhatIsHeldIsNotTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
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
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(2)
		f.term()
		held := f.RunsOn("w1")
		f.Cut("w1")
		f.silentTerm("w1")
		require.Equal(t, []waiting{{
			Task: held[0], Instances: 1, Reason: orchestrator.ReasonHeld, Worker: "w1", Named: true,
		}}, f.LastPlan().Waiting)
	})
}

// A start that was sent and never answered for may have happened: the worker
// holds it, once it is silent, and nobody else gets it.
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
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3, orchestrator.WithGracePeriod(time.Hour))
				f.expect(2)
				f.term()
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
			})
		})
	}
}

// A task that was taken from a worker, refused by another, and given back with
// no answer may run where it came from.
func TestT4_UnknownGiveBackIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, hold)
		f.expect(6)
		f.term()
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

// What a worker has acknowledged to have stopped it does not hold, whatever it
// answered before.
func TestT4_AcknowledgedStopIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, hold)
		f.expect(2)
		f.term()
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
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old := newFleet(t, 4)
				old.expect(20)
				old.term()
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
				for _, w := range f.waitingFor(orchestrator.ReasonUnheard) {
					require.Equal(t, waiting{Task: w.Task, Instances: 1, Reason: orchestrator.ReasonUnheard, Worker: "w2", Named: true}, w)
					tasks = append(tasks, w.Task)
				}
				require.ElementsMatch(t, append(onW2, "nobody runs it"), tasks)
				require.Equal(t, 6, f.LastPlan().Stats.Instances.Missing)

				test.end(f)
				_ = f.NextTerm(t.Context())
				require.Empty(t, f.waitingFor(orchestrator.ReasonUnheard))
				require.Len(t, f.Running("nobody runs it"), 1)
				for _, name := range onW2 {
					if test.stays {
						require.Equal(t, []string{"w2"}, f.Running(name))
					} else {
						require.Len(t, f.Running(name), 2, "on w2, which is given up, and on another")
					}
				}
			})
		})
	}
}

// What is reported is kept even, and what is reported twice is trimmed, while a
// worker is unheard.
func TestT4_WhatIsReportedIsStillMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newFleet(t, 3)
		old.expect(12)
		old.term()
		f := old.successor()
		f.Cut("w1")
		f.join("w4")
		require.NoError(t, f.DrainWorker("w2"))
		f.silentTerm("w1")
		require.Equal(t, []int{4, 0, 4, 4}, f.loads())
	})
}

// A leader that starts while its first List misses a worker that is only slow.
func TestT4_NewLeaderMissesASlowWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newFleet(t, 4)
		old.expect(20)
		old.term()
		f := old.successor()
		f.Stick("w3")
		time.AfterFunc(timeout+time.Second, func() { f.Heal() })
		f.forget()
		f.silentTerm("w3")
		time.Sleep(2 * time.Second)
		f.term()
		require.Empty(t, f.writes())
		for _, name := range names("t", 20) {
			require.Equal(t, 1, f.Counts(name).Starts, name)
		}
	})
}

func TestT4_OnlyFoundersMayHoldAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 0)
		require.NoError(t, f.AddWorker("gone before the first term"))
		f.RemoveWorker("gone before the first term")
		f.expect(4)
		f.term() // had no workers: those that come now are founders
		f.join("w1", "w2")
		f.Cut("w2")
		f.silentTerm("w2")
		require.Len(t, f.waitingFor(orchestrator.ReasonUnheard), 4)

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

func TestT4_LostAfterTheGracePeriod(t *testing.T) {
	for _, test := range []struct {
		name  string
		grace time.Duration
		opts  []option
	}{
		{"by default after three timeouts", grace, nil},
		{"of which the length can be set", 6 * time.Second, []option{orchestrator.WithCommunicatorTimeout(2 * time.Second)}},
		{"or the period itself", time.Minute, []option{orchestrator.WithGracePeriod(time.Minute)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3, test.opts...)
				f.expect(6)
				f.term()
				answered := time.Now()
				onW1 := f.RunsOn("w1")
				f.Cut("w1")

				f.forget()
				time.Sleep(test.grace - 1)
				f.silentTerm("w1")
				require.Equal(t, orchestrator.Silent, f.state("w1").State)
				require.Empty(t, f.writes())

				time.Sleep(time.Nanosecond)
				f.silentTerm("w1")
				s := f.state("w1")
				require.Equal(t, orchestrator.Lost, s.State)
				require.Equal(t, answered, s.LastAnswer)
				require.ElementsMatch(t, onW1, s.Tasks, "its last answer can still be read")
				for _, name := range onW1 {
					require.Len(t, f.Running(name), 2, "on w1, where nobody sees it, and elsewhere")
					require.Equal(t, orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonLost}, f.changesOf(name)[0].Kind)
				}
				require.Len(t, f.writes(), 2)
				require.Equal(t, 1, f.LastPlan().Stats.Workers.Lost)
				f.forget()
				f.silentTerm("w1")
				require.Empty(t, f.writes())
			})
		})
	}
}

func TestT4_GraceOfTheUnheardCountsFromTheFirstTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(3)
		time.Sleep(time.Hour)
		f.Cut("w1")
		f.silentTerm("w1")
		time.Sleep(grace - 1)
		f.silentTerm("w1")
		require.Empty(t, f.writes())
		time.Sleep(time.Nanosecond)
		f.silentTerm("w1")
		require.Equal(t, orchestrator.Lost, f.state("w1").State)
		require.Len(t, f.writes(), 3)
	})
}

// A worker that was given up and is there again: what others run by now stops
// on one side, and nothing runs twice for long.
func TestT4_LostWorkerReturns(t *testing.T) {
	for name, returns := range map[string]func(f *fleet, w string){
		"with what it had": func(*fleet, string) {},
		"empty":            func(f *fleet, w string) { f.Start(w) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3)
				f.expect(2)
				f.term()
				f.term() // in which it lists what it will list again
				lost := f.Running("t1")[0]
				f.Cut(lost)
				time.Sleep(grace)
				f.silentTerm(lost)
				require.Equal(t, orchestrator.Lost, f.state(lost).State)
				require.Len(t, f.Running("t1"), 2)

				f.Heal()
				returns(f, lost)
				_ = f.NextTerm(t.Context())
				synctest.Wait()
				f.term()
				require.Equal(t, orchestrator.Answering, f.state(lost).State)
				f.requireSettled()
				require.ElementsMatch(t, f.RunsOn(lost), f.state(lost).Tasks)
			})
		})
	}
}

func TestT4_LateOnceIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(9)
		f.term()
		f.forget()
		f.Stick("w1")
		time.AfterFunc(timeout+time.Second, func() { f.Heal() })
		f.silentTerm("w1") // is over at the timeout, a second before w1 answers

		// For the grace period counts the answer that came late.
		time.Sleep(time.Second + grace - 1)
		f.Cut("w1")
		f.silentTerm("w1")
		require.Equal(t, orchestrator.Silent, f.state("w1").State)
		time.Sleep(time.Nanosecond)
		f.silentTerm("w1")
		require.Equal(t, orchestrator.Lost, f.state("w1").State)
	})
}

func TestT4_HoldUntilRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, hold)
		f.expect(6)
		f.term()
		onW1 := f.RunsOn("w1")
		f.Cut("w1")
		f.forget()
		for range 10 {
			time.Sleep(365 * 24 * time.Hour)
			f.silentTerm("w1")
		}
		require.Empty(t, f.writes())
		require.Equal(t, orchestrator.Silent, f.state("w1").State)
		for _, w := range f.waitingFor(orchestrator.ReasonHeld) {
			require.Equal(t, "w1", w.Worker)
			require.Contains(t, onW1, w.Task)
		}
		require.Len(t, f.waitingFor(orchestrator.ReasonHeld), 2)

		f.Kill("w1")
		f.RemoveWorker("w1")
		f.term()
		f.requireSettled()
	})
}

func TestT4_GraceZeroLosesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4, orchestrator.WithGracePeriod(0))
		f.expect(12)
		f.term()
		f.Cut("w1", "w2", "w3") // no mass loss either
		f.silentTerm("w1", "w2", "w3")
		stats := f.LastPlan().Stats
		require.Equal(t, 3, stats.Workers.Lost)
		require.False(t, stats.MassLoss)
		require.Equal(t, 12, f.loads()[3])

		g := f.successor(orchestrator.WithGracePeriod(0)) // nor is anybody waited for that was never heard
		require.NoError(t, g.AddTask("new"))
		g.silentTerm("w1", "w2", "w3")
		require.Equal(t, []string{"w4"}, g.Running("new"))
	})
}

func TestT4_SilenceOutranksDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(9)
		f.term()
		require.NoError(t, f.DrainWorker("w1"))
		f.Cut("w1")
		f.forget()
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

// What a worker said that was removed meanwhile says nothing about the one that
// has its name now.
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
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, hold)
		f.expect(4)
		f.term()
		f.Kill("w1")
		f.silentTerm("w1")
		f.RemoveWorker("w1")
		f.join("w1")
		f.term()
		require.Equal(t, []int{2, 2}, f.loads())
	})
}

// T5

func TestT5_MassLoss(t *testing.T) {
	maxLoss := orchestrator.WithMaxLoss
	for _, test := range []struct {
		name            string
		workers, silent int
		opts            []option
		lost            bool // after the grace period
	}{
		{"two of three", 3, 2, nil, false},
		{"one of three", 3, 1, nil, true},
		{"all of three", 3, 3, nil, false},
		{"two of four are not more than half", 4, 2, nil, true},
		{"three of four", 4, 3, nil, false},
		{"of two workers, one", 2, 1, nil, true},
		{"of two workers, both", 2, 2, nil, true},
		{"the only one", 1, 1, nil, true},
		{"a quarter is allowed, a quarter is silent", 4, 1, []option{maxLoss(0.25)}, true},
		{"a quarter is allowed, half is silent", 4, 2, []option{maxLoss(0.25)}, false},
		{"none is allowed", 3, 1, []option{maxLoss(0)}, false},
		{"one turns it off", 3, 3, []option{maxLoss(1)}, true},
		{"a third of three, in binary fractions", 3, 1, []option{maxLoss(1.0 / 3)}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, test.workers, test.opts...)
				f.expect(2 * test.workers)
				f.term()
				silent := f.workers[:test.silent]
				f.Cut(silent...)
				f.silentTerm(silent...)
				require.Equal(t, !test.lost, f.LastPlan().Stats.MassLoss)
				f.forget()
				time.Sleep(grace)
				f.silentTerm(silent...)
				stats := f.LastPlan().Stats
				require.Equal(t, !test.lost, stats.MassLoss)
				if test.lost {
					require.Equal(t, test.silent, stats.Workers.Lost)
				} else {
					require.Equal(t, test.silent, stats.Workers.Silent)
					require.Empty(t, f.writes())
				}
			})
		})
	}
}

func TestT5_ForFiveMinutesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 5 * time.Minute
		f := newFleet(t, 4)
		f.expect(8)
		f.term()
		f.Cut("w1", "w2", "w3")
		time.Sleep(grace) // it begins when a term sees it
		f.silentTerm("w1", "w2", "w3")
		f.forget()
		time.Sleep(most - 1)
		f.silentTerm("w1", "w2", "w3")
		require.True(t, f.LastPlan().Stats.MassLoss)
		require.Empty(t, f.writes())
		time.Sleep(time.Nanosecond)
		f.silentTerm("w1", "w2", "w3")
		require.False(t, f.LastPlan().Stats.MassLoss)
		require.Equal(t, 3, f.LastPlan().Stats.Workers.Lost)
		require.Equal(t, 8, f.loads()[3])
	})
}

func TestT5_EachHasItsOwnFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.expect(8)
		f.term()
		for range 3 {
			f.Cut("w1", "w2", "w3")
			f.silentTerm("w1", "w2", "w3")
			time.Sleep(4 * time.Minute)
			f.silentTerm("w1", "w2", "w3")
			require.True(t, f.LastPlan().Stats.MassLoss)
			f.Heal()
			_ = f.NextTerm(t.Context())
			time.Sleep(timeout) // it ends once everybody had time to answer
			f.term()
			require.False(t, f.LastPlan().Stats.MassLoss)
		}
		for _, name := range names("t", 8) {
			require.Equal(t, 1, f.Counts(name).Starts)
		}
	})
}

// When the network is back, a term that does not wait for those that were
// silent hears some of them and goes on: the others are about to answer.
func TestT5_NobodyIsLostAsTheNetworkReturns(t *testing.T) {
	for _, every := range []time.Duration{time.Second, time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4)
				f.expect(8)
				f.term()
				f.Cut("w1", "w2", "w3")
				f.silentTerm("w1", "w2", "w3")
				time.Sleep(2 * grace)
				f.silentTerm("w1", "w2", "w3")

				time.Sleep(every)
				f.Heal()
				f.Slow(time.Microsecond, "w4")
				f.Slow(time.Millisecond, "w2", "w3")
				f.forget()
				f.silentTerm("w2", "w3")
				require.Empty(t, f.writes())
				time.Sleep(every)
				f.term()
				require.Empty(t, f.writes())
				require.Equal(t, 4, f.LastPlan().Stats.Workers.Answering)
			})
		})
	}
}

// Those that were lost before do not count: what is left decides.
func TestT5_CountsWorkersNotYetLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 7)
		f.term()
		f.Cut("w1", "w2", "w3")
		time.Sleep(grace)
		f.silentTerm("w1", "w2", "w3")
		require.Equal(t, 3, f.LastPlan().Stats.Workers.Lost)

		f.Cut("w4", "w5", "w6")
		f.silentTerm("w1", "w2", "w3", "w4", "w5", "w6")
		require.True(t, f.LastPlan().Stats.MassLoss, "three of four, and not of seven")
		f.Heal("w6")
		for range 2 {
			_ = f.NextTerm(t.Context())
			time.Sleep(grace)
		}
		f.silentTerm("w1", "w2", "w3", "w4", "w5")
		require.False(t, f.LastPlan().Stats.MassLoss, "two of four")
		require.Equal(t, 5, f.LastPlan().Stats.Workers.Lost)
		f.Cut("w6", "w7")
		time.Sleep(grace)
		f.silentTerm(f.workers...)
		require.False(t, f.LastPlan().Stats.MassLoss, "only two are left")
	})
}

func TestT5_Loudly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logs
		f := newFleet(t, 3, orchestrator.WithLogger(l.logger()))
		f.term()
		require.Empty(t, l.lines(`"level":"ERROR"`))
		f.Cut("w1", "w2")
		for range 2 {
			f.silentTerm("w1", "w2")
		}
		require.Len(t, l.lines(`"level":"ERROR"`, `"silent":2`, `"answering":1`), 2)
		require.Contains(t, f.LastPlan().String(), "too many workers silent at once")
	})
}

// As many workers as there may be calls begin to hang. The others are healthy,
// and for a while nobody asks them: that is no silence of theirs.
func TestT4_WhoWasNotAskedIsNotLost(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 40, orchestrator.WithConcurrency(4))
				f.expect(80)
				f.term()
				f.Hang("w1", "w2", "w3", "w4")
				for range 40 {
					time.Sleep(every)
					_ = f.NextTerm(t.Context())
					synctest.Wait()
					for _, w := range f.LastActual()[4:] {
						require.NotEqual(t, orchestrator.Lost, w.State, w.Name)
					}
				}
			})
		})
	}
}

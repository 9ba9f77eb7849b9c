package test

// P24 and C8: tasks that their workers pin.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/worker"
)

// pinning is a Communicator that pins tasks. It embeds a wire, so that it is no
// Applier.
type pinning struct {
	*wire
	pins  map[string]bool // by task
	on    string          // the worker that pins them; "": all
	n     func(listed, pinned int) int
	again bool // the first task of a list is named again at its end, and pinned there
}

// List lists the pinned tasks last, and pins n of them.
func (p *pinning) List(ctx context.Context, worker string) ([]string, error) {
	tasks, err := p.wire.List(ctx, worker)
	if p.again && len(tasks) > 0 {
		orchestrator.Pin(ctx, 1)
		return append(tasks, tasks[0]), err
	}
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

// A drain waits for pinned tasks and uses no budget for them. LastPlan gives the reason.
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
		f.requireQuiet(3)
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

// Pinned tasks count, but only others move for an even spread.
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
		f.freshTerm()
		require.Empty(t, f.writes())
		clear(p.pins)
		f.term()
		require.Equal(t, []int{4, 4, 4}, f.loads())
		f.requireNeverTwice()
	})
}

// Surplus copies that are not pinned stop first.
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

// expectNamed replaces the expected tasks.
func (f *fleet) expectNamed(names ...string) {
	f.t.Helper()
	all := make([]task, len(names))
	for i, name := range names {
		all[i].Name = name
	}
	require.NoError(f.t, f.UpdateTasks(all))
}

// If all copies are pinned, surplus ones stop nevertheless, and so do unexpected tasks.
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

// n counts from the end of the list. A value out of range counts as the nearest valid
// one.
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

// A quarantined worker is tried with a task that is not pinned, also if a list names it twice.
func TestC8_ATrialMovesNoPinnedTask(t *testing.T) {
	withPins(t, given{workers: 4, expected: 100}, func(t *testing.T, f *fleet, p *pinning) {
		f.quarantine("w3")
		f.Refuse(nil)
		p.again = true
		var pinned []string
		for _, worker := range []string{"w1", "w2", "w4"} {
			list, err := f.Cluster.List(t.Context(), worker)
			require.NoError(t, err)
			pinned = append(pinned, list[0])
		}
		f.anyTerm()
		f.freshTerm()
		require.Len(t, f.addsTo("w3"), 1, "the trial")
		require.NotContains(t, pinned, f.addsTo("w3")[0].Task)
	})
}

// Only the last answer pins. A worker that does not answer keeps all its tasks anyway.
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

// A call of List that pins and then fails pins nothing. Outside of a call of List, Pin
// does nothing.
func TestC8_PinOutsideOfList(t *testing.T) {
	require.False(t, orchestrator.Pin(t.Context(), 3))
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

// Where pins are lost, no job that runs is stopped. One that starts elsewhere first runs at most
// twice; any other once.
func TestC8_JobsWithoutPins(t *testing.T) {
	for handoff, most := range map[orchestrator.Handoff]int{orchestrator.StopThenStart: 1, orchestrator.StartThenStop: 2} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			ended := make(map[string]int)
			cluster, err := memory.New(func(ctx context.Context, _, task string) error {
				select {
				case <-time.After(10 * time.Minute):
				case <-ctx.Done():
					t.Error(task, "is stopped:", context.Cause(ctx))
				}
				return nil
			}, memory.WithWorkerOptions(worker.WithCompletion(func(task string) {
				mu.Lock()
				defer mu.Unlock()
				ended[task]++
			})))
			require.NoError(t, err)
			defer func() { require.NoError(t, cluster.Close(t.Context())) }()
			cluster.Start("w1", "w2")
			lossy := communicator.Func[string, string]{
				ListFunc: func(ctx context.Context, worker string) ([]string, error) {
					term, _ := orchestrator.TermFromContext(ctx)
					return cluster.List(orchestrator.ContextWithTerm(t.Context(), term), worker)
				},
				AddFunc: cluster.Add, RemoveFunc: cluster.Remove,
			}
			o, err := orchestrator.New(lossy, orchestrator.WithHandoff(handoff))
			require.NoError(t, err)
			require.NoError(t, errors.Join(o.AddWorker("w1"), o.AddTask("a"), o.AddTask("b"), o.NextTerm(t.Context()), o.AddWorker("w2")))
			for range 60 {
				_ = o.NextTerm(t.Context()) // stops fail
				time.Sleep(time.Second)
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			for _, task := range []string{"a", "b"} {
				require.Positive(t, ended[task])
				require.LessOrEqual(t, ended[task], most)
			}
		})
	}
}

// A transport collects the pins of a worker's List, and a Pin of the leader's List tells
// whether anything collects them there.
func TestC8_PinsCanBeCarried(t *testing.T) {
	var got []int
	carried := orchestrator.ContextWithPins(t.Context(), func(n int) { got = append(got, n) })
	require.True(t, orchestrator.Pin(carried, 0))
	require.True(t, orchestrator.Pin(carried, -2))
	require.True(t, orchestrator.Pin(context.WithoutCancel(carried), 3))
	require.Equal(t, []int{0, 0, 3}, got)
	require.False(t, orchestrator.Held(carried), "a wire that carries pins need not carry Held")

	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		f := newFleetOn(t, w, communicator.Func[string, string]{
			ListFunc: func(ctx context.Context, worker string) ([]string, error) {
				var pins int
				tasks, err := w.List(ctx, worker)
				there := orchestrator.ContextWithPins(ctx, func(n int) { pins = n })
				require.True(t, orchestrator.Pin(there, len(tasks)))
				require.True(t, orchestrator.Pin(ctx, pins))
				return tasks, err
			},
			AddFunc:    w.Add,
			RemoveFunc: w.Remove,
		}, given{workers: 2})
		f.expect(8)
		f.term()
		require.NoError(t, f.DrainWorker("w1"))
		f.anyTerms(3)
		require.Len(t, f.RunsOn("w1"), 4)
	})
}

// A goroutine that a List left behind pins and holds nothing: neither the list that was
// returned, nor that of another worker.
func TestC8_APinAfterListReturnedPinsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		left := make(map[string]context.Context)
		f := newFleetOn(t, w, communicator.Func[string, string]{
			ListFunc: func(ctx context.Context, worker string) ([]string, error) {
				for other, of := range left {
					require.False(t, orchestrator.Pin(of, 4), "of %s in the List of %s", other, worker)
					require.False(t, orchestrator.Held(of), "of %s in the List of %s", other, worker)
				}
				left[worker] = ctx
				return w.List(ctx, worker)
			},
			AddFunc:    w.Add,
			RemoveFunc: w.Remove,
		}, given{workers: 2, opts: options{orchestrator.WithConcurrency(1)}})
		f.expect(8)
		f.term()
		require.NoError(t, f.DrainWorker("w1"))
		f.untilTerm(3, func() bool { return len(f.RunsOn("w1")) == 0 })
		require.Empty(t, f.RunsOn("w1"))
	})
}

// The pins of a late answer count in the next term.
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

// The stop of a surplus copy fails, and then its worker pins that copy. The other copy
// stops.
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

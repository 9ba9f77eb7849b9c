package test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T8 and T10: stops that never end, and what they may delay.

// stopFaults are the answers to every Remove of a stuck task.
var stopFaults = []struct {
	name  string
	fault func(context.Context) error
}{
	{"stopping", func(context.Context) error { return orchestrator.ErrStopping }},
	{"hangs", hang},
	{"fails", func(context.Context) error { return errBoom }},
	{"refused", func(context.Context) error { return errRejected }},
}

// stuck makes the first n tasks that the leader stops impossible to stop, each
// where it runs then.
type stuck struct {
	mu     sync.Mutex
	n      int
	fault  func(context.Context) error
	copies []string // worker and task
}

// tap is for wire.intercept.
func (s *stuck) tap(ctx context.Context, c call) error {
	if c.Op != orchestrator.OpRemove {
		return nil
	}
	s.mu.Lock()
	instance := c.Worker + " " + c.Task
	if !slices.Contains(s.copies, instance) && len(s.copies) < s.n {
		s.copies = append(s.copies, instance)
	}
	fails := slices.Contains(s.copies, instance)
	s.mu.Unlock()
	if fails {
		return s.fault(ctx)
	}
	return nil
}

// left counts the stuck tasks on w1.
func (s *stuck) left(f *fleet) (n int) {
	for _, task := range f.RunsOn("w1") {
		if slices.Contains(s.copies, "w1 "+task) {
			n++
		}
	}
	return n
}

// withStuckStops runs test for every kind of fault, for every budget from 1 to
// 10, and for one stuck task and as many as the budget.
func withStuckStops(t *testing.T, test func(f *fleet, s *stuck)) {
	t.Helper()
	for _, kind := range stopFaults {
		for n := 1; n <= 10; n++ {
			for _, count := range slices.Compact([]int{1, n}) {
				t.Run(fmt.Sprintf("%s, budget %d, %d stuck", kind.name, n, count), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := newFleet(t, 4, orchestrator.WithMaxMoves(n))
						f.expect(80)
						f.term()
						s := &stuck{n: count, fault: kind.fault}
						f.intercept(s.tap)
						test(f, s)
						f.requireAllRun()
						f.requireNeverTwice()
					})
				})
			}
		}
	}
}

// untilTerm runs terms until done, and at most limit. It returns how many.
func (f *fleet) untilTerm(limit int, done func() bool) (terms int) {
	f.t.Helper()
	for terms < limit && !done() {
		f.steadyTerm()
		terms++
	}
	return terms
}

// The drained worker ends with the stuck tasks alone, and the worker that joined
// with its share of the others.
func TestT10_StuckStopsDelayNoDrain(t *testing.T) {
	withStuckStops(t, func(f *fleet, s *stuck) {
		f.join("w5")
		require.NoError(f.t, f.DrainWorker("w1"))
		share := func() int { return (80 - s.left(f)) / 4 }
		terms := f.untilTerm(60, func() bool {
			return len(f.RunsOn("w1")) == s.left(f) && len(f.RunsOn("w5")) >= share()
		})
		f.t.Logf("after %d terms: loads %v, stuck on w1: %d", terms, f.loads(), s.left(f))
		require.Len(f.t, f.RunsOn("w1"), s.left(f), "the drained worker holds the stuck tasks alone")
		require.GreaterOrEqual(f.t, len(f.RunsOn("w5")), share(), "the share of the new worker")
	})
}

func TestT10_StuckStopsDelayNoJoin(t *testing.T) {
	withStuckStops(t, func(f *fleet, _ *stuck) {
		f.join("w5")
		terms := f.untilTerm(60, func() bool { return len(f.RunsOn("w5")) == 16 })
		f.t.Logf("after %d terms: loads %v", terms, f.loads())
		require.Equal(f.t, []int{16, 16, 16, 16, 16}, f.loads())
	})
}

// A Remove that hangs concerns one worker.
func TestT3_AHangingRemoveMakesFewTermsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, 4)
		s.expect(20)
		require.NoError(t, s.NextTerm(t.Context()))
		s.intercept(on(orchestrator.OpRemove, "", "t1", hang))
		s.start(tick)
		s.RemoveTask("t1")
		s.requireShortTerms()
	})
}

// Two copies run and one is wanted. The first one that the leader tries to stop
// cannot be stopped, so it stops the other one.
func TestT10_TheOtherSurplusCopyIsStopped(t *testing.T) {
	for _, kind := range stopFaults[1:] {
		t.Run(kind.name, func(t *testing.T) {
			onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
				f := start(t, 3)
				f.expect(6)
				f.run("w1", "t1")
				f.run("w2", "t1")
				s := &stuck{n: 1, fault: kind.fault}
				f.intercept(s.tap)
				terms := f.untilTerm(20, func() bool { return len(f.Running("t1")) == 1 && f.missing() == 0 })
				t.Logf("after %d terms t1 runs on %v", terms, f.Running("t1"))
				require.Len(t, f.Running("t1"), 1)
				f.requireAllRun()
				require.LessOrEqual(t, terms, 10)
				for range 20 {
					f.steadyTerm()
					f.requireAllRun()
				}
				require.LessOrEqual(t, spread(f.loads()), 1)
			})
		})
	}
}

// A hundred groups, each with a leader and two tasks of its own, share five
// workers. Each worker gets a fifth of the tasks: 40, give or take five standard
// deviations.
func TestT10_SmallGroupsSpreadOverTheirWorkers(t *testing.T) {
	loads := make(map[string]int)
	for range 100 {
		lists := make(map[string][]string)
		o, err := orchestrator.New(recorder[string, string](lists))
		require.NoError(t, err)
		for _, name := range names("w", 5) {
			require.NoError(t, o.AddWorker(name))
		}
		require.NoError(t, o.UpdateTasks([]task{{Name: "a"}, {Name: "b"}}))
		require.NoError(t, o.NextTerm(t.Context()))
		for worker, tasks := range lists {
			loads[worker] += len(tasks)
		}
		require.NoError(t, o.NextTerm(t.Context()))
		require.Empty(t, o.LastPlan().Changes)
	}
	t.Logf("tasks by worker: %v", loads)
	for _, name := range names("w", 5) {
		require.GreaterOrEqual(t, loads[name], 15, name)
		require.LessOrEqual(t, loads[name], 65, name)
	}
}

// Under StartThenStop a single task runs on two workers at most, whatever else
// has a copy.
func TestT8_StartThenStop_NeverOnThreeWorkers(t *testing.T) {
	for _, test := range []struct {
		name   string
		silent bool // the other copy is on a silent worker; otherwise its stop fails
	}{
		{"a silent worker holds a copy", true},
		{"a surplus copy does not stop", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
				f := start(t, 4, orchestrator.WithHandoff(orchestrator.StartThenStop), hold)
				f.run("w1", "t1")
				f.run("w2", "t1")
				f.expect(1)
				f.intercept(on(orchestrator.OpRemove, "", "", func(context.Context) error { return errRejected }))
				f.failingTerm() // both copies are known, and neither was stopped
				require.Len(t, f.Running("t1"), 2)
				if test.silent {
					f.intercept(nil)
					f.Cut("w1")
				}
				require.NoError(t, f.DrainWorker("w2"))
				for range 20 {
					f.steadyTerm()
				}
				t.Logf("at most %d copies at the same time", f.Counts("t1").Most)
				require.LessOrEqual(t, f.Counts("t1").Most, 2)

				f.intercept(nil)
				f.Heal()
				f.untilTerm(64, func() bool { return len(f.Running("t1")) == 1 && len(f.RunsOn("w2")) == 0 })
				require.LessOrEqual(t, f.Counts("t1").Most, 2)
				require.Len(t, f.Running("t1"), 1)
				require.Empty(t, f.RunsOn("w2"), "drained in the end")
			})
		})
	}
}

// Of two copies one is surplus, and their workers are drained.
func TestT8_StartThenStop_SurplusAndDrain(t *testing.T) {
	for _, drained := range [][]string{{"w1"}, {"w2"}, {"w1", "w2"}} {
		t.Run(fmt.Sprint(drained), func(t *testing.T) {
			onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
				f := start(t, 3, orchestrator.WithHandoff(orchestrator.StartThenStop))
				f.run("w1", "t1")
				f.run("w2", "t1")
				f.expect(1)
				for _, name := range drained {
					require.NoError(t, f.DrainWorker(name))
				}
				f.intercept(func(ctx context.Context, c call) error { // a start ends before a stop
					switch c.Op {
					case orchestrator.OpAdd:
						return pass(ctx, time.Second)
					case orchestrator.OpRemove:
						return pass(ctx, 3*time.Second)
					}
					return nil
				})
				f.untilTerm(5, func() bool { return false })
				t.Logf("at most %d copies at the same time", f.Counts("t1").Most)
				require.LessOrEqual(t, f.Counts("t1").Most, 2)
				require.Len(t, f.Running("t1"), 1)
				require.NotSubset(t, drained, f.Running("t1"))
			})
		})
	}
}

// A task that is removed while it moves strands nothing: the transport refuses its
// start, and other tasks go on moving.
func TestT9_ARemovedTaskPausesNoMoves(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 1)
		f.expect(4)
		f.term()
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

// All starts are answered with ErrStopping. Moves pause as they do in any outage.
func TestT9_StartsThatAreBeingStoppedPauseMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(40)
		f.term()
		f.join("w3")
		f.intercept(on(orchestrator.OpAdd, "", "", func(context.Context) error { return orchestrator.ErrStopping }))
		for range 40 {
			f.steadyTerm()
		}
		require.NotEmpty(t, f.paused(orchestrator.PauseMoves))
		require.LessOrEqual(t, f.missing(), 8)
	})
}

package test

// T9: room for a task that the workers with room have rejected.

import (
	"fmt"
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// refusals refuse the starts of group g on worker w if bit 3g+w is set.
func (f *fleet) refusals(pattern uint) {
	f.Refuse(func(op orchestrator.Op, worker, task string) error {
		var g, n int
		if _, err := fmt.Sscanf(task, "g%d-%d", &g, &n); err != nil || op != orchestrator.OpAdd {
			return nil
		}
		if pattern>>(3*g+int(worker[1]-'1'))&1 != 0 {
			return errRejected
		}
		return nil
	})
}

// mayAllRun reports whether each of three groups has a worker of its own.
func mayAllRun(pattern uint) bool {
	for _, p := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		if pattern>>p[0]&1 == 0 && pattern>>(3+p[1])&1 == 0 && pattern>>(6+p[2])&1 == 0 {
			return true
		}
	}
	return false
}

// T-f: three workers with room for as many tasks as there are in each of three groups. Whatever each
// worker rejects, every task runs if there is a way.
func TestT9_RoomForASuspect(t *testing.T) {
	for _, tasks := range []int{1, 4} {
		solvable := 0
		for pattern := range uint(1 << 9) {
			if !mayAllRun(pattern) || tasks > 1 && bits.OnesCount(pattern)%3 != 0 {
				continue
			}
			solvable++
			inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
				for _, w := range f.workers {
					require.NoError(t, f.AddWorker(w, orchestrator.WithWorkerMaxTasks(tasks)))
				}
				f.refusals(pattern)
				for g := range 3 {
					for n := range tasks {
						require.NoError(t, f.AddTask(fmt.Sprintf("g%d-%d", g, n)))
					}
				}
				terms := 0
				for ; terms < 150*min(tasks, 2) && f.missing() > 0; terms++ {
					_ = f.NextTerm(t.Context())
					time.Sleep(time.Second)
				}
				require.Zero(t, f.missing(), "%09b, %d tasks each", pattern, tasks)
			})
		}
		t.Log(solvable, "patterns")
	}
}

// T-f, and what its plan says.
func TestT9_RoomHasItsReason(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		for _, w := range f.workers {
			require.NoError(t, f.AddWorker(w, orchestrator.WithWorkerMaxTasks(1)))
		}
		f.Refuse(func(op orchestrator.Op, worker, task string) error {
			if op == orchestrator.OpAdd && task == "t1" && worker != "w3" {
				return errRejected
			}
			return nil
		})
		require.NoError(t, f.AddTask("t0"))
		f.term()
		for f.Running("t0")[0] != "w3" { // w3 runs t0
			require.NoError(t, f.DrainWorker(f.Running("t0")[0]))
			f.term()
		}
		for _, w := range f.workers {
			require.NoError(t, f.UndrainWorker(w))
		}
		require.NoError(t, f.AddTask("t1"))
		for terms := 0; len(f.Running("t1")) == 0; terms++ {
			require.Less(t, terms, 100)
			_ = f.NextTerm(t.Context())
			time.Sleep(time.Second)
		}
		moves := f.moves()
		require.Len(t, moves, 1)
		require.Equal(t, "t0", moves[0].Task)
		require.Equal(t, orchestrator.ReasonRoom, moves[0].Kind.Reason)
	})
}

// A start waits for a move to make room, which waits for another one, on full workers: no call is
// under way while something is left to do.
func TestP10_AChainOfRoom(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.AddWorker("w1", orchestrator.WithWorkerLabels("k1"), orchestrator.WithWorkerMaxTasks(2)))
		require.NoError(t, f.AddWorker("w2", orchestrator.WithWorkerLabels("k2"), orchestrator.WithWorkerMaxTasks(1)))
		require.NoError(t, f.AddWorker("w3", orchestrator.WithWorkerLabels("k3")))
		task := func(name, label string) { require.NoError(t, f.AddTask(name, orchestrator.WithTaskRequires(label))) }
		task("v", "k1")
		task("y", "k1")
		task("z", "k2")
		for _, n := range names("o", 8) {
			task(n, "k3")
		}
		require.NoError(t, f.NextTerm(t.Context()))
		f.RemoveTask("v")
		task("y", "k2")
		task("z", "k1")
		task("x", "k1")
		began := time.Now()
		require.NoError(t, f.NextTerm(t.Context()))
		require.Zero(t, time.Since(began))
		require.Equal(t, map[orchestrator.Outcome]int{orchestrator.OutcomeDone: 4}, f.outcomes())
		require.Zero(t, f.missing())
	})
}

package replica_test

// Tasks that ask to run elsewhere (worker.Reschedule).

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/worker"
)

// askers are tasks that ask to leave some replicas, after a pause.
type askers struct {
	f     *fleet
	pause time.Duration

	mu    sync.Mutex
	leave map[string][]string // by task, the replicas
	runs  []string            // "task replica", in order
	errs  []error             // of Reschedule
}

// ask makes tasks ask to leave replicas.
func (f *fleet) ask(pause time.Duration, leave map[string][]string) *askers {
	a := &askers{f: f, pause: pause, leave: leave}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = a.began
	return a
}

func (a *askers) began(ctx context.Context, name, task string) {
	a.mu.Lock()
	a.runs = append(a.runs, task+" "+name)
	leaves := slices.Contains(a.leave[task], name)
	a.mu.Unlock()
	if !leaves {
		return
	}
	select {
	case <-time.After(a.pause):
	case <-ctx.Done():
	}
	err := worker.Reschedule(ctx, "no disk on "+name)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.errs = append(a.errs, err)
}

// ofX returns where task x has run, in order.
func (a *askers) ofX() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, run := range a.runs {
		if name, ok := strings.CutPrefix(run, "x "); ok {
			names = append(names, name)
		}
	}
	return names
}

// count returns how many runs have begun.
func (a *askers) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.runs)
}

// onX returns where task x runs; empty: nowhere.
func (f *fleet) onX() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.running["x"] {
		return name
	}
	return ""
}

// unquarantined fails the test if a leader quarantines a replica.
func (f *fleet) unquarantined() {
	f.t.Helper()
	for _, n := range f.replicas {
		if s := n.Status(); s.Plan != nil {
			for _, p := range s.Plan.Paused {
				require.NotEqual(f.t, orchestrator.PauseWorker, p.Kind, "%+v", p)
			}
		}
	}
}

// watch looks every tenth of a second for so long.
func (f *fleet) watch(d time.Duration, look func()) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		synctest.Wait()
		look()
	}
}

func TestReschedule_RunsElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		a := f.ask(time.Second, map[string][]string{"x": {"r1"}})
		f.stubborn = map[string]time.Duration{"r1": 3 * time.Second} // x never runs twice meanwhile
		f.want(replica.Task{Name: "x"})
		f.join("r1")
		f.within(lease, "x runs on r1", func() bool { return f.onX() == "r1" })
		f.want(append(named(3), replica.Task{Name: "x"})...)
		f.join("r2")
		f.join("r3")
		took := f.within(lease, "x runs on another one", func() bool { return f.onX() != "r1" && f.allRun() && f.even() })
		require.Less(t, took, lease/12+7*time.Second, "the stop, a heartbeat and two terms")
		require.Len(t, f.log.lines("task is to run elsewhere"), 1)
		starts := f.started()
		f.watch(10*time.Minute, f.unquarantined)
		require.Equal(t, starts, f.started(), "nothing else happens")

		require.NoError(t, f.leave(f.onX()))
		f.within(lease, "x runs on the third", f.allRun)
		f.watch(time.Minute, f.unquarantined)
		runs := a.ofX()
		require.Len(t, runs, 3)
		require.ElementsMatch(t, []string{"r1", "r2", "r3"}, runs)
	})
}

// All replicas are asked to be left. The task is tried again, and hardly another one moves.
func TestReschedule_Everywhere(t *testing.T) {
	for _, tasks := range []int{6, 11, 13} {
		bubble(t, func(t *testing.T, f *fleet) { leavesAll(t, f, tasks) })
	}
}

func leavesAll(t *testing.T, f *fleet, tasks int) {
	f.settle(3, tasks)
	a := f.ask(time.Second, map[string][]string{"x": {"r0", "r1", "r2"}})
	var batches atomic.Int64
	starts := f.started()
	f.table.SetFaults(func(u replica.Update) memory.Fault {
		if u.Batch != nil {
			batches.Add(1)
		}
		return memory.Fault{}
	})
	f.want(append(named(tasks), replica.Task{Name: "x"})...)
	f.watch(10*time.Minute, f.unquarantined)
	n := len(a.ofX())
	require.GreaterOrEqual(t, n, 9, "it comes back")
	require.LessOrEqual(t, n, 30, "on each once a minute")
	require.Less(t, batches.Load(), int64(600))
	require.LessOrEqual(t, f.started()-starts-n, n, "a run on a full replica makes one other task move")
	f.ask(0, nil)
	f.within(2*time.Minute, "it runs once it can", f.allRun)
}

// The only replica is asked to be left. It gives way to the leader, and at once if the task has
// other input, or is to be restarted.
func TestReschedule_TheOnlyReplica(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		a := f.ask(0, map[string][]string{"x": {"r1"}})
		f.want(append(named(1), replica.Task{Name: "x"})...)
		f.join("r1")
		runs := func(n int) func() bool { return func() bool { return len(a.ofX()) == n } }
		f.within(lease, "x runs", runs(1))
		for i := range 4 {
			require.Greater(t, f.within(2*lease, "x comes back", runs(2+i)), time.Minute)
		}
		f.want(append(named(1), replica.Task{Name: "x", Input: 1})...)
		require.Less(t, f.within(lease, "x has other input", runs(6)), 30*time.Second)
		require.Greater(t, f.within(2*lease, "x comes back", runs(7)), time.Minute)
		require.Len(t, f.log.lines("task is to run elsewhere"), 7)
	})
}

// A replica on which every task asks to leave ends up with none, and the others run all.
func TestRd_AReplicaThatFailsEveryRun(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 12)
		f.kill("r1")
		f.within(2*lease, "all run", f.allRun)
		leave := make(map[string][]string)
		for _, task := range named(12) {
			leave[task.Name] = []string{"r1"}
		}
		a := f.ask(time.Second, leave)
		f.join("r1")
		f.within(2*lease, "each was there once", func() bool { return a.count() == 24 && f.allRun() })
		f.watch(10*time.Minute, f.unquarantined)
		require.Equal(t, 24, a.count(), "they stay away")
		require.True(t, f.allRun())
		require.Zero(t, f.loads()["r1"])
		f.want(named(13)...)
		f.within(lease, "another task runs there", func() bool { return f.loads()["r1"] == 1 })
	})
}

// A task asks to leave a replica that leaves, while all of its tasks stop slowly.
func TestReschedule_DuringADrain(t *testing.T) {
	for _, stubborn := range []time.Duration{0, 3 * time.Second} {
		bubble(t, func(t *testing.T, f *fleet) {
			f.settle(3, 6)
			leave := make(map[string][]string)
			f.stubborn = map[string]time.Duration{"r9": stubborn}
			for _, task := range named(8) {
				leave[task.Name] = []string{"r9"}
			}
			a := f.ask(time.Second, leave)
			f.join("r9")
			f.want(named(8)...)
			f.within(lease, "r9 has tasks", func() bool { return f.loads()["r9"] == 2 })
			time.Sleep(time.Second - time.Millisecond)
			require.NoError(t, f.leave("r9"))
			require.Less(t, f.within(lease, "all run", f.allRun), 3*time.Second)
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, err := range a.errs {
				if err != nil {
					require.ErrorIs(t, err, worker.ErrRemoved)
				}
			}
		})
	}
}

// A task asks to leave while an order to stop it arrives, before and after.
func TestReschedule_WithAnOrderToStop(t *testing.T) {
	for _, pause := range []time.Duration{900 * time.Millisecond, time.Second, 1100 * time.Millisecond, 3 * time.Second} {
		bubble(t, func(t *testing.T, f *fleet) {
			f.settle(3, 6)
			leave := []string{"r0", "r1", "r2"}
			f.stubborn = map[string]time.Duration{"r0": time.Second, "r1": time.Second, "r2": time.Second}
			a := f.ask(pause, map[string][]string{"x": leave})
			f.want(append(named(6), replica.Task{Name: "x"})...)
			f.within(lease, "x runs", func() bool { return f.onX() != "" })
			time.Sleep(time.Second)
			f.want(named(6)...)
			f.within(lease, "x has stopped", f.allRun)
			time.Sleep(lease)
			require.Len(t, a.ofX(), 1)
			f.want(append(named(6), replica.Task{Name: "x"})...)
			f.within(lease, "x runs again", func() bool { return len(a.ofX()) == 2 })
		})
	}
}

// A replica loses its lease while a task that has asked to leave it stops. It refuses the task
// in its next life, too.
func TestReschedule_WithALostLease(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		a := f.ask(time.Second, map[string][]string{"x": {"r1"}})
		f.stubborn = map[string]time.Duration{"r1": lease}
		f.want(replica.Task{Name: "x"})
		f.join("r1", replica.WithLastResort(func([]string) {}))
		f.within(lease, "x runs on r1", func() bool { return f.onX() == "r1" })
		id := f.replicas["r1"].Status().ID
		f.cutOff(f.replicas["r1"])
		f.join("r2")
		f.join("r3")
		f.limits["x"] = 2 // on r1 it outlives the lease
		f.within(3*lease, "x runs on another one", func() bool { return f.copiesOf("x") == 1 && f.onX() != "r1" })
		f.within(3*lease, "r1 joins again", func() bool {
			s := f.replicas["r1"].Status()
			return s.ID != id && f.replicas["r1"].Ready() == nil
		})
		require.Equal(t, "r1", a.ofX()[0])
		require.NoError(t, f.leave(f.onX()))
		f.within(lease, "x runs on the third", f.allRun)
		require.NotEqual(t, "r1", f.onX())
		require.Len(t, a.ofX(), 3)
	})
}

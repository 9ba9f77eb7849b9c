package e2e_test

// Processes that are stopped past their lease and continued. No clock can prevent
// overlaps then; tokens protect the store.

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// TestW5_StoppedPastItsLease stops a worker with SIGSTOP for longer than its lease,
// and continues it when other workers run its tasks.
func TestW5_StoppedPastItsLease(t *testing.T) {
	const tasks = 20
	s := usual
	store := openStore(t)
	s.Lease, s.Store = 2*time.Second, store.addr()
	s.Stop = 300 * time.Millisecond
	c := startCluster(t, 3, tasks, s)
	c.Wait("all tasks run", time.Minute, func() bool { return c.settled(tasks) })

	var resorts, twice []time.Duration
	checks := 0
	for round := range max(2, *rounds/2) {
		victim := c.nodes[round%len(c.nodes)]
		mine := tasksOf(c.Look(), victim.Name)
		pid := victim.PID()
		victim.Pause()
		c.Wait("its tasks run elsewhere", 4*s.Lease, func() bool {
			running := c.Look()
			for _, task := range mine {
				// The stopped process has not recorded any stop.
				if len(running[task]) != 2 {
					return false
				}
			}
			return true
		})
		// Each new owner writes before the old process continues.
		c.Wait("the new owners have written", 4*s.Lease, func() bool { return succeeded(store, mine, pid) })
		writes, _ := store.writes()
		at := proctest.Now()
		victim.Resume()
		<-victim.Exited() // it ends by its last resort
		c.Look()
		resort, n := c.awoke(pid, at)
		resorts = append(resorts, resort)
		checks += n
		for _, o := range c.History.Overlaps() {
			if o.A.PID == pid || o.B.PID == pid {
				twice = append(twice, time.Duration(o.To-o.From))
			}
		}
		require.Empty(t, takenFrom(store, len(writes), pid), "round %d: the store took a write with an old token", round)
		victim.Start()
		c.Wait("the node is back", 10*s.Lease, func() bool { return c.settled(tasks) })
	}
	proctest.Report(t, "SIGCONT to the last resort", resorts)
	require.Positive(t, checks, "no task called worker.Check after SIGCONT")
	t.Logf("%d first calls of worker.Check after SIGCONT, each reported the loss", checks)
	if len(twice) > 0 {
		proctest.Report(t, "tasks that continued after SIGCONT, beside their new owner", twice)
	}
	for _, o := range c.History.Overlaps() {
		require.True(t, c.History.WasPaused(o.A.PID) || c.History.WasPaused(o.B.PID), "%v", o)
	}
}

func tasksOf(running map[string][]string, node string) []string {
	var tasks []string
	for task, where := range running {
		if slices.Contains(where, node) {
			tasks = append(tasks, task)
		}
	}
	slices.Sort(tasks)
	return tasks
}

// succeeded reports whether each of the tasks has been written with a newer token
// than the process old has used.
func succeeded(s *store, tasks []string, old int) bool {
	writes, _ := s.writes()
	last := map[string]uint64{} // of the old owner
	for _, w := range writes {
		if w.pid == old {
			last[w.task] = max(last[w.task], w.token)
		}
	}
	newer := map[string]bool{}
	for _, w := range writes {
		newer[w.task] = newer[w.task] || w.token > last[w.task]
	}
	return !slices.ContainsFunc(tasks, func(task string) bool { return !newer[task] })
}

// takenFrom returns the writes that the store has accepted from a process, without
// the first ones.
func takenFrom(s *store, first, pid int) []write {
	writes, _ := s.writes()
	return slices.DeleteFunc(writes[first:], func(w write) bool { return w.pid != pid })
}

// awoke returns how long after at the process called its last resort. It checks that
// each call of worker.Check since at reported the loss.
func (c *cluster) awoke(pid int, at int64) (resort time.Duration, checks int) {
	c.T.Helper()
	for _, e := range c.Events {
		if e.PID != pid || e.At < at {
			continue
		}
		switch e.Kind {
		case lastResort:
			resort = time.Duration(e.At - at)
		case checked:
			require.NotEmpty(c.T, e.Text, "task %s: worker.Check reported a valid lease", e.Task)
			checks++
		}
	}
	require.Positive(c.T, resort, "process %d has not called its last resort\n%s", pid, c.Logs())
	return resort, checks
}

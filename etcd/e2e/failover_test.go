package e2e_test

// The leader dies or leaves: the time until another leads, and the effect on healthy
// tasks.

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

var rounds = flag.Int("proof.rounds", 3, "number of `rounds` of faults in the longest test")

const tasks = 200

var usual = nodeSettings{
	Lease:    3 * time.Second,
	Stop:     500 * time.Millisecond,
	Interval: 200 * time.Millisecond,
}

// TestE2_AnotherLeads kills the leader with SIGKILL repeatedly, while one worker is
// stopped for half of its lease. Another node leads within the lease and a second.
// No task of a living process is started, stopped or moved until the dead process's
// lease has ended and its tasks run elsewhere.
func TestE2_AnotherLeads(t *testing.T) {
	c := startCluster(t, 5, tasks, usual)
	c.wait("all tasks run", time.Minute, func() bool { return c.settled(tasks) })

	var took []time.Duration
	for range max(1, *rounds/10) {
		leader, epoch := c.leading(), c.epoch
		asleep := c.nodes[(slices.Index(c.nodes, leader)+1)%len(c.nodes)]
		before := c.look()
		asleep.Pause()
		killed := time.Now()
		leader.Kill()
		c.wait("half a lease", time.Minute, func() bool { return time.Since(killed) > usual.Lease/2 })
		asleep.Resume()
		c.wait("another leads", usual.Lease+time.Second-time.Since(killed), func() bool { c.look(); return c.epoch > epoch })
		took = append(took, time.Since(killed))
		c.wait("the tasks of the dead node run elsewhere", 2*usual.Lease, func() bool { return c.settled(tasks) })
		for task, where := range c.look() {
			if before[task][0] != leader.name {
				require.Equal(t, before[task], where, "task %s was healthy", task)
			}
		}
		c.unharmed(before, leader.name)
		leader.Start()
		c.wait("the node is back", 3*usual.Lease, func() bool { return c.settled(tasks) })
		require.Empty(t, c.history.Overlaps())
	}
	report(t, "SIGKILL to the next leader", took)
}

// TestE2_ResigningHandsOver lets the leader leave with SIGTERM.
func TestE2_ResigningHandsOver(t *testing.T) {
	c := startCluster(t, 3, 30, usual)
	c.wait("all tasks run", time.Minute, func() bool { return c.settled(30) })
	var took []time.Duration
	for range max(1, *rounds/10) {
		leader, epoch := c.leading(), c.epoch
		c.quiet(2 * c.settings.Interval)
		left := time.Now()
		leader.Leave()
		c.wait("another leads", time.Minute, func() bool { c.look(); return c.epoch > epoch })
		took = append(took, time.Since(left))
		c.wait("its tasks have moved", time.Minute, func() bool { return c.settled(30) && !leader.Alive() })
		leader.Start()
		c.wait("the node is back", time.Minute, func() bool { return c.settled(30) })
		require.Empty(t, c.history.Overlaps())
	}
	report(t, "SIGTERM to the next leader", took)
	require.Less(t, slices.Max(took), 200*time.Millisecond)
}

// unharmed checks that each earlier run on a node other than dead still lasts.
func (c *cluster) unharmed(before map[string][]string, dead string) {
	c.t.Helper()
	runs := map[string]int{}
	for _, r := range c.history.Runs() {
		if r.To == proctest.EndOfTime && len(before[r.Task]) == 1 && before[r.Task][0] != dead && r.Node == before[r.Task][0] {
			runs[r.Task]++
		}
	}
	for task, where := range before {
		if where[0] != dead {
			require.Equal(c.t, 1, runs[task], "task %s", task)
		}
	}
}

// quiet waits until no task has started for that long.
func (c *cluster) quiet(d time.Duration) {
	c.t.Helper()
	last, since := len(c.history.Runs()), time.Now()
	c.wait("quiet", time.Minute, func() bool {
		c.look()
		if n := len(c.history.Runs()); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > d
	})
}

// report logs the median and the maximum.
func report(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	t.Logf("%s: median %v, maximum %v, of %d", what,
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), len(took))
}

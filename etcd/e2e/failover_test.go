package e2e_test

// The leader dies or leaves, or etcd goes away: how long that lasts, and the effect on
// healthy tasks.

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

var (
	rounds = flag.Int("proof.rounds", 2, "number of `rounds` of faults in the longest test")
	seed   = flag.Uint64("proof.seed", 1, "the `seed` of the random faults")
)

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
	c.Wait("all tasks run", time.Minute, func() bool { return c.settled(tasks) })

	waited := proctest.MeasureWaiting(t)
	var took, computing []time.Duration // computing is without the waits for a processor
	for range max(1, *rounds/10) {
		leader, epoch := c.leading()
		asleep := c.nodes[(slices.Index(c.nodes, leader)+1)%len(c.nodes)]
		before := c.Look()
		asleep.Pause()
		killed, waitedBefore := time.Now(), waited()
		leader.Kill()
		c.Wait("half a lease", time.Minute, func() bool { return time.Since(killed) > usual.Lease/2 })
		asleep.Resume()
		c.awaitSuccessor(epoch, time.Minute)
		took = append(took, time.Since(killed))
		computing = append(computing, time.Since(killed)-(waited()-waitedBefore))
		c.Wait("the tasks of the dead node run elsewhere", 2*usual.Lease, func() bool { return c.settled(tasks) })
		for task, where := range c.Look() {
			if before[task][0] != leader.Name {
				require.Equal(t, before[task], where, "task %s was healthy", task)
			}
		}
		c.unharmed(before, leader.Name)
		leader.Start()
		c.Wait("the node is back", 3*usual.Lease, func() bool { return c.settled(tasks) })
		require.Empty(t, c.History.Overlaps())
	}
	proctest.Report(t, "SIGKILL to the next leader", took)
	require.Less(t, slices.Max(computing), usual.Lease+time.Second)
}

// TestE2_ResigningHandsOver lets the leader leave with SIGTERM.
func TestE2_ResigningHandsOver(t *testing.T) {
	c := startCluster(t, 3, 30, usual)
	c.Wait("all tasks run", time.Minute, func() bool { return c.settled(30) })
	waited := proctest.MeasureWaiting(t)
	var took, computing []time.Duration // computing is without the waits for a processor
	for range max(1, *rounds/10) {
		leader, epoch := c.leading()
		c.quiet(2 * c.settings.Interval)
		left, before := time.Now(), waited()
		leader.Leave()
		c.awaitSuccessor(epoch, time.Minute)
		took = append(took, time.Since(left))
		computing = append(computing, time.Since(left)-(waited()-before))
		c.Wait("its tasks have moved", time.Minute, func() bool { return c.settled(30) && !leader.Alive() })
		leader.Start()
		c.Wait("the node is back", time.Minute, func() bool { return c.settled(30) })
		require.Empty(t, c.History.Overlaps())
	}
	proctest.Report(t, "SIGTERM to the next leader", took)
	require.Less(t, slices.Max(computing), 200*time.Millisecond)
}

// TestE8_EtcdGoesAway kills etcd for three leases, or 300 ms for each round if that is
// longer. Every task stops before its lease can expire. When etcd is back, all tasks
// run again without help.
func TestE8_EtcdGoesAway(t *testing.T) {
	const tasks = 60
	s := usual
	s.Lease = 2 * time.Second
	c := startCluster(t, 3, tasks, s)
	c.Wait("all tasks run", time.Minute, func() bool { return c.settled(tasks) })

	c.etcd.Kill()
	killed := time.Now()
	c.Wait("every task has stopped", s.Lease, func() bool { return len(c.Look()) == 0 })
	t.Logf("all tasks stopped %v after etcd was killed, lease %v",
		time.Since(killed).Round(time.Millisecond), s.Lease)
	for _, n := range c.nodes {
		require.True(t, n.Alive(), "%s should have stopped its tasks in time\n%s", n.Name, c.Logs())
	}
	away := time.Duration(*rounds) * 300 * time.Millisecond
	c.Pass(max(away, 3*s.Lease) - time.Since(killed))
	require.Empty(t, c.Look())

	c.etcd.Start()
	back := c.Wait("all tasks run again", 5*s.Lease, func() bool { return c.settled(tasks) })
	t.Logf("all tasks ran again %v after etcd was started", back.Round(time.Millisecond))
	require.Empty(t, c.History.Overlaps())
}

// unharmed checks that each earlier run on a node other than dead still lasts.
func (c *cluster) unharmed(before map[string][]string, dead string) {
	c.T.Helper()
	runs := map[string]int{}
	for _, r := range c.History.Runs() {
		if r.To == proctest.EndOfTime && len(before[r.Task]) == 1 && before[r.Task][0] != dead && r.Node == before[r.Task][0] {
			runs[r.Task]++
		}
	}
	for task, where := range before {
		if where[0] != dead {
			require.Equal(c.T, 1, runs[task], "task %s", task)
		}
	}
}

// quiet waits until no task has started for that long.
func (c *cluster) quiet(d time.Duration) {
	c.T.Helper()
	last, since := len(c.History.Runs()), time.Now()
	c.Wait("quiet", time.Minute, func() bool {
		c.Look()
		if n := len(c.History.Runs()); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > d
	})
}

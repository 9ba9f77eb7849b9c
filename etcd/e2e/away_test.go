package e2e_test

// An outage of etcd that is longer than every lease.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestE8_EtcdGoesAway kills etcd for three leases, or 300 ms for each round if that is
// longer. Every task stops before its lease can expire. When etcd is back, all tasks
// run again without help.
func TestE8_EtcdGoesAway(t *testing.T) {
	const tasks = 60
	s := usual
	s.Lease = 2 * time.Second
	c := startCluster(t, 3, tasks, s)
	c.wait("all tasks run", time.Minute, func() bool { return c.settled(tasks) })

	c.etcd.Kill()
	killed := time.Now()
	c.wait("every task has stopped", s.Lease, func() bool { return len(c.look()) == 0 })
	t.Logf("all tasks stopped %v after etcd was killed, lease %v",
		time.Since(killed).Round(time.Millisecond), s.Lease)
	for _, n := range c.nodes {
		require.True(t, n.Alive(), "%s should have stopped its tasks in time\n%s", n.name, c.logs())
	}
	away := time.Duration(*rounds) * 300 * time.Millisecond
	c.pass(max(away, 3*s.Lease) - time.Since(killed))
	require.Empty(t, c.look())

	c.etcd.Start()
	back := c.wait("all tasks run again", 5*s.Lease, func() bool { return c.settled(tasks) })
	t.Logf("all tasks ran again %v after etcd was started", back.Round(time.Millisecond))
	require.Empty(t, c.history.Overlaps())
}

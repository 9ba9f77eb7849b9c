package proof_test

// etcd goes away for longer than every lease, and comes back.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestE8_EtcdGoesAway kills etcd for three leases, or for a minute where all
// rounds are run: every task stops before its lease can have ended; and when etcd is
// back, everything runs again without anybody's help.
func TestE8_EtcdGoesAway(t *testing.T) {
	const tasks = 60
	s := usual
	s.Lease = 2 * time.Second
	c := startCluster(t, 3, tasks, s)
	c.wait("all tasks run", time.Minute, func() bool { return c.settled(tasks) })

	c.etcd.Kill()
	killed := time.Now()
	c.wait("every task has stopped", s.Lease, func() bool { return len(c.look()) == 0 })
	t.Logf("everything had stopped %v after etcd was killed, of a lease of %v",
		time.Since(killed).Round(time.Millisecond), s.Lease)
	for _, n := range c.nodes {
		require.True(t, n.Alive(), "%s had time to stop its tasks\n%s", n.name, c.logs())
	}
	away := time.Duration(*rounds) * 300 * time.Millisecond
	c.pass(max(away, 3*s.Lease) - time.Since(killed))
	require.Empty(t, c.look())

	c.etcd.Start()
	back := c.wait("everything runs again", 5*s.Lease, func() bool { return c.settled(tasks) })
	t.Logf("everything ran again %v after etcd was started", back.Round(time.Millisecond))
	require.Empty(t, c.history.Overlaps())
}

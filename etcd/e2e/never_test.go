package e2e_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// TestE5_NeverTwice injects rounds of faults. After each round every task must run
// again, once and evenly spread. No task may ever run in two places.
func TestE5_NeverTwice(t *testing.T) {
	const tasks = 40
	s := usual
	s.Lease, s.Store = 2*time.Second, openStore(t).addr()
	s.Stop = 300 * time.Millisecond
	c := startCluster(t, 4, tasks, s)
	c.Wait("all tasks run", time.Minute, func() bool { return c.settled(tasks) })

	random := rand.New(rand.NewPCG(*seed, 0))
	faults := []struct {
		name string
		do   func(victim *node)
	}{
		{"a worker is cut off", func(n *node) {
			n.worker.Cut(netfault.Both)
			c.Pass(2 * s.Lease)
			n.worker.Heal()
		}},
		{"the answers to a worker are cut off", func(n *node) {
			n.worker.Cut(netfault.Down)
			c.Pass(2 * s.Lease)
			n.worker.Heal()
		}},
		{"a node is killed", func(n *node) {
			n.Kill()
			c.Pass(time.Duration(random.Int64N(int64(2 * s.Lease))))
			n.Start()
		}},
		{"etcd is killed", func(*node) {
			c.etcd.Kill()
			c.Pass(time.Duration(random.Int64N(int64(2 * s.Lease))))
			c.etcd.Start()
		}},
		{"the leader is cut off, and its writes arrive late", func(*node) {
			n, _ := c.leading()
			n.leader.Delay(netfault.Up, s.Lease+s.Lease/2)
			c.busy() // so that the leader has something to write
			c.Pass(2 * s.Lease)
			n.leader.Heal()
		}},
		{"the leader gets no answers, but continues to write", func(*node) {
			n, _ := c.leading()
			n.leader.Cut(netfault.Down)
			c.busy()
			c.Pass(2 * s.Lease)
			n.leader.Heal()
		}},
		{"a node is killed while the leader's connection is slow", func(n *node) {
			leader, _ := c.leading()
			leader.leader.Delay(netfault.Both, s.Interval)
			n.Kill()
			c.Pass(s.Lease)
			n.Start()
			leader.leader.Heal()
		}},
	}
	for round, i := range proctest.Draw(random, *rounds, len(faults)) {
		fault := faults[i]
		victim := c.nodes[random.IntN(len(c.nodes))]
		fault.do(victim)
		c.Restart()
		c.Wait("all tasks run again", 10*s.Lease, func() bool { return c.settled(tasks) })
		require.Empty(t, c.History.Overlaps(), "round %d: %s: %s", round, victim.Name, fault.name)
	}
	t.Logf("%d rounds, %d runs of %d tasks, never two of the same task at once", *rounds, len(c.History.Runs()), tasks)
}

// busy gives the leader something to write: it drains a worker and undrains it
// again.
func (c *cluster) busy() {
	c.T.Helper()
	name := c.nodes[len(c.nodes)-1].Name
	require.NoError(c.T, c.registry.Drain(c.T.Context(), name))
	c.Pass(c.settings.Interval)
	require.NoError(c.T, c.registry.Undrain(c.T.Context(), name))
}

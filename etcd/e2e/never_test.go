package e2e_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/netfault"
)

var seed = flag.Uint64("proof.seed", 1, "the `seed` of the random faults")

// TestE5_NeverTwice injects rounds of faults. After each round every task must run
// again, once and evenly spread. No task may ever run in two places.
func TestE5_NeverTwice(t *testing.T) {
	const tasks = 40
	s := usual
	s.Lease, s.Store = 2*time.Second, openStore(t).addr()
	s.Stop = 300 * time.Millisecond
	c := startCluster(t, 4, tasks, s)
	c.wait("all tasks run", time.Minute, func() bool { return c.settled(tasks) })

	random := rand.New(rand.NewPCG(*seed, 0))
	faults := []struct {
		name string
		do   func(victim *node)
	}{
		{"a worker is cut off", func(n *node) {
			n.worker.Cut(netfault.Both)
			c.pass(2 * s.Lease)
			n.worker.Heal()
		}},
		{"the answers to a worker are cut off", func(n *node) {
			n.worker.Cut(netfault.Down)
			c.pass(2 * s.Lease)
			n.worker.Heal()
		}},
		{"a node is killed", func(n *node) {
			n.Kill()
			c.pass(time.Duration(random.Int64N(int64(2 * s.Lease))))
			n.Start()
		}},
		{"etcd is killed", func(*node) {
			c.etcd.Kill()
			c.pass(time.Duration(random.Int64N(int64(2 * s.Lease))))
			c.etcd.Start()
		}},
		{"the leader is cut off, and its writes arrive late", func(*node) {
			n := c.leading()
			n.leader.Delay(netfault.Up, s.Lease+s.Lease/2)
			c.busy() // so that the leader has something to write
			c.pass(2 * s.Lease)
			n.leader.Heal()
		}},
		{"the leader gets no answers, but continues to write", func(*node) {
			n := c.leading()
			n.leader.Cut(netfault.Down)
			c.busy()
			c.pass(2 * s.Lease)
			n.leader.Heal()
		}},
		{"a node is killed while the leader's connection is slow", func(n *node) {
			leader := c.leading()
			leader.leader.Delay(netfault.Both, s.Interval)
			n.Kill()
			c.pass(s.Lease)
			n.Start()
			leader.leader.Heal()
		}},
	}
	var order []int // a permutation of the faults, then another
	for round := range *rounds {
		if len(order) == 0 {
			order = random.Perm(len(faults))
		}
		fault := faults[order[0]]
		order = order[1:]
		victim := c.nodes[random.IntN(len(c.nodes))]
		fault.do(victim)
		c.restart()
		c.wait("all tasks run again", 10*s.Lease, func() bool { return c.settled(tasks) })
		require.Empty(t, c.history.Overlaps(), "round %d: %s: %s", round, victim.name, fault.name)
	}
	t.Logf("%d rounds, %d runs of %d tasks, never two of the same task at once", *rounds, len(c.history.Runs()), tasks)
}

// restart restarts the nodes that have ended by their last resort.
func (c *cluster) restart() {
	for _, n := range c.nodes {
		if !n.Alive() {
			n.Start()
		}
	}
}

// pass waits while the processes run.
func (c *cluster) pass(d time.Duration) {
	<-time.After(d)
}

// busy gives the leader something to write: it drains a worker and undrains it
// again.
func (c *cluster) busy() {
	c.t.Helper()
	name := c.nodes[len(c.nodes)-1].name
	require.NoError(c.t, c.registry.Drain(c.t.Context(), name))
	c.pass(c.settings.Interval)
	require.NoError(c.t, c.registry.Undrain(c.t.Context(), name))
}

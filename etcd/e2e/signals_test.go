package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// TestW6_SignalsEndANode sends SIGTERM to a node with a task that ignores its context. All other tasks
// move. The task is named, and keeps the process and its lease until a second signal ends it.
// TestE2_ResigningHandsOver has nodes that leave with one signal.
func TestW6_SignalsEndANode(t *testing.T) {
	const tasks = 8
	s := usual
	s.Lease = 3 * time.Second
	c := startCluster(t, 2, tasks, s)
	for _, name := range []string{"stubborn1", "stubborn2"} {
		_, err := c.registry.Create(t.Context(), etcd.Item{Name: name})
		require.NoError(t, err)
	}
	c.Wait("all tasks run", time.Minute, func() bool { return c.settled(tasks + 2) })
	n := c.nodes[0]
	if c.Look()["stubborn1"][0] == "n1" {
		n = c.nodes[1]
	}
	n.Leave()
	c.Wait("the task is named", time.Minute, func() bool { return strings.Contains(n.Output.Tail(), "tasks do not stop") })
	require.Regexp(t, `level=ERROR msg="tasks do not stop, .*stubborn1`, n.Output.Tail())
	c.Pass(2 * s.Lease) // the lease is kept for it
	require.True(t, n.Alive(), n.Output.Tail())
	for task, on := range c.Look() {
		require.Len(t, on, 1, task)
		require.False(t, on[0] == n.Name && !strings.HasPrefix(task, "stubborn"), task)
	}
	n.Leave()
	c.Wait("the process ends", time.Minute, func() bool { return !n.Alive() })
	c.Look()
	died := c.First(proctest.Died, 0)
	require.Equal(t, "signal: terminated", died.Text, n.Output.Tail())
	c.Wait("its task runs elsewhere", time.Minute, func() bool { return c.settled(tasks + 2) })
	require.Empty(t, c.History.Overlaps())
}

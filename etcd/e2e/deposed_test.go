package e2e_test

// A leader that is stopped in the middle of its writes, and continues under another
// leader.

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
)

// TestE2_ADeposedLeaderWritesNothing stops a leader with SIGSTOP while its writes
// are in flight. It delivers them when another node leads, and then continues the
// first leader. Neither these writes nor later ones reach etcd: its history shows no
// assignment of the first leader after its key was deleted.
func TestE2_ADeposedLeaderWritesNothing(t *testing.T) {
	tasks := 30
	s := usual
	s.Lease, s.Interval = 2*time.Second, time.Minute // terms only after changes
	c := startCluster(t, 0, tasks, s)
	for i := range 3 {
		c.add(fmt.Sprint("w", i), onlyWorker)
	}
	c.add("c0", onlyCandidate)
	c.add("c1", onlyCandidate)
	c.Wait("all tasks run", time.Minute, func() bool { return c.settled(tasks) })

	held := 0
	for round := 0; round < max(1, *rounds/6) || held == 0 && round < 10; round++ { // on a busy machine the writes may be over
		leader, epoch := c.leading()
		c.quiet(time.Second)
		term := c.termRevision()
		leader.leader.Delay(netfault.Up, s.Lease/8)
		for range 10 {
			_, err := c.registry.Create(t.Context(), etcd.Item{Name: fmt.Sprintf("t%03d", tasks)})
			require.NoError(t, err)
			tasks++
		}
		c.Wait("a term", s.Lease, func() bool { return c.termRevision() > term })
		// Now the assignments are in flight.
		c.Pass(s.Lease / 16)
		leader.leader.Cut(netfault.Up)
		leader.Pause()
		if !c.settled(tasks) {
			held++
		}
		c.awaitSuccessor(epoch, 3*s.Lease)
		leader.leader.Heal()
		c.Pass(s.Lease / 4)
		leader.Resume()
		c.Wait("all tasks run", 5*s.Lease, func() bool { return c.settled(tasks) })
		c.quiet(time.Second)
		require.Empty(t, c.History.Overlaps())
		require.Empty(t, c.assignedAfter(epoch))
		require.True(t, leader.Alive())
	}
	require.Positive(t, held, "no write was ever in flight")
}

func (c *cluster) termRevision() int64 {
	resp, err := c.client.Get(c.T.Context(), "/work/term")
	require.NoError(c.T, err)
	require.Len(c.T, resp.Kvs, 1)
	return resp.Kvs[0].ModRevision
}

// assignedAfter returns the assignments of a leader that were written after its key
// was deleted.
func (c *cluster) assignedAfter(leader uint64) []string {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), 30*time.Second)
	defer cancel()
	now, err := c.client.Get(ctx, "/work/term")
	require.NoError(c.T, err)
	var late []string
	deposed := false
	for resp := range c.client.Watch(ctx, "/work/", clientv3.WithPrefix(), clientv3.WithRev(int64(leader)), clientv3.WithPrevKV()) {
		require.NoError(c.T, resp.Err())
		for _, ev := range resp.Events {
			var by struct{ Epoch uint64 }
			switch {
			case ev.Type == clientv3.EventTypeDelete && ev.PrevKv.CreateRevision == int64(leader):
				deposed = true
			case deposed && ev.Type == clientv3.EventTypePut && json.Unmarshal(ev.Kv.Value, &by) == nil && by.Epoch == leader:
				late = append(late, fmt.Sprintf("%s at revision %d", ev.Kv.Key, ev.Kv.ModRevision))
			}
			if ev.Kv.ModRevision >= now.Kvs[0].ModRevision {
				require.True(c.T, deposed)
				return late
			}
		}
	}
	require.NoError(c.T, ctx.Err(), "the history did not arrive")
	return late
}

package replica_test

// What a replica says of itself.

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
)

func TestStatus_ReadsBackFromJSON(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.three()
		c.start("d", replica.WithLeaderOnly(), replica.WithAttributes(map[string]string{"version": "2"}))
		leader := c.leader()
		c.eventually(testLease, "there are four members", func() bool { return len(c.members[leader].Status().Members) == 4 })
		dead := c.others(leader)[0]
		table.crash(c, dead)
		c.eventually(2*testLease, "one is gone", func() bool { return len(c.members[leader].Status().Members) == 3 })
		for name, p := range c.members {
			s := p.Status()
			require.Equal(t, name == leader, s.Plan != nil)
			data, err := json.Marshal(s)
			require.NoError(t, err)
			var read replica.Status
			require.NoError(t, json.Unmarshal(data, &read))
			again, err := json.Marshal(read)
			require.NoError(t, err)
			require.Equal(t, string(data), string(again))
			require.Equal(t, name, read.Name)
			if name == "d" {
				require.Empty(t, read.Tasks)
			} else if name != dead {
				require.NotEmpty(t, read.Tasks)
				require.Equal(t, "running", read.Tasks[0].State)
				require.NotZero(t, read.Tasks[0].Token)
			}
			if name != dead {
				require.Equal(t, leader, read.Leader)
				require.Empty(t, read.Err)
			} else {
				require.Equal(t, "no answer within 3s", read.Err)
			}
		}
	})
}

func TestStatus_ATaskThatFails(t *testing.T) {
	inBubble(t, 1, func(c *cluster, _ *faultyTable) {
		r, err := replica.New(c.backend, c.source, func(context.Context, string) error { return errors.New("no such tenant") },
			replica.WithName("a"), replica.WithNetwork(port{bus: c.bus, name: "a"}))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(c.t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		c.eventually(time.Minute, "the task fails", func() bool { s := r.Status(); return len(s.Tasks) == 1 && s.Tasks[0].Err == "no such tenant" })
		data, err := json.Marshal(r.Status())
		require.NoError(t, err)
		var read replica.Status
		require.NoError(t, json.Unmarshal(data, &read))
		require.Equal(t, "backoff", read.Tasks[0].State)
		require.Equal(t, "no such tenant", read.Tasks[0].Err)
		require.NotZero(t, read.Tasks[0].Attempts)
		stop()
		require.NoError(t, <-done)
	})
}

func TestAliveAndReady_InAnOutageOfTheBackend(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		table.set(func() { table.away = true })
		c.start("a")
		time.Sleep(5 * testLease)
		require.NoError(t, c.members["a"].Alive(), "before the first Sync")
		require.EqualError(t, c.members["a"].Ready(), "replica a: no lease: fault")
		table.set(func() { table.away = false })
		c.spread(2*testLease, map[string]int{"a": 12})
		require.NoError(t, c.members["a"].Ready())
		for _, outage := range []func(bool){
			func(away bool) { table.set(func() { table.away = away }) },
			func(away bool) { table.set(func() { table.cut["a"] = away }) }, // no answers
		} {
			outage(true)
			time.Sleep(testLease / 2)
			require.NoError(t, c.members["a"].Ready(), "the lease lasts")
			for range 50 {
				time.Sleep(testLease)
				require.NoError(t, c.members["a"].Alive())
				require.Error(t, c.members["a"].Ready())
			}
			outage(false)
			c.spread(testLease, map[string]int{"a": 12})
			require.NoError(t, c.members["a"].Ready())
		}
	})
}

// hangingTable is a backend that ignores its context.
type hangingTable struct {
	*faultyTable
	hangs func() bool
	ended chan struct{}
}

func (h hangingTable) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	if h.hangs() {
		<-h.ended
	}
	return h.faultyTable.Sync(ctx, u)
}

func TestAlive_TheLoopHangs(t *testing.T) {
	for _, first := range []bool{true, false} {
		inBubble(t, 12, func(c *cluster, table *faultyTable) {
			began, ended := time.Now(), make(chan struct{})
			c.backend = hangingTable{table, func() bool { return first || time.Since(began) > 2*testLease }, ended}
			c.start("a")
			if !first {
				c.spread(2*testLease, map[string]int{"a": 12})
				time.Sleep(time.Until(began.Add(2 * testLease)))
			}
			require.NoError(t, c.members["a"].Alive())
			time.Sleep(2*testLease + testLease/6)
			require.ErrorContains(t, c.members["a"].Alive(), "replica a: its loop has not run for ")
			require.EqualError(t, c.members["a"].Ready(), "replica a: no lease")
			require.Empty(t, c.journal.counts(), "the tasks have stopped in time")
			close(ended)
			c.eventually(testLease/4, "the loop runs again", func() bool { return c.members["a"].Alive() == nil })
		})
	}
}

func TestStats(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.start("a")
		c.spread(2*testLease, map[string]int{"a": 12})
		c.bus.born = func(_, address string) { c.bus.hang(address, true) }
		c.start("b", replica.WithWorkerOnly())
		c.eventually(3*testLease, "b is retired", func() bool { return c.members["b"].Stats().Retired == 1 })
		a := c.members["a"].Stats()
		require.True(t, a.Leading)
		require.Equal(t, c.members["a"].Status().Epoch, a.Epoch)
		require.Equal(t, 12, a.Tasks)
		require.Equal(t, uint64(1), a.Elections)
		require.Equal(t, uint64(1), a.Retirements)
		require.InDelta(t, testLease.Seconds()*0.85, a.LeaseLeft.Seconds(), 2)
		require.Less(t, time.Since(a.LastSync), testLease/6)
		require.Greater(t, a.Syncs, uint64(12))
		require.Zero(t, a.FailedSyncs+a.Retired+a.Rejoins)
		b := c.members["b"].Stats()
		require.False(t, b.Leading)
		require.Equal(t, uint64(1), b.FailedSyncs)
		require.Equal(t, uint64(1), b.Rejoins)
		require.Zero(t, b.Elections+b.Retirements)
		table.set(func() { table.cut["a"] = true })
		c.eventually(testLease, "the lease is lost", func() bool { return c.members["a"].Stats().LeaseLeft == 0 })
		a = c.members["a"].Stats()
		require.Greater(t, a.SyncTime, testLease/4)
		require.NotZero(t, a.FailedSyncs)
		table.set(func() { table.cut["a"] = false })
	})
}

// brokenWaiter is a backend whose Wait fails.
type brokenWaiter struct {
	replica.Backend
	calls atomic.Int64
}

func (d *brokenWaiter) Wait(context.Context) error {
	d.calls.Add(1)
	return errors.New("the line is cut")
}

func TestWaiter_ErrorsAreLoggedAndPaused(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		backend := &brokenWaiter{Backend: c.backend}
		c.backend = backend
		c.start("a")
		c.spread(2*testLease, map[string]int{"a": 12})
		time.Sleep(time.Minute)
		require.LessOrEqual(t, backend.calls.Load(), int64(12), "the pauses grow")
		lines := strings.Count(c.log.String(), "cannot wait for changes: they are seen with the next heartbeat\" replica=a err=\"the line is cut\"")
		require.Positive(t, lines)
		require.LessOrEqual(t, lines, 2)
	})
}

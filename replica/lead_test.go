package replica_test

// What follows the terms of a replica that leads.

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/replica"
)

// follower follows the leaderships of a replica, as a history does.
type follower struct {
	t  *testing.T
	mu sync.Mutex
	// epochs has that of each leadership, and terms the number of its terms.
	epochs []uint64
	terms  []int
	leads  bool
	// stop is how long stop takes.
	stop time.Duration
}

func (f *follower) lead(o *orchestrator.Orchestrator[grpc.WorkerID, string]) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	require.False(f.t, f.leads, "one leadership after the other")
	require.Nil(f.t, o.Last())
	require.Zero(f.t, o.Progress())
	epoch := o.Config().Epoch
	f.leads, f.epochs, f.terms = true, append(f.epochs, epoch), append(f.terms, 0)
	ignore := o.OnTerm(func(s *orchestrator.Snapshot[grpc.WorkerID, string]) {
		f.mu.Lock()
		defer f.mu.Unlock()
		require.True(f.t, f.leads, "stop is called after the last term")
		require.Equal(f.t, epoch, s.Plan().Stats.Term.Epoch)
		require.Same(f.t, s, o.Last())
		_, err := o.Plan(orchestrator.Hypothesis[grpc.WorkerID, string]{})
		require.NoError(f.t, err)
		f.terms[len(f.terms)-1]++
	})
	return func() {
		<-time.After(f.stop)
		ignore()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.leads = false
	}
}

// seen returns how many leaderships there were, and whether the last one lasts.
func (f *follower) seen() (n int, leads bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.epochs), f.leads
}

// TestWithLeading_EachLeadership moves the leadership from a to b and back, twice.
func TestWithLeading_EachLeadership(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		followers := map[string]*follower{"a": {t: t}, "b": {t: t}}
		for _, name := range []string{"a", "b"} {
			c.start(name, replica.WithLeading(followers[name].lead))
		}
		c.spread(2*testLease, map[string]int{"a": 6, "b": 6})
		first := c.leader()
		second := map[string]string{"a": "b", "b": "a"}[first]
		for i := range 4 {
			leader, other := first, second
			if i%2 == 1 {
				leader, other = second, first
			}
			n, leads := followers[leader].seen()
			require.Equal(t, 1+i/2, n)
			require.True(t, leads)
			table.set(func() { table.cut[leader] = true })
			c.eventually(2*testLease, "the other one leads", func() bool { return c.leader() == other })
			_, leads = followers[leader].seen()
			require.False(t, leads, "it has lost its lease before")
			table.set(func() { table.cut[leader] = false })
			c.spread(2*testLease, map[string]int{"a": 6, "b": 6})
		}
		require.NoError(t, c.end(second))
		require.NoError(t, c.end(first))
		for name, f := range followers {
			require.False(t, f.leads, "Run waits for stop")
			require.IsIncreasing(t, f.epochs, name)
			require.NotContains(t, f.terms, 0)
		}
		require.Len(t, followers[first].epochs, 3)
		require.Len(t, followers[second].epochs, 2)
	})
}

// TestWithLeading_Slow: a second leadership is followed when the first one is done with.
func TestWithLeading_Slow(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		f := &follower{t: t, stop: 2 * testLease}
		c.start("a", replica.WithLeading(f.lead))
		c.spread(2*testLease, map[string]int{"a": 12})
		table.set(func() { table.cut["a"] = true })
		<-c.members["a"].LeaseLost()
		table.set(func() { table.cut["a"] = false })
		c.eventually(testLease, "it leads again", func() bool { return c.leader() == "a" })
		n, leads := f.seen()
		require.Equal(t, 1, n)
		require.True(t, leads)
		c.eventually(2*testLease, "the second one is followed", func() bool { n, leads := f.seen(); return n == 2 && leads })
		c.spread(testLease, map[string]int{"a": 12})
	})
}

// TestWithLeading_Nothing: stop may be nil, and leading must not.
func TestWithLeading_Nothing(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.start("a", replica.WithLeading(func(*orchestrator.Orchestrator[grpc.WorkerID, string]) func() { return nil }))
		c.spread(2*testLease, map[string]int{"a": 12})
		_, err := replica.New(c.backend, c.source, c.journal.work("b"), replica.WithLeading(nil))
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
	})
}

package replica_test

// What joining, leaving and doing nothing cost, counted at the table.

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

var costs = flag.Bool("costs", false, "count the largest fleets, too")

// meter counts what passes through a table.
type meter struct {
	*memory.Table
	syncs, reads, batches, written, shown, full atomic.Int64
}

func (m *meter) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	m.syncs.Add(1)
	if u.Batch != nil {
		m.batches.Add(1)
		m.written.Add(int64(u.Batch.Len()))
	}
	v, err := m.Table.Sync(ctx, u)
	m.count(&v)
	return v, err
}

func (m *meter) Read(ctx context.Context, q replica.Query) (replica.View, error) {
	m.reads.Add(1)
	v, err := m.Table.Read(ctx, q)
	m.count(&v)
	return v, err
}

// count counts the records of a View.
func (m *meter) count(v *replica.View) {
	if n := int64(len(v.Members) + len(v.Gone) + len(v.Orders) + len(v.Reports) + len(v.Tasks)); v.Full {
		m.full.Add(n)
	} else {
		m.shown.Add(n)
	}
}

// reset returns the counts since the last reset.
func (m *meter) reset() (c struct{ syncs, reads, batches, written, shown, full int64 }) {
	c.syncs, c.reads, c.batches = m.syncs.Swap(0), m.reads.Swap(0), m.batches.Swap(0)
	c.written, c.shown, c.full = m.written.Swap(0), m.shown.Swap(0), m.full.Swap(0)
	return c
}

// metered runs a test with a settled fleet whose calls take 5 ms.
func metered(t *testing.T, replicas, tasks int, test func(t *testing.T, f *fleet, m *meter)) {
	t.Helper()
	bubble(t, func(t *testing.T, f *fleet) {
		m := &meter{Table: f.table}
		f.log.level = 100
		f.backend = m
		f.table.SetFaults(func(replica.Update) memory.Fault { return memory.Fault{After: 5 * time.Millisecond} })
		f.settle(replicas, tasks)
		time.Sleep(2 * lease)
		m.reset()
		test(t, f, m)
	})
}

// A join and departures write two or three records a move, in few batches.
func TestCostsOfMoves(t *testing.T) {
	for _, size := range [][2]int{{4, 100}, {4, 900}, {20, 2000}, {100, 10_000}} {
		replicas, tasks := size[0], size[1]
		if tasks > 900 && !*costs {
			continue
		}
		t.Run(fmt.Sprint(replicas, "×", tasks), func(t *testing.T) {
			metered(t, replicas, tasks, func(t *testing.T, f *fleet, m *meter) {
				moves := int64(tasks/replicas + 1)
				check := func(what string, took time.Duration) {
					c := m.reset()
					t.Logf("%s: %v, %d batches, %d Syncs, %d reads, %d records written, %d shown, %d in full Views", what, took, c.batches, c.syncs, c.reads, c.written, c.shown, c.full)
					require.Less(t, took, 2*time.Second, what)
					require.LessOrEqual(t, c.written, 4*moves+10, what)
					require.LessOrEqual(t, c.batches, 10+moves, what)
				}
				f.join("joiner")
				check("join", f.within(lease, "even", func() bool { return f.allRun() && f.even() }))
				time.Sleep(2 * lease)
				m.reset()
				leaver, began := f.follower().name, time.Now()
				require.NoError(t, f.leave(leaver))
				f.within(lease, "all run", f.allRun)
				check("drain", time.Since(began))
				time.Sleep(2 * lease)
				m.reset()
				began = time.Now()
				require.NoError(t, f.leave(f.leader().name))
				f.within(lease, "all run", f.allRun)
				check("SIGTERM of the leader", time.Since(began))
			})
		})
	}
}

// What an idle fleet costs does not depend on its tasks: a Sync a heartbeat, and reads at
// intervals, which show nothing. The leader alone reads everything, once a minute.
func TestCostsOfDoingNothing(t *testing.T) {
	for _, size := range [][2]int{{4, 100}, {4, 400}, {8, 100}} {
		replicas, tasks := size[0], size[1]
		t.Run(fmt.Sprint(replicas, "×", tasks), func(t *testing.T) {
			metered(t, replicas, tasks, func(t *testing.T, _ *fleet, m *meter) {
				time.Sleep(10 * lease)
				c := m.reset()
				t.Logf("ten leases: %+v", c)
				n := int64(replicas)
				require.Zero(t, c.batches)
				require.Zero(t, c.shown, "nothing has changed")
				require.LessOrEqual(t, c.syncs, 13*10*n)
				require.LessOrEqual(t, c.reads, 13*10*n)
				minutes := int64(10 * lease / time.Minute)
				require.LessOrEqual(t, c.full, (minutes+1)*(2*n+2*int64(tasks)), "the leader's, once a minute")
			})
		})
	}
}

// A replica that leaves, and one of whose tasks does not stop, costs its leader few reads: it
// reads often for a second after each batch only.
func TestCostsOfAStopThatHangs(t *testing.T) {
	metered(t, 4, 100, func(t *testing.T, f *fleet, m *meter) {
		f.mu.Lock()
		f.stubborn = map[string]time.Duration{"stubborn": 4 * time.Minute}
		f.mu.Unlock()
		n := f.join("stubborn", replica.WithDrain(time.Second), replica.WithLastResort(func([]string) {}))
		f.within(lease, "even", func() bool { return f.allRun() && f.even() })
		delete(f.replicas, "stubborn")
		n.stop()
		time.Sleep(2 * lease)
		m.reset()
		time.Sleep(2 * time.Minute)
		c := m.reset()
		t.Logf("two minutes: %+v", c)
		require.Less(t, c.reads, int64(20*2*60))
		time.Sleep(2 * time.Minute)
		<-n.done
		f.within(lease, "all run", f.allRun)
	})
}

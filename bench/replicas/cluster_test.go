//go:build peers

package replicas_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

const database = "postgres"

// patience bounds the time of one event.
const patience = 2 * time.Minute

// cluster is replicas that share one table, with the journal of their events.
type cluster struct {
	*proctest.Group
	server   *pgtest.Server
	settings settings
	replicas []*proctest.Process
}

// newCluster returns a cluster without replicas. Its table gets a name of its own.
func newCluster(t *testing.T, s *pgtest.Server, of settings) *cluster {
	t.Helper()
	c := &cluster{Group: proctest.NewGroup(t), server: s, settings: of}
	c.settings.URL, c.settings.Journal, c.settings.Table = s.URL(pgtest.User, database), c.Path(), t.Name()
	if c.settings.Replicas == 0 {
		c.settings.Replicas = 1
	}
	return c
}

// add starts another replica.
func (c *cluster) add() *proctest.Process {
	c.T.Helper()
	s := c.settings
	s.Name = fmt.Sprint("r", len(c.replicas))
	c.replicas = append(c.replicas, c.Start(s.Name, replicaRole, s))
	return c.replicas[len(c.replicas)-1]
}

// startAll starts the replicas that do not run, and waits until all are even.
func (c *cluster) startAll() {
	c.T.Helper()
	for _, r := range c.replicas {
		if !r.Alive() {
			r.Start()
		}
	}
	c.awaitEven()
}

// endAll ends all replicas.
func (c *cluster) endAll() {
	c.T.Helper()
	for _, r := range c.replicas {
		if r.Alive() {
			r.Leave()
		}
	}
	for _, r := range c.replicas {
		c.awaitEnd(r)
	}
}

func (c *cluster) awaitEnd(r *proctest.Process) {
	c.T.Helper()
	c.Wait(r.Name+" has ended", patience, func() bool { return !r.Alive() })
	c.Look()
}

// names returns the names of the replicas that run.
func (c *cluster) names() []string {
	var names []string
	for _, r := range c.replicas {
		if r.Alive() {
			names = append(names, r.Name)
		}
	}
	return names
}

// awaitEven waits until all tasks are evenly spread over the replicas that run, and returns
// when the last one started.
func (c *cluster) awaitEven() int64 {
	c.T.Helper()
	names := c.names()
	c.Wait("the tasks are evenly spread", patience, func() bool {
		c.Look()
		return c.History.IsEven(c.settings.Tasks, names)
	})
	return c.lastStart()
}

// awaitAll waits until all tasks run.
func (c *cluster) awaitAll() {
	c.T.Helper()
	c.Wait("all tasks run", patience, func() bool { return len(c.Look()) == c.settings.Tasks })
}

// allRan returns when all tasks ran for the first time since a time.
func (c *cluster) allRan(since int64) int64 {
	c.T.Helper()
	first := map[string]int64{}
	for _, r := range c.History.Runs() {
		if r.From >= since && first[r.Task] == 0 {
			first[r.Task] = r.From
		}
	}
	require.Len(c.T, first, c.settings.Tasks)
	last := int64(0)
	for _, at := range first {
		last = max(last, at)
	}
	return last
}

func (c *cluster) lastStart() int64 {
	last := int64(0)
	for _, r := range c.History.Runs() {
		last = max(last, r.From)
	}
	return last
}

// lastStop returns when the last task stopped.
func (c *cluster) lastStop() int64 {
	last := int64(0)
	for _, r := range c.History.Runs() {
		if r.To != proctest.EndOfTime {
			last = max(last, r.To)
		}
	}
	return last
}

// starts counts the starts of each task since a time.
func (c *cluster) starts(since int64) map[string]int {
	n := make(map[string]int, c.settings.Tasks)
	for _, r := range c.History.Runs() {
		if r.From >= since {
			n[r.Task]++
		}
	}
	return n
}

// gaps returns for each start since a time how long its task had not run before.
func (c *cluster) gaps(since int64) []time.Duration {
	var gaps []time.Duration
	ended := map[string]int64{}
	for _, r := range c.History.Runs() {
		if to, ok := ended[r.Task]; ok && r.From >= since {
			gaps = append(gaps, time.Duration(r.From-to))
		}
		ended[r.Task] = r.To
	}
	return gaps
}

// leader returns the replica that leads.
func (c *cluster) leader() *proctest.Process {
	c.T.Helper()
	name := c.server.SQL(database, fmt.Sprintf(
		"select m.record->>'name' from orchestrator_tables t join orchestrator_members m on m.name = t.name and m.id = t.leader where t.name = '%s'", c.settings.Table))
	i := slices.IndexFunc(c.replicas, func(r *proctest.Process) bool { return r.Name == name })
	require.GreaterOrEqual(c.T, i, 0, "%q leads", name)
	return c.replicas[i]
}

// worker returns a replica that does not lead.
func (c *cluster) worker() *proctest.Process {
	c.T.Helper()
	leader := c.leader()
	for _, r := range c.replicas {
		if r != leader && r.Alive() {
			return r
		}
	}
	require.Fail(c.T, "no replica but the leader")
	return nil
}

// rest waits for a while of random length, so that events come at any moment between two
// heartbeats and two terms.
func (c *cluster) rest() { c.Pass(c.settings.Lease/6 + rand.N(c.settings.Lease/6)) }

// noOverlaps fails the test if a task ran in two places at the same time.
func (c *cluster) noOverlaps() {
	c.T.Helper()
	c.Look()
	require.Empty(c.T, c.History.Overlaps())
}

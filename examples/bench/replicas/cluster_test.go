//go:build peers

package replicas_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/replica"
)

// patience bounds the time of one event.
const patience = 3 * time.Minute

// cluster is replicas that share one table, with the journal of their events.
type cluster struct {
	*proctest.Group
	way      way
	backend  backend  // of the test
	settings settings // of the next process
	tasks    int
	replicas []*proctest.Process
}

// newCluster returns a cluster without processes.
func newCluster(t *testing.T, w way, of settings, tasks int) *cluster {
	t.Helper()
	c := &cluster{Group: proctest.NewGroup(t), way: w, settings: of}
	c.settings.Store, c.settings.URL, c.settings.Polls = w.store, w.url, w.polls
	if c.settings.Table == "" {
		c.settings.Table = strings.ReplaceAll(t.Name(), "/", ".")
	}
	var err error
	c.backend, err = open(t.Context(), w.store, w.url, c.settings.Table)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.backend.Close() })
	c.settings.Journal, c.settings.Tasks = c.Path(), filepath.Join(c.Dir, "tasks")
	c.settings.Replicas = max(c.settings.Replicas, 1)
	c.setTasks(tasks)
	return c
}

// setTasks sets the number of tasks, and makes the leader's Source read it.
func (c *cluster) setTasks(n int) {
	c.T.Helper()
	c.tasks = n
	require.NoError(c.T, os.WriteFile(c.settings.Tasks, []byte(strconv.Itoa(n)), 0o600))
	for _, r := range c.alive() {
		require.NoError(c.T, syscall.Kill(r.PID(), syscall.SIGHUP))
	}
}

// add starts n other processes.
func (c *cluster) add(n int) {
	c.T.Helper()
	for range n {
		s := c.settings
		s.Name = fmt.Sprint("r", len(c.replicas))
		c.replicas = append(c.replicas, c.Start(s.Name, replicaRole, s))
	}
}

// alive returns the processes that run.
func (c *cluster) alive() []*proctest.Process {
	return slices.DeleteFunc(slices.Clone(c.replicas), func(r *proctest.Process) bool { return !r.Alive() })
}

// end ends processes, and returns when the first signal was sent.
func (c *cluster) end(all ...*proctest.Process) (from int64) {
	c.T.Helper()
	from = proctest.Now()
	for _, r := range all {
		r.Leave()
	}
	for _, r := range all {
		c.Wait(r.Name+" has ended", patience, func() bool { return !r.Alive() })
	}
	return from
}

// awaitEven waits until all tasks are evenly spread over the replicas that run, and returns
// when the last one started.
func (c *cluster) awaitEven() int64 {
	c.T.Helper()
	var names []string
	for _, r := range c.alive() {
		s, _ := r.Settings.(settings)
		for i := range s.Replicas {
			names = append(names, nodeName(s, i))
		}
	}
	c.Wait("the tasks are evenly spread", patience, func() bool {
		c.Look()
		return c.History.IsEven(c.tasks, names)
	})
	return c.lastStart()
}

// awaitAll waits until all tasks run, and returns when the last one started.
func (c *cluster) awaitAll() int64 {
	c.T.Helper()
	c.Wait("all tasks run", patience, func() bool { return len(c.Look()) == c.tasks })
	return c.lastStart()
}

func (c *cluster) lastStart() int64 {
	last := int64(0)
	for _, r := range c.History.Runs() {
		last = max(last, r.From)
	}
	return last
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
	require.Len(c.T, first, c.tasks)
	last := int64(0)
	for _, at := range first {
		last = max(last, at)
	}
	return last
}

// gaps returns for each start since a time how long its task had not run before.
func (c *cluster) gaps(since int64) []float64 {
	var gaps []float64
	ended := map[string]int64{}
	for _, r := range c.History.Runs() {
		if to, ok := ended[r.Task]; ok && r.From >= since {
			gaps = append(gaps, ms(r.From-to))
		}
		ended[r.Task] = r.To
	}
	return gaps
}

// ms returns nanoseconds as milliseconds.
func ms(ns int64) float64 { return float64(ns) / 1e6 }

// one returns the process that leads, or another one.
func (c *cluster) one(leads bool) *proctest.Process {
	c.T.Helper()
	v := c.view()
	all, leader := c.alive(), slices.IndexFunc(v.Members, func(m replica.Member) bool { return m.ID == v.Leader })
	require.GreaterOrEqual(c.T, leader, 0, "the leader has a record")
	i := slices.IndexFunc(all, func(r *proctest.Process) bool { return (r.Name == v.Members[leader].Name) == leads })
	require.GreaterOrEqual(c.T, i, 0)
	return all[i]
}

// view returns the members and their heartbeats.
func (c *cluster) view() replica.View {
	c.T.Helper()
	v, err := c.backend.Read(c.T.Context(), replica.Query{Beats: true})
	require.NoError(c.T, err)
	return v
}

// rest waits for a while of random length, so that events come at any moment between two
// heartbeats and two terms.
func (c *cluster) rest() { c.Pass(c.settings.Lease/12 + rand.N(c.settings.Lease/6)) }

// noOverlaps fails the test if a task ran in two places at the same time.
func (c *cluster) noOverlaps() {
	c.T.Helper()
	c.Look()
	require.Empty(c.T, c.History.Overlaps())
}

package e2e_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

var (
	rounds = flag.Int("proof.rounds", 2, "number of `rounds` of faults; and of a fifth as many failovers")
	seed   = flag.Uint64("proof.seed", 1, "the `seed` of the random faults")
)

const (
	lease = 2 * time.Second
	stop  = 300 * time.Millisecond
	// bound is the longest time from the end of a fault until all tasks run.
	bound = 4 * lease
	tasks = 20
)

// cluster is replicas with the journal of their events.
type cluster struct {
	*proctest.Group
	replicas []*proctest.Process
	bouncer  *pgtest.Bouncer // may be nil
	waited   func() time.Duration

	counts   map[string]int  // of the faults
	recovery []time.Duration // from the end of each round's faults until all tasks ran
	told     []time.Duration // the overlaps that may happen
	checked  int             // how many of Events check has judged
}

// startCluster starts a replica for each URL, and waits until all tasks run.
func startCluster(t *testing.T, urls ...string) *cluster {
	t.Helper()
	c := &cluster{Group: proctest.NewGroup(t), waited: proctest.MeasureWaiting(t), counts: map[string]int{}}
	names := make([]string, tasks)
	for i := range names {
		names[i] = fmt.Sprintf("t%02d", i)
	}
	for i, url := range urls {
		s := settings{Name: fmt.Sprint("r", i), URL: url, Journal: c.Path(), Tasks: names, Lease: lease, Stop: stop}
		c.replicas = append(c.replicas, c.Start(s.Name, replicaRole, s))
	}
	c.Wait("all tasks run", time.Minute, c.even)
	return c
}

// once reports whether each task runs now, exactly once.
func (c *cluster) once() bool {
	running := c.Look()
	for _, where := range running {
		if len(where) != 1 {
			return false
		}
	}
	return len(running) == tasks
}

// even reports whether each task runs once, evenly spread over the replicas.
func (c *cluster) even() bool {
	c.Look()
	var names []string
	for _, r := range c.replicas {
		names = append(names, r.Name)
	}
	return c.History.IsEven(tasks, names)
}

// recovers starts the processes that have ended, and waits until each task runs once, for
// bound at most, and then until they are evenly spread.
func (c *cluster) recovers() {
	c.T.Helper()
	// A process that was continued may be about to end.
	const hold = lease / 4
	began, waited := time.Now(), c.waited()
	since := began // when each task began to run once
	c.Wait("all tasks run again", time.Minute, func() bool {
		c.restart()
		if !c.once() {
			since = time.Now()
		}
		return time.Since(since) > hold
	})
	took := since.Sub(began)
	computing := took - (c.waited() - waited)
	require.Less(c.T, computing, bound, "all tasks ran again after %v\n%s", took, c.Logs())
	c.recovery = append(c.recovery, took)
	c.Wait("the tasks are evenly spread", time.Minute, func() bool {
		c.restart()
		return c.even()
	})
}

// restart starts what has ended.
func (c *cluster) restart() {
	c.T.Helper()
	c.Restart()
	if c.bouncer != nil {
		c.bouncer.Supervise()
	}
}

// leader returns the replica that became leader last.
func (c *cluster) leader() *proctest.Process {
	c.T.Helper()
	c.Look()
	for _, e := range slices.Backward(c.Events) {
		if e.Kind == leads {
			return c.replicas[slices.IndexFunc(c.replicas, func(r *proctest.Process) bool { return r.Name == e.Node })]
		}
	}
	require.Fail(c.T, "no replica has led", c.Logs())
	return nil
}

// check fails the test if a task has run twice since the last call, except as the
// documentation of package replica says, or if a replica ended with an error. slack is how long the machine may have kept a
// process from running. Each task runs once now.
func (c *cluster) check(slack time.Duration) {
	c.T.Helper()
	c.Look()
	v := judge(c.History, c.Events[c.checked:], slack)
	for _, e := range c.Events[c.checked:] {
		if e.Kind == proctest.Died && !slices.Contains([]string{"exit status 0", "exit status 3", "signal: killed"}, e.Text) {
			v.violations = append(v.violations, fmt.Sprintf("%s ended: %s", e.Node, e.Text))
		}
	}
	if len(v.violations) > 0 {
		c.T.Fatalf("%s\n%s", strings.Join(v.violations, "\n"), c.Logs())
	}
	c.checked = len(c.Events)
	c.told = append(c.told, v.told...)
}

// report logs what has happened.
func (c *cluster) report() {
	c.T.Helper()
	names := make([]string, 0, len(c.counts))
	for name, n := range c.counts {
		names = append(names, fmt.Sprintf("%d× %s", n, name))
	}
	slices.Sort(names)
	c.T.Logf("%d rounds: %q", len(c.recovery), names)
	c.T.Logf("%d runs of %d tasks; %d last resorts; %d leaders", len(c.History.Runs()), tasks, c.Count(lastResort), c.Count(leads))
	proctest.Report(c.T, "from the end of the faults until all tasks run", c.recovery)
	proctest.Report(c.T, "between two runs of a task, also during the faults", c.gaps())
	proctest.Report(c.T, "overlaps of processes that were stopped past their lease, each told by worker.Check", c.told)
}

// gaps returns the times between the end of a task's run and the start of its next one.
func (c *cluster) gaps() (gaps []time.Duration) {
	ended := map[string]int64{}
	for _, r := range c.History.Runs() {
		if end, ok := ended[r.Task]; ok && r.From > end {
			gaps = append(gaps, time.Duration(r.From-end))
		}
		ended[r.Task] = max(ended[r.Task], r.To)
	}
	return gaps
}

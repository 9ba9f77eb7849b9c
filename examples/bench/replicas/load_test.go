//go:build peers

package replicas_test

// The load of the server: of a steady fleet, of many moves, after an outage, and while a
// transaction stays open.

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// load measures steady fleets, a hundred replicas in each process.
func load(t *testing.T, all []way, r *results, cfg config) {
	if cfg.short {
		all = usual(all)
	}
	for _, n := range cfg.steadies {
		of := r.table(fmt.Sprintf("a steady fleet of %d replicas", n), fmt.Sprintf("rounds: %d", cfg.loads))
		for range cfg.loads {
			for _, w := range all {
				if w.polls || w.column == pgBouncer && n != cfg.many {
					continue
				}
				t.Run(fmt.Sprint(n, w.column), func(t *testing.T) { steadyFleet(t, w, of, n, cfg) })
			}
		}
		if n == cfg.many && !cfg.short {
			r.medians(of, pgBouncer, 15, "%", cpuOfServer)
		}
	}
}

// steadyFleet measures one.
func steadyFleet(t *testing.T, w way, of *table, n int, cfg config) {
	c := newCluster(t, w, settings{Replicas: min(n, 100), Lease: cfg.idle, Stop: cfg.stop}, 10*n)
	for range max(n/100, 1) { // all at once would be a convoy of new connections
		c.add(1)
		c.awaitEven()
	}
	c.rest()
	before := c.usage()
	c.Pass(cfg.steady)
	u := c.usage().since(before)
	of.add(w.column, "Syncs a second", u.syncs/u.seconds)
	of.add(w.column, "requests a second", u.requests/u.seconds)
	of.add(w.column, "kB a second over the connections, both ways", u.bytes/1000/u.seconds)
	of.add(w.column, "bytes a Sync, both ways", u.bytes/u.syncs)
	of.add(w.column, "kB a second to the disk", u.written/1000/u.seconds)
	of.add(w.column, cpuOfServer, 100*u.server/u.seconds)
	of.add(w.column, "% of a core: each replica", 100*u.own/u.seconds/float64(n))
	c.end(c.replicas...)
}

const cpuOfServer = "% of a core: the server"

// growth measures one more task on a replica that has many.
func growth(t *testing.T, all []way, r *results, cfg config) {
	of := r.table("one more task on a replica that has many", fmt.Sprintf("rounds: %d", cfg.rounds))
	for _, n := range cfg.most {
		for _, w := range usual(all) {
			t.Run(fmt.Sprint(n, w.column), func(t *testing.T) {
				c := newCluster(t, w, settings{Lease: cfg.lease, Stop: cfg.stop}, n)
				c.add(1)
				c.awaitAll()
				for range cfg.rounds {
					c.rest()
					before, from := c.usage(), proctest.Now()
					c.setTasks(c.tasks + 1)
					to := c.awaitAll()
					of.add(w.column, fmt.Sprintf("beside %d: ms until it runs", n), ms(to-c.First(told, from).At))
					of.add(w.column, fmt.Sprintf("beside %d: kB over the connections", n), c.usage().since(before).bytes/1000)
				}
				c.end(c.replicas...)
			})
		}
	}
}

// rebalance measures how half of a big fleet joins at once, and leaves.
func rebalance(t *testing.T, all []way, r *results, cfg config) {
	for _, w := range usual(all) {
		of := r.table(fmt.Sprintf("%d tasks over %d replicas on %s, of which half join at once, and leave", cfg.moves, cfg.many, w.column), fmt.Sprintf("rounds: %d", cfg.loads))
		for range cfg.loads {
			t.Run(w.column, func(t *testing.T) {
				c := newCluster(t, w, settings{Replicas: cfg.many / 2, Lease: cfg.idle, Stop: cfg.stop}, cfg.moves)
				c.add(1)
				c.awaitEven()
				measure := func(column string, event func() (from, to int64)) {
					c.rest()
					before := c.usage()
					from, to := event()
					u, gaps := c.usage().since(before), slices.Sorted(slices.Values(c.gaps(from)))
					of.add(column, "ms until they are even", ms(to-from))
					of.add(column, "ms of gap, median", gaps[len(gaps)/2])
					of.add(column, "ms of gap, longest", gaps[len(gaps)-1])
					of.add(column, "s of CPU, the server", u.server)
					of.add(column, "MB over the connections", u.bytes/1e6)
					of.add(column, "MB to the disk", u.written/1e6)
				}
				measure("join", func() (from, to int64) {
					from = proctest.Now()
					c.add(1)
					to = c.awaitEven()
					return c.First(began, from).At, to
				})
				measure("leave", func() (from, to int64) { return c.end(c.replicas[1]), c.awaitEven() })
				c.noOverlaps()
				c.end(c.replicas[0])
			})
		}
	}
}

// usage is what a cluster and its server have used.
type usage struct {
	seconds     float64
	server, own float64 // s of CPU
	syncs       float64
	requests    float64
	bytes       float64 // over the connections
	written     float64 // by the server to its disk, bytes
}

func (u usage) since(before usage) usage {
	return usage{
		u.seconds - before.seconds, u.server - before.server, u.own - before.own,
		u.syncs - before.syncs, u.requests - before.requests, u.bytes - before.bytes, u.written - before.written,
	}
}

// usage returns what was used so far.
func (c *cluster) usage() (u usage) {
	c.T.Helper()
	for _, r := range c.alive() {
		from := proctest.Now()
		require.NoError(c.T, syscall.Kill(r.PID(), syscall.SIGUSR1))
		c.Await(traffic, from, time.Minute)
	}
	last := map[int]proctest.Event{}
	for _, e := range c.Events {
		if e.Kind == traffic {
			last[e.PID] = e
		}
	}
	for pid, e := range last {
		var bytes, requests float64
		_, err := fmt.Sscan(e.Text, &bytes, &requests)
		require.NoError(c.T, err)
		own, _ := consumed(pid)
		u.bytes, u.requests, u.own = u.bytes+bytes, u.requests+requests, u.own+own
	}
	for _, n := range c.view().Beats {
		u.syncs += float64(n)
	}
	u.server, u.written = consumed(c.way.PID())
	u.seconds = float64(proctest.Now()) / 1e9
	return u
}

// consumed returns the seconds of CPU and the bytes written to disks of a process with all its children,
// those included that have ended.
func consumed(pid int) (cpu, written float64) {
	add := func(pid int, fields []string) {
		cpu += ticks(fields[11:15])
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		_, after, _ := strings.Cut(string(text), "\nwrite_bytes: ")
		line, _, _ := strings.Cut(after, "\n")
		n, _ := strconv.ParseFloat(line, 64)
		written += n
	}
	own := stat(pid)
	if own == nil {
		return 0, 0
	}
	add(pid, own)
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		child, _ := strconv.Atoi(p.Name())
		if fields := stat(child); child > 0 && fields != nil && fields[1] == strconv.Itoa(pid) {
			add(child, fields)
		}
	}
	return cpu, written
}

// stat returns the fields of /proc/PID/stat from the third on, or nil if the process has ended.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	end := strings.LastIndex(string(text), ") ") // of the name, which may contain any character
	return strings.Fields(string(text[end+1:]))
}

// ticks returns the sum of times in hundredths of a second, the unit of Linux, as seconds.
func ticks(fields []string) (s float64) {
	for _, f := range fields {
		n, _ := strconv.ParseFloat(f, 64)
		s += n / 100
	}
	return s
}

//go:build peers

package replicas_test

// The load of the server: of a steady fleet, of many moves, after an outage, and while a
// transaction stays open.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// load measures steady fleets, a hundred replicas in each process.
func load(t *testing.T, s *pgtest.Server, r *results, cfg config) {
	of := r.table("a steady fleet", fmt.Sprintf("rounds: %d", cfg.loads))
	fleets := func(n int, name, url string) {
		of.columns = append(of.columns, name)
		for range cfg.loads {
			t.Run(name, func(t *testing.T) {
				c := newCluster(t, s, settings{URL: url, Table: t.Name(), Replicas: min(n, 100), Lease: cfg.idle, Stop: cfg.stop}, 10*n)
				for range max(n/100, 1) { // all at once would be a convoy of new connections
					c.add(1)
					c.awaitEven()
				}
				c.rest()
				before := c.usage()
				c.Pass(cfg.steady)
				u := c.usage().since(before)
				of.add(name, "Syncs a second", u.syncs/u.seconds)
				of.add(name, cpuOfServer, 100*u.server/u.seconds)
				of.add(name, "% of a core: each replica", 100*u.own/u.seconds/float64(n))
				of.add(name, "kB of WAL a second", u.wal/1000/u.seconds)
				of.add(name, "bytes of WAL a Sync", u.wal/u.syncs)
				of.add(name, "bytes a Sync, both ways", u.bytes/u.syncs)
				c.end(c.replicas...)
			})
		}
	}
	for _, n := range cfg.steadies {
		fleets(n, fmt.Sprint(n, " replicas"), s.URL(pgtest.User, database))
	}
	through := fmt.Sprint(cfg.steadies[0], " through PgBouncer")
	fleets(cfg.steadies[0], through, s.Bouncer(t).URL(pgtest.User, database))
	r.medians(of, through, 15, "%", cpuOfServer)
}

const cpuOfServer = "% of a core: PostgreSQL"

// rebalance measures how half of a big fleet joins at once, and leaves.
func rebalance(t *testing.T, s *pgtest.Server, r *results, cfg config) {
	of := r.table(fmt.Sprintf("%d tasks over %d replicas, of which half join at once, and leave", cfg.moves, cfg.many), fmt.Sprintf("rounds: %d", cfg.loads), "join", "leave")
	for range cfg.loads {
		t.Run("half", func(t *testing.T) {
			c := newCluster(t, s, settings{URL: s.URL(pgtest.User, database), Table: t.Name(), Replicas: cfg.many / 2, Lease: cfg.idle, Stop: cfg.stop}, cfg.moves)
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
				of.add(column, "s of CPU, PostgreSQL", u.server)
				of.add(column, "MB over the connections", u.bytes/1e6)
				of.add(column, "MB of WAL", u.wal/1e6)
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

// usage is what a cluster and its server have used.
type usage struct {
	seconds     float64
	server, own float64 // s of CPU
	syncs       float64
	wal, bytes  float64
}

func (u usage) since(before usage) usage {
	return usage{
		u.seconds - before.seconds, u.server - before.server, u.own - before.own,
		u.syncs - before.syncs, u.wal - before.wal, u.bytes - before.bytes,
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
		u.bytes += number(c.T, e.Text)
		u.own += cpu(pid, false)
	}
	u.syncs = number(c.T, c.server.SQL(database, fmt.Sprintf("select coalesce(sum(heartbeat), 0) from replica_beats where name = '%s'", c.settings.Table)))
	u.wal = number(c.T, c.server.SQL(database, "select pg_current_wal_lsn() - '0/0'"))
	pid, err := os.ReadFile(filepath.Join(c.server.SQL(database, "show data_directory"), "postmaster.pid"))
	require.NoError(c.T, err)
	line, _, _ := strings.Cut(string(pid), "\n")
	u.server = cpu(int(number(c.T, line)), true)
	u.seconds = float64(proctest.Now()) / 1e9
	return u
}

func number(t testing.TB, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return n
}

// cpu returns the seconds of CPU of a process, also with all its children, those included that
// have ended.
func cpu(pid int, children bool) (s float64) {
	own := stat(pid)
	if own == nil {
		return 0
	}
	if s = ticks(own[11:13]); !children {
		return s
	}
	s += ticks(own[13:15])
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		child, _ := strconv.Atoi(p.Name())
		if fields := stat(child); child > 0 && fields != nil && fields[1] == strconv.Itoa(pid) {
			s += ticks(fields[11:13])
		}
	}
	return s
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

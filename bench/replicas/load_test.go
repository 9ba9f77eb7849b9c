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

// The rows of a load.
const (
	syncs       = "Syncs a second"
	cpuOfServer = "% of a core: PostgreSQL"
	cpuOfEach   = "% of a core: each replica"
	wal         = "kB of WAL a second"
	walOfSync   = "bytes of WAL a Sync"
	bytesOfSync = "bytes a Sync, both ways"
)

// load measures steady fleets, a hundred replicas in each process.
func load(t *testing.T, s *pgtest.Server, r *results, cfg config) {
	fleets := func(n int, name, url string, listen bool) *table {
		of := r.table(fmt.Sprintf("steady, %d replicas, %s", n, name))
		for round := range cfg.loads {
			inTurns(t, fmt.Sprint(n, name), round, func(t *testing.T, system string) {
				if system == theirs && n > cfg.most {
					t.Skip("package replica is for some 200 replicas")
				}
				c := newCluster(t, s, settings{System: system, URL: url, Listen: listen || system == ours, Table: t.Name(), Replicas: min(n, 100), Lease: cfg.idle, Stop: cfg.stop}, 10*n)
				for range max(n/100, 1) { // all at once would be a convoy of new connections
					c.add(1)
					c.awaitEven()
				}
				c.rest()
				before := c.usage()
				c.Pass(cfg.steady)
				u := c.usage().since(before)
				for row, figure := range map[string]float64{
					syncs: u.syncs / u.seconds, cpuOfServer: 100 * u.server / u.seconds, cpuOfEach: 100 * u.own / u.seconds / float64(n),
					wal: u.wal / 1000 / u.seconds, walOfSync: u.wal / u.syncs, bytesOfSync: u.bytes / u.syncs,
				} {
					of.add(row, system, figure)
				}
				c.end(c.replicas...)
			})
		}
		return of
	}
	for _, n := range cfg.steadies {
		fleets(n, "LISTEN", s.URL(pgtest.User, database), true)
	}
	through := fleets(cfg.steadies[0], "PgBouncer", s.Bouncer(t).URL(pgtest.User, database), false)
	r.medians(through, 15, "%", cpuOfServer)
}

// rebalance measures how half of a big fleet joins at once, and leaves.
func rebalance(t *testing.T, s *pgtest.Server, r *results, cfg config) {
	of := r.table(fmt.Sprintf("%d tasks over %d replicas, of which half join at once, and leave", cfg.moves, cfg.many))
	for round := range cfg.loads {
		inTurns(t, "half", round, func(t *testing.T, system string) {
			c := newCluster(t, s, settings{System: system, URL: s.URL(pgtest.User, database), Listen: true, Table: t.Name(), Replicas: cfg.many / 2, Lease: cfg.idle, Stop: cfg.stop}, cfg.moves)
			c.add(1)
			c.awaitEven()
			measure := func(what string, event func() (from, to int64)) {
				c.rest()
				before := c.usage()
				from, to := event()
				u, gaps := c.usage().since(before), slices.Sorted(slices.Values(c.gaps(from)))
				of.add(what+": ms", system, ms(to-from))
				of.add(what+": gap, median, ms", system, gaps[len(gaps)/2])
				of.add(what+": gap, longest, ms", system, gaps[len(gaps)-1])
				of.add(what+": s of CPU, PostgreSQL", system, u.server)
				of.add(what+": MB over the connections", system, u.bytes/1e6)
				of.add(what+": MB of WAL", system, u.wal/1e6)
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
	u.syncs = number(c.T, c.server.SQL(database, fmt.Sprintf("select coalesce(sum(heartbeat), 0) from %s where name = '%s'",
		map[string]string{ours: "replica_beats", theirs: "orchestrator_members"}[c.settings.System], c.settings.Table)))
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

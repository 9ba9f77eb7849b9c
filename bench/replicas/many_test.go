//go:build peers

package replicas_test

// A big fleet: its cold start, and the steady load.

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/bench/replicas"
	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// manyConfig selects a big fleet.
type manyConfig struct {
	replicas, tasks, rounds int
	lease, stop             time.Duration
	steady                  time.Duration // how long the load is measured
}

// measureMany measures a fleet with and without LISTEN. One process is the only candidate,
// so that its load is that of the leader. Another process runs all other replicas.
func measureMany(t *testing.T, s *pgtest.Server, cfg manyConfig) []replicas.Many {
	var all []replicas.Many
	for _, listen := range []bool{true, false} {
		m := replicas.Many{Name: "with LISTEN", Replicas: cfg.replicas, Tasks: cfg.tasks, Lease: cfg.lease}
		if !listen {
			m.Name = "without LISTEN"
		}
		t.Run(m.Name, func(t *testing.T) {
			c := newCluster(t, s, settings{Tasks: cfg.tasks, Lease: cfg.lease, Stop: cfg.stop, Listen: listen})
			leader := c.add()
			c.awaitEven() // confirms the table
			others := c.settings
			others.Name, others.Replicas, others.WorkerOnly = "others", cfg.replicas-1, true
			rest := c.Start(others.Name, replicaRole, others)
			c.replicas = append(c.replicas, rest)
			for range cfg.rounds {
				c.endAll()
				from := proctest.Now()
				leader.Start()
				rest.Start()
				c.awaitBalance(cfg)
				from = c.First(began, from).At
				even := c.lastStart()
				m.ColdStart = append(m.ColdStart, time.Duration(c.allRan(from)-from))
				m.Even = append(m.Even, time.Duration(even-from))
				n := 0
				for _, of := range c.starts(from) {
					n += of
				}
				m.Starts = append(m.Starts, n)
			}
			c.rest()
			steadyLoad(c, &m, leader, rest, cfg.steady)
			c.noOverlaps()
			c.endAll()
		})
		all = append(all, m)
	}
	return all
}

// awaitBalance waits until the tasks are evenly spread over all replicas.
func (c *cluster) awaitBalance(cfg manyConfig) {
	c.T.Helper()
	names := []string{"r0"}
	for i := range cfg.replicas - 1 {
		names = append(names, fmt.Sprint("others.", i))
	}
	c.Wait("the tasks are evenly spread", patience, func() bool {
		c.Look()
		return c.History.IsEven(cfg.tasks, names)
	})
}

// steadyLoad measures the load while nothing changes.
func steadyLoad(c *cluster, m *replicas.Many, leader, rest *proctest.Process, during time.Duration) {
	c.T.Helper()
	server := c.serverPID()
	beats := func() float64 {
		sum := c.server.SQL(database, fmt.Sprintf("select sum(heartbeat) from orchestrator_members where name = '%s'", c.settings.Table))
		n, err := strconv.ParseFloat(sum, 64)
		require.NoError(c.T, err)
		return n
	}
	type reading struct {
		at                    int64
		leader, other, server time.Duration
		beats                 float64
	}
	read := func() reading {
		r := reading{beats: beats()}
		r.leader, r.other, r.server = cpu(c.T, leader.PID()), cpu(c.T, rest.PID()), cpuOfServer(c.T, server)
		r.at = proctest.Now()
		return r
	}
	before := read()
	c.Pass(during)
	after := read()
	took := time.Duration(after.at - before.at)
	m.Leader = float64(after.leader-before.leader) / float64(took)
	m.Other = float64(after.other-before.other) / float64(took) / float64(m.Replicas-1)
	m.Server = float64(after.server-before.server) / float64(took)
	m.Syncs = (after.beats - before.beats) / took.Seconds()
}

// serverPID returns the ID of the server's main process.
func (c *cluster) serverPID() int {
	c.T.Helper()
	path := filepath.Join(c.server.SQL(database, "show data_directory"), "postmaster.pid")
	text, err := os.ReadFile(path)
	require.NoError(c.T, err)
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	require.NoError(c.T, err)
	return pid
}

// cpu returns the processor time of a process.
func cpu(t testing.TB, pid int) time.Duration {
	t.Helper()
	fields := stat(pid)
	require.NotNil(t, fields)
	return ticks(t, fields[11], fields[12])
}

// cpuOfServer returns the processor time of a process and all its children, also of those
// that have ended.
func cpuOfServer(t testing.TB, pid int) time.Duration {
	t.Helper()
	own := stat(pid)
	require.NotNil(t, own)
	sum := ticks(t, own[11:15]...)
	processes, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, p := range processes {
		child, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if fields := stat(child); fields != nil && fields[1] == strconv.Itoa(pid) {
			sum += ticks(t, fields[11], fields[12])
		}
	}
	return sum
}

// stat returns the fields of /proc/PID/stat from the third on, or nil if the process has
// ended.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	end := strings.LastIndex(string(text), ") ") // of the name, which may contain any character
	return strings.Fields(string(text[end+1:]))
}

// ticks returns the sum of times in hundredths of a second, the unit of Linux.
func ticks(t testing.TB, fields ...string) time.Duration {
	t.Helper()
	sum := 0
	for _, f := range fields {
		n, err := strconv.Atoi(f)
		require.NoError(t, err)
		sum += n
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

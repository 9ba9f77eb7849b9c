package e2e_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

const database = "postgres"

// fault begins a fault of a replica or of the server, and returns the function that ends
// it.
type fault struct {
	name  string
	begin func(victim *proctest.Process) (end func())
}

func (c *cluster) kill(r *proctest.Process) (end func()) {
	r.Kill()
	return r.Start
}

func (c *cluster) pause(r *proctest.Process) (end func()) {
	r.Pause()
	return r.Resume
}

func (c *cluster) leave(r *proctest.Process) (end func()) {
	r.Leave()
	return func() {
		c.Wait(r.Name+" has left", time.Minute, func() bool { return !r.Alive() })
		r.Start()
	}
}

// faults returns the faults of replicas, and those of the server.
func (c *cluster) faults(s *pgtest.Server) (replicas, server []fault) {
	ofServer := func(begin, end func()) func(*proctest.Process) func() {
		return func(*proctest.Process) func() {
			begin()
			return end
		}
	}
	sql := func(statement string) func(*proctest.Process) func() {
		return ofServer(func() { s.SQL(database, statement) }, func() {})
	}
	dump := s.Dump(database)
	replicas = []fault{
		{"a replica is killed", c.kill},
		{"a replica is stopped", c.pause},
		{"a replica leaves", c.leave},
		{"the leader is killed", func(*proctest.Process) func() { return c.kill(c.leader()) }},
		{"the leader is stopped", func(*proctest.Process) func() { return c.pause(c.leader()) }},
		{"the leader leaves", func(*proctest.Process) func() { return c.leave(c.leader()) }},
	}
	server = []fault{
		{"the server is paused", ofServer(s.Pause, s.Continue)},
		{"the server crashes", ofServer(s.Crash, s.Start)},
		{"the server is away", ofServer(s.Stop, s.Start)},
		{"the table is truncated", sql("truncate orchestrator_tables, orchestrator_members")},
		{"the table is dropped", sql("drop table orchestrator_tables, orchestrator_members")},
		{"a record is deleted", sql("delete from orchestrator_members where id = (select max(id) from orchestrator_members)")},
		{"connections are cut", sql("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'")},
		{"a dump is restored", ofServer(func() {
			c.Wait("the dump is restored", time.Minute, func() bool { // a deadlock with a Sync aborts it
				return s.Restore(database, dump) == nil
			})
			dump = s.Dump(database)
		}, func() {})},
	}
	return replicas, server
}

// TestA2_NeverTwice runs rounds of faults of replicas and the server, one or two at a time.
// Half of the replicas reach the server through a PgBouncer. After each round every task
// must run again, once. No task may run twice at the same time.
func TestA2_NeverTwice(t *testing.T) {
	t.Parallel() // it mostly waits
	s := pgtest.Start(t)
	b := s.Bouncer()
	direct, pooled := s.URL(pgtest.User, database), b.URL(pgtest.User, database)
	c := startCluster(t, direct, pooled, direct, pooled)
	c.bouncer = b
	defer c.report()
	replicas, server := c.faults(s)
	random := rand.New(rand.NewPCG(*seed, 0))
	upTo := func(d time.Duration) { c.Pass(time.Duration(random.Int64N(int64(d)))) }
	all := append(server, replicas...)
	for round, i := range proctest.Draw(random, *rounds, len(all)) {
		waited := c.waited()
		faults := []fault{all[i]}
		if i < len(server) && random.IntN(2) == 0 {
			faults = append(faults, replicas[random.IntN(len(replicas))])
		}
		victim := c.replicas[random.IntN(len(c.replicas))]
		var ends []func()
		for _, f := range faults {
			t.Logf("round %d: %s (%s)", round, f.name, victim.Name)
			c.counts[f.name]++
			ends = append(ends, f.begin(victim))
			upTo(lease)
		}
		upTo(2 * lease)
		for _, end := range ends {
			end()
		}
		c.recovers()
		c.check(c.waited() - waited)
	}
	if *rounds >= len(all) {
		require.Len(t, c.counts, len(all))
	}
}

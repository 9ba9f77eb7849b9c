package e2e_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

const database = "postgres"

// fault is a fault of a replica or of the server.
type fault struct {
	name   string
	leader bool // the victim is the leader
	// begin begins the fault, and returns the function that ends it.
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
	for _, f := range []struct {
		what  string
		begin func(*proctest.Process) func()
	}{{"is killed", c.kill}, {"is stopped", c.pause}, {"leaves", c.leave}} {
		replicas = append(replicas, fault{"a replica " + f.what, false, f.begin}, fault{"the leader " + f.what, true, f.begin})
	}
	server = []fault{
		{"the server is paused", false, ofServer(s.Pause, s.Continue)},
		{"the server crashes", false, ofServer(s.Crash, s.Start)},
		{"the server is away", false, ofServer(s.Stop, s.Start)},
		{"the table is truncated", false, sql("truncate orchestrator_tables, orchestrator_members")},
		{"the table is dropped", false, sql("drop table orchestrator_tables, orchestrator_members")},
		{"a record is deleted", false, sql("delete from orchestrator_members where id = (select max(id) from orchestrator_members)")},
		{"connections are cut", false, sql("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'")},
		{"a dump is restored", false, ofServer(func() {
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
	b := s.Bouncer(t)
	direct, pooled := s.URL(pgtest.User, database), b.URL(pgtest.User, database)
	c := startCluster(t, direct, pooled, direct, pooled)
	c.bouncer = b
	defer c.report()
	replicas, server := c.faults(s)
	random := rand.New(rand.NewPCG(*seed, 0))
	all := append(server, replicas...)
	for round, i := range proctest.Draw(random, *rounds, len(all)) {
		waited := c.waited()
		faults := []fault{all[i]}
		if random.IntN(2) == 0 {
			faults = append(faults, replicas[random.IntN(len(replicas))])
		}
		untouched := slices.Clone(c.replicas)
		random.Shuffle(len(untouched), func(i, j int) { untouched[i], untouched[j] = untouched[j], untouched[i] })
		var ends []func()
		for _, f := range faults {
			victim := untouched[0]
			if f.leader {
				victim = c.leader()
			}
			k := slices.Index(untouched, victim)
			if k < 0 {
				continue // the leader has a fault already
			}
			untouched = slices.Delete(untouched, k, k+1)
			t.Logf("round %d: %s (%s)", round, f.name, victim.Name)
			c.counts[f.name]++
			ends = append(ends, f.begin(victim))
			c.Pass(upTo(random, lease/8))
		}
		c.Pass(long(random))
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

// upTo returns a random duration below d.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}

// long returns how long a fault lasts: in half of the rounds a little less than the lease,
// when a task must not run elsewhere yet, and otherwise up to three leases.
func long(random *rand.Rand) time.Duration {
	if random.IntN(2) == 0 {
		return lease/2 + upTo(random, lease/2)
	}
	return upTo(random, 3*lease)
}

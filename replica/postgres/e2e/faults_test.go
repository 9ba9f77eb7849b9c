package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

const (
	database = "postgres"
	table    = "proof" // what replicas call it
	limited  = "limited"
)

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

// replicaFaults returns the faults of replicas.
func (c *cluster) replicaFaults() (all []fault) {
	for _, f := range []struct {
		what  string
		begin func(*proctest.Process) func()
	}{{"is killed", c.kill}, {"is stopped", c.pause}, {"leaves", c.leave}} {
		all = append(all, fault{"a replica " + f.what, false, f.begin}, fault{"the leader " + f.what, true, f.begin})
	}
	return all
}

// serverFaults returns the faults of the server.
func (c *cluster) serverFaults(s *pgtest.Server, random *rand.Rand) (all []fault) {
	add := func(name string, begin func() (end func())) {
		all = append(all, fault{name, false, func(*proctest.Process) func() { return begin() }})
	}
	nothing := func() {}
	addPair := func(name string, begin, end func()) { add(name, func() func() { begin(); return end }) }
	addSQL := func(name, statements string) { addPair(name, func() { s.SQL(database, statements) }, nothing) }
	const cut = "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
	restore := func(dump string) {
		c.Wait("the dump is restored", time.Minute, func() bool { // a deadlock with a Sync aborts it
			return s.Restore(database, dump) == nil
		})
	}

	addPair("the server is paused", s.Pause, s.Continue)
	addPair("the server crashes", s.Crash, s.Start)
	addPair("the server is away", s.Stop, s.Start)
	addPair("the disk is full", s.Fill, s.Free)
	addPair("PgBouncer is away", c.bouncer.Stop, c.bouncer.Supervise)
	addSQL("connections are cut", cut)
	addPair("statements time out",
		func() {
			s.SQL(database, fmt.Sprintf("alter database %s set statement_timeout = %d; %s", database, 1+random.IntN(5), cut))
		},
		func() {
			unhurried := s.URL(pgtest.User, database) + "&options=-cstatement_timeout%3D0"
			s.SQLAt(unhurried, fmt.Sprintf("alter database %s reset all; %s", database, cut))
		})
	addPair("half of the replicas have no rights",
		func() { s.SQL(database, "revoke all on all tables in schema public from "+limited) },
		func() { s.SQL(database, "grant all on all tables in schema public to "+limited) })
	addLock := func(name, statement string) {
		add(name, func() func() {
			conn := c.hold(s, "begin; "+statement)
			return func() { _ = conn.Close(context.Background()) } // which may be broken
		})
	}
	addLock("the table's row is locked", "select from replica_tables for update")
	addLock("the members are locked", "lock table replica_members in access exclusive mode")
	addPair("a transaction is left open", func() { // a prepared one outlives crashes
		s.SQL(database, fmt.Sprintf("begin; select pg_current_xact_id(); prepare transaction '%d'", random.Uint32()))
	}, nothing)
	addSQL("all tables are truncated", "truncate "+strings.Join(tables, ", "))
	addSQL("all tables are dropped", "drop table "+strings.Join(tables, ", "))
	dump := s.Dump(database)
	addPair("a dump is restored", func() { restore(dump); dump = s.Dump(database) }, nothing)
	for _, t := range tables {
		addSQL(t+" is truncated", "truncate "+t)
		add(t+" is restored", func() func() {
			dump := s.Dump(database, t)
			return func() { restore(dump) }
		})
		hand := func(name string, statement func(*rand.Rand, *pgtest.Server, string) string) {
			addPair(name, func() {
				for range 1 + random.IntN(3) {
					edit := statement(random, s, t)
					c.T.Log(edit)
					s.SQL(database, byHand(t, edit))
				}
			}, nothing)
		}
		hand(t+" loses a row", deleteRow)
		hand(t+" has garbage", editRow)
		hand(t+" has an unknown row", insertRow)
	}
	return all
}

// hold executes statements on a connection of its own, which stays open.
func (c *cluster) hold(s *pgtest.Server, statements string) *pgx.Conn {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(pgtest.User, database))
	require.NoError(c.T, err)
	_, err = conn.Exec(ctx, statements)
	require.NoError(c.T, err)
	return conn
}

package postgres_test

// B7: which changes are losses of acknowledged data, and which are not.

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

// copied copies the tables into others, from which restored puts the rows back.
const (
	copied   = "create table t as table orchestrator_tables; create table m as table orchestrator_members; "
	restored = "; insert into orchestrator_tables table t; insert into orchestrator_members table m"
)

func TestB7_Losses(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	for _, test := range []struct{ name, statements string }{
		{"tables dropped", "drop table orchestrator_tables, orchestrator_members"},
		{"tables truncated", "truncate orchestrator_tables, orchestrator_members"},
		{"row of the table deleted", "delete from orchestrator_tables"},
		{"members truncated", "truncate orchestrator_members"},
		{"member deleted", "delete from orchestrator_members where id = 2"},
		{"heartbeat inserted", "insert into orchestrator_members select name, id, heartbeat + 10, draining, passive, retired, record, written from orchestrator_members where id = 2"},
		{"member replaced", "update orchestrator_members set id = 7 where id = 2"},
		{"epoch changed", "update orchestrator_tables set epoch = 1"},
		{"data restored after truncate", copied + "truncate orchestrator_tables, orchestrator_members" + restored},
		{"data restored after delete", copied + "delete from orchestrator_tables; delete from orchestrator_members" + restored},
		{"members restored", copied + "truncate orchestrator_members; insert into orchestrator_members table m"},
		{"row of the table restored", copied + "truncate orchestrator_tables; insert into orchestrator_tables table t"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLoss(t, s)
			s.SQL(l.database, test.statements)
			l.requireAnother(l.database)
		})
	}
	t.Run("dump restored", func(t *testing.T) {
		l := newLoss(t, s)
		dump := s.Dump(l.database)
		l.a.sync(t, nil)
		require.NoError(t, s.Restore(l.database, dump))
		l.requireAnother(l.database)
	})
	t.Run("dump restored in another database", func(t *testing.T) {
		l := newLoss(t, s)
		other := database(t, s)
		require.NoError(t, s.Restore(other, s.Dump(l.database)))
		l.requireAnother(other)
	})
	t.Run("copied database", func(t *testing.T) {
		l := newLoss(t, s)
		l.db.Close()
		s.SQL("postgres", "create database copied template "+l.database)
		l.requireAnother("copied")
	})
	t.Run("server rolled back", func(t *testing.T) {
		l := newLoss(t, s)
		l.a.table.RollBackServer()
		l.requireAnother(l.database)
	})
}

func TestB7_Promotion(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	s.SQL("postgres", "create database promoted")
	l := &loss{t: t, s: s, database: "promoted"}
	l.join()
	b := s.Standby()
	s.Crash()
	b.Promote()
	l.s = b
	l.requireAnother(l.database)
}

// Nothing was lost: Server stays.
func TestB7_NoLosses(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	l := newLoss(t, s)
	for name, happens := range map[string]func(){
		"vacuum":      func() { s.SQL(l.database, "vacuum freeze") },
		"vacuum full": func() { s.SQL(l.database, "vacuum full") },
		"cluster":     func() { s.SQL(l.database, "cluster orchestrator_members using orchestrator_members_pkey") },
		"reindex":     func() { s.SQL(l.database, "reindex database "+l.database) },
		"restart":     func() { s.Stop(); s.Start() },
		"crash":       func() { s.Crash(); s.Start() },
		"unknown member": func() {
			s.SQL(l.database, "insert into orchestrator_members select name, 7, heartbeat, draining, passive, retired, record, written from orchestrator_members where id = 2")
		},
		"another table": func() {
			s.SQL(l.database, "insert into orchestrator_members select 'other', id, heartbeat, draining, passive, retired, record, written from orchestrator_members")
		},
	} {
		t.Run(name, func(t *testing.T) {
			happens()
			l.db.Reset()
			v := l.a.sync(t, nil)
			require.Equal(t, l.before.Server, v.Server)
			require.True(t, v.Confirmed)
			require.Len(t, v.Members, 2)
		})
	}
}

// Syncs that wait for each other take no row for a restored one.
func TestB7_NoLossesUnderLoad(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	l := newLoss(t, s)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			for round := range 30 {
				c := newMember(l.a.table, uint64(1000*(i+1)+round))
				for _, left := range [][]uint64{nil, {c.self.ID}} {
					v, err := c.try(t.Context(), func(u *replica.Update) { u.Left, u.Campaign = left, u.Epoch+1 })
					if err != nil || v.Server != l.before.Server {
						t.Errorf("%v, Server %q, before %q", err, v.Server, l.before.Server)
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// A record may be deleted after a Sync has looked for losses, and before it reads the records.
// Then the Sync must not return a View without the member: its owner runs on.
func TestB7_ALossDuringASync(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	l := newLoss(t, s)
	other, err := pgx.Connect(t.Context(), s.URL(pgtest.User, l.database))
	require.NoError(t, err)
	defer other.Close(t.Context())
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "select from orchestrator_members where id = 1 for update")
	require.NoError(t, err)
	synced := make(chan error, 1)
	go func() {
		_, err := l.a.try(t.Context(), nil)
		synced <- err
	}()
	require.Eventually(t, func() bool { // the Sync waits for the lock, to write its heartbeat
		return s.SQL(l.database, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == "1"
	}, time.Minute, time.Millisecond)
	_, err = tx.Exec(t.Context(), "delete from orchestrator_members where id = 2")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.ErrorContains(t, <-synced, "a record was deleted")
	l.requireAnother(l.database)
}

// Where the server does not tell its identity, each start is a loss.
func TestB7_WithoutTheTimeline(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	s.SQL("postgres", "create database hidden")
	s.SQL("hidden", "revoke execute on function pg_control_system() from public; create role app login; grant all on schema public to app")
	db := pool(t, s.URL("app", "hidden"))
	c := newMember(postgres.New(db, "pollers"), 1)
	before := c.sync(t, nil)
	require.Equal(t, before.Server, c.sync(t, nil).Server)
	s.Stop()
	s.Start()
	db.Reset()
	after := c.sync(t, nil)
	require.NotEqual(t, before.Server, after.Server)
	require.Equal(t, after.Server, c.sync(t, nil).Server)
}

// loss is a confirmed table with two members, in a database of its own.
type loss struct {
	t        *testing.T
	s        *pgtest.Server
	database string
	db       *pgxpool.Pool
	a        *member
	before   replica.View
}

func newLoss(t *testing.T, s *pgtest.Server) *loss {
	t.Helper()
	l := &loss{t: t, s: s, database: database(t, s)}
	l.join()
	return l
}

func (l *loss) join() {
	l.t.Helper()
	l.db = pool(l.t, l.s.URL(pgtest.User, l.database))
	l.a = newMember(postgres.New(l.db, "pollers"), 1)
	newMember(l.a.table, 2).sync(l.t, nil)
	server := l.a.sync(l.t, nil).Server
	l.before = l.a.sync(l.t, func(u *replica.Update) { u.Confirm, u.Campaign = server, 5 })
	require.True(l.t, l.before.Confirmed)
	require.Equal(l.t, server, l.before.Server)
	require.EqualValues(l.t, 5, l.before.Epoch)
	require.Len(l.t, l.before.Members, 2)
}

// requireAnother fails the test if a database has the Server of before.
func (l *loss) requireAnother(database string) {
	l.t.Helper()
	if database != l.database || l.s.Addr() != fmt.Sprintf("%s:%d", l.db.Config().ConnConfig.Host, l.db.Config().ConnConfig.Port) {
		l.a.table = postgres.New(pool(l.t, l.s.URL(pgtest.User, database)), "pollers")
	}
	v := l.a.sync(l.t, func(u *replica.Update) { u.Confirm = l.before.Server })
	require.NotEqual(l.t, l.before.Server, v.Server)
	require.False(l.t, v.Confirmed)
	next := l.a.sync(l.t, func(u *replica.Update) { u.Confirm = v.Server })
	require.Equal(l.t, v.Server, next.Server)
	require.True(l.t, next.Confirmed)
	for _, m := range next.Members {
		require.Contains(l.t, []uint64{1, 2}, m.ID)
	}
}

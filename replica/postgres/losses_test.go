package postgres_test

// B7: which changes are losses of acknowledged data, and which are not.

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

// restored returns statements that copy a table, do something, and put the copied rows back.
func restored(table, between string) string {
	return "create table copied as table " + table + "; " + between + "; insert into " + table + " table copied; drop table copied"
}

func TestB7_Losses(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	for _, test := range []struct {
		name, statements string
		campaign         bool // found by a campaign and by a full View, not by each Sync
	}{
		{"tables dropped", "drop table " + allTables, false},
		{"tables truncated", "truncate " + allTables, false},
		{"row of the table deleted", "delete from replica_tables", false},
		{"members truncated", "truncate replica_members", false},
		{"own row deleted", "delete from replica_members where id = 1", false},
		{"own heartbeat deleted", "delete from replica_beats where id = 1", false},
		{"own heartbeat changed", "update replica_beats set heartbeat = heartbeat + 1 where id = 1", false},
		{"heartbeats restored", restored("replica_beats", "truncate replica_beats"), false},
		{"own row replaced", "update replica_members set id = 7 where id = 1", false},
		{"own row changed", "update replica_members set record = '7' where id = 1", false},
		{"epoch changed", "update replica_tables set epoch = 1", false},
		{"revision changed", "update replica_tables set revision = 9223372036854775807", false},
		{"leader changed", "update replica_tables set leader = -1", false},
		{"seen changed", "update replica_tables set seen = -1", false},
		{"asks changed", "update replica_tables set asks = '[]'", false},
		{"another row of the table", `insert into replica_tables select (jsonb_populate_record(r,
			jsonb_build_object('revision', revision + 1, 'written', pg_current_xact_id()::text))).* from replica_tables r;
			update replica_tables set lease = 7`, false},
		{"row of the table restored", restored("replica_tables", "truncate replica_tables"), false},
		{"members restored", restored("replica_members", "truncate replica_members"), false},
		{"orders truncated", "truncate replica_orders", true},
		{"orders and counts truncated", "truncate replica_orders, replica_counts", true},
		{"order to run deleted", "delete from replica_orders where not stop", true},
		{"order to stop deleted", "delete from replica_orders where stop", true},
		{"order changed", "update replica_orders set stop = not stop", true},
		{"order inserted", "insert into replica_orders select name, member, task || 'x', revision, stop, record, written from replica_orders", true},
		{"orders restored", restored("replica_orders", "delete from replica_orders"), true},
		{"counts truncated", "truncate replica_counts", true},
		{"count changed", "update replica_counts set runs = runs + 1", true},
		{"tasks truncated", "truncate replica_tasks", true},
		{"task deleted", "delete from replica_tasks where task = 'a'", true},
		{"task changed", `update replica_tasks set record = '"garbage"' where task = 'a'`, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLoss(t, s)
			l.sql(test.statements)
			if test.campaign {
				v := l.b.sync(t, func(u *replica.Update) { u.Campaign = u.Epoch + 1<<33 })
				require.NotEqual(t, l.before.Server, v.Server)
			}
			l.requireAnother(t, l.a)
		})
		if test.campaign {
			t.Run(test.name+", read", func(t *testing.T) {
				l := newLoss(t, s)
				l.sql(test.statements)
				v, err := l.a.table.Read(t.Context(), l.a.query())
				require.NoError(t, err)
				require.NotEqual(t, l.before.Server, v.Server)
				l.requireAnother(t, l.a)
			})
			t.Run(test.name+", synced", func(t *testing.T) { // with a full View
				l := newLoss(t, s)
				l.sql(test.statements)
				require.NotEqual(t, l.before.Server, l.a.sync(t, nil).Server)
				l.requireAnother(t, l.a)
			})
		}
	}
	t.Run("dump restored", func(t *testing.T) {
		l := newLoss(t, s)
		dump := s.Dump(l.database)
		l.a.sync(t, nil)
		require.NoError(t, s.Restore(l.database, dump))
		l.requireAnother(t, l.a)
	})
	t.Run("dump restored in another database", func(t *testing.T) {
		l := newLoss(t, s)
		other := database(t, s)
		require.NoError(t, s.Restore(other, s.Dump(l.database)))
		l.requireAnother(t, l.again(t, s.URL(pgtest.User, other)))
	})
	t.Run("copied database", func(t *testing.T) {
		l := newLoss(t, s)
		require.NoError(t, l.a.table.Close())
		require.NoError(t, l.b.table.Close())
		l.db.Close()
		require.Eventually(t, func() bool {
			return s.SQL("template1", "select count(*) from pg_stat_activity where datname = 'postgres'") == "0"
		}, time.Minute, time.Millisecond)
		s.SQL("template1", "create database copied template "+l.database)
		l.requireAnother(t, l.again(t, s.URL(pgtest.User, "copied")))
	})
	t.Run("server rolled back", func(t *testing.T) {
		l := newLoss(t, s)
		l.a.table.RollBackServer(1)
		l.requireAnother(t, l.a)
	})
	t.Run("server rolled back before a member returns with another ID", func(t *testing.T) {
		l := newLoss(t, s)
		l.a.table.RollBackServer(1)
		require.NotEqual(t, l.before.Server, newMember(l.a.table, 3).sync(t, nil).Server)
	})
}

func TestB7_Promotion(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	l := newLoss(t, s)
	b := s.Standby()
	s.Crash()
	b.Promote()
	l.requireAnother(t, l.again(t, b.URL(pgtest.User, l.database)))
}

// Nothing was lost: Server stays.
func TestB7_NoLosses(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	l := newLoss(t, s)
	for name, happens := range map[string]func(){
		"vacuum":      func() { l.sql("vacuum freeze") },
		"vacuum full": func() { l.sql("vacuum full") },
		"cluster":     func() { l.sql("cluster replica_members using replica_members_pkey") },
		"reindex":     func() { s.SQL(l.database, "reindex database "+l.database) },
		"restart":     func() { s.Stop(); s.Start() },
		"crash":       func() { s.Crash(); s.Start() },
		"unknown member": func() {
			l.sql("insert into replica_members select name, 7, revision, record, written from replica_members where id = 2")
		},
		"another table": func() {
			l.sql("insert into replica_members select 'other', id, revision, record, written from replica_members")
		},
	} {
		t.Run(name, func(t *testing.T) {
			happens()
			require.Eventually(t, func() bool { // the connection may have broken
				_, err := l.a.try(t.Context(), nil)
				return err == nil
			}, time.Minute, time.Millisecond)
			for _, v := range []replica.View{l.a.last, l.a.sync(t, func(u *replica.Update) { u.Campaign = u.Epoch + 1<<33 })} {
				require.Equal(t, l.before.Server, v.Server)
				require.True(t, v.Confirmed)
				require.Len(t, v.Members, 2)
				require.Len(t, v.Orders, 3)
			}
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
		table := l.client(t, l.db)
		all.Go(func() {
			for round := range 30 {
				c := newMember(table, uint64(1000*(i+1)+round))
				for _, left := range [][]uint64{nil, {c.self.ID}} {
					v, err := c.try(t.Context(), func(u *replica.Update) { u.Left, u.Campaign = left, u.Epoch+1<<32 })
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

// Where the server does not tell its identity, each start is a loss.
func TestB7_WithoutTheTimeline(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	for _, function := range []string{"pg_control_system()", "pg_walfile_name(pg_lsn)"} {
		t.Run(function, func(t *testing.T) {
			hidden := database(t, s)
			s.SQL(hidden, "revoke execute on function "+function+" from public; create role "+hidden+" login; grant all on schema public to "+hidden)
			c := newMember(newTable(t, pool(t, s.URL(hidden, hidden)), "pollers"), 1)
			before := c.sync(t, nil)
			require.Equal(t, before.Server, c.sync(t, nil).Server)
			s.Stop()
			s.Start()
			require.Eventually(t, func() bool { // the connection has broken
				_, err := c.try(t.Context(), nil)
				return err == nil
			}, time.Minute, time.Millisecond)
			require.NotEqual(t, before.Server, c.last.Server)
			require.Equal(t, c.last.Server, c.sync(t, nil).Server)
		})
	}
}

// A record that cannot be read is one row that cannot be read.
func TestBadInput_Records(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	l := newLoss(t, s)
	l.sql(`update replica_reports set record = '{"applied": 5}' where id = 2`)
	var v replica.View
	var err error
	for _, record := range []string{`'7'`, `record || '{"id": "7"}'`, `record || '{"lease_ns": "long"}'`, `record || '{"lease_ns": 1}'`} {
		l.sql("update replica_members set record = " + record + " where id = 2")
		v, err = l.a.table.Read(t.Context(), l.a.query())
		require.NoError(t, err)
		require.Equal(t, l.before.Server, v.Server)
		require.Len(t, v.Members, 2)
		for _, m := range v.Members {
			require.Contains(t, []uint64{1, 2}, m.ID)
			require.Equal(t, m.ID == 2, m.Draining, "a member whose record cannot be read gets no tasks")
		}
		require.EqualValues(t, replica.MaxSeen, v.Reports[2].Applied)
	}
	v = l.a.write(t, &replica.Batch{Evict: map[uint64]uint64{2: v.Beats[2]}})
	require.Contains(t, v.Gone, uint64(2))
	for _, edit := range []string{"beats set heartbeat = -1", "members set id = -1", "removed set id = -1"} {
		_, err = l.db.Exec(t.Context(), fmt.Sprintf("update %s.replica_%s", l.schema, edit))
		require.ErrorContains(t, err, "check constraint", "it would spoil each View")
	}
}

// loss is a confirmed table with two members, orders and tasks, in a schema of its own.
type loss struct {
	database, schema string
	sql              func(statements string)
	db               *pgxpool.Pool
	a, b             *member
	before           replica.View
}

func newLoss(t *testing.T, s *pgtest.Server) *loss {
	t.Helper()
	l := &loss{database: "postgres", schema: unique("s")}
	s.SQL(l.database, "create schema "+l.schema)
	l.sql = func(statements string) { s.SQL(l.database, "set search_path = "+l.schema+"; "+statements) }
	l.db = pool(t, s.URL(pgtest.User, l.database))
	l.a, l.b = newMember(l.client(t, l.db), 1), newMember(l.client(t, l.db), 2)
	l.a.lead(t)
	l.b.sync(t, func(u *replica.Update) { u.Report = &replica.Report{} })
	l.before = l.a.write(t, &replica.Batch{
		Orders: []replica.Order{{Member: 1, Task: "a"}, {Member: 2, Task: "a", Stop: true}, {Member: 2, Task: "b"}},
		Tasks:  []replica.Task{{Name: "a"}, {Name: "b"}}, Listed: true,
	})
	l.b.sync(t, nil)
	return l
}

// client returns another client of the table, also of a copy.
func (l *loss) client(t *testing.T, db *pgxpool.Pool) *postgres.Table {
	t.Helper()
	return newTable(t, db, "pollers", postgres.WithSchema(l.schema))
}

// again returns the first member with a client of a copy.
func (l *loss) again(t *testing.T, url string) *member {
	t.Helper()
	m := newMember(l.client(t, pool(t, url)), 1)
	v, err := m.table.Read(t.Context(), replica.Query{Self: 1})
	require.NoError(t, err)
	m.self, m.last = l.a.self, v
	m.self.Heartbeat += 100
	return m
}

// requireAnother fails the test if a member sees the Server of before, or another one with each
// Sync.
func (l *loss) requireAnother(t *testing.T, m *member) {
	t.Helper()
	v := m.sync(t, func(u *replica.Update) { u.Confirm = u.Server == l.before.Server })
	require.NotEqual(t, l.before.Server, v.Server)
	require.False(t, v.Confirmed)
	require.False(t, v.Listed)
	require.Zero(t, v.Leader)
	next := m.sync(t, func(u *replica.Update) { u.Confirm = true })
	require.Equal(t, v.Server, next.Server)
	require.True(t, next.Confirmed)
	next = m.sync(t, func(u *replica.Update) { u.Campaign = 1 << 40 })
	require.Equal(t, v.Server, next.Server)
	require.Equal(t, m.self.ID, next.Leader)
	for _, other := range next.Members {
		require.Contains(t, []uint64{1, 2}, other.ID)
	}
}

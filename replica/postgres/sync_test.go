package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

func TestSync_InstallsOnce(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := database(t, s)
	var all sync.WaitGroup
	for i := range 20 {
		m := newMember(postgres.New(pool(t, s.URL(pgtest.User, db)), "pollers"), uint64(i+1))
		all.Go(func() {
			_, err := m.try(t.Context(), nil)
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, "20", s.SQL(db, "select cardinality(members) from orchestrator_tables"))
}

func TestSync_Names(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	for _, name := range []string{"pollers", `'; drop table orchestrator_tables; --`, `"\ü$$ $1`, " ", strings.Repeat("x", 1024), strings.Repeat("ü", 512)} {
		m := newMember(postgres.New(db, name), 1)
		require.Len(t, m.sync(t, nil).Members, 1)
		server := m.sync(t, nil).Server
		v := m.sync(t, func(u *replica.Update) { u.Confirm, u.Campaign = server, 1 })
		require.Equal(t, uint64(1), v.Leader)
	}
	for _, name := range []string{"", strings.Repeat("x", 1025), "\x00", "\xff"} {
		_, err := newMember(postgres.New(db, name), 1).try(t.Context(), nil)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
	}
	_, err := newMember(postgres.New(nil, "pollers"), 1).try(t.Context(), nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
}

func TestSync_Errors(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	s.SQL("postgres", "create role app login; create role owner login")
	for _, test := range []struct {
		name   string
		url    func(t *testing.T) string
		is     error
		says   string
		repair string // statements after which Sync succeeds
	}{
		{name: "nothing at the address", says: "connection refused", url: func(t *testing.T) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			require.NoError(t, l.Close())
			return fmt.Sprintf("postgres://app@%s/db?sslmode=disable", l.Addr())
		}},
		{name: "two addresses", says: "connection refused", url: func(*testing.T) string {
			return "postgres://app@127.0.0.1:1,127.0.0.1:2/db?sslmode=disable"
		}},
		{name: "no such database", says: `database "missing" does not exist`, url: func(*testing.T) string {
			return s.URL("app", "missing")
		}},
		{name: "may not create", says: "apply postgres.Schema", url: func(t *testing.T) string {
			return s.URL("app", database(t, s))
		}, repair: postgres.Schema() + "; grant select, insert, update, delete on orchestrator_tables, orchestrator_members to app"},
		{name: "may not write", says: "grant select, insert, update, delete", url: func(t *testing.T) string {
			db := database(t, s)
			s.SQL(db, postgres.Schema()+"; grant select, insert, delete on orchestrator_tables, orchestrator_members to app")
			return s.URL("app", db)
		}, repair: "grant update on orchestrator_tables, orchestrator_members to app"},
		{name: "another table", is: replica.ErrForeign, says: "orchestrator_members has the columns id integer", url: func(t *testing.T) string {
			db := database(t, s)
			s.SQL(db, "create table orchestrator_members (id int)")
			return s.URL(pgtest.User, db)
		}, repair: "drop table orchestrator_members"},
		{name: "another table later", is: replica.ErrForeign, says: "orchestrator_tables has the columns name text", url: func(t *testing.T) string {
			db := database(t, s)
			s.SQL(db, postgres.Schema()+"; alter table orchestrator_tables rename column epoch to era")
			return s.URL(pgtest.User, db)
		}},
		{name: "read-only", says: "connect to the primary", url: func(t *testing.T) string {
			db := database(t, s)
			s.SQL(db, postgres.Schema())
			return s.URL(pgtest.User, db) + "&default_transaction_read_only=on"
		}},
		{name: "locked", says: "another transaction has locked the table", url: func(t *testing.T) string {
			db := database(t, s)
			s.SQL(db, postgres.Schema())
			c, err := pgx.Connect(t.Context(), s.URL(pgtest.User, db))
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close(t.Context()) })
			_, err = c.Exec(t.Context(), "begin; lock orchestrator_tables")
			require.NoError(t, err)
			return s.URL(pgtest.User, db)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := test.url(t)
			db := pool(t, url)
			m := newMember(postgres.New(db, "pollers"), 1)
			_, err := m.try(t.Context(), nil)
			require.ErrorContains(t, err, test.says)
			require.NotContains(t, err.Error(), "\n")
			require.Less(t, len(err.Error()), 700)
			t.Log(err)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			if test.repair != "" {
				s.SQL(db.Config().ConnConfig.Database, test.repair)
				m.sync(t, nil)
			}
		})
	}
}

// A Sync that gives up must leave the connection as it is: a new one is expensive.
func TestSync_KeepsTheConnectionWhileLocked(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	m := newMember(postgres.New(db, "pollers"), 1)
	m.sync(t, nil)
	backend := func() (pid int) {
		require.NoError(t, db.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid))
		return pid
	}
	before := backend()
	c, err := pgx.Connect(t.Context(), s.URL(pgtest.User, "postgres"))
	require.NoError(t, err)
	defer c.Close(t.Context())
	_, err = c.Exec(t.Context(), "begin; select from orchestrator_tables for update")
	require.NoError(t, err)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.try(ctx, nil)
		require.ErrorContains(t, err, "another transaction has locked the table")
		require.NoError(t, ctx.Err())
	}
	_, err = c.Exec(t.Context(), "commit")
	require.NoError(t, err)
	require.Equal(t, before, backend())
	m.sync(t, nil)
}

func TestSync_OnAStandby(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	newMember(postgres.New(pool(t, s.URL(pgtest.User, "postgres")), "pollers"), 1).sync(t, nil)
	b := s.Standby()
	_, err := newMember(postgres.New(pool(t, b.URL(pgtest.User, "postgres")), "pollers"), 1).try(t.Context(), nil)
	require.ErrorContains(t, err, "connect to the primary")
}

// The settings of the user's connections change nothing.
func TestSync_OtherSettings(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	for _, setting := range []string{
		"default_transaction_isolation=serializable", "default_transaction_isolation=repeatable read",
		"synchronous_commit=off", "datestyle=German", "timezone=Asia/Tokyo", "bytea_output=escape", "standard_conforming_strings=on",
		"default_transaction_deferrable=on", "plpgsql.variable_conflict=use_column", "row_security=off", "jit=on",
	} {
		t.Run(setting, func(t *testing.T) {
			url := s.URL(pgtest.User, database(t, s)) + "&" + strings.ReplaceAll(setting, " ", "%20")
			db := pool(t, url)
			a, b := newMember(postgres.New(db, "pollers"), 1), newMember(postgres.New(db, "pollers"), 2)
			server := a.sync(t, nil).Server
			require.Equal(t, server, b.sync(t, func(u *replica.Update) { u.Confirm = server }).Server)
			var all sync.WaitGroup
			for _, m := range []*member{a, b} {
				all.Go(func() {
					for i := range 50 {
						v, err := m.try(t.Context(), func(u *replica.Update) { u.Campaign = u.Epoch + 1; u.Self.Passive = i%2 == 0 })
						if err != nil || v.Server != server {
							t.Errorf("%v, Server %q, before %q", err, v.Server, server)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// A Sync is acknowledged only when it is on the standbys that the server waits for, even if
// the user's own transactions are not.
func TestB7_SynchronousStandbys(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	m := newMember(postgres.New(pool(t, s.URL(pgtest.User, "postgres")+"&synchronous_commit=off"), "pollers"), 1)
	m.sync(t, nil)
	s.SQL("postgres", "alter system set synchronous_standby_names = 'missing'; select pg_reload_conf()")
	// The server's checkpointer applies the setting, a little later. Until then nothing waits.
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.try(ctx, nil)
		return errors.Is(err, context.DeadlineExceeded)
	}, time.Minute, 10*time.Millisecond)
}

// A client that was stopped, or cut off, after it has sent its Sync holds up no other,
// however long the View is. It is a connection that sends and does not read.
func TestB5_StoppedClients(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	m := newMember(postgres.New(db, "pollers"), 1)
	m.sync(t, nil)
	const call = `call orchestrator_sync_1('pollers', 2, %d, 1, false, false, '{"id": "2", "name": "%s"}', '{}', '{}', '{}', '{}', 0, 0, '', '', '0', 1000, null)`
	_, err := db.Exec(t.Context(), fmt.Sprintf(call, 1, strings.Repeat("x", 1<<24))) // more than the kernel buffers
	require.NoError(t, err)
	query := &pgproto3.Query{String: fmt.Sprintf(call, 1, "late")}
	whole, err := query.Encode(nil)
	require.NoError(t, err)
	for name, sent := range map[string][]byte{"whole": whole, "half": whole[:len(whole)/2]} {
		t.Run(name, func(t *testing.T) {
			stopped, err := pgx.ConnectConfig(t.Context(), db.Config().ConnConfig)
			require.NoError(t, err)
			raw, err := stopped.PgConn().Hijack()
			require.NoError(t, err)
			defer raw.Conn.Close()
			_, err = raw.Conn.Write(sent)
			require.NoError(t, err)
			if name == "whole" { // the server waits for it to read
				require.Eventually(t, func() bool {
					return s.SQL("postgres", "select count(*) from pg_stat_activity where wait_event = 'ClientWrite'") == "1"
				}, time.Minute, 10*time.Millisecond)
			}
			// A Sync that is held up fails after two seconds.
			require.Len(t, m.sync(t, nil).Members, 2)
		})
	}
}

// A transaction that is open for long keeps all versions of all rows. Syncs do not read
// them.
func TestSync_BesideALongTransaction(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	url := s.URL(pgtest.User, "postgres")
	members := make([]*member, 10)
	var change func(*replica.Update)
	syncs := func(n int) (blocks int) {
		db := pool(t, url)
		table := postgres.New(db, "pollers")
		for i := range n {
			m := members[i%len(members)]
			if m == nil {
				m = newMember(table, uint64(i+1))
				members[i] = m
			}
			m.table = table
			m.sync(t, change)
		}
		db.Close() // so that its statistics count
		require.Eventually(t, func() bool {
			return s.SQL("postgres", "select count(*) from pg_stat_activity where query like 'call %'") == "0"
		}, time.Minute, 10*time.Millisecond)
		_, err := fmt.Sscan(s.SQL("postgres", "select heap_blks_hit + idx_blks_hit from pg_statio_user_tables where relname = 'orchestrator_members'"), &blocks)
		require.NoError(t, err)
		return blocks
	}
	syncs(10)
	long, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer long.Close(t.Context())
	_, err = long.Exec(t.Context(), "begin isolation level repeatable read; select count(*) from orchestrator_members")
	require.NoError(t, err)
	before := syncs(10)
	first := syncs(100) - before
	before = syncs(2000)
	after := syncs(100)
	last := after - before
	t.Log("blocks read by 100 Syncs", "first", first, "later", last)
	require.Less(t, last, 3*first)

	// Syncs that remove a member look at the versions of its row only.
	server := members[0].last.Server
	change = func(u *replica.Update) {
		u.Confirm, u.Evict, u.Left = server, map[uint64]uint64{12: 1}, []uint64{13}
	}
	removing := syncs(100) - after
	t.Log("blocks read by 100 Syncs that remove members", removing)
	require.Less(t, removing, 3*first)
}

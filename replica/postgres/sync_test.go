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
	for _, name := range []string{"first", "second"} { // the second one finds the tables, and no row of its name
		var all sync.WaitGroup
		for i := range 20 {
			m := newMember(newTable(t, pool(t, s.URL(pgtest.User, db)), name), uint64(i+1))
			all.Go(func() {
				if _, err := m.try(t.Context(), nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, "20", s.SQL(db, "select count(*) from replica_members where name = '"+name+"'"))
		require.Equal(t, "1", s.SQL(db, "select count(*) from replica_tables where name = '"+name+"'"))
	}
}

func TestSync_Names(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	for _, name := range []string{"pollers", `'; drop table replica_tables; --`, `"\ü$$ $1`, " ", "\x00\xff%41", strings.Repeat("ü", 100)} {
		m := newMember(newTable(t, db, name), 1)
		m.lead(t)
		require.Len(t, m.last.Members, 1)
		long := []string{strings.Repeat("ü", 512), strings.Repeat("ü", 511) + "xy", strings.Repeat("x", 1024), "%"}
		b := &replica.Batch{}
		for _, task := range long {
			b.Tasks = append(b.Tasks, replica.Task{Name: task})
			b.Orders = append(b.Orders, replica.Order{Member: 1, Task: task})
		}
		v := m.write(t, b)
		require.Len(t, v.Tasks, len(long))
		require.ElementsMatch(t, b.Orders, v.Orders)
		v = m.write(t, &replica.Batch{Deleted: long, Dropped: b.Orders})
		require.Empty(t, v.Tasks)
		require.Empty(t, v.Orders)
	}
	for _, name := range []string{"", strings.Repeat("x", 201)} {
		_, err := newMember(newTable(t, db, name), 1).try(t.Context(), nil)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
	}
	_, err := newMember(postgres.New(nil, "pollers"), 1).try(t.Context(), nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	_, err = newMember(newTable(t, db, "pollers", postgres.WithLogger(nil)), 1).try(t.Context(), nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	err = postgres.New(nil, "pollers").Wait(t.Context(), replica.Query{})
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
}

func TestSync_Errors(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	s.SQL("postgres", "create role app login; create role owner login")
	grant := fmt.Sprintf("; grant select, insert, update, delete on %s to app", allTables)
	for _, test := range []struct {
		name   string
		url    func(t *testing.T) string
		schema string
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
		{name: "no such schema", says: `schema "missing" does not exist`, schema: "missing", url: func(t *testing.T) string {
			return s.URL("app", database(t, s))
		}},
		{name: "no schema in the search_path", says: "give WithSchema", url: func(t *testing.T) string {
			return s.URL("app", database(t, s)) + "&search_path=missing"
		}},
		{name: "may not create", says: `apply the text of postgres.Schema("public")`, url: func(t *testing.T) string {
			return s.URL("app", database(t, s))
		}, repair: postgres.Schema("public") + grant},
		{name: "may not write", says: "grant select, insert, update, delete", url: func(t *testing.T) string {
			db := database(t, s)
			s.SQL(db, postgres.Schema("public")+strings.Replace(grant, " update,", "", 1))
			return s.URL("app", db)
		}, repair: "grant update on all tables in schema public to app"},
		{name: "another table", is: replica.ErrForeign, says: "WithSchema", url: func(t *testing.T) string {
			db := database(t, s)
			s.SQL(db, "create table replica_members (id int)")
			return s.URL(pgtest.User, db)
		}, repair: "drop table replica_members"},
		{name: "another table later", is: replica.ErrForeign, says: "WithSchema", url: func(t *testing.T) string {
			db := database(t, s)
			s.SQL(db, postgres.Schema("public")+"; alter table replica_tables rename column epoch to era")
			return s.URL(pgtest.User, db)
		}},
		{name: "read-only", says: "connect to the primary", url: func(t *testing.T) string {
			db := database(t, s)
			s.SQL(db, postgres.Schema("public"))
			return s.URL(pgtest.User, db) + "&default_transaction_read_only=on"
		}},
		{name: "locked", says: "another transaction has locked the table", url: func(t *testing.T) string {
			db := database(t, s)
			newMember(newTable(t, pool(t, s.URL(pgtest.User, db)), "pollers"), 9).sync(t, nil)
			c, err := pgx.Connect(t.Context(), s.URL(pgtest.User, db))
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
			_, err = c.Exec(t.Context(), "begin; select from replica_tables for update")
			require.NoError(t, err)
			return s.URL(pgtest.User, db)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := pool(t, test.url(t))
			var opts []postgres.Option
			if test.schema != "" {
				opts = append(opts, postgres.WithSchema(test.schema))
			}
			m := newMember(newTable(t, db, "pollers", opts...), 1)
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
	m := newMember(newTable(t, pool(t, s.URL(pgtest.User, "postgres")), "pollers"), 1)
	m.lead(t)
	backend := func() string {
		return s.SQL("postgres", "select string_agg(pid::text, ',') from pg_stat_activity where query like '%replica_%' and pid <> pg_backend_pid()")
	}
	before := backend()
	c, err := pgx.Connect(t.Context(), s.URL(pgtest.User, "postgres"))
	require.NoError(t, err)
	defer c.Close(t.Context())
	_, err = c.Exec(t.Context(), "begin; lock replica_tables")
	require.NoError(t, err)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.try(ctx, func(u *replica.Update) { u.Member.Draining = true })
		require.ErrorContains(t, err, "another transaction has locked the table")
		require.NoError(t, ctx.Err())
	}
	_, err = c.Exec(t.Context(), "commit")
	require.NoError(t, err)
	require.Equal(t, before, backend())
	m.sync(t, nil)
}

// A row lock of the table keeps no heartbeat and no report (they need no lock of the table).
func TestSync_BeatsBesideALock(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	m := newMember(newTable(t, pool(t, s.URL(pgtest.User, "postgres")), "pollers"), 1)
	m.lead(t)
	c, err := pgx.Connect(t.Context(), s.URL(pgtest.User, "postgres"))
	require.NoError(t, err)
	defer c.Close(t.Context())
	_, err = c.Exec(t.Context(), "begin; select from replica_tables for update")
	require.NoError(t, err)
	v := m.sync(t, func(u *replica.Update) { u.Report = &replica.Report{Applied: 3} })
	require.Equal(t, m.self.Heartbeat, v.Beats[1])
	require.Equal(t, m.self.Heartbeat, v.Stored)
}

// A record that has changed and changed back is written, though the Sync between had no answer.
func TestB1_ARecordThatChangesBack(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	m := newMember(newTable(t, db, "pollers"), 1)
	m.lead(t)
	unanswered := *m
	unanswered.table, unanswered.self.Answered = newTable(t, db, "pollers"), false
	unanswered.sync(t, nil)
	m.self.Heartbeat = unanswered.self.Heartbeat
	m.sync(t, nil)
	require.Equal(t, "true", s.SQL("postgres", "select record->>'answered' from replica_members"))
}

// A Sync that was given up may be under way when the next one comes. The later one counts.
func TestSync_GivenUpBeforeTheNext(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	m := newMember(newTable(t, db, "pollers"), 1)
	m.lead(t)
	m.sync(t, func(u *replica.Update) { u.Report = &replica.Report{} })
	c, err := pgx.Connect(t.Context(), s.URL(pgtest.User, "postgres"))
	require.NoError(t, err)
	defer c.Close(t.Context())
	_, err = c.Exec(t.Context(), "begin; select from replica_beats for update")
	require.NoError(t, err)
	var all sync.WaitGroup
	later := *m
	later.table, later.self.Draining = newTable(t, db, "pollers"), true
	later.self.Heartbeat++
	for i, m := range []*member{m, &later} {
		all.Go(func() {
			_, err := m.try(t.Context(), func(u *replica.Update) { u.Report = &replica.Report{Applied: uint64(i)} })
			if err != nil {
				t.Error(err)
			}
		})
		require.Eventually(t, func() bool { // the Sync waits for the lock
			return s.SQL("postgres", "select count(*) from pg_stat_activity where wait_event_type = 'Lock'") == fmt.Sprint(i+1)
		}, time.Minute, time.Millisecond)
	}
	_, err = c.Exec(t.Context(), "commit")
	require.NoError(t, err)
	all.Wait()
	require.Equal(t, "t", s.SQL("postgres", "select m.record->>'draining' = 'true' and b.heartbeat = r.heartbeat from replica_members m, replica_beats b, replica_reports r"))
	require.Equal(t, "1", s.SQL("postgres", "select record->>'applied' from replica_reports"))
}

func TestSync_OnAStandby(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	newMember(newTable(t, pool(t, s.URL(pgtest.User, "postgres")), "pollers"), 1).sync(t, nil)
	b := s.Standby()
	_, err := newMember(newTable(t, pool(t, b.URL(pgtest.User, "postgres")), "pollers"), 1).try(t.Context(), nil)
	require.ErrorContains(t, err, "connect to the primary")
}

// O1: a Read from a standby that has not received what was shown before fails.
func TestO1_AReadFromAnOldStandbyFails(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	b := s.Standby()
	both := func(url string) string { // the pool connects to either server
		return strings.Replace(url, s.Addr(), s.Addr()+","+b.Addr(), 1)
	}
	m := newMember(newTable(t, pool(t, both(s.URL(pgtest.User, "postgres"))), "pollers"), 1)
	m.lead(t)
	b.Cut()
	m.sync(t, nil) // a heartbeat: the revision is the same
	s.Stop()
	require.Eventually(t, func() bool { // the connection has broken
		_, err := m.table.Read(t.Context(), m.query())
		return err != nil && strings.Contains(err.Error(), "the server is behind")
	}, time.Minute, time.Millisecond)
}

// The settings of the user's connections change nothing.
func TestSync_OtherSettings(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	for _, setting := range []string{
		"default_transaction_isolation=serializable", "default_transaction_isolation=repeatable read",
		"synchronous_commit=off", "datestyle=German", "timezone=Asia/Tokyo", "bytea_output=escape", "standard_conforming_strings=on",
		"default_transaction_deferrable=on", "plpgsql.variable_conflict=use_column", "row_security=off", "jit=on", "client_encoding=LATIN1",
		"default_query_exec_mode=exec", "search_path=pg_catalog,other,public", "plan_cache_mode=force_generic_plan", "standard_conforming_strings=off",
	} {
		t.Run(setting, func(t *testing.T) {
			url := s.URL(pgtest.User, database(t, s)) + "&" + strings.ReplaceAll(setting, " ", "%20")
			a := newMember(newTable(t, pool(t, url), "pollers"), 1)
			b := newMember(newTable(t, pool(t, url), "pollers"), 2)
			a.lead(t)
			b.sync(t, nil)
			server := a.last.Server
			var all sync.WaitGroup
			for _, m := range []*member{a, b} {
				all.Go(func() {
					for i := range 50 {
						v, err := m.try(t.Context(), func(u *replica.Update) {
							u.Campaign, u.Report = u.Epoch+1<<32, &replica.Report{Applied: uint64(i)}
							m.self.Draining = i%2 == 0
						})
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

// R-o: any encoding of the database keeps any bytes.
func TestRo_Encodings(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	for _, encoding := range []string{"LATIN1", "SQL_ASCII", "EUC_JP", "UTF8"} {
		t.Run(encoding, func(t *testing.T) {
			name := unique("db")
			s.SQL("postgres", fmt.Sprintf("create database %s template template0 encoding '%s' locale 'C'", name, encoding))
			m := newMember(newTable(t, pool(t, s.URL(pgtest.User, name)), "Öl"), 1)
			m.self.Name = "日本\xff\x00"
			m.lead(t)
			v := m.write(t, &replica.Batch{Tasks: []replica.Task{{Name: "ü日\xfe"}}})
			require.Equal(t, "日本\xff\x00", v.Members[0].Name)
			require.Equal(t, "ü日\xfe", v.Tasks[0].Name)
			s.SQL(name, "create table tenants (id text); insert into tenants values ('a')")
			tasks, err := once(t, postgres.Query(pool(t, s.URL(pgtest.User, name)), "select id from tenants"))
			require.NoError(t, err)
			require.Equal(t, []replica.Task{{Name: "a"}}, tasks)
		})
	}
}

// A Sync is acknowledged only when it is on the standbys that the server waits for, even if
// the user's own transactions are not.
func TestB7_SynchronousStandbys(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	m := newMember(newTable(t, pool(t, s.URL(pgtest.User, "postgres")+"&synchronous_commit=off"), "pollers"), 1)
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
	url := s.URL(pgtest.User, "postgres")
	m := newMember(newTable(t, pool(t, url), "pollers"), 1)
	m.lead(t)
	m.self.Attributes = map[string]string{"long": strings.Repeat("x", 1<<23)} // more than the kernel buffers
	m.sync(t, nil)
	const call = `call replica_sync_1('pollers', '{"Self": 2, "Server": "%s", "Since": "", "Beats": true, "Follow": true, "Member": {"id": "2", "heartbeat": "%d", "epoch": "0"},
		"Report": null, "Left": null, "Asks": null, "Batch": null, "Campaign": 0, "Epoch": 0, "Confirm": false, "Check": false, "News": true, "Seen": 0, "Lease": 1,
		"Acked": {"Server": "", "Revision": 0, "Heartbeat": 0}}', 1000, null)`
	query := &pgproto3.Query{String: fmt.Sprintf(call, m.last.Server, 1)}
	whole, err := query.Encode(nil)
	require.NoError(t, err)
	for name, sent := range map[string][]byte{"whole": whole, "half": whole[:len(whole)/2]} {
		t.Run(name, func(t *testing.T) {
			stopped, err := pgx.Connect(t.Context(), url)
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
			m.self.Draining = name == "whole"
			m.sync(t, nil) // one that is held up fails after two seconds
		})
	}
	require.Equal(t, "2", s.SQL("postgres", "select count(*) from replica_members"))
}

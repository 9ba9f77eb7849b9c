package postgres_test

// How replicas connect, and what they say when they cannot.

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

// secured starts a server with TLS, passwords, a socket and, where there is one, an IPv6
// address. It returns URLs of the user app, and the server's authority as a file.
func secured(t *testing.T) (s *pgtest.Server, urls map[string]string) {
	s = pgtest.Start(t)
	put := func(name string, text []byte) {
		s.SQL("postgres", fmt.Sprintf("copy (select '%s') to program 'base64 -d > %s; chmod 600 %[2]s'", base64.StdEncoding.EncodeToString(text), name))
	}
	files := testca.New(t, "test").Manager(t)
	for name, file := range map[string]string{"server.crt": files.Cert, "server.key": files.Key} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		put(name, text)
	}
	put("pg_hba.conf", []byte("local all app scram-sha-256\nhostssl all app all scram-sha-256\nhost all postgres all trust\n"))
	s.SQL("postgres", "set password_encryption = 'scram-sha-256'; create role app login password 'secret'; grant create on schema public to app")
	dir := s.SQL("postgres", "show data_directory")
	host, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	s.Restart("ssl=on", "listen_addresses="+host+",::1", "unix_socket_directories="+dir)
	tls := "/postgres?sslmode=verify-ca&sslrootcert=" + files.CA
	urls = map[string]string{
		"TLS":    "postgres://app:secret@" + s.Addr() + tls,
		"socket": fmt.Sprintf("postgres://app:secret@/postgres?sslmode=disable&port=%s&host=%s", port, strings.ReplaceAll(dir, "/", "%2F")),
	}
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		_ = l.Close()
		urls["IPv6"] = "postgres://app:secret@" + net.JoinHostPort("::1", port) + tls
	}
	return s, urls
}

func TestConnections(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	_, urls := secured(t)
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			m := newMember(newTable(t, pool(t, url), name), 1)
			m.lead(t)
			requireHeard(t, m)
			tasks, err := once(t, postgres.Query(pool(t, url), "select 7"))
			require.NoError(t, err)
			require.Equal(t, []replica.Task{{Name: "7"}}, tasks)
		})
	}
}

// The hooks of the pool are those of all connections.
func TestConnections_Hooks(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	_, urls := secured(t)
	config, err := pgxpool.ParseConfig(strings.Replace(urls["TLS"], ":secret", "", 1))
	require.NoError(t, err)
	var connected atomic.Int64
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.Password = "secret"
		return nil
	}
	config.AfterConnect = func(context.Context, *pgx.Conn) error { connected.Add(1); return nil }
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer db.Close()
	m := newMember(newTable(t, db, "pollers"), 1)
	m.lead(t)
	requireHeard(t, m)
	_, err = once(t, postgres.Query(db, "select 7"))
	require.NoError(t, err)
	require.EqualValues(t, 3, connected.Load())
	require.Zero(t, db.Stat().TotalConns())
}

// log is what a replica logs. Its methods are safe for concurrent use.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// run runs a replica until ctx ends.
func run(ctx context.Context, db *pgxpool.Pool, l *log, source replica.Source, work func(context.Context, string) error, opts ...postgres.Option) error {
	opts = append(opts, postgres.WithLogger(l.logger()))
	return replica.Run(ctx, postgres.New(db, "pollers", opts...), source, work, replica.WithLogger(l.logger()), replica.WithLease(time.Second, 200*time.Millisecond))
}

func idle(ctx context.Context, _ string) error { <-ctx.Done(); return nil }

// R-k: what goes wrong at the start is in the log at once, in one line that names the cause.
func TestRk_TheFirstLine(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s, urls := secured(t)
	s.SQL("postgres", "create database other")
	right := urls["TLS"]
	s.SQL("postgres", "create database closed")
	s.SQL("closed", "revoke all on schema public from public")
	closed := pool(t, right)
	closed.Close()
	for _, test := range []struct {
		name string
		db   *pgxpool.Pool
		says string
	}{
		{"wrong password", pool(t, strings.Replace(right, ":secret", ":wrong", 1)), "password authentication failed for user"},
		{"no such database", pool(t, strings.Replace(right, "/postgres?", "/missing?", 1)), `database \"missing\" does not exist`},
		{"no rights", pool(t, strings.Replace(right, "/postgres?", "/other?", 1)), "let another one apply the text of postgres.Schema"},
		{"no schema", pool(t, strings.Replace(right, "/postgres?", "/closed?", 1)), "give WithSchema"},
		{"nobody listens", pool(t, "postgres://app@127.0.0.1:1/postgres"), "connection refused"},
		{"a closed pool", closed, "has joined"}, // the table has connections of its own
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			l := new(log)
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, test.db, l, replica.Names("a"), idle) }()
			require.Eventually(t, func() bool { return strings.Contains(l.String(), test.says) }, time.Minute, time.Millisecond, l.String())
			cancel()
			require.NoError(t, <-ended)
			t.Log(l.String())
			require.NotContains(t, l.String(), "secret")
			require.LessOrEqual(t, strings.Count(l.String(), "\n"), 12)
		})
	}
}

// What can never work ends Run.
func TestRun_EndsWithBadArguments(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	require.ErrorIs(t, run(t.Context(), nil, new(log), replica.Names("a"), idle), replica.ErrInvalid)
	require.ErrorIs(t, run(t.Context(), db, new(log), postgres.Query(db, "select 1, 2"), idle), replica.ErrInvalid)
	s.SQL("postgres", "create schema other; create table other.replica_tables (n int)")
	require.ErrorIs(t, run(t.Context(), db, new(log), replica.Names("a"), idle, postgres.WithSchema("other")), replica.ErrForeign)
}

// R-c: tasks that use up the pool cost no lease.
func TestRc_TasksUseUpThePool(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres")+"&pool_max_conns=2")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var running, ended atomic.Int64
	l := new(log)
	done := make(chan error, 1)
	work := func(ctx context.Context, _ string) error {
		running.Add(1)
		defer ended.Add(1)
		for ctx.Err() == nil {
			_, _ = db.Exec(ctx, "select pg_sleep(0.3)") // most of them wait for a connection
		}
		return nil
	}
	s.SQL("postgres", "create table tenants as select id from generate_series(1, 50) id")
	go func() { done <- run(ctx, db, l, postgres.Query(db, "select id from tenants"), work) }()
	require.Eventually(t, func() bool { return running.Load() == 50 }, time.Minute, time.Millisecond, l)
	waits := db.Stat().EmptyAcquireCount()
	require.Eventually(t, func() bool { return db.Stat().EmptyAcquireCount() > waits+20 }, time.Minute, time.Millisecond) // three leases
	require.Zero(t, ended.Load(), "a task was stopped: %s", l)
	cancel()
	require.NoError(t, <-done)
}

// R-h: replicas with different search_paths share the tables that there are, or say that they do
// not. The schema is in the log, in errors, and an option.
func TestRh_SearchPaths(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	s.SQL("postgres", `create schema a; create schema "B c"`)
	url := s.URL(pgtest.User, "postgres")
	l := new(log)
	first := newMember(newTable(t, pool(t, url+"&search_path=a,public"), "pollers", postgres.WithLogger(l.logger())), 1)
	first.sync(t, nil)
	require.Contains(t, l.String(), "schema=a")
	second := newMember(newTable(t, pool(t, url+"&search_path=public,a"), "pollers"), 2)
	require.Len(t, second.sync(t, nil).Members, 2)
	_, err := newMember(newTable(t, pool(t, url+"&search_path=public"), "pollers"), 3).try(t.Context(), nil)
	require.ErrorContains(t, err, "schema a, which is not in the search_path, has the tables: give it or public to WithSchema")
	other := newMember(newTable(t, pool(t, url), "pollers", postgres.WithSchema("B c")), 3)
	require.Len(t, other.sync(t, nil).Members, 1)
	require.Equal(t, "1", s.SQL("postgres", `select count(*) from "B c".replica_tables`))
	s.SQL("postgres", `drop table "B c".replica_members; create table "B c".replica_members (n int)`)
	_, err = other.try(t.Context(), nil)
	require.ErrorContains(t, err, `schema "B c"`)
}

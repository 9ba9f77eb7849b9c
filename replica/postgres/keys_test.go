package postgres_test

// What calls read: rows by key, and few of them.

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
)

// reader measures what the calls of one client read.
type reader struct {
	s   *pgtest.Server
	url string
	a   *member // leads
	b   *member
}

func newReader(t *testing.T) *reader {
	s := pgtest.Start(t)
	r := &reader{s: s, url: s.URL(pgtest.User, "postgres")}
	table := newTable(t, pool(t, r.url), "pollers")
	r.a, r.b = newMember(table, 1), newMember(table, 2)
	r.a.lead(t)
	r.b.sync(t, nil)
	require.NoError(t, table.Close())
	return r
}

// blocks returns how many blocks of the tables and their indexes f has read. All its calls are
// made with one new connection, so that PostgreSQL plans each statement a few times and then
// keeps the plan.
func (r *reader) blocks(t *testing.T, f func()) int {
	t.Helper()
	before := r.read(t)
	db := pool(t, r.url)
	table := newTable(t, db, "pollers")
	r.a.table, r.b.table = table, table
	f()
	require.NoError(t, table.Close()) // so that its statistics count
	require.Eventually(t, func() bool {
		return r.s.SQL("postgres", "select count(*) from pg_stat_activity where query like '%replica_%' and pid <> pg_backend_pid()") == "0"
	}, time.Minute, time.Millisecond)
	return r.read(t) - before
}

// read returns how many blocks connections have read that are closed.
func (r *reader) read(t *testing.T) (n int) {
	t.Helper()
	_, err := fmt.Sscan(r.s.SQL("postgres", "select sum(heap_blks_hit + idx_blks_hit + heap_blks_read + idx_blks_read) from pg_statio_user_tables"), &n)
	require.NoError(t, err)
	return n
}

// calls makes every kind of call but a campaign and a full View of a leader, which count all
// orders and tasks.
func (r *reader) calls(t *testing.T, rounds int) {
	since := func(m *member, follow bool) {
		v, err := m.table.Read(t.Context(), replica.Query{Self: m.self.ID, Server: m.last.Server, Since: m.last.Revision, Beats: follow, Follow: follow})
		require.NoError(t, err)
		m.last = v
	}
	follow := func(u *replica.Update) { u.Since = r.a.last.Revision }
	write := func(b *replica.Batch) {
		r.a.batch++
		b.Epoch, b.Version = r.a.last.Epoch, r.a.batch
		r.a.sync(t, func(u *replica.Update) { u.Batch = b; follow(u) })
	}
	for i := range rounds {
		since(r.b, false)
		r.b.sync(t, func(u *replica.Update) {
			u.Since, u.Follow, u.Beats, u.Report = r.b.last.Revision, false, false, &replica.Report{Applied: uint64(i)}
		})
		since(r.a, true)
		r.a.sync(t, follow)
		r.a.self.Draining = !r.a.self.Draining
		r.a.sync(t, func(u *replica.Update) {
			follow(u)
			u.Asks, u.Left = []replica.Ask{{Verb: "restart", Target: "t"}, {Verb: "drain", Target: "t"}, {Verb: "undrain", Target: "t"}}, []uint64{uint64(1000 + i)}
		})
		write(&replica.Batch{Orders: orders(2, 5), Tasks: []replica.Task{{Name: "t"}}, Evict: map[uint64]uint64{uint64(2000 + i): 0, 2: 1}})
		since(r.b, false)
		write(&replica.Batch{Dropped: orders(2, 5), Deleted: []string{"t"}, Restarted: []string{"t"}})
		since(r.b, false)
	}
}

// Plans are made while the tables are empty. They must be right when the tables are full.
func TestCalls_ReadByKey(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	r := newReader(t)
	const rounds = 10
	empty := r.blocks(t, func() { r.calls(t, rounds) })
	filled := 0
	r.blocks(t, func() {
		r.calls(t, rounds)
		var fill strings.Builder
		for _, rows := range []string{
			"tables select 'other' || i, 1, '', false, false, 0, 0, 0, 0, 0, 1, 0, 0, '{}', ''", "members select 'other', i, 1, '{}'", "beats select 'other', i, 1, 1",
			"reports select 'other', i, 1, '{}'", "orders select 'other', i, 't', 1, false, '{}'", "tasks select 'other', i, '{}'",
			"beats select 'pollers', i + 5000, 1, 1", "reports select 'pollers', i + 5000, 1, '{}'",
			"orders select 'pollers', 2, 'u' || i, 0, false, '{}'", "tasks select 'pollers', 'u' || i, '{}'",
		} {
			fmt.Fprintf(&fill, "insert into replica_%s, pg_current_xact_id() from generate_series(1, 20000) i; ", rows)
		}
		fill.WriteString(`insert into replica_counts select 'other', i, 1, 1, 1 from generate_series(1, 20000) i;
			insert into replica_removed select 'other', i, 1, now() from generate_series(1, 20000) i`)
		r.s.SQL("postgres", fill.String())
		filled = r.read(t)
		r.calls(t, rounds)
	})
	full := r.read(t) - filled
	t.Log("blocks read by calls", "empty", empty, "empty and full", full)
	require.Less(t, full, 4*empty)
}

// A transaction that is open for long keeps all versions of all rows. Calls do not read them.
func TestCalls_BesideALongTransaction(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	r := newReader(t)
	beats := func(n int) func() {
		return func() {
			for i := range n {
				r.b.sync(t, func(u *replica.Update) {
					if u.Since, u.Follow = r.b.last.Revision, false; i%5 == 0 {
						u.Report = &replica.Report{Applied: uint64(i)}
					}
				})
				r.a.sync(t, func(u *replica.Update) { u.Since = r.a.last.Revision })
			}
		}
	}
	long, err := pgx.Connect(t.Context(), r.url)
	require.NoError(t, err)
	defer long.Close(t.Context())
	_, err = long.Exec(t.Context(), "begin isolation level repeatable read; select pg_current_xact_id()")
	require.NoError(t, err)
	first := r.blocks(t, beats(100))
	r.blocks(t, beats(1000))
	last := r.blocks(t, beats(100))
	t.Log("blocks read by 200 Syncs", "first", first, "later", last)
	require.Less(t, last, 2*first)
}

// PostgreSQL compiles a plan that looks expensive, and so looks each plan without another way:
// that takes longer than the call.
func TestCalls_CompileNothing(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	r := newReader(t)
	config, err := pgxpool.ParseConfig(r.url + "&jit=on&jit_above_cost=1000&client_min_messages=debug1")
	require.NoError(t, err)
	var compiled atomic.Int64
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if strings.HasPrefix(n.Message, "time to inline") {
			compiled.Add(1)
		}
	}
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(t.Context(), "select sum(i) from generate_series(1, 1000000) i")
	require.NoError(t, err)
	if compiled.Swap(0) == 0 {
		t.Skip("this server has no compiler")
	}
	r.a.table = newTable(t, db, "pollers")
	r.b.table = r.a.table
	r.calls(t, 3)
	r.a.sync(t, func(u *replica.Update) { u.Campaign = u.Epoch + 1<<33 })
	require.Zero(t, compiled.Load())
}

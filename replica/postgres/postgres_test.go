package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/backendtest"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

var (
	_ replica.Backend = (*postgres.Table)(nil)
	_ replica.Waiter  = (*postgres.Table)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	for name, urlFor := range map[string]func(t *testing.T) string{
		"Direct":    func(*testing.T) string { return s.URL(pgtest.User, "postgres") },
		"PgBouncer": func(t *testing.T) string { return s.Bouncer(t).URL(pgtest.User, "postgres") },
	} {
		t.Run(name, func(t *testing.T) {
			url := urlFor(t)
			backendtest.Run(t, func(t *testing.T) backendtest.Store { return store(t, pool(t, url), "") })
		})
	}
}

// allTables has the names of all tables.
const allTables = "replica_tables, replica_members, replica_beats, replica_reports, replica_orders, replica_counts, replica_tasks, replica_removed"

// store returns a new table for the kit.
func store(t *testing.T, db *pgxpool.Pool, schema string) backendtest.Store {
	name := unique("table")
	exec := func(statement string, args ...any) {
		_, err := db.Exec(t.Context(), statement, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
		require.NoError(t, err)
	}
	exec(schema)
	return backendtest.Store{
		Open:     func() replica.Backend { return newTable(t, db, name) },
		Recreate: func() { exec("drop table " + allTables + "; " + schema) },
		Drop:     func(id uint64) { exec("delete from replica_orders where member = $1", int64(id)) },
	}
}

var names atomic.Int64

// unique returns a name that no other test has.
func unique(prefix string) string { return fmt.Sprint(prefix, names.Add(1)) }

// database returns a new database.
func database(t *testing.T, s *pgtest.Server) string {
	t.Helper()
	name := unique("db")
	s.SQL("postgres", "create database "+name)
	return name
}

// pool returns a pool of connections.
func pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// newTable returns a client of a table, which is closed at the end of the test.
func newTable(t *testing.T, db *pgxpool.Pool, name string, opts ...postgres.Option) *postgres.Table {
	table := postgres.New(db, name, opts...)
	t.Cleanup(func() { _ = table.Close() })
	return table
}

// member is a member of a table, and its client.
type member struct {
	table *postgres.Table
	self  replica.Member
	last  replica.View
	batch uint64 // version of its last batch
}

func newMember(table *postgres.Table, id uint64) *member {
	return &member{table: table, self: replica.Member{
		ID: id, Lease: 15 * time.Second, Name: fmt.Sprint("replica ", id), Attributes: map[string]string{"version": "1.2.3"}, Answered: true,
	}}
}

// try Syncs once, after a first Read. change may change the update.
func (m *member) try(ctx context.Context, change func(*replica.Update)) (replica.View, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if m.self.Heartbeat == 0 {
		v, err := m.table.Read(ctx, replica.Query{Self: m.self.ID})
		if err != nil {
			return v, err
		}
		m.last = v
	}
	m.self.Heartbeat++
	u := replica.Update{Query: m.query(), Member: m.self, Epoch: m.last.Epoch}
	if change != nil {
		change(&u)
	}
	v, err := m.table.Sync(ctx, u)
	if err == nil {
		m.last = v
	}
	return v, err
}

func (m *member) query() replica.Query {
	return replica.Query{Self: m.self.ID, Server: m.last.Server, Beats: true, Follow: true}
}

// sync is try, and fails the test after an error.
func (m *member) sync(t *testing.T, change func(*replica.Update)) replica.View {
	t.Helper()
	v, err := m.try(t.Context(), change)
	require.NoError(t, err)
	return v
}

// lead confirms the table and is elected.
func (m *member) lead(t *testing.T) {
	t.Helper()
	m.sync(t, nil)
	next := max(m.last.Epoch, m.last.Seen) + 1<<32
	m.sync(t, func(u *replica.Update) { u.Confirm = true })
	m.sync(t, func(u *replica.Update) { u.Campaign = next })
	require.Equal(t, m.self.ID, m.last.Leader)
	m.batch = next
}

// write writes a batch.
func (m *member) write(t *testing.T, b *replica.Batch) replica.View {
	t.Helper()
	m.batch++
	b.Epoch, b.Version = m.last.Epoch, m.batch
	for i := range b.Orders {
		b.Orders[i].Version = b.Version
	}
	return m.sync(t, func(u *replica.Update) { u.Batch = b })
}

// orders returns orders to run n tasks on a member.
func orders(member uint64, n int) []replica.Order {
	all := make([]replica.Order, n)
	for i := range all {
		all[i] = replica.Order{Member: member, Task: fmt.Sprintf("t%05d", i)}
	}
	return all
}

package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
	"github.com/f8949c05/orchestrator/replica/replicatest"
)

func TestConformance(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	for name, urlFor := range map[string]func(t *testing.T) string{
		"Direct":    func(*testing.T) string { return s.URL(pgtest.User, "postgres") },
		"PgBouncer": func(t *testing.T) string { return s.Bouncer(t).URL(pgtest.User, "postgres") },
	} {
		t.Run(name, func(t *testing.T) {
			url := urlFor(t)
			replicatest.Run(t, func(t *testing.T) replicatest.Store {
				name, db := unique("table"), pool(t, url)
				return replicatest.Store{
					Open:     func() replica.Backend { return postgres.New(db, name) },
					Recreate: func() { s.SQL("postgres", "drop table orchestrator_tables, orchestrator_members") },
				}
			})
		})
	}
}

var names atomic.Int64

// unique returns a name that no other test has.
func unique(prefix string) string { return fmt.Sprint(prefix, names.Add(1)) }

// database returns the name of a new database.
func database(t *testing.T, s *pgtest.Server) string {
	t.Helper()
	name := unique("db")
	s.SQL("postgres", "create database "+name)
	return name
}

// pool returns a pool of connections.
func pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = 10
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// member is a member of a table.
type member struct {
	table *postgres.Table
	self  replica.Member
	last  replica.View
}

func newMember(table *postgres.Table, id uint64) *member {
	return &member{table: table, self: replica.Member{
		ID: id, Lease: 15 * time.Second, Name: fmt.Sprint("replica ", id), Address: "192.0.2.1:7000",
		Attributes: map[string]string{"version": "1.2.3", "node": "ip-10-0-0-1.eu-central-1.compute.internal"},
	}}
}

// try Syncs once. change may change the update.
func (m *member) try(ctx context.Context, change func(*replica.Update)) (replica.View, error) {
	m.self.Heartbeat++
	u := replica.Update{Self: m.self, Epoch: m.last.Epoch}
	if change != nil {
		change(&u)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	v, err := m.table.Sync(ctx, u)
	if err == nil {
		m.last = v
	}
	return v, err
}

// sync is try, and fails the test after an error.
func (m *member) sync(t *testing.T, change func(*replica.Update)) replica.View {
	t.Helper()
	v, err := m.try(t.Context(), change)
	require.NoError(t, err)
	return v
}

package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
	"github.com/f8949c05/orchestrator/replica/replicatest"
)

func TestConformance(t *testing.T) {
	s := pgtest.Start(t)
	for name, url := range map[string]string{
		"Direct":    s.URL(pgtest.User, "postgres"),
		"PgBouncer": s.Bouncer().URL(pgtest.User, "postgres"),
	} {
		t.Run(name, func(t *testing.T) { conform(t, s, url) })
	}
}

var tables atomic.Int64

func conform(t *testing.T, s *pgtest.Server, url string) {
	replicatest.Run(t, func(t *testing.T) replicatest.Store {
		name := fmt.Sprint("table ", tables.Add(1))
		db := pool(t, url)
		return replicatest.Store{
			Open: func() replica.Backend { return postgres.New(db, name) },
			Recreate: func() {
				s.SQL("postgres", "drop table orchestrator_tables, orchestrator_members")
			},
		}
	})
}

// pool returns a pool of connections.
func pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(context.Background(), url)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

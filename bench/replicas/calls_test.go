//go:build peers

package replicas_test

// Single calls of the backend.

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/f8949c05/orchestrator/bench/replicas"
	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

// callsConfig selects what is measured about single calls.
type callsConfig struct {
	alone   int           // calls of one caller
	members int           // that call at the same time
	rounds  int           // in which they do
	during  time.Duration // of such a round
}

// measureCalls compares Syncs with updates of one row, each in turn and in its own
// transaction. The update is the least that a store of heartbeats could do.
func measureCalls(t *testing.T, s *pgtest.Server, cfg callsConfig) replicas.Calls {
	var c replicas.Calls
	s.SQL(database, "create table plain (n bigint); insert into plain values (0)")
	for _, members := range []int{1, 10, 100, 200} {
		t.Run(fmt.Sprintf("Alone%d", members), func(t *testing.T) {
			c.Alone = append(c.Alone, alone(t, s, members, cfg.alone))
		})
	}
	t.Run("Together", func(t *testing.T) {
		c.Together = append(c.Together,
			together(t, "directly", s.URL(pgtest.User, database), cfg),
			together(t, "through PgBouncer", s.Bouncer(t).URL(pgtest.User, database), cfg))
	})
	return c
}

// member is a replica without tasks, and its record as a replica has it.
type member struct {
	pool  *pgxpool.Pool
	table *postgres.Table
	self  replica.Member
}

// newMembers returns members that are in the table.
func newMembers(t *testing.T, pools func() *pgxpool.Pool, name string, n int) []*member {
	t.Helper()
	members := make([]*member, n)
	for i := range members {
		pool := pools()
		members[i] = &member{pool, postgres.New(pool, name), replica.Member{
			ID: uint64(i+1) << 40, Epoch: 1 << 50, Lease: 15 * time.Second, Name: fmt.Sprintf("pollers-7f9c5d8b6-%05d", i),
			Address: fmt.Sprintf("10.0.%d.%d:40123", i/250, i%250), Attributes: map[string]string{"version": "v1.24.3"},
		}}
		require.NoError(t, members[i].sync(t.Context()))
	}
	return members
}

// newPool returns a pool with one connection.
func newPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func (m *member) sync(ctx context.Context) error {
	m.self.Heartbeat++
	_, err := m.table.Sync(ctx, replica.Update{Self: m.self})
	return err
}

// plain updates one row, and commits.
func (m *member) plain(ctx context.Context) error {
	_, err := m.pool.Exec(ctx, "update plain set n = n + 1", pgx.QueryExecModeSimpleProtocol)
	return err
}

func alone(t *testing.T, s *pgtest.Server, members, calls int) replicas.Call {
	pool := newPool(t, s.URL(pgtest.User, database))
	all := newMembers(t, func() *pgxpool.Pool { return pool }, t.Name(), members)
	c := replicas.Call{Members: members}
	timed := func(f func(context.Context) error) time.Duration {
		began := time.Now()
		require.NoError(t, f(t.Context()))
		return time.Since(began)
	}
	for i := range calls {
		m := all[i%members]
		c.Sync = append(c.Sync, timed(m.sync))
		c.Plain = append(c.Plain, timed(m.plain))
	}
	return c
}

// together makes all members call as fast as they can, each on a connection of its own.
func together(t *testing.T, name, url string, cfg callsConfig) replicas.Throughput {
	all := newMembers(t, func() *pgxpool.Pool { return newPool(t, url) }, t.Name()+name, cfg.members)
	c := replicas.Throughput{Name: name, Members: cfg.members}
	count := func(f func(*member, context.Context) error) float64 {
		var calling errgroup.Group
		calls := make([]int, len(all))
		began := time.Now()
		for i, m := range all {
			calling.Go(func() error {
				for time.Since(began) < cfg.during {
					if err := f(m, t.Context()); err != nil {
						return err
					}
					calls[i]++
				}
				return nil
			})
		}
		require.NoError(t, calling.Wait())
		took, sum := time.Since(began), 0
		for _, n := range calls {
			sum += n
		}
		return float64(sum) / took.Seconds()
	}
	for range cfg.rounds {
		c.Sync = append(c.Sync, count((*member).sync))
		c.Plain = append(c.Plain, count((*member).plain))
	}
	for _, m := range all {
		m.pool.Close()
	}
	return c
}

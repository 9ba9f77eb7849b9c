//go:build peers

package replicas_test

// Single calls of the backends: the first ones of new connections at the same time, and while a
// transaction stays open.

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/replica"
	former "github.com/f8949c05/orchestrator/replica/postgres"
	"github.com/f8949c05/orchestrator/wire"
	"github.com/f8949c05/orchestrator/wire/postgres"
)

// calls measures outages and single calls.
func calls(t *testing.T, s *pgtest.Server, r *results, cfg config) {
	of := r.table("the server was away for longer than a lease, ms from its return")
	for round := range cfg.loads {
		inTurns(t, "outage", round, func(t *testing.T, system string) {
			c := newCluster(t, s, settings{System: system, URL: s.URL(pgtest.User, database), Listen: true, Table: t.Name(), Replicas: cfg.callers, Lease: cfg.lease, Stop: cfg.stop}, 100*cfg.callers)
			c.add(1)
			c.awaitEven()
			s.Crash()
			c.Wait("all tasks have stopped", patience, func() bool { return len(c.Look()) == 0 })
			c.Pass(cfg.lease / 2)
			s.Start()
			from := proctest.Now()
			to := c.awaitAll()
			of.add(fmt.Sprintf("until the first of %d replicas runs a task", cfg.callers), system, ms(c.First(proctest.Started, from).At-from))
			of.add("until all tasks run", system, ms(to-from))
			c.noOverlaps()
			c.end(c.replicas...)
		})
	}
	of = r.table("single calls, ms")
	for round := range cfg.loads {
		inTurns(t, "fresh", round, func(t *testing.T, system string) {
			var all errgroup.Group
			took := make([]float64, cfg.callers)
			for i := range took {
				sync := caller(t, s, system, t.Name(), i)
				all.Go(func() (err error) {
					took[i], err = sync(t.Context())
					return err
				})
			}
			require.NoError(t, all.Wait())
			of.add(fmt.Sprintf("the first Sync of %d new connections at once", cfg.callers), system, took...)
		})
	}
	inTurns(t, "open", 0, func(t *testing.T, system string) {
		sync := caller(t, s, system, t.Name(), 0)
		conn, err := pgx.Connect(t.Context(), s.URL(pgtest.User, database))
		require.NoError(t, err)
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		_, err = conn.Exec(t.Context(), "begin isolation level repeatable read; select pg_current_xact_id()", pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		for i := range cfg.calls {
			took, err := sync(t.Context())
			require.NoError(t, err)
			switch part := cfg.calls / 10; {
			case i < part:
				of.add("Syncs beside an open transaction: the first tenth", system, took)
			case i >= cfg.calls-part:
				of.add(fmt.Sprintf("the last tenth of %d", cfg.calls), system, took)
			}
		}
	})
}

// caller returns a function that makes a Sync over a connection of its own and returns how many ms
// it took. One of package wire leads from the second Sync on, and writes an order in each.
func caller(t *testing.T, s *pgtest.Server, system, name string, i int) func(context.Context) (float64, error) {
	pool, err := newPool(t.Context(), s.URL(pgtest.User, database))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	sync := theirSync(former.New(pool, name), i)
	if system == ours {
		table := postgres.New(pool, name)
		t.Cleanup(func() { _ = table.Close() })
		sync = ourSync(table, i)
	}
	return func(ctx context.Context) (float64, error) {
		from := time.Now()
		err := sync(ctx)
		return ms(int64(time.Since(from))), err
	}
}

func theirSync(table *former.Table, i int) func(context.Context) error {
	u := replica.Update{Self: replica.Member{ID: uint64(i+1) << 40, Epoch: 1 << 50, Lease: 15 * time.Second, Name: fmt.Sprint("r", i), Address: "10.0.0.1:40123"}}
	return func(ctx context.Context) error {
		u.Self.Heartbeat++
		_, err := table.Sync(ctx, u)
		return err
	}
}

func ourSync(table *postgres.Table, i int) func(context.Context) error {
	u := wire.Update{Member: wire.Member{ID: uint64(i+1) << 40, Lease: 15 * time.Second, Name: fmt.Sprint("r", i)}}
	u.Self = u.Member.ID
	return func(ctx context.Context) error {
		if u.Server == "" {
			v, err := table.Read(ctx, u.Query)
			if err != nil {
				return err
			}
			u.Server = v.Server
		}
		u.Member.Heartbeat++
		v, err := table.Sync(ctx, u)
		switch {
		case err != nil:
			return err
		case u.Batch != nil:
			u.Batch.Version++
		case v.Leader == u.Self:
			u.Batch = &wire.Batch{Epoch: v.Epoch, Version: v.Epoch + 1}
		default:
			u.Campaign, u.Confirm = 1<<60, true
		}
		if u.Batch != nil {
			u.Batch.Orders = []wire.Order{{Member: u.Self, Task: taskName(int(u.Member.Heartbeat) % 100), Version: u.Batch.Version}}
		}
		u.Server, u.Since, u.Epoch = v.Server, v.Revision, v.Epoch
		return nil
	}
}

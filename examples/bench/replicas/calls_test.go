//go:build peers

package replicas_test

// Single calls of the backends: the first ones of new connections at the same time, and while a
// transaction stays open.

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/replica"
)

// calls measures outages and single calls.
func calls(t *testing.T, all []way, r *results, cfg config) {
	outage := r.table(fmt.Sprintf("the server was away for longer than a lease, %d replicas", cfg.callers), fmt.Sprintf("ms from its return, rounds: %d", cfg.loads))
	of := r.table("single calls", "ms")
	for _, w := range usual(all) {
		if w.store == onMemory { // which forgets everything
			continue
		}
		for range cfg.loads {
			t.Run("outage", func(t *testing.T) { away(t, w, outage, cfg) })
			t.Run("fresh", func(t *testing.T) {
				var all errgroup.Group
				took := make([]float64, cfg.callers)
				for i := range took {
					sync := caller(t, w, i)
					all.Go(func() (err error) {
						took[i], err = sync(t.Context())
						return err
					})
				}
				require.NoError(t, all.Wait())
				of.add(w.column, fmt.Sprintf("the first Sync of %d new connections at once", cfg.callers), took...)
			})
		}
		if w.store == onPostgres {
			besideATransaction(t, w, of, cfg)
		}
	}
}

// away measures an outage.
func away(t *testing.T, w way, of *table, cfg config) {
	c := newCluster(t, w, settings{Replicas: cfg.callers, Lease: cfg.lease, Stop: cfg.stop}, 100*cfg.callers)
	c.add(1)
	c.awaitEven()
	w.Crash()
	c.Wait("all tasks have stopped", patience, func() bool { return len(c.Look()) == 0 })
	c.Pass(cfg.lease / 2)
	w.Start()
	from := proctest.Now()
	to := c.awaitAll()
	of.add(w.column, "until the first task runs", ms(c.First(proctest.Started, from).At-from))
	of.add(w.column, "until all tasks run", ms(to-from))
	c.noOverlaps()
	c.end(c.replicas...)
}

// besideATransaction measures Syncs while a transaction stays open.
func besideATransaction(t *testing.T, w way, of *table, cfg config) {
	t.Run("open", func(t *testing.T) {
		sync := caller(t, w, 0)
		conn, err := pgx.Connect(t.Context(), w.url)
		require.NoError(t, err)
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		_, err = conn.Exec(t.Context(), "begin isolation level repeatable read; select pg_current_xact_id()", pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		for i := range cfg.calls {
			took, err := sync(t.Context())
			require.NoError(t, err)
			switch part := cfg.calls / 10; {
			case i < part:
				of.add(w.column, "Syncs beside an open transaction: the first tenth", took)
			case i >= cfg.calls-part:
				of.add(w.column, fmt.Sprintf("the last tenth of %d", cfg.calls), took)
			}
		}
	})
}

// caller returns a function that makes a Sync over a connection of its own and returns how many ms
// it took. From the second Sync on it leads, and writes an order in each.
func caller(t *testing.T, w way, i int) func(context.Context) (float64, error) {
	table, err := open(t.Context(), w.store, w.url, strings.ReplaceAll(t.Name(), "/", "."))
	require.NoError(t, err)
	t.Cleanup(func() { _ = table.Close() })
	u := replica.Update{Member: replica.Member{ID: uint64(i+1) << 40, Lease: 15 * time.Second, Name: fmt.Sprint("r", i)}}
	u.Self = u.Member.ID
	return func(ctx context.Context) (float64, error) {
		from := time.Now()
		if u.Server == "" {
			v, err := table.Read(ctx, u.Query)
			if err != nil {
				return 0, err
			}
			u.Server = v.Server
		}
		u.Member.Heartbeat++
		v, err := table.Sync(ctx, u)
		switch {
		case err != nil:
			return 0, err
		case u.Batch != nil:
			u.Batch.Version++
		case v.Leader == u.Self:
			u.Campaign, u.Confirm = 0, false // a campaign counts all orders
			u.Batch = &replica.Batch{Epoch: v.Epoch, Version: v.Epoch + 1}
		default:
			u.Campaign, u.Confirm = 1<<60, true
		}
		if u.Batch != nil {
			u.Batch.Orders = []replica.Order{{Member: u.Self, Task: taskName(int(u.Member.Heartbeat) % 100), Version: u.Batch.Version}}
		}
		u.Server, u.Since, u.Epoch = v.Server, v.Revision, v.Epoch
		return ms(int64(time.Since(from))), nil
	}
}

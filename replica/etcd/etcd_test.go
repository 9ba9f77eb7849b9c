package etcd_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/backendtest"
	"github.com/f8949c05/orchestrator/replica/etcd"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

var (
	_ replica.Backend = (*etcd.Table)(nil)
	_ replica.Waiter  = (*etcd.Table)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel() // it has its own server
	s := startServer(t, embed.Config{})
	backendtest.Run(t, func(t *testing.T) backendtest.Store { return store(t, s, clientOf(t, s)) })
}

// The user of the table may read and write below its prefix only.
func TestConformance_WithAuthentication(t *testing.T) {
	t.Parallel() // it has its own server
	s := startServer(t, embed.Config{BcryptCost: 4})
	root := clientOf(t, s)
	secure(t, root, "pollers", "secret", "/")
	root = clientOf(t, s, "root", "root")
	backendtest.Run(t, func(t *testing.T) backendtest.Store { return store(t, s, root, "pollers", "secret") })
}

// secure enables authentication, for root and for a user who may read and write below a prefix.
func secure(t *testing.T, root *clientv3.Client, user, password, prefix string) {
	t.Helper()
	ctx := t.Context()
	for _, do := range []func() error{
		func() error { _, err := root.RoleAdd(ctx, "root"); return err },
		func() error { _, err := root.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.RoleAdd(ctx, user); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserAdd(ctx, user, password); return err },
		func() error { _, err := root.UserGrantRole(ctx, user, user); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		require.NoError(t, do())
	}
}

// startServer starts a server with short ticks, by which it serves within some 20 ms, and
// without fsync.
func startServer(t testing.TB, cfg embed.Config) *embed.Server {
	t.Helper()
	cfg.NoFsync = true
	if cfg.Tick == 0 {
		cfg.Tick = 2 * time.Millisecond
	}
	s, err := embed.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// clientOf returns a client of a server; as is a user and a password.
func clientOf(t testing.TB, s *embed.Server, as ...string) *clientv3.Client {
	t.Helper()
	cfg := clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()}
	if len(as) > 0 {
		cfg.Username, cfg.Password = as[0], as[1]
	}
	return dial(t, cfg)
}

func dial(t testing.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// store returns a new table for the kit. root may do everything.
func store(t *testing.T, s *embed.Server, root *clientv3.Client, as ...string) backendtest.Store {
	prefix := unique()
	del := func(key string, opts ...clientv3.OpOption) {
		resp, err := root.Delete(t.Context(), key, opts...)
		require.NoError(t, err)
		require.NotZero(t, resp.Deleted)
	}
	return backendtest.Store{
		Open: func() replica.Backend {
			return etcd.New(clientOf(t, s, as...), prefix, etcd.WithLogger(slog.New(slog.DiscardHandler)))
		},
		Recreate: func() { del(prefix, clientv3.WithPrefix()) },
		Drop:     func(id uint64) { del(fmt.Sprint(prefix, "orders/", id)) },
	}
}

var prefixes atomic.Int64

// unique returns a prefix that no other test has.
func unique() string { return fmt.Sprintf("/t%d/", prefixes.Add(1)) }

// member is a replica as its table sees it.
type member struct {
	table *etcd.Table
	self  replica.Member
	last  replica.View
	batch uint64 // version of the last one
}

func newMember(table *etcd.Table, id uint64) *member {
	return &member{table: table, self: replica.Member{ID: id, Lease: 15 * time.Second, Name: fmt.Sprint("r", id)}}
}

// try Syncs once. change may change the update.
func (m *member) try(ctx context.Context, change func(*replica.Update)) (replica.View, error) {
	if m.last.Server == "" {
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
func (m *member) sync(t testing.TB, change func(*replica.Update)) replica.View {
	t.Helper()
	v, err := m.try(t.Context(), change)
	require.NoError(t, err)
	return v
}

// lead confirms the table and is elected.
func (m *member) lead(t testing.TB) {
	t.Helper()
	m.sync(t, nil)
	next := max(m.last.Epoch, m.last.Seen) + 1<<32
	m.sync(t, func(u *replica.Update) { u.Confirm = true })
	m.sync(t, func(u *replica.Update) { u.Campaign = next })
	require.Equal(t, m.self.ID, m.last.Leader)
	m.batch = next
}

// write writes a batch.
func (m *member) write(t testing.TB, b *replica.Batch) replica.View {
	t.Helper()
	v, err := m.tryWrite(t, b)
	require.NoError(t, err)
	return v
}

func (m *member) tryWrite(t testing.TB, b *replica.Batch) (replica.View, error) {
	t.Helper()
	m.batch++
	b.Epoch, b.Version = m.last.Epoch, m.batch
	for i := range b.Orders {
		b.Orders[i].Version = b.Version
	}
	return m.try(t.Context(), func(u *replica.Update) { u.Batch = b })
}

// restarting is a server that can be stopped and started on the same address.
type restarting struct {
	t      *testing.T
	cfg    embed.Config
	server *embed.Server
}

func newRestarting(t *testing.T, cfg embed.Config) *restarting {
	t.Helper()
	r := &restarting{t: t, cfg: cfg}
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *restarting) stop() {
	if r.server != nil {
		require.NoError(r.t, r.server.Close())
		r.server = nil
	}
}

// save copies the data, and restore puts the copy back.
func (r *restarting) save() {
	r.t.Helper()
	r.stop()
	require.NoError(r.t, os.CopyFS(r.cfg.Dir+".copy", os.DirFS(r.cfg.Dir)))
	r.start()
}

func (r *restarting) restore() {
	r.t.Helper()
	r.stop()
	require.NoError(r.t, os.RemoveAll(r.cfg.Dir))
	require.NoError(r.t, os.Rename(r.cfg.Dir+".copy", r.cfg.Dir))
	r.start()
}

func (r *restarting) start() {
	r.t.Helper()
	r.cfg.NoFsync, r.cfg.Tick = true, 2*time.Millisecond
	s, err := embed.Start(context.WithoutCancel(r.t.Context()), r.cfg)
	require.NoError(r.t, err)
	r.server = s
	r.cfg.Listen = strings.TrimPrefix(s.Endpoint(), "http://")
}

package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A leaving member keeps its lease for a task that stops slowly. If the lease is
// lost anyway, the usual margin applies to the task.
func TestW5_ALeaseThatIsGoneWhileLeaving(t *testing.T) {
	s := newStage(t)
	s.twice = true // the last resort of this test does not exit
	release, resort := make(chan struct{}), make(chan struct{})
	h := s.hireTo(s.client, "a", 60*time.Second, func(ctx context.Context, _ string) error {
		<-ctx.Done()
		<-release
		return context.Cause(ctx)
	}, worker.WithLease(60*time.Second, time.Second), worker.WithLastResort(func([]string) { close(resort) }))
	w := h.joined()
	l := s.elect(s.client, "l1", 5*time.Second)
	require.NoError(t, l.add(1, w, "t"))
	h.cancel(errOver)
	s.eventually("t is stopping", func() bool {
		status := h.worker.Status()
		return len(status) == 1 && status[0].State == worker.Stopping
	})
	key, err := s.client.Get(t.Context(), "/work/members/a")
	require.NoError(t, err)
	_, err = s.client.Revoke(t.Context(), clientv3.LeaseID(key.Kvs[0].Lease))
	require.NoError(t, err)
	receive(t, resort)
	close(release)
}

// A dead worker's name is taken until its lease expires, and for the full length
// again after a restart of etcd.
func TestE4_ANameIsWaitedForThroughARestartOfEtcd(t *testing.T) {
	dir := t.TempDir()
	first := startServer(t, embed.Config{Dir: dir})
	c := newClient(t, clientConfig(first.Endpoint()))
	_, err := newRegistry(t, c).Create(t.Context(), etcd.Item{Name: "t"})
	require.NoError(t, err)
	dead, err := c.Grant(t.Context(), 4)
	require.NoError(t, err)
	_, err = c.Put(t.Context(), "/work/members/w", "{}", clientv3.WithLease(dead.ID))
	require.NoError(t, err)

	w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil },
		worker.WithLease(2*time.Second, 100*time.Millisecond))
	require.NoError(t, err)
	m, err := etcd.NewMember(c, "w", w)
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	<-time.After(3500 * time.Millisecond)
	require.NoError(t, first.Close())
	second := startServer(t, embed.Config{Dir: dir, Listen: hostPort(first)})
	other := newClient(t, clientConfig(second.Endpoint()))
	require.Eventually(t, func() bool {
		got, err := other.Get(t.Context(), "/work/members/w")
		return err == nil && len(got.Kvs) == 1 && clientv3.LeaseID(got.Kvs[0].Lease) != dead.ID
	}, soon, 20*time.Millisecond)
	require.Empty(t, done)
	stop(errOver)
	require.ErrorIs(t, <-done, errOver)
}

package etcd_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/worker"
)

func TestE2_OneLeads(t *testing.T) {
	c := startEtcd(t)
	e, err := etcd.NewElection(c, "watcher")
	require.NoError(t, err)
	_, err = e.Leader(t.Context())
	require.ErrorIs(t, err, etcd.ErrNoLeader)

	a := stand(t, c, "a")
	first := a.elected()
	b := stand(t, c, "b")
	twoCandidates(t, c)
	select {
	case <-b.leads:
		require.FailNow(t, "two leaders")
	case <-time.After(50 * time.Millisecond): // an election takes about 1 ms
	}
	leader, err := e.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, etcd.Leader{Name: "a", Epoch: first.Epoch()}, leader)

	a.stop(errEnough)
	require.ErrorIs(t, receive(t, a.result), errEnough)
	over := receive(t, a.over)
	require.ErrorIs(t, over.cause, errEnough)
	second := b.elected()
	require.True(t, b.since.After(over.at), "two leaders at the same time")
	require.Greater(t, second.Epoch(), first.Epoch())
	leader, err = e.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, etcd.Leader{Name: "b", Epoch: second.Epoch()}, leader)
}

func TestE2_ResigningHandsOverAtOnce(t *testing.T) {
	s := startServer(t, embed.Config{})
	one := stand(t, newClient(t, clientConfig(s.Endpoint())), "one", etcd.WithLeaseDuration(time.Minute))
	one.elected()
	other := stand(t, newClient(t, clientConfig(s.Endpoint())), "other", etcd.WithLeaseDuration(time.Minute))
	watched := newClient(t, clientConfig(s.Endpoint()))
	waited := proctest.MeasureWaiting(t)
	var took []time.Duration
	for range 7 {
		twoCandidates(t, watched)
		began, before := time.Now(), waited()
		one.resign <- orchestrator.ErrDeposed // resigns and campaigns again
		other.elected()
		took = append(took, time.Since(began)-(waited()-before))
		one, other = other, one
	}
	slices.Sort(took)
	t.Logf("handing over: median %v, at most %v", took[3], took[6])
	require.Less(t, took[3], time.Second, "the lease is a minute")
}

// twoCandidates waits until there are two candidates.
func twoCandidates(t *testing.T, c *clientv3.Client) {
	t.Helper()
	ctx := within(t, soon)
	changes := c.Watch(ctx, "/work/leader/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	for range changes {
		resp, err := c.Get(ctx, "/work/leader/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		if resp.Count == 2 {
			return
		}
	}
	require.FailNow(t, "too few candidates")
}

func TestE2_RunReturnsWhatLeadReturns(t *testing.T) {
	c := startEtcd(t)
	for _, want := range []error{nil, errEnough} {
		k := stand(t, c, "a")
		k.elected()
		k.resign <- want
		require.Equal(t, want, receive(t, k.result))
		resp, err := c.Get(t.Context(), "/work/leader/", clientv3.WithPrefix())
		require.NoError(t, err)
		require.Empty(t, resp.Kvs, "the key must be deleted")
		leases, err := c.Leases(t.Context())
		require.NoError(t, err)
		require.Empty(t, leases.Leases, "the lease must be revoked")
	}
}

func TestE2_WhatRunsBesideEndsWithTheLeadership(t *testing.T) {
	c := startEtcd(t)
	k := stand(t, c, "a")
	l := k.elected()
	beside := make(chan error, 1)
	l.Go(func(ctx context.Context) error {
		<-ctx.Done()
		beside <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	l.Go(func(context.Context) error { return nil }) // does not end the leadership
	require.Empty(t, k.over)
	l.Go(func(context.Context) error { return errEnough })
	require.ErrorIs(t, receive(t, k.over).cause, errEnough)
	require.ErrorIs(t, receive(t, beside), errEnough)
	require.ErrorIs(t, receive(t, k.result), errEnough)
	called := false
	l.Go(func(ctx context.Context) error {
		called = true
		return context.Cause(ctx)
	})
	require.True(t, called, "Go must call f with an ended context")

	k = stand(t, c, "b")
	k.elected().Go(func(context.Context) error { return fmt.Errorf("heard of another: %w", orchestrator.ErrDeposed) })
	require.ErrorIs(t, receive(t, k.over).cause, orchestrator.ErrDeposed)
	k.elected() // elected again
}

// Any goroutine of a leadership may be the first to detect another cluster. That
// deposes the leader, so that the candidate campaigns again.
func TestE2_AnyPartMayNoticeAnotherCluster(t *testing.T) {
	k := stand(t, startEtcd(t), "a")
	k.elected().Go(func(context.Context) error { return fmt.Errorf("watch: %w", mirror.ErrCluster) })
	cause := receive(t, k.over).cause
	require.ErrorIs(t, cause, orchestrator.ErrDeposed)
	require.ErrorIs(t, cause, etcd.ErrClusterChanged)
	k.elected()
}

// TestE2_CutOffLeaderStopsInTime cuts a leader off in each direction. It stops by
// its own clock, counted from the last acknowledged keepalive, before etcd can elect
// another leader.
func TestE2_CutOffLeaderStopsInTime(t *testing.T) {
	const length = 2 * time.Second
	for name, direction := range map[string]netfault.Direction{"both": netfault.Both, "to etcd": netfault.Up, "from etcd": netfault.Down} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waited := proctest.MeasureWaiting(t)
			s := startServer(t, embed.Config{})
			direct := newClient(t, clientConfig(s.Endpoint()))
			c, p := startProxy(t, s)
			leader := stand(t, c, "cut off", etcd.WithLeaseDuration(length))
			leader.elected()
			next := stand(t, direct, "next", etcd.WithLeaseDuration(length))
			twoCandidates(t, direct)

			cut, before := time.Now(), waited()
			p.Cut(direction)
			over := receive(t, leader.over)
			took := over.at.Sub(cut)
			t.Logf("stopped after %v", took)
			require.ErrorIs(t, over.cause, orchestrator.ErrDeposed)
			// The last keepalive was sent up to a sixth of the lease before the cut.
			require.Greater(t, took+min(before, length/6), length*9/10-length/6-100*time.Millisecond)
			require.Less(t, took-(waited()-before), length*9/10+200*time.Millisecond)
			l := next.elected()
			require.True(t, next.since.After(over.at), "two leaders at the same time")

			p.Heal()
			next.resign <- nil
			require.Greater(t, leader.elected().Epoch(), l.Epoch(), "it must campaign again")
		})
	}
}

func TestE2_GuardRefusesTheDeposed(t *testing.T) {
	c := startEtcd(t)
	k := stand(t, c, "a")
	l := k.elected()
	write := func() bool {
		resp, err := c.Txn(t.Context()).If(l.Guard()).Then(clientv3.OpPut("x", "y")).Commit()
		require.NoError(t, err)
		return resp.Succeeded
	}
	require.True(t, write())
	k.resign <- nil
	require.NoError(t, receive(t, k.result))
	require.False(t, write())
}

func TestE2_LostKeyOrLeaseDeposesAtOnce(t *testing.T) {
	c := startEtcd(t)
	for name, lose := range map[string]func(kvs *clientv3.GetResponse) error{
		"key": func(r *clientv3.GetResponse) error {
			_, err := c.Delete(t.Context(), string(r.Kvs[0].Key))
			return err
		},
		"lease": func(r *clientv3.GetResponse) error {
			_, err := c.Revoke(t.Context(), clientv3.LeaseID(r.Kvs[0].Lease))
			return err
		},
	} {
		k := stand(t, c, "a", etcd.WithLeaseDuration(time.Minute))
		k.elected()
		resp, err := c.Get(t.Context(), "/work/leader/", clientv3.WithPrefix())
		require.NoError(t, err)
		require.Len(t, resp.Kvs, 1)
		require.NoError(t, lose(resp), name)
		require.ErrorIs(t, receive(t, k.over).cause, orchestrator.ErrDeposed, name)
		k.elected() // again
		k.stop(errEnough)
		require.ErrorIs(t, receive(t, k.result), errEnough)
	}
}

func TestE2_AnotherClusterDeposes(t *testing.T) {
	t.Parallel() // it mostly waits for the first keepalive in the new cluster
	first := startServer(t, embed.Config{})
	c := newClient(t, clientConfig(first.Endpoint()))
	k := stand(t, c, "a", etcd.WithLeaseDuration(12*time.Second))
	k.elected()
	require.NoError(t, first.Close())
	startServer(t, embed.Config{Listen: hostPort(first)})

	over := receive(t, k.over)
	require.ErrorIs(t, over.cause, orchestrator.ErrDeposed)
	require.ErrorIs(t, over.cause, etcd.ErrClusterChanged)
	k.elected()
	resp, err := c.Get(t.Context(), "/work/format")
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1, "the prefix must be marked in the new cluster")
}

func TestE2_LeadershipOutlivesARestartOfEtcd(t *testing.T) {
	t.Parallel() // it mostly waits, under a long lease
	dir := t.TempDir()
	first := startServer(t, embed.Config{Dir: dir})
	c := newClient(t, clientConfig(first.Endpoint()))
	k := stand(t, c, "a", etcd.WithLeaseDuration(30*time.Second))
	l := k.elected()
	require.NoError(t, first.Close())
	startServer(t, embed.Config{Dir: dir, Listen: hostPort(first)})
	ctx := within(t, soon)
	resp, err := c.Txn(ctx).If(l.Guard()).Then(clientv3.OpPut("x", "y")).Commit()
	for status.Code(err) == codes.Unavailable && ctx.Err() == nil { // on the connection to the former server
		resp, err = c.Txn(ctx).If(l.Guard()).Then(clientv3.OpPut("x", "y")).Commit()
	}
	require.NoError(t, err)
	require.True(t, resp.Succeeded)
	require.Empty(t, k.over)
}

// Run returns when its context ends, even if etcd is away.
func TestE2_StopsWhileEtcdIsAway(t *testing.T) {
	t.Parallel() // it mostly waits, under a long lease
	s := startServer(t, embed.Config{})
	c, p := startProxy(t, s)
	leader := stand(t, c, "leader", etcd.WithLeaseDuration(30*time.Second))
	leader.elected()
	waiting := stand(t, c, "waiting", etcd.WithLeaseDuration(30*time.Second))
	twoCandidates(t, newClient(t, clientConfig(s.Endpoint())))
	p.Cut(netfault.Both)
	leader.stop(errEnough)
	waiting.stop(errEnough)
	require.ErrorIs(t, receive(t, leader.result), errEnough)
	require.ErrorIs(t, receive(t, waiting.result), errEnough)
}

// Tools that use etcd's own election can take part.
func TestE2_SharesItsKeysWithEtcdsOwnElection(t *testing.T) {
	c := startEtcd(t)
	ours := stand(t, c, "ours")
	l := ours.elected()

	session, err := concurrency.NewSession(c, concurrency.WithContext(t.Context()))
	require.NoError(t, err)
	theirs := concurrency.NewElection(session, "/work/leader")
	resp, err := theirs.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ours", string(resp.Kvs[0].Value))
	require.Equal(t, l.Epoch(), uint64(resp.Kvs[0].CreateRevision))

	elected := make(chan error, 1)
	go func() { elected <- theirs.Campaign(t.Context(), "theirs") }()
	twoCandidates(t, c)
	ours.resign <- orchestrator.ErrDeposed
	require.NoError(t, receive(t, elected))
	require.Empty(t, ours.leads)
	require.NoError(t, theirs.Resign(t.Context()))
	ours.elected()
	require.NoError(t, session.Close())
}

// TestE2_AnEmptyClusterBecomesOurs replaces etcd by an empty one at the same
// address. A worker, a candidate and the registry each mark the prefix again,
// whichever comes first.
func TestE2_AnEmptyClusterBecomesOurs(t *testing.T) {
	first := startServer(t, embed.Config{})
	c := newClient(t, clientConfig(first.Endpoint()))
	w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil },
		worker.WithLease(2*time.Second, 100*time.Millisecond))
	require.NoError(t, err)
	m, err := etcd.NewMember(c, "w", w)
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	registry := newRegistry(t, c)
	_, err = registry.Create(t.Context(), etcd.Item{Name: "before"})
	require.NoError(t, err)
	candidate := stand(t, c, "l")
	candidate.elected()

	require.NoError(t, first.Close())
	second := startServer(t, embed.Config{Listen: hostPort(first)})
	other := newClient(t, clientConfig(second.Endpoint()))
	require.Eventually(t, func() bool {
		got, err := other.Get(t.Context(), "/work/members/w")
		return err == nil && len(got.Kvs) == 1
	}, soon, 10*time.Millisecond)
	_, err = registry.Create(t.Context(), etcd.Item{Name: "after"})
	require.NoError(t, err)
	candidate.elected()
	got, err := other.Get(t.Context(), "/work/format")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)

	stop(errOver)
	require.ErrorIs(t, <-done, errOver)
}

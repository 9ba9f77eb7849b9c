package etcd_test

// Joining and losing a membership.

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
)

// Of two workers with one name, the second is refused once the first must be alive.
func TestE4_NameTaken(t *testing.T) {
	s := newStage(t)
	first := s.startMember(s.client, "a", 6*time.Second)
	w := first.joined()
	began := time.Now()
	second := s.startMember(s.connect(), "a", 6*time.Second)
	require.ErrorIs(t, second.result(), etcd.ErrNameTaken)
	require.Greater(t, time.Since(began), 6*time.Second)
	require.Equal(t, w, first.joined())
}

// A dead worker's name is taken until its lease expires, and for the full length
// again after a restart of etcd.
func TestE4_ANameIsWaitedForThroughARestartOfEtcd(t *testing.T) {
	t.Parallel() // it mostly waits for the dead worker's lease
	dir := t.TempDir()
	first := startServer(t, embed.Config{Dir: dir})
	c := newClient(t, clientConfig(first.Endpoint()))
	_, err := newRegistry(t, c).Create(t.Context(), etcd.Item{Name: "t"})
	require.NoError(t, err)
	dead, err := c.Grant(t.Context(), 3)
	require.NoError(t, err)
	_, err = c.Put(t.Context(), "/work/members/w", "{}", clientv3.WithLease(dead.ID))
	require.NoError(t, err)

	w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil },
		worker.WithLease(20*time.Second, 100*time.Millisecond))
	require.NoError(t, err)
	m, err := etcd.NewMember(c, "w", w)
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	// The restart extends the lease to 5.6 s and more, past the 5 s that the member
	// waits for a lease of 3 s.
	<-time.After(2600 * time.Millisecond)
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

// A worker that is cut off for longer than its lease stops everything, and rejoins
// as another incarnation.
func TestW5_CutOffForLongerThanTheLease(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.startMember(client, "a", 4*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "t"))
	s.taskLog.wait(t, "t runs", func(l *taskLog) bool { return len(l.running) == 1 })
	cable.Cut(netfault.Both)
	s.taskLog.wait(t, "t has stopped", func(l *taskLog) bool { return len(l.running) == 0 })
	require.True(t, s.there("/work/active/a/t"), "t must stop before the lease expires")
	s.eventually("the lease ends", func() bool { return !s.there("/work/members/a") })
	require.False(t, s.there("/work/active/a/t"))
	cable.Heal()
	again := a.joined()
	require.Greater(t, again.Incarnation, w.Incarnation)
	require.NoError(t, l.add(2, again, "t"))
	s.taskLog.wait(t, "t runs", func(l *taskLog) bool { return l.starts["t"] == 2 })
}

// A member whose key is deleted stops its tasks and rejoins.
func TestE4_EvictedByHand(t *testing.T) {
	s := newStage(t)
	a := s.startMember(s.client, "a", 5*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "t"))
	_, err := s.client.Delete(t.Context(), "/work/members/a")
	require.NoError(t, err)
	s.taskLog.wait(t, "t has stopped", func(l *taskLog) bool { return len(l.running) == 0 })
	require.NotEqual(t, w, a.joined())
	require.False(t, s.there("/work/active/a/t"), "the old lease must be revoked")
}

// An assignment for another membership is deleted without a claim.
func TestE5_StaleAssignmentIsNotTaken(t *testing.T) {
	s := newStage(t)
	_, err := s.client.Put(t.Context(), "/work/format", "orchestrator 1")
	require.NoError(t, err)
	_, err = s.client.Put(t.Context(), "/work/assigned/a/t", `{"epoch":7,"term":1,"member":1}`)
	require.NoError(t, err)
	a := s.startMember(s.client, "a", 5*time.Second)
	w := a.joined()
	s.eventually("the assignment is deleted", func() bool { return !s.there("/work/assigned/a/t") })
	l := s.elect(s.client, "l1", 5*time.Second)
	require.Empty(t, l.list(1, w))
	require.NoError(t, l.add(1, w, "u"))
	require.Zero(t, s.taskLog.started("t"))
}

// A worker that rejoins after a disconnect deletes an assignment that was made for
// its previous membership, without claiming it.
func TestE5_StaleAssignmentAfterARejoin(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.startMember(client, "a", 20*time.Second)
	before := a.joined()
	l := s.elect(s.connect(), "l1", 20*time.Second)
	l.list(1, before)
	require.NoError(t, l.add(1, before, "t"))

	cable.Cut(netfault.Both)
	// Its lease ends as if it had expired, which deletes the assignments. So the test
	// puts a stale one.
	key, err := s.client.Get(t.Context(), "/work/members/a")
	require.NoError(t, err)
	_, err = s.client.Revoke(t.Context(), clientv3.LeaseID(key.Kvs[0].Lease))
	require.NoError(t, err)
	_, err = s.client.Put(t.Context(), "/work/assigned/a/t",
		fmt.Sprintf(`{"epoch":%d,"term":1,"member":%d}`, l.leader.Epoch(), before.Incarnation))
	require.NoError(t, err)
	cable.Heal()

	after := a.joined()
	require.Greater(t, after.Incarnation, before.Incarnation)
	s.eventually("the assignment is deleted", func() bool { return !s.there("/work/assigned/a/t") })
	require.Empty(t, l.list(2, after))
	require.NoError(t, l.add(2, after, "u"))
	require.Equal(t, 1, s.taskLog.started("t"), "t must start only before the cut")
}

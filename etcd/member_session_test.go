package etcd_test

// Joining and losing a membership, and members that take no assignments from etcd.

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
)

// Of two workers with one name, the second is refused once the first must be alive.
func TestE4_NameTaken(t *testing.T) {
	s := newStage(t)
	first := s.startMember(s.client, "a", 2*time.Second)
	w := first.joined()
	began := time.Now()
	second := s.startMember(s.connect(), "a", 2*time.Second)
	require.ErrorIs(t, second.result(), etcd.ErrNameTaken)
	require.Greater(t, time.Since(began), 2*time.Second)
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
	a := s.startMember(client, "a", 2*time.Second)
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

// A worker that joins refuses calls of earlier leaders, even if no leader has ever
// called it.
func TestE2_AJoiningWorkerIsFencedAgainstEarlierLeaders(t *testing.T) {
	s := newStage(t)
	first := s.elect(s.connect(), "l1", 5*time.Second)
	before := first.leader.Epoch()
	first.resign()
	epoch := s.elect(s.connect(), "l2", 5*time.Second).leader.Epoch()
	a := s.direct(s.client, 5*time.Second)
	a.joined()
	require.ErrorIs(t, a.worker.Add(s.of(before), "t"), orchestrator.ErrDeposed)
	require.ErrorIs(t, a.worker.Add(t.Context(), "t"), orchestrator.ErrRejected, "a call without a term")
	require.NoError(t, a.worker.Add(s.of(epoch), "t"))
}

// A worker that joins without a leader refuses all earlier leaders, and accepts the
// next.
func TestE2_AWorkerJoinsWithoutALeader(t *testing.T) {
	s := newStage(t)
	first := s.elect(s.connect(), "l1", 5*time.Second)
	before := first.leader.Epoch()
	first.resign()
	a := s.direct(s.client, 5*time.Second)
	a.joined()
	require.ErrorIs(t, a.worker.Add(s.of(before), "t"), orchestrator.ErrDeposed)
	epoch := s.elect(s.connect(), "l2", 5*time.Second).leader.Epoch()
	require.NoError(t, a.worker.Add(s.of(epoch), "t"))
}

// meddle calls f just before the first transaction of a client after a read of the
// leader.
func meddle(c *clientv3.Client, f func()) {
	var asked atomic.Bool
	once := sync.OnceFunc(f)
	i := etcd.NewIntercept(c)
	i.OnGet = func(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
		resp, err := i.KV.Get(ctx, key, opts...)
		if key == "/work/leader/" {
			asked.Store(true)
		}
		return resp, err
	}
	i.OnTxn = func(ctx context.Context, txn *etcd.Txn) (*clientv3.TxnResponse, error) {
		if asked.Load() {
			once()
		}
		return txn.Make(ctx)
	}
}

// The leader changes between the worker's read of the leader and its join. The
// worker is fenced against the leader that it has read.
func TestE2_TheLeaderChangesWhileAWorkerJoins(t *testing.T) {
	for name, ruled := range map[string]bool{"from one to another": true, "from none to one": false} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			l1 := s.elect(s.connect(), "l1", 5*time.Second)
			before := l1.leader.Epoch()
			if !ruled {
				l1.resign()
			}
			client := s.connect()
			var epoch uint64
			meddle(client, func() {
				l1.resign()
				epoch = s.elect(s.connect(), "l2", 5*time.Second).leader.Epoch()
			})
			a := s.direct(client, 5*time.Second)
			require.Less(t, epoch, uint64(a.joined().Incarnation))
			require.NotZero(t, epoch)
			require.ErrorIs(t, a.worker.Add(s.of(before), "t"), orchestrator.ErrDeposed)
			require.ErrorIs(t, a.worker.Add(s.of(epoch-1), "t"), orchestrator.ErrDeposed)
			require.NoError(t, a.worker.Add(s.of(epoch), "t"))
		})
	}
}

// The membership contains what a leader needs to call the worker. The worker ignores
// assignments in etcd.
func TestE4_AMemberWithoutAssignments(t *testing.T) {
	s := newStage(t)
	a := s.direct(s.client, 5*time.Second)
	a.joined()
	membership, err := etcd.NewMembership(s.client)
	require.NoError(t, err)
	members, err := membership.List(t.Context())
	require.NoError(t, err)
	require.Len(t, members, 1)
	require.Equal(t, a.worker.Incarnation(), members[0].Process)
	require.Equal(t, map[string]string{"address": "host:1"}, members[0].Attributes)
	b := s.startMember(s.client, "b", 5*time.Second)
	l := s.elect(s.connect(), "l", 5*time.Second)
	w, other := a.joined(), b.joined()
	ctx, cancel := l.term(1, 300*time.Millisecond)
	defer cancel()
	require.Error(t, l.comm.Add(ctx, w, "t"))
	require.NoError(t, l.add(1, other, "t"))
	require.False(t, s.there("/work/active/a/t"))
	require.False(t, s.there("/work/workers/a"))
}

// A member that is cut off from etcd stops everything before its lease can expire,
// though the leader may still reach it. It rejoins as another incarnation.
func TestW5_AMemberWithoutAssignmentsThatIsCutOff(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.direct(client, 2*time.Second)
	first := a.joined()
	process := a.worker.Incarnation()
	epoch := s.elect(s.connect(), "l", 5*time.Second).leader.Epoch()
	require.NoError(t, a.worker.Add(s.of(epoch), "t"))
	s.taskLog.wait(t, "t runs", func(l *taskLog) bool { return len(l.running) == 1 })
	cable.Cut(netfault.Both)
	s.taskLog.wait(t, "t has stopped", func(l *taskLog) bool { return len(l.running) == 0 })
	require.True(t, s.there("/work/members/a"), "t must stop before the lease expires")
	require.ErrorIs(t, a.worker.Add(s.of(epoch), "t"), orchestrator.ErrRejected)
	s.eventually("the lease expires", func() bool { return !s.there("/work/members/a") })
	cable.Heal()
	second := a.joined()
	require.Greater(t, second.Incarnation, first.Incarnation)
	require.NotEqual(t, process, a.worker.Incarnation())
	require.NoError(t, a.worker.Add(s.of(epoch), "t"))
}

func TestW6_AMemberWithoutAssignmentsIsDrained(t *testing.T) {
	s := newStage(t)
	s.startOther()
	joined := &logWatcher{text: "msg=joined", seen: make(chan struct{})}
	a := s.direct(s.client, 5*time.Second, etcd.WithLogger(slog.New(slog.NewTextHandler(joined, nil))))
	receive(t, joined.seen) // the key may exist before the member knows
	for _, task := range []string{"t", "u"} {
		require.NoError(t, a.worker.Add(s.of(1<<40), task))
	}
	closed := make(chan error, 1)
	go func() { closed <- a.member.Close(within(t, soon)) }()
	s.draining()
	require.NoError(t, a.worker.Remove(s.of(1<<40), "t"))
	require.True(t, s.there("/work/members/a"), "u has not moved")
	require.Empty(t, closed)
	require.NoError(t, a.worker.Remove(s.of(1<<40), "u"))
	require.NoError(t, receive(t, closed))
	require.NoError(t, a.result())
	require.False(t, s.there("/work/members/a"))
}

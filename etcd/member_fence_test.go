package etcd_test

// Members that take no assignments from etcd.

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// direct starts a member a without assignments.
func (s *stage) direct(c *clientv3.Client, lease time.Duration, opts ...etcd.MemberOption) *crew {
	s.Helper()
	const name = "a"
	w, err := worker.New(func(ctx context.Context, task string) error {
		s.ledger.start(task, name)
		defer s.ledger.stop(task)
		<-ctx.Done()
		return context.Cause(ctx)
	}, worker.WithLease(lease, lease/4))
	require.NoError(s, err)
	opts = append(opts, etcd.WithoutAssignments(), etcd.WithAttributes(map[string]string{"address": "host:1"}))
	m, err := etcd.NewMember(c, name, w, opts...)
	require.NoError(s, err)
	return s.man(name, w, m)
}

// of returns the context of a call by the leader of an epoch.
func (s *stage) of(epoch uint64) context.Context {
	return orchestrator.ContextWithTerm(s.Context(), orchestrator.Term{Epoch: epoch, Number: 1})
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

// meddling calls meddle just before the first transaction after a read of the
// leader.
type meddling struct {
	clientv3.KV
	meddle func()

	mu    sync.Mutex
	asked bool
}

func (k *meddling) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := k.KV.Get(ctx, key, opts...)
	if key == "/work/leader/" {
		k.mu.Lock()
		k.asked = true
		k.mu.Unlock()
	}
	return resp, err
}

func (k *meddling) Txn(ctx context.Context) clientv3.Txn {
	k.mu.Lock()
	meddle := func() {}
	if k.asked && k.meddle != nil {
		meddle, k.meddle = k.meddle, nil
	}
	k.mu.Unlock()
	meddle()
	return k.KV.Txn(ctx)
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
			k := &meddling{KV: client.KV, meddle: func() {
				l1.resign()
				epoch = s.elect(s.connect(), "l2", 5*time.Second).leader.Epoch()
			}}
			client.KV = k
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
	b := s.hire(s.client, "b", 5*time.Second)
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
	s.ledger.wait(t, "t runs", func(l *ledger) bool { return len(l.running) == 1 })
	cable.Cut(netfault.Both)
	s.ledger.wait(t, "t has stopped", func(l *ledger) bool { return len(l.running) == 0 })
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
	s.staffed()
	joined := &lookout{text: "msg=joined", seen: make(chan struct{})}
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

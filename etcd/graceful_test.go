package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

// A leader that is told to stop in the middle of a move completes the move, even
// longer than its lease, and then resigns.
func TestT6_ALeaderThatIsToldToStopStrandsNothing(t *testing.T) {
	s := newStage(t)
	release := make(chan struct{})
	slow := func(ctx context.Context, task string) error {
		s.ledger.start(task, "x")
		defer s.ledger.stop(task)
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), worker.ErrRemoved) {
			<-release
		}
		return context.Cause(ctx)
	}
	s.hireTo(s.client, "a", 5*time.Second, slow)
	registry, err := etcd.NewRegistry(s.client)
	require.NoError(t, err)
	membership, err := etcd.NewMembership(s.client)
	require.NoError(t, err)
	_, err = registry.Create(t.Context(), etcd.Item{Name: "t"})
	require.NoError(t, err)
	const lease = 2 * time.Second
	election, err := etcd.NewElection(s.client, "l", etcd.WithLeaseDuration(lease))
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() {
		result <- election.Run(ctx, func(ctx context.Context, l *etcd.Leadership) error {
			comm, err := etcd.NewCommunicator(ctx, s.client, l)
			if err != nil {
				return err
			}
			o, err := orchestrator.New(comm, orchestrator.WithEpoch(l.Epoch()), orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
			if err != nil {
				return err
			}
			if err := errors.Join(registry.Feed(ctx, l, o), membership.Feed(ctx, l, o)); err != nil {
				return err
			}
			return o.Run(ctx, 200*time.Millisecond)
		})
	}()
	s.ledger.wait(t, "t runs", func(l *ledger) bool { return len(l.running) == 1 })
	s.hireTo(s.client, "b", 5*time.Second, slow).joined()
	require.NoError(t, registry.Drain(t.Context(), "a"))
	s.eventually("the move has begun", func() bool { return !s.there("/work/assigned/a/t") })

	stop(errOver)
	<-time.After(lease + lease/2)
	require.Empty(t, result)
	close(release)
	require.ErrorIs(t, receive(t, result), errOver)
	require.True(t, s.there("/work/active/b/t"), "the move must be completed")
	_, err = election.Leader(t.Context())
	require.ErrorIs(t, err, etcd.ErrNoLeader)
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

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
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

// All parts of a leader must use the prefix of its election. A registry under
// another prefix would report no tasks, and the leader would stop all running ones.
func TestE1_OnePrefixForAllOfALeader(t *testing.T) {
	c := startEtcd(t)
	l := stand(t, c, "l", etcd.WithLeaseDuration(10*time.Second)).elected()
	_, err := etcd.NewCommunicator(t.Context(), c, l, etcd.WithPrefix("/other/"))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	require.NotErrorIs(t, err, orchestrator.ErrDeposed)
	require.ErrorContains(t, err, "/other/")
	told := newTold()
	require.ErrorIs(t, newRegistry(t, c, etcd.WithPrefix("/other/")).Feed(t.Context(), l, told), orchestrator.ErrInvalid)
	membership, err := etcd.NewMembership(c, etcd.WithPrefix("/other/"))
	require.NoError(t, err)
	require.ErrorIs(t, membership.Feed(t.Context(), l, told), orchestrator.ErrInvalid)
	_, err = etcd.NewMember(c, "w", nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
}

// A worker that joins or leaves starts a term of a real orchestrator.
func TestE4_ATermFollowsAJoin(t *testing.T) {
	c := startEtcd(t)
	r := newRegistry(t, c)
	m, err := etcd.NewMembership(c)
	require.NoError(t, err)
	l := stand(t, c, "leader").elected()

	terms := make(chan orchestrator.TermStats, 100)
	o, err := orchestrator.New[etcd.Worker, string](deaf{}, orchestrator.WithSettle(time.Millisecond),
		orchestrator.WithEpoch(l.Epoch()), orchestrator.WithStats(func(s orchestrator.TermStats) { terms <- s }))
	require.NoError(t, err)
	require.NoError(t, r.Feed(t.Context(), l, o))
	require.NoError(t, m.Feed(t.Context(), l, o))
	l.Go(func(ctx context.Context) error { return o.Run(ctx, time.Hour) })
	receive(t, terms)
	names := func() string {
		var names []string
		for _, w := range o.LastActual() {
			names = append(names, w.Name.Name)
		}
		return strings.Join(names, " ")
	}
	_, lease := join(t, c, "a", `{}`)
	receive(t, terms)
	require.Equal(t, "a", names())
	_, err = c.Revoke(t.Context(), lease)
	require.NoError(t, err)
	receive(t, terms)
	require.Empty(t, names())
}

// deaf is a communicator whose workers never answer.
type deaf struct{}

var errDeaf = errors.New("deaf")

func (deaf) List(context.Context, etcd.Worker) ([]string, error) { return nil, errDeaf }

func (deaf) Add(context.Context, etcd.Worker, string) error { return errDeaf }

func (deaf) Remove(context.Context, etcd.Worker, string) error { return errDeaf }

// TestE3_FeedKnowsWhatWasWrittenBeforeTheElection elects repeatedly during writes.
// Each leader must know every task that was written before its election.
func TestE3_FeedKnowsWhatWasWrittenBeforeTheElection(t *testing.T) {
	c := startEtcd(t)
	r := newRegistry(t, c)
	m, err := etcd.NewMembership(c)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	written := make(chan etcd.Item, 1<<16)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if item, err := r.Create(ctx, etcd.Item{Name: fmt.Sprint(i)}); err == nil {
				written <- item
			}
		}
	})
	k := stand(t, c, "a")
	known := make(map[string]bool)
	for range 5 {
		l := k.elected()
		o := newTold()
		require.NoError(t, r.Feed(t.Context(), l, o))
		require.NoError(t, m.Feed(t.Context(), l, o))
		o.mu.Lock()
		tasks := maps.Clone(o.tasks)
		o.mu.Unlock()
		for len(written) > 0 {
			if item := <-written; uint64(item.Revision) < l.Epoch() {
				known[item.Name] = true
			}
		}
		for name := range known {
			require.Contains(t, tasks, name)
		}
		k.resign <- orchestrator.ErrDeposed
	}
	stop()
	wg.Wait()
	require.NotEmpty(t, known)
}

func TestE3_FeedOfARefusingOrchestratorEndsTheLeadership(t *testing.T) {
	c := startEtcd(t)
	r := newRegistry(t, c)
	m, err := etcd.NewMembership(c)
	require.NoError(t, err)
	for name, feed := range map[string]func(context.Context, *etcd.Leadership, *told) error{
		"tasks":   func(ctx context.Context, l *etcd.Leadership, o *told) error { return r.Feed(ctx, l, o) },
		"workers": func(ctx context.Context, l *etcd.Leadership, o *told) error { return m.Feed(ctx, l, o) },
	} {
		k := stand(t, c, "a")
		o := newTold()
		o.fail = errEnough
		_ = feed(t.Context(), k.elected(), o)
		require.ErrorIs(t, receive(t, k.over).cause, errEnough, name)
		require.ErrorIs(t, receive(t, k.result), errEnough, name)
	}
}

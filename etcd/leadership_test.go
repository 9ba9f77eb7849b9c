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

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/worker"
)

// A leader that is told to stop in the middle of a move completes the move, even
// longer than its lease, and then resigns.
func TestT6_ALeaderThatIsToldToStopStrandsNothing(t *testing.T) {
	s := newStage(t)
	release := make(chan struct{})
	slow := func(ctx context.Context, task string) error {
		s.taskLog.start(task, "x")
		defer s.taskLog.stop(task)
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), worker.ErrRemoved) {
			<-release
		}
		return context.Cause(ctx)
	}
	s.startMemberWith(s.client, "a", 5*time.Second, slow)
	registry := newRegistry(t, s.client)
	_, err := registry.Create(t.Context(), etcd.Item{Name: "t"})
	require.NoError(t, err)
	const lease = 2 * time.Second
	election, err := etcd.NewElection(s.client, "l", etcd.WithLeaseDuration(lease))
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { result <- election.Lead(ctx, 200*time.Millisecond) }()
	s.taskLog.wait(t, "t runs", func(l *taskLog) bool { return len(l.running) == 1 })
	s.startMemberWith(s.client, "b", 5*time.Second, slow).joined()
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
	o, err := orchestrator.New[etcd.WorkerID, string](deaf{}, orchestrator.WithSettle(time.Millisecond),
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

func (deaf) List(context.Context, etcd.WorkerID) ([]string, error) { return nil, errDeaf }

func (deaf) Add(context.Context, etcd.WorkerID, string) error { return errDeaf }

func (deaf) Remove(context.Context, etcd.WorkerID, string) error { return errDeaf }

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
	for range 3 {
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

// A worker that does not answer keeps its tasks until it is no longer a member,
// whatever the options say. Calls have the epoch of the leadership.
func TestE2_LeadWithSetsWhatSafetyNeeds(t *testing.T) {
	s := newStage(t)
	registry := newRegistry(t, s.client)
	for i := range 4 {
		_, err := registry.Create(t.Context(), etcd.Item{Name: fmt.Sprint(i)})
		require.NoError(t, err)
	}
	members, err := etcd.NewMembership(s.client)
	require.NoError(t, err)
	cluster, err := memory.New[etcd.WorkerID, string](nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close(context.WithoutCancel(t.Context()))) })
	a, leaseOfA := join(t, s.client, "a", `{}`)
	b, _ := join(t, s.client, "b", `{}`)
	cluster.Start(a, b)
	election, err := etcd.NewElection(s.client, "l1", etcd.WithLeaseDuration(2*time.Second))
	require.NoError(t, err)

	terms := make(chan orchestrator.TermStats, 1)
	epochs := make(chan uint64, 1)
	ctx, stop := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() {
		result <- election.Run(ctx, func(ctx context.Context, l *etcd.Leadership) error {
			epochs <- l.Epoch()
			return etcd.LeadWith(ctx, l, cluster, 5*time.Millisecond, func(o *orchestrator.Orchestrator[etcd.WorkerID, string]) error {
				return errors.Join(registry.Feed(ctx, l, o), members.Feed(ctx, l, o))
			}, orchestrator.WithEpoch(7), orchestrator.WithGracePeriod(time.Millisecond), orchestrator.WithStats(func(s orchestrator.TermStats) {
				select {
				case terms <- s:
				case <-ctx.Done():
				}
			}))
		})
	}()
	untilBRuns := func(tasks int) {
		for len(cluster.RunsOn(b)) != tasks {
			receive(t, terms)
		}
	}
	untilBRuns(2)
	require.ErrorIs(t, cluster.Worker(b).Add(s.of(receive(t, epochs)-1), "x"), orchestrator.ErrDeposed)
	cluster.Cut(a)
	for range 20 {
		receive(t, terms)
	}
	require.Len(t, cluster.RunsOn(b), 2, "a is silent")
	_, err = s.client.Revoke(t.Context(), leaseOfA)
	require.NoError(t, err)
	untilBRuns(4)
	stop(errOver)
	require.ErrorIs(t, receive(t, result), errOver)
}

// Lead leads again after a lost leadership, and reports invalid arguments before it
// takes part in the election.
func TestE2_LeadGoesOn(t *testing.T) {
	s := newStage(t)
	g := s.startLeader()
	s.startMember(s.connect(), "a", 5*time.Second)
	_, err := g.registry.Create(t.Context(), etcd.Item{Name: "t"})
	require.NoError(t, err)
	s.taskLog.wait(t, "t runs", func(l *taskLog) bool { return l.on("a") == 1 })
	before, err := g.election.Leader(t.Context())
	require.NoError(t, err)
	_, err = s.client.Delete(t.Context(), "/work/leader/", clientv3.WithPrefix())
	require.NoError(t, err)
	s.eventually("it leads again", func() bool {
		leader, err := g.election.Leader(t.Context())
		return err == nil && leader.Epoch > before.Epoch
	})
	_, err = g.registry.Create(t.Context(), etcd.Item{Name: "u"})
	require.NoError(t, err)
	s.taskLog.wait(t, "u runs", func(l *taskLog) bool { return l.on("a") == 2 })
	require.ErrorIs(t, g.stop(), errOver)
	require.ErrorIs(t, g.election.Lead(t.Context(), 0), orchestrator.ErrInvalid)
	require.ErrorIs(t, g.election.Lead(t.Context(), time.Second, orchestrator.WithConcurrency(-1)), orchestrator.ErrInvalid)
}

package etcd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
)

// shareTasks starts a leader, and members a and b with three tasks each. It returns a.
func (s *stage) shareTasks() *runningMember {
	s.Helper()
	g := s.startLeader()
	a := s.startMember(s.connect(), "a", 5*time.Second)
	for i := range 6 {
		_, err := g.registry.Create(s.Context(), etcd.Item{Name: fmt.Sprint(i)})
		require.NoError(s, err)
	}
	s.taskLog.wait(s.T, "a runs all tasks", func(l *taskLog) bool { return l.on("a") == 6 })
	s.startMember(s.connect(), "b", 5*time.Second)
	s.taskLog.wait(s.T, "a and b share the tasks", func(l *taskLog) bool { return l.on("a") == 3 && l.on("b") == 3 })
	return a
}

func TestW6_CloseWaitsUntilItsTasksHaveMoved(t *testing.T) {
	s := newStage(t)
	a := s.shareTasks()
	require.NoError(t, a.member.Close(within(t, soon)))
	require.NoError(t, a.result())
	s.taskLog.wait(t, "b runs all tasks", func(l *taskLog) bool { return l.on("a") == 0 && l.on("b") == 6 })
	require.False(t, s.there("/work/members/a"))
	require.NoError(t, a.member.Close(within(t, soon)), "a repeated Close")
}

// The end of Run's context drains it too.
func TestW6_RunDrainsWhenItsContextEnds(t *testing.T) {
	s := newStage(t)
	a := s.shareTasks()
	a.cancel(errOver)
	require.Equal(t, errOver, a.result(), "nothing was stopped that had not moved")
	s.taskLog.wait(t, "b runs all tasks", func(l *taskLog) bool { return l.on("a") == 0 && l.on("b") == 6 })
	require.False(t, s.there("/work/members/a"))
}

func TestW6_CloseDoesNotWaitForEver(t *testing.T) {
	s := newStage(t)
	s.startOther()
	a := s.startMember(s.connect(), "a", 5*time.Second)
	l := s.elect(s.client, "l1", 5*time.Second)
	require.NoError(t, l.add(1, a.joined(), "t"))
	require.ErrorIs(t, a.member.Close(within(t, 200*time.Millisecond)), context.DeadlineExceeded)
	require.NoError(t, a.result())
	require.Empty(t, s.taskLog.snapshot())
	for _, key := range []string{"members/a", "workers/a", "active/a/t", "assigned/a/t"} {
		require.False(t, s.there("/work/"+key), key)
	}
}

// Close does not wait for a taken name.
func TestW6_CloseWhileJoining(t *testing.T) {
	s := newStage(t)
	first := s.startMember(s.client, "first", 5*time.Second) // marks the prefix
	first.joined()
	other, err := s.client.Grant(t.Context(), 60)
	require.NoError(t, err)
	_, err = s.client.Put(t.Context(), "/work/members/a", "{}", clientv3.WithLease(other.ID))
	require.NoError(t, err)
	w, err := worker.New(func(context.Context, string) error { return nil }, worker.WithLease(5*time.Second, time.Second))
	require.NoError(t, err)
	log, out := io.Pipe()
	m, err := etcd.NewMember(s.client, "a", w, etcd.WithLogger(slog.New(slog.NewTextHandler(out, nil))))
	require.NoError(t, err)
	a := s.runMember("a", w, m)
	line, err := bufio.NewReader(log).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "name taken", "a has its lease and waits for the name")
	require.NoError(t, log.Close()) // later lines are dropped
	require.NoError(t, a.member.Close(within(t, soon)))
	<-a.done
	require.NoError(t, a.err)
	leases, err := s.client.Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, leases.Leases, 2, "the lease of a must be revoked")
}

// A lease that is lost while the member drains stops the tasks that have not moved.
func TestW6_TheLeaseIsLostWhileItDrains(t *testing.T) {
	s := newStage(t)
	s.startOther()
	line, cable := s.behind()
	a := s.startMember(line, "a", 3*time.Second)
	l := s.elect(s.client, "l1", 5*time.Second)
	require.NoError(t, l.add(1, a.joined(), "t"))
	closed := make(chan error, 1)
	go func() { closed <- a.member.Close(within(t, soon)) }()
	s.draining()
	cable.Cut(netfault.Both)
	err := receive(t, closed)
	require.ErrorContains(t, err, "close member a: stopped before everything had moved")
	require.ErrorIs(t, err, worker.ErrLeaseLost)
	require.NoError(t, a.result())
}

// The deletion of the member's key stops them too.
func TestW6_ItIsEvictedWhileItDrains(t *testing.T) {
	s := newStage(t)
	s.startOther()
	a := s.startMember(s.client, "a", 60*time.Second)
	l := s.elect(s.client, "l1", 5*time.Second)
	require.NoError(t, l.add(1, a.joined(), "t"))
	closed := make(chan error, 1)
	go func() { closed <- a.member.Close(within(t, soon)) }()
	s.draining()
	_, err := s.client.Delete(t.Context(), "/work/members/a")
	require.NoError(t, err)
	err = receive(t, closed)
	require.ErrorContains(t, err, "stopped before everything had moved")
	require.ErrorIs(t, err, worker.ErrLeaseLost)
}

// A worker whose tasks no other worker can take leaves immediately. The leases here
// last longer than the test.
func TestW6_TheLastWorkerLeavesAtOnce(t *testing.T) {
	for name, others := range map[string]func(*stage, runningLeader) <-chan error{
		"no other worker": func(*stage, runningLeader) <-chan error { return nil },
		"the other worker leaves too": func(s *stage, _ runningLeader) <-chan error {
			b := s.startMember(s.client, "b", 60*time.Second)
			s.taskLog.wait(s, "a and b share the tasks", func(l *taskLog) bool { return l.on("b") == 2 })
			closed := make(chan error, 1)
			go func() { closed <- b.member.Close(within(s, soon)) }()
			return closed
		},
		"the other worker was drained by name": func(s *stage, g runningLeader) <-chan error {
			require.NoError(s, g.registry.Drain(s.Context(), "b"))
			s.startMember(s.client, "b", 60*time.Second).joined()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			g := s.startLeader()
			log := &logWatcher{text: `level=INFO msg="no other worker can take tasks, stopping the rest" worker=a tasks=`, seen: make(chan struct{})}
			w, err := worker.New(func(ctx context.Context, task string) error {
				s.taskLog.start(task, "a/")
				defer s.taskLog.stop(task)
				<-ctx.Done()
				return context.Cause(ctx)
			}, worker.WithLease(60*time.Second, time.Second))
			require.NoError(t, err)
			m, err := etcd.NewMember(s.client, "a", w, etcd.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			require.NoError(t, err)
			a := s.runMember("a", w, m)
			for i := range 4 {
				_, err := g.registry.Create(t.Context(), etcd.Item{Name: fmt.Sprint(i)})
				require.NoError(t, err)
			}
			s.taskLog.wait(t, "a has them all", func(l *taskLog) bool { return l.on("a") == 4 })
			other := others(s, g)
			require.NoError(t, a.member.Close(within(t, soon)))
			require.NoError(t, a.result())
			receive(t, log.seen)
			if other != nil {
				require.NoError(t, receive(t, other))
			}
			require.Empty(t, s.taskLog.snapshot())
			require.False(t, s.there("/work/members/a"))
		})
	}
}

// The membership ends while the watch of a content is being opened and never
// answered.
func TestW6_ItEndsWhileAWatchIsOpened(t *testing.T) {
	s := newStage(t)
	opening, release := make(chan struct{}), make(chan struct{})
	var streams atomic.Int32
	cfg := clientConfig(s.server.Endpoint())
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			// The first stream is the member's own.
			if method == "/etcdserverpb.Watch/Watch" && streams.Add(1) == 2 {
				close(opening)
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-release:
				}
			}
			return streamer(ctx, desc, cc, method, opts...)
		}))
	a := s.startMember(newClient(t, cfg), "a", 60*time.Second)
	t.Cleanup(func() { close(release) })
	l := s.elect(s.client, "l1", 5*time.Second)
	require.NoError(t, l.add(1, a.joined(), "t"))
	receive(t, opening)
	a.cancel(errOver)
	require.ErrorIs(t, a.result(), errOver)
}

// A leaving member keeps its lease for a task that stops slowly. If the lease is
// lost anyway, the usual margin applies to the task.
func TestW5_ALeaseThatIsGoneWhileLeaving(t *testing.T) {
	s := newStage(t)
	s.twice = true // the last resort of this test does not exit
	release, resort := make(chan struct{}), make(chan struct{})
	h := s.startMemberWith(s.client, "a", 60*time.Second, func(ctx context.Context, _ string) error {
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

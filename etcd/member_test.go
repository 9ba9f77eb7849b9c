package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
)

func TestMember_BadInput(t *testing.T) {
	s := newStage(t)
	run := func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }
	leaseless, err := worker.New(run)
	require.NoError(t, err)
	odd, err := worker.New(run, worker.WithLease(2500*time.Millisecond, time.Second))
	require.NoError(t, err)
	fine, err := worker.New(run, worker.WithLease(5*time.Second, time.Second))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		name   string
		worker *worker.Worker[string]
		opts   []etcd.MemberOption
		want   string
	}{
		"no name":  {"", fine, nil, "name"},
		"no lease": {"a", leaseless, nil, "WithLease"},
		"odd":      {"a", odd, nil, "2.5s"},
		"prefix":   {"a", fine, []etcd.MemberOption{etcd.WithPrefix("nope")}, "nope"},
		"drain":    {"a", fine, []etcd.MemberOption{etcd.WithDrain(-time.Second)}, "WithDrain(-1s)"},
		"nil":      {"a", fine, []etcd.MemberOption{nil}, "nil"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := etcd.NewMember(s.client, c.name, c.worker, c.opts...)
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			require.ErrorContains(t, err, c.want)
		})
	}
	m, err := etcd.NewMember(newClient(t, clientConfig(nowhere(t))), "a", fine, etcd.WithDialTimeout(20*time.Millisecond))
	require.NoError(t, err)
	require.ErrorIs(t, m.Run(within(t, 100*time.Millisecond)), context.DeadlineExceeded)
	require.ErrorIs(t, m.Run(t.Context()), orchestrator.ErrInvalid, "a second Run")
	require.NoError(t, m.Close(t.Context()))
}

// A task that one worker refuses runs on another within two terms.
func TestE5_RefusedTaskRunsElsewhere(t *testing.T) {
	s := newStage(t)
	l := s.elect(s.connect(), "l1", 5*time.Second)
	o, err := orchestrator.New(l.comm, orchestrator.WithEpoch(l.leader.Epoch()),
		orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
	require.NoError(t, err)
	for _, name := range []string{"a", "b"} {
		w := s.startMember(s.connect(), name, 5*time.Second, worker.WithAccept(func(_ context.Context, task string, _ []byte) error {
			if name == "a" && task == "picky" {
				return errors.New("not here")
			}
			return nil
		})).joined()
		require.NoError(t, o.AddWorker(w))
	}
	require.NoError(t, o.AddTask("picky"))
	for term := 1; ; term++ {
		err := o.NextTerm(t.Context())
		if err == nil {
			break
		}
		require.Less(t, term, 2, "not running after two terms: %v", err)
	}
	s.taskLog.wait(t, "b runs it", func(l *taskLog) bool { return l.on("b") == 1 })
}

// A task that asks to leave a worker is released there, and runs on another one.
func TestE5_RescheduledTaskRunsElsewhere(t *testing.T) {
	s := newStage(t)
	l := s.elect(s.connect(), "l1", 5*time.Second)
	o, err := orchestrator.New(l.comm, orchestrator.WithEpoch(l.leader.Epoch()),
		orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
	require.NoError(t, err)
	var first atomic.Pointer[string]
	for _, name := range []string{"a", "b"} {
		w := s.startMemberWith(s.connect(), name, 5*time.Second, func(ctx context.Context, task string) error {
			if first.CompareAndSwap(nil, &name) {
				return worker.Reschedule(ctx, "no disk")
			}
			s.taskLog.start(task, name+"/")
			defer s.taskLog.stop(task)
			<-ctx.Done()
			return nil
		}).joined()
		require.NoError(t, o.AddWorker(w))
	}
	require.NoError(t, o.AddTask("picky"))
	// A run that asks to leave before its Add has been answered makes that Add a refusal.
	if err := o.NextTerm(t.Context()); err != nil {
		require.ErrorIs(t, err, orchestrator.ErrRejected)
	}
	s.eventually("it is released", func() bool { return !s.there("/work/active/" + *first.Load() + "/picky") })
	s.eventually("it runs", func() bool {
		_ = o.NextTerm(t.Context())
		return s.there("/work/active/a/picky") || s.there("/work/active/b/picky")
	})
	s.taskLog.wait(t, "the other one runs it", func(l *taskLog) bool { return len(l.running) == 1 && l.on(*first.Load()) == 0 })
}

// During an outage of etcd that is longer than the lease, everything stops. It runs
// again after the outage without help.
func TestE8_EtcdAway(t *testing.T) {
	s := newStage(t)
	g := s.startLeader()
	cut := make([]*netfault.Proxy, 0, 2)
	for _, name := range []string{"a", "b"} {
		client, cable := s.behind()
		s.startMember(client, name, 2*time.Second)
		cut = append(cut, cable)
	}
	for i := range 4 {
		_, err := g.registry.Create(t.Context(), etcd.Item{Name: fmt.Sprint(i)})
		require.NoError(t, err)
	}
	s.taskLog.wait(t, "everything runs", func(l *taskLog) bool { return len(l.running) == 4 })
	for _, cable := range cut {
		cable.Refuse()
	}
	s.taskLog.wait(t, "everything has stopped", func(l *taskLog) bool { return len(l.running) == 0 })
	for _, cable := range cut {
		cable.Heal()
	}
	s.taskLog.wait(t, "everything runs", func(l *taskLog) bool { return len(l.running) == 4 })
}

// The log reports when etcd is back.
func TestE8_AnEtcdThatIsBackIsNoted(t *testing.T) {
	s := newStage(t)
	line, cable := s.behind()
	joined := &logWatcher{text: "msg=joined", seen: make(chan struct{})}
	failed := &logWatcher{text: `level=WARN msg="keepalive not acknowledged"`, seen: make(chan struct{})}
	again := &logWatcher{text: `level=INFO msg="keepalives acknowledged again"`, seen: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(joined, failed, again), nil))
	w, err := worker.New(func(context.Context, string) error { return nil }, worker.WithLease(6*time.Second, time.Second))
	require.NoError(t, err)
	m, err := etcd.NewMember(line, "a", w, etcd.WithLogger(log))
	require.NoError(t, err)
	s.runMember("a", w, m)
	receive(t, joined.seen)
	cable.Cut(netfault.Both)
	receive(t, failed.seen)
	select {
	case <-again.seen:
		require.Fail(t, "no keepalive was acknowledged yet")
	default:
	}
	cable.Heal()
	receive(t, again.seen)
}

// A worker keeps a fixed number of refusals, the last ones. Each leader gets the
// reason, and a claimed task has no refusal.
func TestE5_RefusalsAreBounded(t *testing.T) {
	s := newStage(t)
	var open atomic.Bool
	w := s.startMember(s.connect(), "a", 10*time.Second, worker.WithAccept(func(_ context.Context, task string, _ []byte) error {
		if open.Load() {
			return nil
		}
		return errors.New("no room for " + task)
	})).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	const kept, round, rounds = 128, 50, 6
	last := ""
	for i := range rounds {
		var adds []orchestrator.Write[string]
		for k := range round {
			last = fmt.Sprintf("t%d-%d", i, k)
			adds = append(adds, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: last})
		}
		ctx, cancel := l.term(1, soon)
		errs := l.comm.Apply(ctx, w, adds)
		cancel()
		require.Len(t, errs, round)
		for k, err := range errs {
			require.ErrorIs(t, err, orchestrator.ErrRejected)
			require.ErrorContains(t, err, "no room for "+adds[k].Task)
		}
	}
	refused := func() int64 {
		resp, err := s.client.Get(t.Context(), "/work/refused/a/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return resp.Count
	}
	require.EqualValues(t, kept, refused())
	require.True(t, s.there("/work/refused/a/"+last))
	require.ErrorContains(t, l.add(1, w, last), "no room", "refused again")
	require.EqualValues(t, kept, refused())
	open.Store(true)
	require.NoError(t, l.add(1, w, last))
	require.False(t, s.there("/work/refused/a/"+last))
	require.NoError(t, l.add(1, w, "t0-0"))
	require.EqualValues(t, kept-1, refused())
}

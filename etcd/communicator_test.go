package etcd_test

// The conformance kit for clauses C1 to C7 on real members: once with one leader for
// successive orchestrators, once with a new leader for each epoch. Then workers that
// are slow, restarted or refuse tasks.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
)

func TestC_OneLeader(t *testing.T) {
	communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[etcd.WorkerID, string] {
		s := newStage(t)
		client, gate := s.gated()
		return s.cluster(gate, func() orchestrator.Communicator[etcd.WorkerID, string] {
			return s.elect(client, "leader", 5*time.Second).comm
		})
	})
}

func TestC_LeadersFollowOneAnother(t *testing.T) {
	communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[etcd.WorkerID, string] {
		s := newStage(t)
		client, gate := s.gated()
		return s.cluster(gate, func() orchestrator.Communicator[etcd.WorkerID, string] {
			return &succession{stage: s, client: client, leaders: map[uint64]*leading{}}
		})
	})
}

// cluster returns two members behind proxies, and a communicator whose writes pass a
// gate.
func (s *stage) cluster(gate *gate, comm func() orchestrator.Communicator[etcd.WorkerID, string]) communicatortest.Cluster[etcd.WorkerID, string] {
	s.Helper()
	s.twice = true
	var picky pickiness
	cluster := communicatortest.Cluster[etcd.WorkerID, string]{
		Timeout:        3 * time.Second,
		Tasks:          []string{"a", "b/c", "größe"},
		UnknownWorkers: []etcd.WorkerID{{Name: "nobody", Incarnation: 1}, {Name: "w1", Incarnation: 1}},
		Hold:           func(w etcd.WorkerID) func() { return gate.hold("/work/assigned/" + w.Name + "/") },
		Refuse:         func(w etcd.WorkerID, task string) func() { return picky.refuse(w.Name, task) },
	}
	cuts, members := map[string]func() func(){}, map[string]*runningMember{}
	for _, name := range []string{"w1", "w2"} {
		client, p := s.behind()
		h := s.startMember(client, name, 20*time.Second, worker.WithAccept(func(_ context.Context, task string, _ []byte) error {
			return picky.accept(name, task)
		}))
		members[name] = h
		cluster.Workers = append(cluster.Workers, h.joined())
		cuts[name] = func() func() { p.Cut(netfault.Both); return p.Heal }
	}
	cluster.Cut = func(w etcd.WorkerID) func() { return cuts[w.Name]() }
	cluster.Restart = func(w etcd.WorkerID) (successor etcd.WorkerID) {
		members[w.Name].worker.EndLease(errors.New("restarted by a test"))
		s.eventually(w.Name+" has joined again", func() bool { successor = members[w.Name].joined(); return successor != w })
		return successor
	}
	cluster.Communicator = comm()
	return cluster
}

// pickiness holds the tasks that workers refuse.
type pickiness struct {
	mu   sync.Mutex
	list [][2]string
}

func (p *pickiness) refuse(worker, task string) (accept func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pair := [2]string{worker, task}
	p.list = append(p.list, pair)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.list = slices.DeleteFunc(p.list, func(o [2]string) bool { return o == pair })
	}
}

func (p *pickiness) accept(worker, task string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.list, [2]string{worker, task}) {
		return errors.New("not that one")
	}
	return nil
}

// succession is a communicator that elects a new leader for each higher epoch.
type succession struct {
	stage   *stage
	client  *clientv3.Client
	mu      sync.Mutex
	leaders map[uint64]*leading
	highest uint64
}

// of returns the communicator of a call, and the call's context with the epoch of
// its leader.
func (x *succession) of(ctx context.Context) (context.Context, *etcd.Communicator) {
	x.mu.Lock()
	defer x.mu.Unlock()
	term, ok := orchestrator.TermFromContext(ctx)
	epoch := term.Epoch
	if !ok {
		epoch = x.highest
	}
	if epoch > x.highest {
		if old := x.leaders[x.highest]; old != nil {
			old.resign()
		}
		x.highest = epoch
		x.leaders[epoch] = x.stage.elect(x.client, "leader", 5*time.Second)
	}
	l := x.leaders[epoch]
	if ok {
		ctx = orchestrator.ContextWithTerm(ctx, orchestrator.Term{Epoch: l.leader.Epoch(), Number: term.Number})
	}
	return ctx, l.comm
}

func (x *succession) List(ctx context.Context, w etcd.WorkerID) ([]string, error) {
	ctx, c := x.of(ctx)
	return c.List(ctx, w)
}

func (x *succession) Add(ctx context.Context, w etcd.WorkerID, task string) error {
	ctx, c := x.of(ctx)
	return c.Add(ctx, w, task)
}

func (x *succession) Remove(ctx context.Context, w etcd.WorkerID, task string) error {
	ctx, c := x.of(ctx)
	return c.Remove(ctx, w, task)
}

func (x *succession) Apply(ctx context.Context, w etcd.WorkerID, writes []orchestrator.Write[string]) []error {
	ctx, c := x.of(ctx)
	return c.Apply(ctx, w, writes)
}

func TestE5_AddRunsAndRemoveStops(t *testing.T) {
	s := newStage(t)
	a := s.startMember(s.client, "a", 5*time.Second)
	w := a.joined()
	l := s.elect(s.client, "l1", 2*time.Second)
	require.Empty(t, l.list(1, w))
	require.NoError(t, l.add(1, w, "t1"))
	require.Equal(t, []string{"t1"}, l.list(1, w))
	s.taskLog.wait(t, "t1 runs", func(l *taskLog) bool { return len(l.running) == 1 }) // it was started, but may not be scheduled yet
	require.NoError(t, l.add(1, w, "t1"))
	require.NoError(t, l.remove(1, w, "t1"))
	require.Empty(t, l.list(1, w))
	require.Empty(t, s.taskLog.snapshot())
	a.quit()
	require.ErrorIs(t, a.result(), errOver)
	require.False(t, s.there("/work/members/a"))
}

// A worker that does not claim in time loses the assignment, and does not start the
// task later.
func TestE5_AddWithdrawsWhatIsNotClaimed(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.startMember(client, "a", 10*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	cable.Cut(netfault.Both)
	ctx, cancel := l.term(1, 5*time.Second) // of which the last second is for the withdrawal
	defer cancel()
	err := l.comm.Add(ctx, w, "t")
	require.ErrorIs(t, err, orchestrator.ErrRejected)
	require.Empty(t, l.list(1, w))
	require.False(t, s.there("/work/assigned/a/t"))
	cable.Heal()
	require.NoError(t, l.add(1, w, "u"))
	s.taskLog.wait(t, "u runs", func(l *taskLog) bool { return l.running["u"] != "" })
	require.Zero(t, s.taskLog.started("t"))
}

// The next leader lists unclaimed assignments of its predecessor, and withdraws them
// after the time that a call may take.
func TestE5_ListWithdrawsWhatIsNotClaimed(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.startMember(client, "a", 10*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	cable.Cut(netfault.Both)
	ctx, cancel := l.term(1, soon)
	added := make(chan error, 1)
	go func() { added <- l.comm.Add(ctx, w, "t") }()
	s.eventually("t is assigned", func() bool { return s.there("/work/assigned/a/t") })
	cancel()
	err := receive(t, added)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, orchestrator.ErrRejected)
	l.resign()

	next := s.elect(s.connect(), "l2", 5*time.Second)
	term := uint64(0)
	listed := func() ([]string, error) {
		term++
		ctx, cancel := next.term(term, 300*time.Millisecond) // a busy machine may need longer
		defer cancel()
		tasks, err := next.comm.List(ctx, w)
		if !errors.Is(err, context.DeadlineExceeded) {
			require.NoError(t, err)
		}
		return tasks, err
	}
	s.eventually("t is listed", func() bool { tasks, err := listed(); return err == nil && slices.Equal(tasks, []string{"t"}) })
	s.eventually("t is withdrawn", func() bool { tasks, err := listed(); return err == nil && len(tasks) == 0 })
	cable.Heal()
	require.NoError(t, next.add(term, w, "u"))
	require.Zero(t, s.taskLog.started("t"))
}

// Add waits until a claimed task is ready.
func TestE5_AddWaitsForReadiness(t *testing.T) {
	s := newStage(t)
	ready := make(chan struct{})
	a := s.startMemberWith(s.client, "a", 5*time.Second, func(ctx context.Context, task string) error {
		s.taskLog.start(task, "a")
		defer s.taskLog.stop(task)
		select {
		case <-ready:
			worker.Ready(ctx)
		case <-ctx.Done():
		}
		<-ctx.Done()
		return nil
	}, worker.WithReadiness())
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	ctx, cancel := l.term(1, 300*time.Millisecond)
	defer cancel()
	err := l.comm.Add(ctx, w, "t")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, orchestrator.ErrRejected)
	require.Equal(t, []string{"t"}, l.list(2, w), "the start continues")
	// A task that is not ready can be removed.
	require.NoError(t, l.remove(2, w, "t"))
	require.Empty(t, s.taskLog.snapshot())

	ctx, cancel = l.term(2, soon)
	defer cancel()
	added := make(chan error, 1)
	go func() { added <- l.comm.Add(ctx, w, "t") }()
	s.taskLog.wait(t, "t starts", func(l *taskLog) bool { return len(l.running) == 1 })
	select {
	case err := <-added:
		require.Fail(t, "Add returned before the task was ready", "%v", err)
	default:
	}
	close(ready)
	require.NoError(t, receive(t, added))
}

// A refusal contains the worker's reason.
func TestE5_RefusedWithItsReason(t *testing.T) {
	s := newStage(t)
	a := s.startMember(s.client, "a", 5*time.Second, worker.WithAccept(func(_ context.Context, task string, content []byte) error {
		if task == "bad" {
			return errors.New("no handler for " + string(content))
		}
		return nil
	}))
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	_, err := s.client.Put(t.Context(), "/work/registry/bad", "vinyl")
	require.NoError(t, err)
	ctx, cancel := l.term(1, soon)
	defer cancel()
	errs := l.comm.Apply(ctx, w, []orchestrator.Write[string]{{Op: orchestrator.OpAdd, Task: "bad"}, {Op: orchestrator.OpAdd, Task: "good"}})
	require.ErrorIs(t, errs[0], orchestrator.ErrRejected)
	require.ErrorContains(t, errs[0], "no handler for vinyl")
	require.NoError(t, errs[1])
	require.Equal(t, []string{"good"}, l.list(1, w))
	require.False(t, s.there("/work/active/a/bad"))
}

// Calls for a worker that has left do not reach its successor.
func TestE5_RestartedUnderItsOldNameInTheMiddleOfAMove(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	old := s.startMember(client, "a", 2*time.Second)
	w := old.joined()
	b := s.startMember(s.client, "b", 5*time.Second).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "t"))
	cable.Cut(netfault.Both) // as if the machine were gone

	ctx, cancel := l.term(1, 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, l.comm.Remove(ctx, w, "t"), orchestrator.ErrStopping)
	require.Equal(t, []string{"t"}, l.list(2, w), "the task is held")
	successor := s.startMember(s.connect(), "a", 2*time.Second)
	require.ErrorIs(t, l.remove(2, w, "t"), orchestrator.ErrStopping, "immediately, because of the earlier Remove")
	s.eventually("the lease has ended, so its tasks have stopped", func() bool {
		return errors.Is(l.remove(2, w, "t"), orchestrator.ErrRejected)
	})
	require.NoError(t, l.add(2, b, "t"))

	var w2 etcd.WorkerID
	s.eventually("the successor has joined", func() bool { w2 = successor.joined(); return w2 != w })
	for _, err := range []error{l.add(3, w, "u"), l.remove(3, w, "t")} {
		require.ErrorIs(t, err, orchestrator.ErrRejected)
	}
	ctx, cancel = l.term(3, time.Second)
	defer cancel()
	_, err := l.comm.List(ctx, w)
	require.Error(t, err)
	require.Empty(t, l.list(3, w2))
	require.NoError(t, l.add(3, w2, "u"))
	require.Zero(t, s.taskLog.started("v"))
	cable.Heal()
}

// The values of the protocol are readable with etcdctl.
func TestE1_WhatTheProtocolWrites(t *testing.T) {
	s := newStage(t)
	w := s.startMember(s.client, "a b", 5*time.Second).joinedAs("a%20b")
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(3, w)
	require.NoError(t, l.add(3, w, "t/1"))
	value := func(key string) string {
		resp, err := s.client.Get(t.Context(), "/work/"+key)
		require.NoError(t, err)
		require.Len(t, resp.Kvs, 1, key)
		if key != "term" && key != "begun" {
			require.NotZero(t, resp.Kvs[0].Lease, key)
		}
		return string(resp.Kvs[0].Value)
	}
	require.Equal(t, "3", value("term"))
	require.Equal(t, "3", value("begun"))
	require.JSONEq(t, fmt.Sprintf(`{"epoch":%d,"term":3,"member":%d}`, l.leader.Epoch(), w.Incarnation), value("assigned/a%20b/t%2F1"))
	require.Regexp(t, `^\{"incarnation":"\d+"\}$`, value("active/a%20b/t%2F1"))
	s.eventually("the load is written", func() bool { return value("workers/a%20b") == "000001" })
}

package etcd_test

// The protocol under faults: workers that are slow, cut off, restarted or refuse
// tasks, late writes and lost answers.

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A worker that does not claim in time loses the assignment, and does not start the
// task later.
func TestE5_AddWithdrawsWhatIsNotClaimed(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.hire(client, "a", 10*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	cable.Cut(netfault.Both)
	ctx, cancel := l.term(1, 500*time.Millisecond)
	defer cancel()
	err := l.comm.Add(ctx, w, "t")
	require.ErrorIs(t, err, orchestrator.ErrRejected)
	require.Empty(t, l.list(1, w))
	require.False(t, s.there("/work/assigned/a/t"))
	cable.Heal()
	require.NoError(t, l.add(1, w, "u"))
	s.ledger.wait(t, "u runs", func(l *ledger) bool { return l.running["u"] != "" })
	require.Zero(t, s.ledger.started("t"))
}

// The next leader lists unclaimed assignments of its predecessor, and withdraws them
// after the time that a call may take.
func TestE5_ListWithdrawsWhatIsNotClaimed(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.hire(client, "a", 10*time.Second)
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
	listed := func(term uint64) []string {
		ctx, cancel := next.term(term, 300*time.Millisecond)
		defer cancel()
		tasks, err := next.comm.List(ctx, w)
		require.NoError(t, err)
		return tasks
	}
	require.Equal(t, []string{"t"}, listed(1))
	term := uint64(1)
	s.eventually("t is withdrawn", func() bool { term++; return len(listed(term)) == 0 })
	cable.Heal()
	require.NoError(t, next.add(term, w, "u"))
	require.Zero(t, s.ledger.started("t"))
}

// An assignment for another membership is deleted without a claim.
func TestE5_StaleAssignmentIsNotTaken(t *testing.T) {
	s := newStage(t)
	_, err := s.client.Put(t.Context(), "/work/format", "orchestrator 1")
	require.NoError(t, err)
	_, err = s.client.Put(t.Context(), "/work/assigned/a/t", `{"epoch":7,"term":1,"member":1}`)
	require.NoError(t, err)
	a := s.hire(s.client, "a", 5*time.Second)
	w := a.joined()
	s.eventually("the assignment is deleted", func() bool { return !s.there("/work/assigned/a/t") })
	l := s.elect(s.client, "l1", 5*time.Second)
	require.Empty(t, l.list(1, w))
	require.NoError(t, l.add(1, w, "u"))
	require.Zero(t, s.ledger.started("t"))
}

// Calls for a worker that has left do not reach its successor.
func TestE5_RestartedUnderItsOldNameInTheMiddleOfAMove(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	old := s.hire(client, "a", 2*time.Second)
	w := old.joined()
	b := s.hire(s.client, "b", 5*time.Second).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "t"))
	cable.Cut(netfault.Both) // as if the machine were gone

	ctx, cancel := l.term(1, 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, l.comm.Remove(ctx, w, "t"), orchestrator.ErrStopping)
	require.Equal(t, []string{"t"}, l.list(2, w), "the task is held")
	successor := s.hire(s.connect(), "a", 2*time.Second)
	require.ErrorIs(t, l.remove(2, w, "t"), orchestrator.ErrStopping, "immediately, because of the earlier Remove")
	s.eventually("the lease has ended, so its tasks have stopped", func() bool {
		return errors.Is(l.remove(2, w, "t"), orchestrator.ErrRejected)
	})
	require.NoError(t, l.add(2, b, "t"))

	var w2 etcd.Worker
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
	require.Zero(t, s.ledger.started("v"))
	cable.Heal()
}

// A leader is paused in the middle of its writes while another is elected. None of
// its later writes lands.
func TestE2_PausedLeaderWritesNothing(t *testing.T) {
	s := newStage(t)
	w := s.hire(s.client, "a", 5*time.Second).joined()
	client, gate := s.gated()
	l := s.elect(client, "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "stays"))
	release := gate.hold("/work/assigned/a/")
	writes := []orchestrator.Write[string]{
		{Op: orchestrator.OpRemove, Task: "stays"},
		{Op: orchestrator.OpAdd, Task: "late"},
	}
	errs := make(chan []error, 1)
	ctx, cancel := l.term(1, soon)
	defer cancel()
	go func() { errs <- l.comm.Apply(ctx, w, writes) }()
	receive(t, gate.arrived)
	// Its lease ends, as during a pause; the leader does not learn of it.
	_, err := s.client.Delete(t.Context(), "/work/leader/", clientv3.WithPrefix())
	require.NoError(t, err)
	next := s.elect(s.connect(), "l2", 5*time.Second)
	require.Equal(t, []string{"stays"}, next.list(1, w))
	release()
	for _, err := range receive(t, errs) {
		require.ErrorIs(t, err, orchestrator.ErrDeposed)
	}
	require.Equal(t, []string{"stays"}, next.list(1, w))
	require.NoError(t, next.add(1, w, "more"))
	require.Equal(t, []string{"more", "stays"}, next.list(1, w))
	require.Zero(t, s.ledger.started("late"))
	require.Equal(t, 1, s.ledger.started("stays"))
	for _, call := range []error{l.add(1, w, "u"), l.remove(1, w, "stays")} {
		require.ErrorIs(t, call, orchestrator.ErrDeposed)
	}
}

// A claim reaches etcd but its answer is lost: the task runs exactly once.
func TestE5_ClaimWithoutAnAnswer(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	gate := gateBefore(client)
	a := s.hire(client, "a", 10*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	release := gate.hold("/work/active/a/")
	ctx, cancel := l.term(1, soon)
	defer cancel()
	added := make(chan error, 1)
	go func() { added <- l.comm.Add(ctx, w, "t") }()
	receive(t, gate.arrived)
	cable.Cut(netfault.Down)
	go release()
	s.eventually("t is claimed", func() bool { return s.there("/work/active/a/t") })
	require.Zero(t, s.ledger.started("t"))
	cable.Reset() // the answer is lost
	cable.Heal()
	require.NoError(t, receive(t, added))
	s.ledger.wait(t, "t runs", func(l *ledger) bool { return l.running["t"] != "" })
	require.Equal(t, 1, s.ledger.started("t"))
	require.Equal(t, []string{"t"}, l.list(1, w))
	require.NoError(t, l.remove(1, w, "t"))
	require.Empty(t, s.ledger.snapshot())
}

// Of two workers with one name, the second is refused once the first must be alive.
func TestE4_NameTaken(t *testing.T) {
	s := newStage(t)
	first := s.hire(s.client, "a", 2*time.Second)
	w := first.joined()
	began := time.Now()
	second := s.hire(s.connect(), "a", 2*time.Second)
	require.ErrorIs(t, second.result(), etcd.ErrNameTaken)
	require.Greater(t, time.Since(began), 2*time.Second)
	require.Equal(t, w, first.joined())
}

// A worker that is cut off for longer than its lease stops everything, and rejoins
// as another incarnation.
func TestW5_CutOffForLongerThanTheLease(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.hire(client, "a", 2*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "t"))
	s.ledger.wait(t, "t runs", func(l *ledger) bool { return len(l.running) == 1 })
	cable.Cut(netfault.Both)
	s.ledger.wait(t, "t has stopped", func(l *ledger) bool { return len(l.running) == 0 })
	require.True(t, s.there("/work/active/a/t"), "t must stop before the lease expires")
	s.eventually("the lease ends", func() bool { return !s.there("/work/members/a") })
	require.False(t, s.there("/work/active/a/t"))
	cable.Heal()
	again := a.joined()
	require.Greater(t, again.Incarnation, w.Incarnation)
	require.NoError(t, l.add(2, again, "t"))
	s.ledger.wait(t, "t runs", func(l *ledger) bool { return l.starts["t"] == 2 })
}

// A member whose key is deleted stops its tasks and rejoins.
func TestE4_EvictedByHand(t *testing.T) {
	s := newStage(t)
	a := s.hire(s.client, "a", 5*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "t"))
	_, err := s.client.Delete(t.Context(), "/work/members/a")
	require.NoError(t, err)
	s.ledger.wait(t, "t has stopped", func(l *ledger) bool { return len(l.running) == 0 })
	require.NotEqual(t, w, a.joined())
	require.False(t, s.there("/work/active/a/t"), "the old lease must be revoked")
}

// Add waits until a claimed task is ready.
func TestE5_AddWaitsForReadiness(t *testing.T) {
	s := newStage(t)
	ready := make(chan struct{})
	a := s.hireTo(s.client, "a", 5*time.Second, func(ctx context.Context, task string) error {
		s.ledger.start(task, "a")
		defer s.ledger.stop(task)
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
	require.Empty(t, s.ledger.snapshot())

	ctx, cancel = l.term(2, soon)
	defer cancel()
	added := make(chan error, 1)
	go func() { added <- l.comm.Add(ctx, w, "t") }()
	s.ledger.wait(t, "t starts", func(l *ledger) bool { return len(l.running) == 1 })
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
	a := s.hire(s.client, "a", 5*time.Second, worker.WithAccept(func(_ context.Context, task string, content []byte) error {
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

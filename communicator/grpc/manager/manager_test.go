package manager

// R2: a manager and its members, and how both end.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/dashboard"
)

// A dashboard shows the terms of a manager.
var _ dashboard.Source[communicator.WorkerID, string] = (*Manager)(nil)

func TestR2_OnlyTheEndOfALeaseFreesTasks(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		m.put("a", "b")
		workers := n.registerWorkers("one", "two")
		n.pass(time.Second)
		require.Equal(t, map[string]int{"one": 1, "two": 1}, n.spread())
		before := n.where()
		workers[1].unserve() // makes it silent
		n.pass(aLease-2*time.Second, workers[0])
		require.Equal(t, before, n.where())
		require.Equal(t, 2, n.starts(), "silent is not empty")
		require.Len(t, m.Members(), 2)
		require.NotZero(t, m.Members()[1].Failing)
		require.NoError(t, workers[1].Close(t.Context()))
		n.pass(2*time.Second, workers[0])
		require.Equal(t, map[string]int{"one": 2}, n.spread())
		require.Len(t, m.Members(), 1)
		require.Equal(t, codes.NotFound, code(workers[1].beat()))
		require.Equal(t, codes.FailedPrecondition, code(workers[1].register()))
	})
}

// gRPC takes five seconds to close a connection if the peer does not read.
func TestR2_AnExpiredWorkerThatDoesNotReadDelaysNoOther(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		from := make(chan struct{})
		n.bend = func(address string, line net.Conn) net.Conn {
			if address != "one.test:7000" {
				return line
			}
			return &stuck{Conn: line, from: from, closed: make(chan struct{})}
		}
		m := n.open(NewMemoryStore())
		workers := n.registerWorkers("one", "two")
		m.put("a", "b")
		n.pass(time.Second, workers...)
		close(from)
		n.pass(aLease-time.Millisecond, workers[1])
		require.Len(t, m.Members(), 2)
		n.pass(time.Millisecond, workers[1]) // the lease of one has expired
		begun := time.Now()
		m.put("c")
		require.Equal(t, begun, time.Now())
		require.Len(t, m.Members(), 1)
		n.pass(20*time.Second, workers[1])
		for task, at := range n.where() {
			require.Contains(t, at, "two", task) // worker one stops nothing although its lease has expired
		}
		m.close()
	})
}

func TestR2_AWorkerThatLeavesIsRemovedImmediately(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		m.put("a", "b")
		workers := n.registerWorkers("one", "two")
		n.pass(time.Second)
		require.NoError(t, workers[1].Close(t.Context()))
		require.NoError(t, workers[1].leave())
		require.NoError(t, workers[1].leave(), "again")
		n.pass(time.Second)
		require.Equal(t, map[string]int{"one": 2}, n.spread())
		require.Equal(t, codes.NotFound, code(workers[1].beat()), "a heartbeat may arrive after the Leave")
		require.NotContains(t, n.logs.String(), "level=WARN")
		require.Equal(t, codes.FailedPrecondition, code(workers[1].register()))
		n.registerWorker("two")
		n.pass(time.Second)
		require.Equal(t, map[string]int{"one": 1, "two": 1}, n.spread())
	})
}

func TestR2_AfterARestartNothingIsWrittenUntilEachIsHeard(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		m.put("a", "b", "c", "d")
		workers := n.registerWorkers("one", "two")
		n.pass(time.Second)
		require.NoError(t, m.Delete(t.Context(), "d")) // its last term may not see this
		m.close()
		before := n.where()

		next := n.open(m.store)
		require.Equal(t, m.committer.epoch+1, next.committer.epoch)
		require.Zero(t, next.Members()[0].Heard)
		require.Equal(t, time.Now().Add(aLease), next.Members()[0].Until)
		_, err := next.Plan(orchestrator.Hypothesis[communicator.WorkerID, string]{})
		require.ErrorIs(t, err, ErrNotLeading)
		next.put("e")
		n.pass(aLease/2, workers[0])
		require.Equal(t, before, n.where())
		require.Zero(t, next.LastPlan(), "no term has run")
		require.Nil(t, next.Last())
		terms := 0
		defer next.OnTerm(func(s *orchestrator.Snapshot[communicator.WorkerID, string]) {
			require.Same(t, s, next.Last())
			require.Zero(t, next.Progress())
			require.Equal(t, s.Plan().Stats.Term.Epoch, next.Config().Epoch)
			terms++
		})()
		require.NoError(t, workers[1].beat())
		n.pass(time.Second)
		require.NotZero(t, next.LastPlan().Stats.Term)
		require.NotZero(t, terms)
		where := n.where()
		require.NotContains(t, where, "d")
		require.Contains(t, where, "e")
		for _, task := range []string{"a", "b", "c"} {
			require.Equal(t, before[task], where[task])
		}
		require.Equal(t, 5, n.starts())
		_, err = next.Plan(orchestrator.Hypothesis[communicator.WorkerID, string]{})
		require.NoError(t, err)
		require.Contains(t, n.logs.String(), "no terms until known members answer")
		require.Contains(t, n.logs.String(), "[one two]")
	})
}

func TestR2_AfterARestartAMissingMemberExpires(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		m.put("a", "b")
		workers := n.registerWorkers("one", "two")
		n.pass(time.Second)
		m.close()
		workers[1].unserve()
		next := n.open(m.store)
		n.pass(aLease-time.Millisecond, workers[0])
		require.Zero(t, next.LastPlan())
		require.Equal(t, 2, n.starts())
		require.NoError(t, workers[1].Close(t.Context()))
		n.pass(time.Second, workers[0])
		require.Equal(t, map[string]int{"one": 2}, n.spread())
	})
}

// The first term waits until the orchestrator knows that a lease has expired,
// however slow the store is. Otherwise it would do nothing because of a worker that
// it cannot list.
func TestR2_AfterARestartTheFirstTermKnowsExpiredMembers(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		store := &slowStore{MemoryStore: NewMemoryStore()}
		m := n.open(store)
		m.put("a", "b")
		workers := n.registerWorkers("stays", "goes")
		n.pass(time.Second, workers...)
		require.Equal(t, map[string]int{"stays": 1, "goes": 1}, n.spread())
		m.close()
		workers[1].unserve()
		require.NoError(t, workers[1].Close(t.Context()))

		m = n.open(store)
		n.pass(aLease-time.Second, workers[0])
		gate := store.hold()
		release := sync.OnceFunc(func() { close(gate) })
		defer release()
		n.pass(2*time.Second, workers[0])
		_, err := m.Plan(orchestrator.Hypothesis[communicator.WorkerID, string]{})
		require.ErrorIs(t, err, ErrNotLeading)
		require.Zero(t, m.LastPlan().Stats.Term)
		release()
		synctest.Wait()
		require.Equal(t, uint64(1), m.LastPlan().Stats.Term.Number)
		require.Equal(t, map[string]int{"stays": 2}, n.spread(), "done by the first term")
	})
}

func TestR2_DrainedByNameOrByItself(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		m.put("a", "b")
		require.NoError(t, m.Drain(t.Context(), "one"))
		workers := n.registerWorkers("one", "two")
		n.pass(time.Second)
		require.Equal(t, map[string]int{"two": 2}, n.spread())
		require.True(t, m.Members()[0].Draining)
		require.NoError(t, m.Undrain(t.Context(), "one"))
		n.pass(time.Second)
		require.Equal(t, map[string]int{"one": 1, "two": 1}, n.spread())
		_, err := workers[1].manager.Heartbeat(t.Context(), &orchestratorv1.HeartbeatRequest{
			Worker: []byte("two"), Incarnation: workers[1].Incarnation(), Draining: true,
		})
		require.NoError(t, err)
		n.pass(time.Second)
		require.Equal(t, map[string]int{"one": 2}, n.spread())
		require.ErrorIs(t, m.Drain(t.Context(), ""), orchestrator.ErrInvalid)
		said := func(text string) int { return strings.Count(n.logs.String(), text) }
		require.Equal(t, 2, said(`"worker is a member"`), "each once")
		require.Equal(t, 1, said(`"worker draining" worker=two`))
		require.Equal(t, 1, said(`"worker undrained" worker=one`))
	})
}

func TestR2_RunEnds(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		m.put("a")
		one := n.registerWorker("one")
		n.pass(time.Second)
		err := m.Run(t.Context(), n.listen("unused"))
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		m.close()
		require.Equal(t, map[string]string{"a": "one"}, n.where(), "running tasks continue")
		require.Equal(t, codes.Unavailable, code(one.beat()))
		_, err = m.Put(t.Context(), Item{Name: "b"})
		require.ErrorIs(t, err, ErrStopped)
		_, err = m.Plan(orchestrator.Hypothesis[communicator.WorkerID, string]{})
		require.ErrorIs(t, err, ErrNotLeading)
		item, err := m.Get("a")
		require.NoError(t, err)
		require.Equal(t, "content of a", string(item.Content))
	})
}

// A term finishes what it has begun. Here that is a start that waits for its worker,
// which keeps its lease in the meantime.
func TestT6_WhatATermHasBegunIsCarriedThrough(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one := n.registerWorker("one")
		n.pass(time.Second)
		release := one.gate.Hold(&one.gate.Some)
		m.put("a")
		n.pass(time.Second)
		m.stop(errClosing)
		n.pass(time.Second, one)
		require.Empty(t, m.done)
		release()
		require.ErrorIs(t, <-m.done, errClosing)
		require.Equal(t, map[string]string{"a": "one"}, n.where())
	})
}

func TestR2_AStoreThatFailsEndsRun(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		store := &slowStore{MemoryStore: NewMemoryStore()}
		m := n.open(store)
		one := n.registerWorker("one")
		gate := store.hold()
		full := errors.New("disk full")
		go func() { gate <- full }()
		_, err := m.Put(t.Context(), Item{Name: "a"})
		require.ErrorIs(t, err, full)
		require.ErrorIs(t, <-m.done, full)
		require.Equal(t, codes.Unavailable, code(one.beat()))
	})
}

func TestR3_NoPlaintextOffLoopbackUnlessAskedFor(t *testing.T) {
	m, err := New(NewMemoryStore())
	require.NoError(t, err)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	require.ErrorIs(t, m.Run(t.Context(), l), communicator.ErrPlaintext)
	require.ErrorIs(t, l.Close(), net.ErrClosed)
}

// The caller may close the store as soon as Run has returned.
func TestR2_NothingIsTakenAfterARunThatCouldNotServe(t *testing.T) {
	store := NewMemoryStore()
	m, err := New(store)
	require.NoError(t, err)
	_, err = m.Put(t.Context(), Item{Name: "before"})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	require.ErrorIs(t, m.Run(t.Context(), l), communicator.ErrPlaintext)
	_, err = m.Put(t.Context(), Item{Name: "after"})
	require.ErrorIs(t, err, ErrStopped)
	require.ErrorIs(t, m.Delete(t.Context(), "before"), ErrStopped)
	kept, err := store.Load()
	require.NoError(t, err)
	require.Contains(t, kept, "task/before")
	require.NotContains(t, kept, "task/after")
	require.ErrorIs(t, m.Run(t.Context(), l), orchestrator.ErrInvalid)
}

func TestR2_AStoreThatFailedBeforeRun(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		store := &slowStore{MemoryStore: NewMemoryStore()}
		m, err := New(store)
		require.NoError(t, err)
		gate := store.hold()
		full := errors.New("disk full")
		go func() { gate <- full }()
		_, err = m.Put(t.Context(), Item{Name: "a"})
		require.ErrorIs(t, err, full)
		require.ErrorIs(t, m.Run(t.Context(), n.listen(managerAt)), full)
	})
}

func TestT13_AnotherManagerDeposesThisOne(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		workers := n.registerWorkers("one", "two")
		n.pass(time.Second, workers...)
		later := orchestrator.ContextWithTerm(t.Context(), orchestrator.Term{Epoch: m.committer.epoch + 1, Number: 1})
		for _, w := range workers {
			require.Empty(t, m.done, "one worker alone may be wrong")
			_, err := w.List(later)
			require.NoError(t, err)
			n.pass(2 * time.Second)
		}
		require.ErrorIs(t, <-m.done, orchestrator.ErrDeposed)
	})
}

// If one worker names a later epoch, only its own tasks are affected. They are held
// until it is a member again.
func TestR5_OneWorkerDeposesNoManager(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		m := n.open(NewMemoryStore(), WithUnreachable(20*time.Second))
		m.put("a", "b", "c", "d", "e", "f")
		workers := n.registerWorkers("one", "two", "liar")
		good, liar := workers[:2], workers[2]
		n.pass(time.Second, workers...)
		require.Equal(t, map[string]int{"one": 2, "two": 2, "liar": 2}, n.spread())
		liar.Fence(orchestrator.Term{Epoch: math.MaxUint64, Number: math.MaxUint64})
		n.pass(20*time.Second, workers...)
		n.pass(2*time.Second, good...)
		err := liar.beat()
		require.Equal(t, codes.FailedPrecondition, code(err))
		require.Equal(t, "UNREACHABLE", wire.ReasonOf(err))
		require.Equal(t, map[string]int{"one": 2, "two": 2, "liar": 2}, n.spread(), "before its lease expires")
		n.pass(aLease, good...)
		require.Empty(t, m.done)
		require.Equal(t, 6, n.starts(), "it may follow another manager, and still run its two tasks")
		m.put("g", "h")
		n.pass(time.Second, good...)
		require.Equal(t, 8, n.starts(), "the others continue")

		liar.unserve()
		back := n.registerWorker("liar")
		n.pass(2*time.Second, good[0], good[1], back)
		good[0].Fence(orchestrator.Term{Epoch: math.MaxUint64})
		n.pass(2*time.Second, good[1], back)
		require.Empty(t, m.done, "it is the only witness again")
		require.Contains(t, n.logs.String(), `msg="worker names a higher epoch, not called until another worker does" worker=liar`)
	})
}

// If a worker has seen a term that the manager has not begun, the manager takes a new
// epoch, in which the worker carries out its changes again. A claim that is repeated does
// not make it take one after the other.
func TestR7_AMadeUpTermOfItsOwnEpochHarmsNothing(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		workers := n.registerWorkers("one", "two")
		n.pass(2*time.Second, workers...)
		began := m.LastPlan().Stats.Term.Epoch
		made := orchestrator.ContextWithTerm(t.Context(), orchestrator.Term{Epoch: began, Number: 1 << 32})
		for _, w := range workers {
			_, err := w.List(made)
			require.NoError(t, err)
		}
		m.put("a", "b", "c", "d")
		n.pass(10*time.Second, workers...)
		require.Equal(t, map[string]int{"one": 2, "two": 2}, n.spread())
		require.Equal(t, began+1, m.LastPlan().Stats.Term.Epoch, "one new epoch for both")
		require.Equal(t, 4, n.starts())
		require.Empty(t, m.done)

		for range 30 {
			again := orchestrator.ContextWithTerm(t.Context(), orchestrator.Term{Epoch: m.LastPlan().Stats.Term.Epoch, Number: 1 << 32})
			_, err := workers[0].List(again)
			require.NoError(t, err)
			n.pass(time.Second, workers...)
		}
		require.LessOrEqual(t, m.LastPlan().Stats.Term.Epoch, began+2)
		n.pass(time.Minute, workers...)
		m.put("e", "f")
		n.pass(10*time.Second, workers...)
		require.Len(t, n.where(), 6)
		require.Equal(t, 6, n.starts())
		epoch := m.LastPlan().Stats.Term.Epoch
		m.close()
		require.Contains(t, n.logs.String(), "worker has seen a term of this epoch that was not begun")
		m = n.open(m.store)
		n.pass(5*time.Second, workers...)
		require.Equal(t, epoch+1, m.LastPlan().Stats.Term.Epoch, "the epoch was saved")
		m.close()
	})
}

func TestR5_AHigherEpochTakesTwoWorkersThatStandByIt(t *testing.T) {
	var x witness
	says := func(name string) string {
		first, confirmed := x.add(name)
		return fmt.Sprint(first, confirmed)
	}
	require.Equal(t, "true false", says("a"))
	require.Equal(t, "false false", says("a"), "the same name does not count twice")
	x.drop("b")
	x.drop("a")
	require.Equal(t, "true false", says("b"), "the first worker has answered without a higher epoch since")
	require.Equal(t, "false true", says("a"))
}

func TestR2_OptionsAreChecked(t *testing.T) {
	_, err := New(nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for says, opt := range map[string]Option{
		"is nil":                        nil,
		"WithInterval(0s)":              WithInterval(0),
		"WithInterval(1h0m1s)":          WithInterval(time.Hour + time.Second),
		"WithLeases(0s, 1s)":            WithLeases(0, time.Second),
		"WithLeases(2s, 1s)":            WithLeases(2*time.Second, time.Second),
		"WithLeases(1s, 25h0m0s)":       WithLeases(time.Second, 25*time.Hour),
		"WithUnreachable(0s)":           WithUnreachable(0),
		"WithUnreachable(25h0m0s)":      WithUnreachable(25 * time.Hour),
		"WithMaxMoves(-1)":              WithOrchestrator(orchestrator.WithMaxMoves(-1)),
		"WithCommunicatorTimeout(-1ns)": WithOrchestrator(orchestrator.WithCommunicatorTimeout(-1)),
	} {
		_, err := New(NewMemoryStore(), opt)
		require.ErrorIs(t, err, orchestrator.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
	_, err = New(broken{errors.New("no disk")})
	require.ErrorContains(t, err, "no disk")
}

func TestR2_RunWaitsForWhatItServes(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one := n.newWorker("one")
		release := one.gate.Hold(&one.gate.All)
		registered := make(chan error, 1)
		go func() { registered <- one.register() }()
		synctest.Wait()
		begun := time.Now()
		m.close()
		require.Equal(t, peer.Grace, time.Since(begun))
		synctest.Wait()
		require.Equal(t, codes.Unavailable, code(<-registered))
		release()
	})
}

func TestR2_AManagerCountsItsMembersAndWhatItRefuses(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		require.Zero(t, m.MemberCount())
		none := m.RefusedCalls()
		require.Contains(t, none, "ResourceExhausted", "every code is present from the start")
		for cause, count := range none {
			require.Zero(t, count, cause)
		}
		n.registerWorkers("one", "two")
		require.Equal(t, 2, m.MemberCount())

		other := n.newWorker("one")
		require.Equal(t, codes.AlreadyExists, code(other.register()))
		for range 2 {
			require.Equal(t, codes.NotFound, code(other.beat()))
		}
		n.after(2 * aLease)
		require.Zero(t, m.MemberCount())
		none["AlreadyExists"], none["NotFound"] = 1, 2
		require.Equal(t, none, m.RefusedCalls())
		n.after(time.Second)
	})
}

// A draining worker cancels its earlier heartbeats. A cancelled heartbeat may still
// arrive, even after one that drains.
func TestR2_ACancelledHeartbeatHasNoEffect(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one := n.registerWorker("one")
		c := &managerServer{Manager: m.Manager}
		beat := func(ctx context.Context, draining bool) error {
			_, err := c.Heartbeat(ctx, &orchestratorv1.HeartbeatRequest{Worker: []byte("one"), Incarnation: one.Incarnation(), Draining: draining})
			return err
		}
		before, giveUp := context.WithCancel(localCall(t))
		require.NoError(t, beat(localCall(t), true))
		giveUp()
		require.Equal(t, codes.Canceled, code(beat(before, false)))
		synctest.Wait()
		require.True(t, m.Members()[0].Draining)
		require.NotContains(t, n.logs.String(), "level=WARN", "no call is refused")
		require.NoError(t, beat(localCall(t), false))
		require.False(t, m.Members()[0].Draining)
	})
}

// A manager may be away for as long as the package documentation says, at any time,
// and no worker loses its lease.
func TestR2_AManagerMayBeAwayForSoLong(t *testing.T) {
	const away = lease - lease/10 - stopping - 2*lease/12 - 1200*time.Millisecond
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		m.put("a", "b", "c")
		for _, name := range []string{"one", "two", "three"} {
			n.startMemberWorker(name, name)
		}
		n.pass(time.Second)
		require.Len(t, n.where(), 3)
		for i := range 12 {
			n.pass(lease + time.Duration(i)*lease/12/12)
			began := time.Now()
			m.close()
			n.mu.Lock()
			delete(n.at, managerAt)
			n.mu.Unlock()
			n.pass(away - time.Since(began))
			m = n.open(m.store)
			n.pass(lease)
			require.Equal(t, 3, n.starts(), "in round %d", i)
			require.Len(t, m.Members(), 3)
		}
	})
}

package test

// C9 and T4: lists of which a Communicator says that they are held.

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
)

// holding is a Communicator that says Held for the workers in lists, with these lists.
type holding struct {
	*wire
	mu    sync.Mutex
	lists map[string][]string
}

func (h *holding) List(ctx context.Context, worker string) ([]string, error) {
	h.mu.Lock()
	list, held := h.lists[worker]
	h.mu.Unlock()
	if !held {
		return h.wire.List(ctx, worker)
	}
	orchestrator.Held(ctx)
	return list, nil
}

// keep makes the Communicator say Held for a worker.
func (h *holding) keep(worker string, tasks ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lists[worker] = tasks
}

// release makes the Communicator list every worker again.
func (h *holding) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.lists)
}

// withHolding runs a test with a fleet whose Communicator can say Held.
func withHolding(t *testing.T, g given, test func(t *testing.T, f *fleet, h *holding)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &holding{wire: newWire(t), lists: make(map[string][]string)}
		test(t, newFleetOn(t, h.wire, h, g), h)
	})
}

func TestC9_HeldIsSilentWithThatList(t *testing.T) {
	withHolding(t, given{workers: 3, running: 9, opts: options{hold}}, func(t *testing.T, f *fleet, h *holding) {
		before := f.RunsOn("w2")
		h.keep("w2", before...)
		require.NoError(t, f.DrainWorker("w2"))
		f.RemoveTask(before[0])
		f.forget()
		for range 3 {
			f.silentTerm("w2")
		}
		require.Empty(t, f.writes(), "nothing is sent to it, and nothing of it starts elsewhere")
		s := f.state("w2")
		require.Equal(t, orchestrator.Silent, s.State, "silence outranks draining")
		require.ElementsMatch(t, before, s.Tasks)
		require.ErrorIs(t, s.Err, orchestrator.ErrHeld)
		require.ErrorIs(t, s.Err, orchestrator.ErrSilent)
		require.Len(t, f.waitingFor(orchestrator.ReasonHeld), 2)

		h.keep("w2", before[1]) // a report: less may run there now
		f.silentTerm("w2")
		require.Equal(t, []string{before[1]}, f.state("w2").Tasks)
		require.Equal(t, []string{"add " + before[2] + " w1"}, f.writes())
	})
}

func TestC9_HeldCountsAsHeard(t *testing.T) {
	one := orchestrator.WithConcurrency(1) // the calls share a context
	withHolding(t, given{workers: 3, opts: options{hold, one}}, func(t *testing.T, f *fleet, h *holding) {
		h.keep("w2", "t1")
		f.expect(4)
		f.silentTerm("w2")
		require.Len(t, f.sent(orchestrator.OpAdd), 3, "what no worker lists starts at once")
		require.Empty(t, f.Running("t1"))

		h.release()
		f.term()
		require.Len(t, f.Running("t1"), 1)
		f.requireSettled()
	})
}

// The grace period counts from the last answer that was not held. A lost worker stays
// lost while its lists are held.
func TestC9_HeldWorkerIsLostAfterTheGracePeriod(t *testing.T) {
	withHolding(t, given{workers: 3, running: 3}, func(t *testing.T, f *fleet, h *holding) {
		tasks := f.RunsOn("w2")
		h.keep("w2", tasks...)
		time.Sleep(grace - time.Second)
		f.silentTerm("w2")
		require.Equal(t, orchestrator.Silent, f.state("w2").State)
		time.Sleep(time.Second)
		for range 2 {
			f.silentTerm("w2")
			require.Equal(t, orchestrator.Lost, f.state("w2").State)
			require.Empty(t, f.state("w2").Tasks)
		}
		require.Equal(t, 1, f.LastPlan().Stats.Workers.Lost)
		require.Len(t, f.log.lines("declared lost"), 1)
		h.release()
		f.term()
		require.Equal(t, orchestrator.Answering, f.state("w2").State)
	})
}

// The silence begins and ends with one line of the log each.
func TestC9_HeldIsLoggedLikeSilence(t *testing.T) {
	withHolding(t, given{workers: 2, running: 2, opts: options{hold}}, func(t *testing.T, f *fleet, h *holding) {
		h.keep("w2", f.RunsOn("w2")...)
		f.silentTerm("w2")
		f.silentTerm("w2")
		h.release()
		f.term()
		require.Len(t, f.log.lines("worker silent"), 1)
		require.Len(t, f.log.lines("worker answers again"), 1)
	})
}

// Held takes effect only within List, in calls that succeed, and through wrappers.
func TestC9_WhereHeldTakesEffect(t *testing.T) {
	require.False(t, orchestrator.Held(t.Context()), "outside of a call")
	n := 0
	require.True(t, orchestrator.Held(orchestrator.ContextWithHeld(t.Context(), func() { n++ })))
	require.Equal(t, 1, n)

	synctest.Test(t, func(t *testing.T) {
		h := &holding{wire: newWire(t), lists: make(map[string][]string)}
		faulty := communicatortest.NewFaulty[string, string](h, nil)
		defer faulty.Close()
		f := newFleetOn(t, h.wire, faulty.Communicator(), given{workers: 2, running: 4, opts: options{hold}})
		h.keep("w1", f.RunsOn("w1")...)
		f.silentTerm("w1")
		require.ErrorIs(t, f.state("w1").Err, orchestrator.ErrHeld)
		h.release()
		f.term()
		require.True(t, slices.Equal([]int{2, 2}, f.loads()))
	})
}

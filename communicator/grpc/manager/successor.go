package manager

// How a manager treats workers that have seen a higher epoch than its own.
//
// One such worker alone may lie. Or it follows another manager, which runs from a
// copy of the store, for example. Its lease here then expires, but it keeps running
// its tasks. So these tasks stay held until the worker is a member again. If they
// were started elsewhere, and the other manager did the same with the tasks of the
// workers here, all of them would run twice. A lying worker only harms its own
// tasks.

import (
	"sync"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"

	"github.com/f8949c05/orchestrator"
)

// witness is the worker that names a higher epoch. One worker alone may be
// compromised, and must not end the manager (R5), so a second one is required.
type witness struct {
	mu   sync.Mutex
	name string // empty: no worker
}

// add records that a worker names a higher epoch. first reports whether the worker
// becomes the witness, confirmed whether another worker is the witness already.
func (x *witness) add(name string) (first, confirmed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.name == "" {
		x.name = name
		return true, false
	}
	return false, x.name != name
}

// drop forgets a worker that has answered without a higher epoch.
func (x *witness) drop(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.name == name {
		x.name = ""
	}
}

// is reports whether a worker is the witness.
func (x *witness) is(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.name == name
}

// believe reports whether a higher epoch that a worker names is confirmed by another
// worker. If so, the manager has a successor.
func (m *Manager) believe(w state.Worker, later orchestrator.Term) bool {
	first, confirmed := m.successor.add(w.Name)
	if first {
		m.log.Warn("worker names a higher epoch, not called until another worker does",
			"worker", w.Name, "incarnation", w.Incarnation, "epoch", later.Epoch, "own", m.committer.epoch)
	}
	return confirmed
}

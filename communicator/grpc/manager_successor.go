package grpc

// What a manager makes of workers that have seen a higher epoch than its own.
//
// One alone may lie, or it may follow another manager, which runs from a copy of the
// store, say. If it does, its lease here runs out, and it runs its tasks on. So these
// stay held until it is a member again: were they started elsewhere, and did the other
// manager do the same with the tasks of the workers here, all would run twice. A worker
// that lies harms its own tasks.

import (
	"sync"

	"github.com/f8949c05/orchestrator"
)

// witness is the worker that names a higher epoch. One alone may be compromised, and
// must not end a manager for all (R5), so it takes a second.
type witness struct {
	mu   sync.Mutex
	name string // empty: there is none
}

// add records that a worker names a higher epoch. first is true if no other worker
// has since that worker last answered otherwise, confirmed if another one has.
func (x *witness) add(name string) (first, confirmed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.name == "" {
		x.name = name
		return true, false
	}
	return false, x.name != name
}

// drop forgets a worker that has answered otherwise.
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

// believe reports whether the manager has a successor, which a worker says.
func (m *Manager) believe(w Worker, later orchestrator.Term) bool {
	first, confirmed := m.successor.add(w.Name)
	if first {
		m.log.Warn("worker names a higher epoch, not called until another worker does",
			"worker", w.Name, "incarnation", w.Incarnation, "epoch", later.Epoch, "own", m.ledger.epoch)
	}
	return confirmed
}

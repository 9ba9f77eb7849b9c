package manager

// Callbacks of the Communicator: reachable workers, ended tasks, a later manager.

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/worker"
)

var _ communicator.RevisedContents = (*state.Committed)(nil)

// managerHooks is the option of a manager's Communicator.
type managerHooks struct{ m *Manager }

// ApplyCommunicator gives the Communicator the manager's settings, contents and hooks.
func (h managerHooks) ApplyCommunicator(s *option.Communicator) {
	m := h.m
	restored := make(map[state.WorkerID]bool)
	for _, member := range m.committer.committed.Members() {
		restored[member.WorkerID] = true
	}
	*s = option.Communicator{
		Settings: m.settings.Settings, Dialing: m.settings.Dialing, Contents: &m.committer.committed,
		Observe: m.observe, Believe: m.believe, Overtaken: m.overtaken, Ended: m.ended, Receipts: m.committer.key,
		Restored: func(w state.WorkerID) bool { return restored[w] },
	}
}

// observe processes the result of each call to a worker.
func (m *Manager) observe(w state.WorkerID, err error) {
	if err == nil {
		m.successor.drop(w.Name)
	}
	m.committer.called(w, err == nil)
}

// ended records the tasks that a worker has reported as completed or failed, before
// the term continues. The worker also sends them with Complete, but that call may
// fail. The term would then treat the task as running, and could move it to a worker
// that runs it again. A recorded task no longer has content, so no term can start
// it.
func (m *Manager) ended(ctx context.Context, w state.WorkerID, tasks []wire.Task) error {
	var open []state.Conclusion
	for _, t := range tasks {
		if _, version, ok := m.committer.committed.Content(t.Name); ok && version == t.Version {
			open = append(open, conclusionOfTask(&t, m.committer.key, w.Name))
		}
	}
	if len(open) == 0 {
		return nil
	}
	return m.committer.commit(ctx, func(s *state.State, now time.Time) error {
		for _, e := range open {
			s.Conclude(now, w.Name, e)
		}
		return nil
	})
}

// conclusionOfTask converts an ended task in a worker's report to a Conclusion. Call it
// without the committer's lock, because it checks the receipt, which takes microseconds.
func conclusionOfTask(t *wire.Task, key state.ReceiptKey, from string) state.Conclusion {
	e := state.Conclusion{Task: t.Name, Version: t.Version, Proven: key.Issued(t.Receipt, from, t.Name, t.Version)}
	if t.State == worker.Failed {
		e.Failure = keptFailure(cmp.Or(t.Failure, &wire.Failure{Err: "no reason reported"}))
	}
	return e
}

// keptFailure returns what the state keeps of a failure; nil without one.
func keptFailure(f *wire.Failure) *state.Failure {
	if f == nil {
		return nil
	}
	return &state.Failure{Err: f.Err, Attempts: f.Attempts}
}

// witness is the worker that names a higher epoch. It may be compromised, and one worker
// must not end the manager (R5), so a second one is required.
//
// The worker may also follow another manager, such as one that runs from a copy of the
// store. Its lease here then expires, but it keeps running its tasks. So these tasks stay
// held until the worker is a member again. Otherwise each manager would start the tasks of
// the other's workers, and all of them would run twice. If the worker lies, only its own
// tasks are held.
type witness struct {
	mu   sync.Mutex
	name string // empty: no worker
}

// add records that a worker names a higher epoch. first reports whether the worker
// becomes the witness, confirmed whether another worker is the witness already.
func (w *witness) add(name string) (first, confirmed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.name == "" {
		w.name = name
		return true, false
	}
	return false, w.name != name
}

// drop forgets a worker that has answered without a higher epoch.
func (w *witness) drop(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.name == name {
		w.name = ""
	}
}

// is reports whether a worker is the witness.
func (w *witness) is(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.name == name
}

// believe reports whether a higher epoch that a worker names is confirmed by another
// worker. If so, the manager has a successor.
func (m *Manager) believe(w state.WorkerID, later orchestrator.Term) bool {
	if later.Epoch <= m.orch.Config().Epoch {
		return false // of this manager: the call was of an earlier epoch
	}
	first, confirmed := m.successor.add(w.Name)
	if first {
		m.log.Warn("worker names a higher epoch, not called until another worker does",
			"worker", w.Name, "incarnation", w.Incarnation, "epoch", later.Epoch, "own", m.committer.epoch)
	}
	return confirmed
}

// overtaken begins a new epoch, from the next term on, if a worker has seen a term of this
// one that the manager has not begun. Someone has made that term up, and the worker would
// refuse all writes. A worker may lie, so this happens at most once a minute.
func (m *Manager) overtaken(ctx context.Context, w state.WorkerID, seen orchestrator.Term) {
	if seen.Epoch != m.orch.Config().Epoch || seen.Number <= m.orch.LastPlan().Stats.Term.Number+1 {
		return
	}
	if _, ok := m.raises.Take(time.Now(), ""); !ok {
		return
	}
	var epoch uint64
	if m.committer.commit(ctx, func(s *state.State, _ time.Time) error {
		epoch = s.NextEpoch()
		return nil
	}) != nil {
		return // the store has failed, which ends Run, or the call has ended
	}
	m.orch.RaiseEpoch(epoch)
	m.log.Warn("worker has seen a term of this epoch that was not begun, taking a new epoch",
		"worker", w.Name, "incarnation", w.Incarnation, "seen", seen, "epoch", epoch)
}

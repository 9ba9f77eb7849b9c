package grpc

// The Manager, and what it tells its orchestrator. How it runs is in
// manager_run.go, what it serves in manager_service.go, what its user asks of it
// in manager_tasks.go.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Manager keeps the tasks and the members, and has the members run the tasks.
//
// Workers come to it ([Member] does that) and stay members by heartbeats. What is
// to run is said with Put and Delete; terms of an
// [orchestrator.Orchestrator] see to it that it does. Everything that must not be
// forgotten is in a [Store] before anybody hears of it: tasks, completions,
// members, drains. All of it is in memory too, contents included.
//
// # What a restart does
//
// Workers need not notice that a manager was restarted: they go on, and their
// next heartbeat reaches it. Until each member that it knows from before has been
// heard, or that one's lease has certainly run out, it runs no term, so that
// nothing is started elsewhere that one of them still runs. Its epoch is higher
// than that of the one before, which workers refuse from then on.
//
// # Completion
//
// A task completes where its function returns nil, if its worker was made with
// worker.WithCompletion. The manager then takes it off what is expected, and notes a
// [Completion], for good: see [Manager.Put] for when it is run again. The first
// instance that completes completes the task; the others are stopped.
//
// A job that runs is not moved. A worker that is drained waits for it, as long as the
// context of [Member.Close] allows. A job whose function fails is tried again there;
// [Manager.Tasks] tells the error, how often, and when next. With
// worker.WithAttempts it fails for good after so many tries in a row: the manager
// takes it off what is expected and keeps it in [Manager.Failed].
//
// # Concurrency
//
// The methods may be called from any number of goroutines, before, during and,
// those that only read, after Run. Slices are copied at the border but for
// contents, which nobody may change.
type Manager struct {
	settings managerSettings
	log      *slog.Logger
	ledger   *ledger
	workers  *Communicator
	orch     *orchestrator.Orchestrator[Worker, string]

	refused   refusals
	successor witness
	held      map[string][]Worker // by name: members whose leases ran out, and whose tasks are held; for tell
	begun     atomic.Bool         // Run was called
	leading   atomic.Bool         // terms are run
}

// ErrNotLeading says that the manager runs no terms: Run was not called yet, or
// waits for workers that are known from before, or has returned.
var ErrNotLeading = errors.New("no terms are run")

// NewManager returns a manager with everything that store holds, in the next
// epoch, which is in the store when it returns. In a store that holds nothing
// epochs and versions begin from the wall clock, so that workers that outlive a
// manager and its store follow the next one, unless the clock was set back. The store is the caller's to close, once
// Run has returned, and until then nobody else's to use.
//
// The error names every option that is out of range and wraps
// [orchestrator.ErrInvalid], or says why the store cannot be read or written.
func NewManager(store Store, opts ...ManagerOption) (*Manager, error) {
	s, err := newManagerSettings(store, opts)
	if err != nil {
		return nil, err
	}
	m := &Manager{settings: s, log: s.logger, held: make(map[string][]Worker)}
	m.ledger, err = openLedger(store, s.rules)
	if err != nil {
		return nil, fmt.Errorf("new manager: %w", err)
	}
	m.workers = newCommunicator(communicatorSettings{
		settings: s.settings, contents: &m.ledger.catalog, observe: m.observe, believe: m.believe, ended: m.ended,
		receipts: m.ledger.book.key, dialing: s.dialing,
	})
	look := func(orchestrator.TermStats) { s.credentials.watch(s.logger) }
	options := append([]orchestrator.Option{orchestrator.WithLogger(s.logger), orchestrator.WithStats(look)}, s.orchestrator...)
	m.orch, err = orchestrator.New(m.workers, append(options,
		orchestrator.WithEpoch(m.ledger.epoch), orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))...)
	if err == nil {
		err = m.feed()
	}
	if err != nil {
		return nil, fmt.Errorf("new manager: %w", err)
	}
	m.ledger.tell = m.tell
	return m, nil
}

// feed tells the orchestrator what is known from before.
func (m *Manager) feed() error {
	var workers []orchestrator.Worker[Worker]
	for _, member := range m.ledger.catalog.members() {
		workers = append(workers, orchestrator.Worker[Worker]{Name: member.Worker, Draining: member.Draining})
	}
	return errors.Join(m.orch.UpdateTasks(m.ledger.catalog.expected()), m.orch.UpdateWorkers(workers))
}

// tell tells what was saved. A member that has gone is not called any more only
// after the orchestrator knows, or else it would be silent for a term.
func (m *Manager) tell(n news) {
	for _, name := range n.unexpected {
		m.orch.RemoveTask(name)
	}
	for _, t := range n.expected {
		m.check("task", t.Name, m.orch.AddTask(t.Name, orchestrator.WithTaskInstances(t.Instances), orchestrator.WithHandoff(t.Handoff)))
	}
	for _, w := range n.gone {
		left := m.ledger.left(w)
		if !left && m.successor.is(w.Name) {
			m.held[w.Name] = append(m.held[w.Name], w)
			m.log.Error("a worker's lease has run out, and it names a higher epoch: its tasks are started nowhere until it is a member again",
				"worker", w.Name, "incarnation", w.Incarnation)
			continue
		}
		m.remove(w)
		if left {
			m.log.Info("a worker has left", "worker", w.Name, "incarnation", w.Incarnation)
		} else {
			m.log.Warn("a worker's lease has run out", "worker", w.Name, "incarnation", w.Incarnation)
		}
	}
	for _, a := range n.came {
		for _, w := range m.held[a.Name] {
			m.remove(w) // it has another incarnation: what that one ran has stopped
		}
		delete(m.held, a.Name)
		if a.moved {
			m.connect(a.Worker, a.address)
		}
		var opts []orchestrator.WorkerOption
		if a.draining {
			opts = append(opts, orchestrator.WithWorkerDraining())
		}
		m.check("worker", a.Name, m.orch.AddWorker(a.Worker, opts...))
		switch said := []any{"worker", a.Name, "incarnation", a.Incarnation, "address", a.address, "draining", a.draining}; {
		case a.moved:
			m.log.Info("a worker is a member", said...)
		case a.turned && a.draining:
			m.log.Info("a worker is to end empty", said...)
		case a.turned:
			m.log.Info("a worker is to end empty no longer", said...)
		}
	}
}

func (m *Manager) remove(w Worker) {
	m.orch.RemoveWorker(w)
	m.workers.Disconnect(w)
}

func (m *Manager) connect(w Worker, address string) {
	m.check("worker", w.Name, m.workers.Connect(w, address))
}

// check logs what cannot be, as everything was checked before it was written down.
func (m *Manager) check(kind, name string, err error) {
	if err != nil {
		m.log.Error("not taken by the orchestrator", kind, name, "err", err)
	}
}

// observe is told of each call to a worker.
func (m *Manager) observe(w Worker, err error) {
	if err == nil {
		m.successor.drop(w.Name)
	}
	m.ledger.called(w, err == nil)
}

// ended takes down what a worker has reported as completed or failed in a term,
// before the term goes on. The worker says so itself too, and may not get through: then
// the term would take the task for one that runs, and could move it to a worker
// that does it again. What is taken down has no content any more, so whatever the
// term wants, it is not started.
func (m *Manager) ended(ctx context.Context, w Worker, tasks []reportedTask) error {
	var open []conclusion
	for _, t := range tasks {
		if _, version, ok := m.ledger.catalog.Content(t.Name); ok && version == t.Version {
			open = append(open, t.conclusion(m.ledger.key, w.Name))
		}
	}
	if len(open) == 0 {
		return nil
	}
	return m.ledger.do(ctx, func(b *book, now time.Time) error {
		for _, e := range open {
			b.conclude(now, w.Name, e)
		}
		return nil
	})
}

package manager

// The Manager: New, Run, and its calls to its orchestrator. server.go serves the
// workers, hooks.go has the Communicator's callbacks, tasks.go the methods for the user.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/loglimit"
)

// Manager keeps the tasks and the members, and makes the members run the tasks.
//
// Workers register with the manager ([Member] does that) and stay members by
// heartbeats. Put and Delete set the expected tasks, and the terms of an
// [orchestrator.Orchestrator] carry them out. Everything that must survive a restart
// is in a [Store] before the manager acts on it: tasks, completions, failed tasks,
// members, drains. All of it is in memory as well, including contents.
//
// # Restart
//
// Workers continue while a manager restarts, and reach it with their next heartbeat.
// The manager runs no term until it has heard from each member from before, or the
// lease of that member has certainly expired. So nothing is started elsewhere that
// such a member still runs. The epoch is higher than that of the previous manager,
// whose calls workers refuse from then on.
//
// # Completion
//
// A task completes when its function returns nil, if its worker was made with
// worker.WithCompletion. The manager then removes the task from the expected ones
// and keeps a [Completion]; [Manager.Put] describes when the task runs again. The
// first instance to complete completes the task, and the others are stopped.
//
// A running job is not moved. A worker that is drained waits for it, as long as
// [WithDrain] or the context of [Member.Close] allow. A job whose function fails is retried on the
// same worker; [Manager.Tasks] reports the error, the number of attempts, and the
// time of the next one. With worker.WithAttempts, a job fails for good after that
// many failures in a row: the manager removes it from the expected tasks and keeps
// it in [Manager.Failed].
//
// # Concurrency
//
// The methods may be called from any number of goroutines, before and during Run;
// those that only read, also after Run. Slices are copied, except for contents,
// which must not be changed.
type Manager struct {
	settings  option.Manager
	log       *slog.Logger
	committer *committer
	workers   *communicator.Communicator
	orch      *orchestrator.Orchestrator[communicator.WorkerID, string]

	raises    loglimit.Limiter // limits the changes of the epoch
	refused   refusals
	successor witness
	held      map[string][]communicator.WorkerID // by name: members with expired leases whose tasks are held; used by publish only
	begun     atomic.Bool                        // Run was called
	leading   atomic.Bool                        // terms run
}

// ErrNotLeading reports that the manager runs no terms: Run was not called yet,
// waits for members from before the restart, or has returned.
var ErrNotLeading = errors.New("manager runs no terms")

// New returns a manager with the contents of store, in the next epoch. The
// epoch is stored when New returns. In an empty store, epochs and versions
// begin from the wall clock. So workers that outlive both a manager and its store
// follow the next manager, unless the clock was set back. The caller closes the
// store after Run has returned, and must not use it before.
//
// The error names every option that is out of range and wraps
// [orchestrator.ErrInvalid], or states why the store cannot be read or written.
func New(store Store, opts ...Option) (*Manager, error) {
	s, err := newManagerSettings(store, opts)
	if err != nil {
		return nil, err
	}
	m := &Manager{settings: s, log: s.Logger, held: make(map[string][]communicator.WorkerID)}
	m.committer, err = openCommitter(store, s.Rules)
	if err != nil {
		return nil, fmt.Errorf("new manager: %w", err)
	}
	m.workers, err = communicator.NewCommunicator(managerHooks{m})
	if err != nil {
		return nil, fmt.Errorf("new manager: %w", err)
	}
	look := func(orchestrator.TermStats) { s.Credentials.Watch(s.Logger) }
	options := append([]orchestrator.Option{orchestrator.WithLogger(s.Logger), orchestrator.WithStats(look)}, s.Orchestrator...)
	m.orch, err = orchestrator.New(m.workers, append(options,
		orchestrator.WithEpoch(m.committer.epoch), orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))...)
	if err == nil {
		err = m.feed()
	}
	if err != nil {
		return nil, fmt.Errorf("new manager: %w", err)
	}
	m.committer.publish = m.publish
	return m, nil
}

// feed gives the orchestrator the stored tasks and members.
func (m *Manager) feed() error {
	var workers []orchestrator.Worker[communicator.WorkerID]
	for _, member := range m.committer.committed.Members() {
		workers = append(workers, orchestrator.NewWorker(communicator.WorkerID(member.WorkerID), member.Drains, member.Settings))
	}
	return errors.Join(m.orch.UpdateTasks(m.committer.committed.Expected()), m.orch.UpdateWorkers(workers))
}

// publish passes saved changes on to the orchestrator and the communicator. It removes
// a former member from the orchestrator before it disconnects it; otherwise the
// worker would be silent for a term.
func (m *Manager) publish(n state.Delta) {
	for _, name := range n.Unexpected {
		m.orch.RemoveTask(name)
	}
	for _, t := range n.Expected {
		m.check("task", t.Name, m.orch.AddTask(t.Name, orchestrator.WithTaskSettings(t.Settings())))
	}
	if len(n.Failed) > 0 {
		first := &n.Failed[0]
		m.log.Warn("jobs failed for good, not run again", "jobs", len(n.Failed), "first", first.Name,
			"worker", first.Worker, "attempts", first.Attempts, "err", first.Err)
	}
	for _, w := range n.Gone {
		left := m.committer.left(w)
		if !left && m.successor.is(w.Name) {
			m.held[w.Name] = append(m.held[w.Name], communicator.WorkerID(w))
			m.log.Error("lease expired and worker names higher epoch, tasks held",
				"worker", w.Name, "incarnation", w.Incarnation)
			continue
		}
		m.remove(communicator.WorkerID(w))
		if left {
			m.log.Info("worker left", "worker", w.Name, "incarnation", w.Incarnation)
		} else {
			m.log.Warn("worker's lease expired", "worker", w.Name, "incarnation", w.Incarnation)
		}
	}
	for _, a := range n.Came {
		for _, w := range m.held[a.Name] {
			m.remove(w) // its new incarnation proves that the tasks of w have stopped
		}
		delete(m.held, a.Name)
		if a.Moved {
			m.connect(communicator.WorkerID(a.WorkerID), a.Address)
		}
		opts := []orchestrator.WorkerOption{orchestrator.WithWorkerSettings(a.Settings)}
		if a.Draining {
			opts = append(opts, orchestrator.WithWorkerDraining())
		}
		m.check("worker", a.Name, m.orch.AddWorker(communicator.WorkerID(a.WorkerID), opts...))
		switch attrs := []any{"worker", a.Name, "incarnation", a.Incarnation, "address", a.Address, "draining", a.Draining}; {
		case a.Moved:
			m.log.Info("worker is a member", attrs...)
		case a.Turned && a.Draining:
			m.log.Info("worker draining", attrs...)
		case a.Turned:
			m.log.Info("worker undrained", attrs...)
		case a.Reset:
			m.log.Info("worker has other settings", "worker", a.Name, "incarnation", a.Incarnation, "settings", a.Settings)
		}
	}
}

func (m *Manager) remove(w communicator.WorkerID) {
	m.orch.RemoveWorker(w)
	m.workers.Disconnect(w)
}

func (m *Manager) connect(w communicator.WorkerID, address string) {
	m.check("worker", w.Name, m.workers.Connect(w, address))
}

// check logs an error that cannot occur, because everything was checked before it
// was stored.
func (m *Manager) check(kind, name string, err error) {
	if err != nil {
		m.log.Error("refused by orchestrator", kind, name, "err", err)
	}
}

// Run serves workers on l, which it closes, and runs terms until ctx is done. It
// then returns the cause of ctx, after it has finished the calls and moves of the
// last term, saved everything and ended every goroutine. The workers run on. The caller
// closes the store. Run may be called once.
//
// Run runs no term until it has heard from each member from before the restart, or
// one lease of that member has passed. The awaited members and the latest time are
// logged, and [Manager.Members] shows them.
//
// Run fails with [orchestrator.ErrDeposed] if two workers have seen a later epoch,
// which means that there is another manager. One worker alone may be compromised: it
// counts as one that cannot be called, and its tasks stay held. Run also returns an
// error of the store, because a manager acts only on what is stored, and an error of
// serving on l.
func (m *Manager) Run(ctx context.Context, l net.Listener) error {
	if peer.Absent(l) {
		return fmt.Errorf("%w: Manager.Run: the net.Listener is nil", orchestrator.ErrInvalid)
	}
	defer func() { _ = l.Close() }() // closed already if there was a server
	if !m.begun.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: Manager.Run was called before", orchestrator.ErrInvalid)
	}

	leading, end := context.WithCancelCause(ctx)
	defer end(nil)
	// beyond outlives leading until the last term has ended.
	beyond, quit := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer func() {
		quit()
		parts.Wait()
		m.committer.close()
		_ = m.workers.Close() // never fails
	}()
	server, accepting, err := m.settings.NewServer(l, identity.RoleWorker, grpc.WaitForHandlers(true), grpc.ChainUnaryInterceptor(m.refused.count),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxCalls), grpc.ForceServerCodecV2(wire.RequestCodec{}),
		grpc.StaticStreamWindowSize(maxRequest), grpc.StaticConnWindowSize(2*maxRequest))
	if err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	orchestratorv1.RegisterManagerServer(server, &managerServer{
		Manager: m, dialback: newDialback(&m.settings), refusals: loglimit.Limiter{Every: time.Second},
	})
	for _, member := range m.committer.committed.Members() {
		m.connect(communicator.WorkerID(member.WorkerID), member.Address)
	}
	m.committer.start()
	parts.Go(func() { m.committer.expire(beyond) })
	parts.Go(func() {
		select {
		case <-m.committer.broken:
			end(m.committer.failure())
		case <-beyond.Done():
		}
	})
	parts.Go(func() {
		if err := server.Serve(accepting); err != nil && beyond.Err() == nil {
			end(fmt.Errorf("serve on %s: %w", l.Addr(), err))
		}
	})
	parts.Go(func() {
		<-beyond.Done()
		peer.Stop(server)
	})
	err = m.lead(leading)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("run manager: %w", err)
}

// lead runs terms once the known members have been heard or have expired.
func (m *Manager) lead(ctx context.Context) error {
	m.announce()
	select {
	case <-m.committer.ready:
	case <-m.committer.broken:
		return m.committer.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// The expiry of the last lease is decided, but the orchestrator may not know it
	// yet.
	if err := m.committer.commit(ctx, func(*state.State, time.Time) error { return nil }); err != nil {
		return err
	}
	m.log.Info("leading", "epoch", m.committer.epoch)
	m.leading.Store(true)
	defer m.leading.Store(false)
	return m.orch.Run(ctx, m.settings.Interval)
}

// announce logs the members that the first term waits for.
func (m *Manager) announce() {
	const shown = 20
	var names []string
	var latest time.Time
	waiting := 0
	for _, member := range m.Members() {
		if !member.Heard.IsZero() {
			continue
		}
		if waiting++; waiting <= shown {
			names = append(names, member.Name)
		}
		if member.Until.After(latest) {
			latest = member.Until
		}
	}
	if waiting > 0 {
		m.log.Info("no terms until known members answer or their leases expire",
			"workers", waiting, "first", names, "until", latest)
	}
}

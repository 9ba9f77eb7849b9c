package grpc

// The Member: a worker's membership at its manager, from registering to leaving.
// One membership is in member_session.go.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/closing"
	"github.com/f8949c05/orchestrator/worker"
	"google.golang.org/grpc"
)

// Member makes a [worker.Worker] a member of a manager's: it serves the
// manager's calls, registers under a name and a lease, keeps that alive, and
// tells what the worker has completed.
//
// Where the lease can have ended, the worker stops everything by itself, before
// it does (W5). The member then leaves, and registers again as another
// incarnation, to which nothing gets through that was meant for the one before.
// A manager that was restarted knows its members: they go on as if nothing had
// been, and stop nothing.
//
// What is promised, and what no clock can promise, is written at
// [worker.WithLease]. Tasks have no tokens: those take etcd.
type Member struct {
	manager  string
	name     string
	worker   *worker.Worker[string]
	settings memberSettings
	log      *slog.Logger

	closing *closing.Closing

	// Run's:
	address string // where the worker is called
	conn    *grpc.ClientConn
	client  orchestratorv1.ManagerClient
	teller  *teller
	owed    uint64 // the incarnation that may be a member still, and has stopped everything; 0: none
	early   error  // why the membership that ended last stopped tasks that had not moved; nil: it did not
	// halt stops all tasks, tells what has completed, and closes the worker: once.
	halt func(ctx context.Context)
}

// NewMember returns a Member for w, which has to have a lease
// ([worker.WithLease]) that the manager grants. The Member commands w from then
// on: nobody else adds to it, removes from it or closes it.
//
// managerAddress is the manager's host:port. The name is the worker's at the
// manager, and no two may have it at the same time; with TLS, it is that of its
// certificate. Errors wrap [orchestrator.ErrInvalid].
func NewMember(managerAddress, name string, w *worker.Worker[string], opts ...MemberOption) (*Member, error) {
	if w == nil {
		return nil, fmt.Errorf("new member: %w: the worker is nil", orchestrator.ErrInvalid)
	}
	s, err := newMemberSettings(managerAddress, name, w.Lease(), opts)
	if err != nil {
		return nil, fmt.Errorf("new member: %w", err)
	}
	m := &Member{
		manager: managerAddress, name: name, worker: w, settings: s, log: s.logger,
		closing: closing.New(closing.Late(s.logger, name, w)),
	}
	return m, nil
}

// Run serves on l, which it closes, registers, and does so again whenever the
// membership is lost, until ctx ends or [Member.Close] has ended it. Then it stops
// all tasks, keeping the lease until they have stopped, leaves, closes the worker
// and returns: ctx's cause, or nil after Close. It is called once.
//
// It goes on answering the manager's calls until the manager knows that the worker
// has left. What has completed is told before that, for a second at most, and only
// then is the record ([worker.WithRecord]) removed. A manager that is away just then
// never hears of it: those tasks are done again.
//
// A manager that is away, or has something against this worker, is asked again
// for as long as ctx lives, with growing pauses of up to a second; each reason is
// logged once. So it is where the name is taken: its holder's lease may run out.
// Run fails where asking again cannot help: with an error that wraps
// [orchestrator.ErrInvalid] where the manager refuses what is asked for, such as a
// lease of that length, and where the address to be called at is unknown
// ([WithAdvertise]); and with what serving on l has failed with.
func (m *Member) Run(ctx context.Context, l net.Listener) error {
	if absent(l) {
		return fmt.Errorf("%w: Member.Run: the net.Listener is nil", orchestrator.ErrInvalid)
	}
	defer func() { _ = l.Close() }() // serving has closed it, if it has begun
	if !m.closing.Begin() {
		return fmt.Errorf("%w: Member.Run is called once, and not after Close", orchestrator.ErrInvalid)
	}
	defer func() { m.closing.Finish(m.early) }()
	err := m.open(ctx, l)
	if errors.Is(err, closing.ErrLeaving) || errors.Is(err, closing.ErrDraining) {
		return nil
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("member %s: %w", m.name, err)
	}
	return err
}

// open is Run, but for the guards around it: it connects to the manager, and
// sees to all that ends with the Member.
func (m *Member) open(ctx context.Context, l net.Listener) error {
	closeWorker := func(ctx context.Context) {
		if err := m.worker.Close(context.WithoutCancel(ctx)); err != nil {
			m.log.Error("worker not closed", "worker", m.name, "err", err)
		}
	}
	address, err := advertised(l.Addr(), m.settings.advertise)
	if err != nil {
		closeWorker(ctx)
		return err
	}
	conn, err := m.settings.dial(m.manager, party{role: roleManager}, m.settings.dialing...)
	if err != nil {
		closeWorker(ctx)
		return err
	}
	defer func() { _ = conn.Close() }() // it fails only where it is closed
	m.address, m.conn, m.client = address, conn, orchestratorv1.NewManagerClient(conn)
	m.teller = &teller{
		worker: m.worker, name: m.name, log: m.log,
		owed: newCompletions(m.worker.Before()), manager: m.client,
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	beyond := context.WithoutCancel(ctx) // what goes on until everything has stopped
	var waiting sync.WaitGroup
	defer waiting.Wait()
	serving, unserve := context.WithCancel(beyond)
	defer unserve()
	server := &Server{worker: m.worker, settings: m.settings.settings}
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(serving, l); serving.Err() == nil {
			cancel(err)
		}
	})
	waiting.Go(func() {
		select {
		case <-m.closing.Leave():
			cancel(fmt.Errorf("%w: %w", closing.ErrLeaving, m.closing.Hurried()))
		case <-ctx.Done():
		}
	})
	telling, untell := context.WithCancel(beyond)
	var told sync.WaitGroup
	told.Go(func() { m.teller.run(telling) })
	var once sync.Once
	m.halt = func(ctx context.Context) {
		once.Do(func() {
			// Tasks that do not stop are waited for: the lease is kept for them, or the
			// last resort takes them.
			if err := m.worker.Stop(context.WithoutCancel(ctx)); err != nil {
				m.log.Error("tasks not stopped", "worker", m.name, "err", err)
			}
			// The manager gets what answers are due, first of all that the last task has
			// stopped which it moves, before it hears that the worker is gone.
			server.settle()
			untell()
			told.Wait()
			m.teller.owed.look(m.worker.Status()) // before they are dropped
			m.teller.finish(ctx)
			closeWorker(ctx)
		})
	}
	joining, noMore := context.WithCancelCause(ctx)
	waiting.Go(func() {
		select {
		case <-m.closing.Drain():
			noMore(closing.ErrDraining) // who has not registered has nothing to be drained of
		case <-ctx.Done():
		}
	})
	err = m.run(ctx, joining)
	cancel(err)
	m.halt(ctx) // whatever it was
	// The manager knows by now, and does not call: nothing finds the listener closed.
	unserve()
	served.Wait()
	return err
}

// run is one membership after the other. It registers for as long as joining
// lives, which ends with ctx.
func (m *Member) run(ctx, joining context.Context) error {
	for failures := 1; ; failures++ {
		registered, err := m.stay(ctx, joining)
		switch {
		case joining.Err() != nil:
			return context.Cause(joining)
		case isAny(err, orchestrator.ErrInvalid, worker.ErrClosed):
			return err
		}
		m.early = nil // nobody was closing it
		m.log.Warn("membership lost, registering again", "worker", m.name, "err", err)
		if registered {
			failures = 1
		}
		pauseFor(joining, pauseAfter(failures, rand.Float64()))
	}
}

// Close has the member drained: it asks the manager to move what it has, and
// waits until nothing is left, or ctx ends. Then it stops what is left, leaves,
// and returns when Run has.
//
// The last worker does not wait: where every other member drains too, or there is
// none, no worker can take the tasks, and the manager says so. Close then stops them
// at once, says so at Info, and returns nil.
//
// An error says that tasks were stopped here before they had moved, and wraps why:
// ctx's cause, that of Run's context, or [worker.ErrLeaseLost]. What was stopped
// for want of an earlier lease does not count, and neither does what has completed,
// though a manager that is away may have it done again (see Run).
//
// Further calls wait for the same, and are told the same. A member whose Run was
// not called yet is closed at once, and its Run fails.
func (m *Member) Close(ctx context.Context) error {
	if err := m.closing.Close(ctx, m.worker.Close); err != nil {
		return fmt.Errorf("close member %s: %w", m.name, err)
	}
	return nil
}

// isAny reports whether err wraps one of the targets.
func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

package etcd

// The Member: a worker's membership in the cluster, from joining to leaving.
// One membership is in member_session.go.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/closing"
	"github.com/f8949c05/orchestrator/worker"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Member makes a [worker.Worker] a member of the cluster: it joins under a name
// and a lease, claims what the leader assigns, has the worker run it with the
// content from the registry, and hands on what becomes of that (W7).
//
// A task runs from the moment it was claimed, in one transaction that compares
// the assignment and the membership, until its claim was deleted, which happens
// after it has stopped. Where the lease can have ended, the worker stops
// everything by itself, before it does (W5); the member then gives the lease
// back, and joins again as another incarnation.
//
// What is promised, and what only tokens promise, is written at
// [worker.WithLease]. A task's token is the revision of its claim, its scope the
// id of the etcd cluster.
type Member struct {
	client   *clientv3.Client
	name     string
	worker   *worker.Worker[string]
	settings memberSettings
	log      *slog.Logger

	closing *closing.Closing

	// Run's:
	owed  debt
	early error // why the membership that ended last stopped tasks that had not moved; nil: it did not
}

// NewMember returns a Member for w, which has to have a lease
// ([worker.WithLease]) of whole seconds. The Member commands w from then on:
// nobody else adds to it, removes from it or closes it.
//
// The name is the worker's in the cluster, and no two may have it at the same
// time. Errors wrap [orchestrator.ErrInvalid].
func NewMember(client *clientv3.Client, name string, w *worker.Worker[string], opts ...MemberOption) (*Member, error) {
	if w == nil {
		return nil, fmt.Errorf("new member: %w: the worker is nil", orchestrator.ErrInvalid)
	}
	s, err := newMemberSettings(name, w.Lease(), opts)
	if err != nil {
		return nil, fmt.Errorf("new member: %w", err)
	}
	m := &Member{
		client: client, name: name, worker: w, settings: s, log: s.logger,
		closing: closing.New(closing.Late(s.logger, name, w)),
	}
	return m, nil
}

// Run joins and serves, and does so again whenever the membership is lost, until
// ctx ends or [Member.Close] has ended it. Then it stops all tasks, keeping the
// lease until they have stopped, gives the lease back, closes the worker and
// returns: ctx's cause, or nil after Close. It is called once.
//
// Where the name is taken it waits for as long as the lease of its holder can
// last, and then fails with [ErrNameTaken]: a predecessor of this worker is gone by
// then. It fails too with [ErrForeignPrefix], with [ErrLeaseTooShort], and where
// etcd refuses the client's user before the worker was a member. Every other error
// of etcd is logged and tried again for as long as ctx lives, also at the start:
// etcd may come up after its workers.
func (m *Member) Run(ctx context.Context) error {
	if !m.closing.Begin() {
		return fmt.Errorf("%w: Member.Run is called once, and not after Close", orchestrator.ErrInvalid)
	}
	defer func() { m.closing.Finish(m.early) }()
	ctx, cancel := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-m.closing.Leave():
			cancel(fmt.Errorf("%w: %w", closing.ErrLeaving, m.closing.Hurried()))
		case <-ctx.Done():
		}
	})
	joining, noMore := context.WithCancelCause(ctx)
	waiting.Go(func() {
		select {
		case <-m.closing.Drain():
			noMore(closing.ErrDraining) // who has not joined has nothing to be drained of
		case <-ctx.Done():
		}
	})
	err := m.run(ctx, joining)
	cancel(err)
	waiting.Wait()
	m.stopAll(ctx) // whatever it was
	if errors.Is(err, closing.ErrLeaving) || errors.Is(err, closing.ErrDraining) {
		return nil
	}
	return err
}

// stopAll closes the worker. Tasks that do not stop are waited for: the lease is
// kept for them, or the last resort takes them.
func (m *Member) stopAll(ctx context.Context) {
	if err := m.worker.Close(context.WithoutCancel(ctx)); err != nil {
		m.log.Error("worker not closed", "worker", m.name, "err", err)
	}
}

// run is Run, but for how it begins and ends. It joins for as long as joining
// lives, which ends with ctx.
func (m *Member) run(ctx, joining context.Context) error {
	pause, ever := time.Duration(0), false // whether it has been a member
	for {
		// Every time, because another cluster knows nothing of the prefix.
		joined, err := false, m.settings.await(joining, m.client)
		if err == nil {
			joined, err = m.serve(ctx, joining)
		}
		ever = ever || joined
		switch {
		case joining.Err() != nil:
			return context.Cause(joining)
		case !ever && permanent(err), isAny(err, ErrNameTaken, ErrLeaseTooShort, ErrForeignPrefix, worker.ErrClosed):
			return fmt.Errorf("member %s: %w", m.name, err)
		}
		m.early = nil // nobody was closing it
		m.log.Warn("membership lost, joining again", "worker", m.name, "err", err)
		if joined {
			pause = 0
		}
		pause = min(max(2*pause, 50*time.Millisecond), time.Second)
		if !sleep(joining, pause) {
			return context.Cause(joining)
		}
	}
}

// Close has the member drained: it claims nothing more, asks the leader to move
// what it has, and waits until nothing is left, or ctx ends. Then it stops what
// is left, leaves, and returns when Run has.
//
// The last worker does not wait: where every other member drains too, or there is
// none, no worker can take the tasks. Close then stops them at once, says so at
// Info, and returns nil.
//
// An error says that tasks were stopped here before they had moved, and wraps why:
// ctx's cause, that of Run's context, or [worker.ErrLeaseLost]. What was stopped
// for want of an earlier lease does not count.
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

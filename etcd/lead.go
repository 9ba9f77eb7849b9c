package etcd

// A leader's work: an orchestrator for each leadership, and the members that it gets.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// Lead takes part in the election until ctx ends. Whenever this candidate is elected,
// Lead runs an [orchestrator.Orchestrator] until the leadership is lost. It assigns
// the tasks of the [Registry] to the members of the [Membership] through a
// [Communicator], all under the election's prefix. The first term begins when all
// tasks and members are known, and further terms follow as in
// orchestrator.Orchestrator.Run.
//
// The options configure the orchestrator. Lead sets orchestrator.WithEpoch and
// orchestrator.WithGracePeriod itself and ignores them in opts. The default logger is
// that of the election.
//
// Lead returns an error that wraps [orchestrator.ErrInvalid] if every is not positive
// or an option is invalid. Otherwise it returns what [Election.Run] returns.
//
// A leader that needs its orchestrator, such as for LastPlan, or another communicator
// uses [Election.Run] and [LeadWith].
func (e *Election) Lead(ctx context.Context, every time.Duration, opts ...orchestrator.Option) error {
	if every <= 0 {
		return fmt.Errorf("lead: %w: every is %v: must be above 0", orchestrator.ErrInvalid, every)
	}
	if err := orchestrator.CheckOptions(opts...); err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	registry := &Registry{preflight{settings: e.settings, client: e.client}}
	members := &Membership{preflight{settings: e.settings, client: e.client}}
	return e.Run(ctx, func(ctx context.Context, l *Leadership) error {
		comm, err := newCommunicator(ctx, e.client, l, e.settings)
		if err != nil {
			return fmt.Errorf("lead: %w", err)
		}
		return LeadWith(ctx, l, comm, every, func(o *orchestrator.Orchestrator[WorkerID, string]) error {
			return errors.Join(registry.Feed(ctx, l, o), members.Feed(ctx, l, o))
		}, opts...)
	})
}

// LeadWith runs an orchestrator over comm for one leadership, until ctx ends or the
// leadership is lost. comm may be any communicator, also one that calls the workers
// directly (see [WithoutAssignments]). ctx and l are those of the function that
// [Election.Run] calls, which should return the result of LeadWith.
//
// LeadWith calls load before the first term. load makes the tasks and workers known
// to the orchestrator, usually with [Registry.Feed] and [Membership.Feed] or
// [FeedWorkers]. A task that is not known is stopped, and a worker that is not known
// may run tasks that are then started elsewhere. An error of load is the result of
// LeadWith.
//
// LeadWith sets two options, because without them tasks may run twice:
// orchestrator.WithEpoch with [Leadership.Epoch], by which workers refuse calls of
// earlier leaders, and orchestrator.WithGracePeriod with
// orchestrator.HoldUntilRemoved, because a worker that does not answer may run its
// tasks until its lease ends. It ignores both in opts. The default logger is that of
// the election.
func LeadWith[W comparable](ctx context.Context, l *Leadership, comm orchestrator.Communicator[W, string], every time.Duration,
	load func(o *orchestrator.Orchestrator[W, string]) error, opts ...orchestrator.Option,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	o, err := orchestrator.New(comm, slices.Concat(
		[]orchestrator.Option{orchestrator.WithLogger(l.c.log)}, opts,
		[]orchestrator.Option{orchestrator.WithEpoch(l.Epoch()), orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved)},
	)...)
	if err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	if err := load(o); err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	return o.Run(ctx, every)
}

// Workers is the part of an orchestrator that receives the members.
type Workers[W comparable] interface {
	UpdateWorkers(workers []orchestrator.Worker[W]) error
	AddWorker(name W, opts ...orchestrator.WorkerOption) error
	RemoveWorker(name W)
}

var _ Workers[WorkerID] = (*orchestrator.Orchestrator[WorkerID, string])(nil)

// FeedWorkers is [Membership.Feed] for an orchestrator that knows the workers by other
// names, such as those of a transport that calls them directly.
//
// connect returns the name of a member, which must not be the name of another
// membership. It is called before o learns of the member, and again when the member
// drains. Its error ends the leadership, because a member that is left out may run
// tasks. disconnect is called after a member has left and was removed from o. Both
// are called from one goroutine.
func FeedWorkers[W comparable](ctx context.Context, m *Membership, l *Leadership, o Workers[W],
	connect func(MemberState) (W, error), disconnect func(W),
) error {
	f := &memberFeed[W]{cache: newMemberCache(m), o: o, connect: connect, disconnect: disconnect, names: make(map[WorkerID]W)}
	return l.feed(ctx, "workers", m.prefix, m.mirror(), f.tell)
}

// memberFeed passes the members on to an orchestrator.
type memberFeed[W comparable] struct {
	cache      *memberCache
	o          Workers[W]
	connect    func(MemberState) (W, error)
	disconnect func(W)
	names      map[WorkerID]W // of the members that o knows
}

// tell passes changes on to o. The first call passes all members on.
func (f *memberFeed[W]) tell(changes []mirror.Change) error {
	gone, came := f.cache.apply(changes)
	log := f.cache.membership.logger
	if !f.cache.begun {
		f.cache.begun = true
		return f.tellAll()
	}
	for _, w := range gone {
		f.o.RemoveWorker(f.names[w])
		f.disconnect(f.names[w])
		delete(f.names, w)
		log.Info("worker left", "worker", w.Name, "incarnation", w.Incarnation)
	}
	for _, member := range came {
		name, err := f.name(member)
		if err != nil {
			return err
		}
		var opts []orchestrator.WorkerOption
		if member.Draining {
			opts = append(opts, orchestrator.WithWorkerDraining())
		}
		if err := f.o.AddWorker(name, opts...); err != nil {
			return err
		}
		log.Info("worker joined or changed", "worker", member.Name, "incarnation", member.Incarnation, "draining", member.Draining)
	}
	return nil
}

func (f *memberFeed[W]) tellAll() error {
	var workers []orchestrator.Worker[W]
	for _, member := range f.cache.list() {
		name, err := f.name(member)
		if err != nil {
			return err
		}
		workers = append(workers, orchestrator.Worker[W]{Name: name, Draining: member.Draining})
	}
	return f.o.UpdateWorkers(workers)
}

// name connects a member, and returns and records its name.
func (f *memberFeed[W]) name(member MemberState) (W, error) {
	name, err := f.connect(member)
	if err != nil {
		return name, fmt.Errorf("connect worker %s: %w", member.Name, err)
	}
	f.names[member.WorkerID] = name
	return name, nil
}

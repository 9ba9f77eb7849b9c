package etcd

// A leader's work: the leadership, and the orchestrator that runs in it.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// Lead takes part in the election until ctx ends, and then resigns. The workers run on. Whenever this candidate is elected,
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
// leadership is lost. comm is a [Communicator], or one that calls it. ctx and l are
// those of the function that [Election.Run] calls, which should return the result of
// LeadWith.
//
// LeadWith calls load before the first term. load makes the tasks and workers known
// to the orchestrator, usually with [Registry.Feed] and [Membership.Feed]. A task that is not known is stopped, and a worker that is not known
// may run tasks that are then started elsewhere. An error of load is the result of
// LeadWith.
//
// LeadWith sets two options, because without them tasks may run twice:
// orchestrator.WithEpoch with [Leadership.Epoch], by which workers refuse calls of
// earlier leaders, and orchestrator.WithGracePeriod with
// orchestrator.HoldUntilRemoved, because a worker that does not answer may run its
// tasks until its lease ends. It ignores both in opts. The default logger is that of
// the election.
func LeadWith(ctx context.Context, l *Leadership, comm orchestrator.Communicator[WorkerID, string], every time.Duration,
	load func(o *orchestrator.Orchestrator[WorkerID, string]) error, opts ...orchestrator.Option,
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

// Leadership is one period of leadership. [Election.Run] passes it to its function,
// and it ends when that function returns. Its methods may be called from many
// goroutines at the same time.
type Leadership struct {
	c     *campaign
	epoch int64

	ctx    context.Context // for Go; ends with the leadership
	cancel context.CancelCauseFunc

	mu   sync.Mutex // guards the fields below
	wg   sync.WaitGroup
	over bool
}

func newLeadership(ctx context.Context, c *campaign, epoch int64) *Leadership {
	l := &Leadership{c: c, epoch: epoch}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

// Epoch returns the create revision of the leader's key, which is higher than the
// epoch of every earlier leadership. Pass it to orchestrator.WithEpoch.
func (l *Leadership) Epoch() uint64 { return uint64(l.epoch) }

// checkPrefix returns an error if prefix is not the election's. Under another prefix,
// writes would not be guarded, and tasks and workers would differ.
func (l *Leadership) checkPrefix(prefix string) error {
	if prefix != l.c.prefix {
		return fmt.Errorf("%w: prefix is %q, the election's is %q", orchestrator.ErrInvalid, prefix, l.c.prefix)
	}
	return nil
}

// Guard returns a comparison that holds while the leader's key exists and is the one
// that was elected. Every transaction of a leader must include it. A transaction
// that does writes nothing after the end of the leadership, however late it arrives.
func (l *Leadership) Guard() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.c.key), "=", l.epoch)
}

// Go calls f in a new goroutine, with a context that ends with the leadership. f
// must return then, and Election.Run waits for it. An error of f ends the leadership
// and becomes its cause; nil does not.
//
// After the end of the leadership, Go calls f directly, with a context that has
// ended. So f can always notify callers that wait for its result.
func (l *Leadership) Go(f func(ctx context.Context) error) {
	if !l.begin(f) {
		_ = f(l.ctx) // the leadership has already ended
	}
}

func (l *Leadership) begin(f func(ctx context.Context) error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.wg.Go(func() {
		if err := f(l.ctx); err != nil {
			l.cancel(ended(err)) // only the first cause counts
		}
	})
	return true
}

// run calls lead, waits for all goroutines of the leadership, and returns the reason
// for its end. ctx ends when lead must return, and with the leadership.
func (l *Leadership) run(ctx context.Context, lead func(ctx context.Context, l *Leadership) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	l.Go(l.watch)
	err := lead(ctx, l)
	if cause := context.Cause(l.ctx); cause != nil {
		err = cause // lead returned because of the cause
	}
	l.cancel(errResigned)
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.wg.Wait()
	return err
}

// feed passes the changes of m to tell for as long as the leadership lasts. It
// returns when tell has received everything that was written before the election. An
// error of tell ends the leadership. what names the content of m in errors, and
// prefix is the prefix of its keys.
func (l *Leadership) feed(ctx context.Context, what, prefix string, m *mirror.Mirror, tell func([]mirror.Change) error) error {
	if err := l.checkPrefix(prefix); err != nil {
		return fmt.Errorf("feed %s: %w", what, err)
	}
	var failed atomic.Pointer[error] // the first error of tell
	l.Go(func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		return m.Run(ctx, func(_ mirror.At, changes []mirror.Change) {
			if failed.Load() != nil {
				return // m may apply what it has already received
			}
			if err := tell(changes); err != nil {
				err = fmt.Errorf("feed %s: %w", what, err)
				failed.Store(&err)
				cancel(err)
			}
		})
	})
	if err := m.Reached(ctx, int64(l.Epoch())); err != nil {
		return fmt.Errorf("feed %s: %w", what, ended(err))
	}
	// tell runs before m reaches the revision, even if it fails.
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// watch ends the leadership when its key is deleted or replaced, or the cluster
// changes.
func (l *Leadership) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := mirror.New(l.c.client, mirror.Options{From: l.c.key, End: l.c.key + "\x00", Logger: l.c.log})
	there := false
	return m.Run(ctx, func(at mirror.At, changes []mirror.Change) {
		for _, ch := range changes {
			there = ch.New != nil && ch.New.Create == l.epoch
		}
		switch {
		case at.Cluster != l.c.lease.cluster:
			cancel(fmt.Errorf("%w: cluster id was %x, is %x", ErrClusterChanged, l.c.lease.cluster, at.Cluster))
		case !there:
			cancel(fmt.Errorf("%w: leader's key is gone", orchestrator.ErrDeposed))
		}
	})
}

package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/internal/lease"
)

// Election is a candidate in an election. Each candidate has a key under leader/,
// named by its lease, and the candidate with the oldest key leads. These are the
// keys of etcd's own election (concurrency.Election, etcdctl elect). So candidates
// of both kinds can compete, and any tool can show the leader.
//
// Many elections may share one client.
type Election struct {
	preflight
	name  string
	lease time.Duration
}

// NewElection returns a candidate. The name is visible to other processes and need
// not be unique. NewElection does not contact etcd.
func NewElection(c *clientv3.Client, name string, opts ...ElectionOption) (*Election, error) {
	s := electionSettings{settings: defaults(), lease: 10 * time.Second}
	applyAll(&s.settings, opts, func(o ElectionOption) { o.applyElection(&s) })
	if err := checkName("candidate", name); err != nil {
		s.problems = append(s.problems, err)
	}
	if err := s.finish(); err != nil {
		return nil, fmt.Errorf("new election: %w", err)
	}
	return &Election{preflight: preflight{settings: s.settings, client: c}, name: name, lease: s.lease}, nil
}

// Leader identifies a leader.
type Leader struct {
	Name  string
	Epoch uint64 // rises with each leader
}

// Leader reads the current leader from etcd. It returns [ErrNoLeader] if there is
// none.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := e.enter(ctx); err != nil {
		return Leader{}, fmt.Errorf("read leader: %w", err)
	}
	resp, err := e.client.Get(ctx, e.layout.Leaders(), clientv3.WithFirstCreate()...)
	if err != nil {
		return Leader{}, fmt.Errorf("read leader: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return Leader{}, ErrNoLeader
	}
	return Leader{string(resp.Kvs[0].Value), uint64(resp.Kvs[0].CreateRevision)}, nil
}

// Run waits until this candidate is elected, calls lead, and resigns when lead has
// returned, such as because ctx has ended. The next candidate then leads within
// milliseconds, and the workers run on.
//
// The context of lead ends as soon as the leadership is lost, with a cause that
// wraps [orchestrator.ErrDeposed]: when the lease may have expired, when the
// leader's key is gone, or when the cluster is another one. The lease counts from
// the send time of the last acknowledged keepalive, less a tenth of the lease. Its
// clock runs while the machine is suspended.
//
// The context of lead also ends with the cause of ctx. The candidate then remains
// leader until lead returns, so that lead can complete its work.
//
// lead must return when its context ends. Until it does, Run does nothing else,
// though another candidate may lead. A leader guards its writes with
// [Leadership.Guard], which does not depend on any clock.
//
// Run returns the result of lead, unless that is ErrDeposed. After ErrDeposed, a
// lost leadership or a failure of etcd, also at the start, Run campaigns again. It
// returns the cause of ctx when ctx ends. It also returns [ErrForeignPrefix],
// [ErrLeaseTooShort], and an error of etcd at the first contact that rejects the
// client's user.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, l *Leadership) error) error {
	retry, unrevoked := backoff.New(), unrevokedLease{}
	for {
		began := time.Now()
		led, err := e.stand(ctx, &unrevoked, lead)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, orchestrator.ErrDeposed) && led:
			e.logger.Warn("deposed", "candidate", e.name, "err", err)
		case errors.Is(err, orchestrator.ErrDeposed):
			e.logger.Warn("campaign lost, retrying", "candidate", e.name, "err", err)
		case led, !e.passed.Load(), errors.Is(err, ErrLeaseTooShort), errors.Is(err, ErrForeignPrefix):
			return err
		default:
			e.logger.Warn("campaign failed, retrying", "candidate", e.name, "err", err)
		}
		if time.Since(began) > retry.Longest {
			retry.Reset()
		}
		if !retry.Wait(ctx) {
			return context.Cause(ctx)
		}
	}
}

// stand takes part in one election, and reports whether this candidate was elected.
func (e *Election) stand(ctx context.Context, unrevoked *unrevokedLease, lead func(ctx context.Context, l *Leadership) error) (led bool, err error) {
	// Check the prefix every time, because another cluster may have replaced the
	// last.
	if err := e.awaitContact(ctx); err != nil {
		return false, fmt.Errorf("run for leader: %w", err)
	}
	c, alive, err := e.begin(ctx)
	if err != nil {
		return false, err
	}
	defer c.end(ctx, unrevoked)
	unrevoked.retry(ctx)
	both, cancel := context.WithCancelCause(alive)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	epoch, err := c.run(both)
	if err != nil {
		return false, fmt.Errorf("campaign: %w", err)
	}
	e.logger.Info("elected", "candidate", e.name, "epoch", epoch)
	return true, newLeadership(alive, c, epoch).run(both, lead)
}

// campaign is one campaign: a lease, a key under it, and the wait for older
// candidates.
//
// It replaces concurrency.Election, on the same keys, for four reasons. That type
// ends a cancelled campaign by a write without a deadline, which never returns if
// etcd is away. It fails if a watch was compacted. It needs a Session, which keeps
// the lease alive on its own (see etcdLease). It does not compare its own key when it
// finds itself first.
type campaign struct {
	client   *clientv3.Client
	log      *slog.Logger
	lease    *etcdLease
	deadline *lease.Deadline
	key      string
	leaders  string // prefix of all candidates' keys
	prefix   string
	format   string // key that marks the prefix as ours
	name     string

	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// begin gets a lease and keeps it alive for the whole campaign. The context that it
// returns lives as long, and ends with the reason. It outlives ctx, because a leader
// that is told to stop still leads until it has completed its work.
func (e *Election) begin(ctx context.Context) (*campaign, context.Context, error) {
	deadline := lease.NewDeadline(e.lease - e.lease/10)
	sending := func() func() {
		sent := lease.Now()
		return func() { deadline.Extend(sent) }
	}
	limited, cancelLimited := context.WithTimeout(ctx, e.lease)
	defer cancelLimited()
	held, err := grant(limited, e.client, e.logger, e.lease, sending)
	if err != nil {
		deadline.End()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &campaign{
		client: e.client, log: e.logger, lease: held, deadline: deadline,
		key: e.layout.Leader(int64(held.id)), leaders: e.layout.Leaders(), prefix: e.prefix, format: e.layout.Format(), name: e.name,
		cancel: cancel,
	}
	c.wg.Go(func() {
		select {
		case <-deadline.Done():
			cancel(fmt.Errorf("%w: no keepalive acknowledged for %v", orchestrator.ErrDeposed, e.lease-e.lease/10))
		case <-ctx.Done():
		}
	})
	c.wg.Go(func() {
		// keep ends with ctx, which the deadline ends. So no lease is kept alive
		// after the campaign has ended.
		if err := held.keep(ctx); ctx.Err() == nil {
			cancel(fmt.Errorf("%w: %w", orchestrator.ErrDeposed, err))
		}
	})
	return c, ctx, nil
}

// end stops keeping the lease alive, then revokes it and deletes the key with it.
// The next candidate need not wait until the lease expires.
func (c *campaign) end(ctx context.Context, unrevoked *unrevokedLease) {
	c.cancel(errResigned)
	c.wg.Wait()
	c.deadline.End()
	unrevoked.end(ctx, c.lease)
}

// errResigned is the cause of a campaign that ended normally.
var errResigned = errors.New("resigned")

// predecessor is another candidate, as of a revision.
type predecessor struct {
	key string
	rev int64
}

// run returns the create revision of the key when the key is the oldest. It
// retries failures of etcd until ctx ends.
func (c *campaign) run(ctx context.Context) (epoch int64, err error) {
	retry := backoff.New()
	for {
		before, epoch, err := c.enroll(ctx)
		if err == nil {
			if before == nil {
				return epoch, nil
			}
			retry.Reset()
			err = c.awaitEnd(ctx, before)
		}
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, errNotOurs):
			return 0, err // the next campaign marks the prefix again
		case err != nil:
			c.log.Debug("campaign step failed, retrying", "candidate", c.name, "err", err)
			if !retry.Wait(ctx) {
				return 0, context.Cause(ctx)
			}
		}
	}
}

// enroll puts the key if it does not exist, and returns the candidate just before
// it. Without such a candidate, enroll returns nil and this one leads, because every
// later key is younger.
func (c *campaign) enroll(ctx context.Context) (before *predecessor, epoch int64, err error) {
	// The next attempt finds a put whose answer was lost, because no other candidate
	// has a key with this lease.
	resp, err := c.client.Txn(ctx).If(absent(c.key), present(c.format)).
		Then(clientv3.OpPut(c.key, c.name, clientv3.WithLease(c.lease.id))).
		Else(clientv3.OpGet(c.key)).
		Commit()
	if err != nil {
		return nil, 0, err
	}
	epoch = resp.Header.Revision
	if !resp.Succeeded {
		own := found(resp.Responses[0])
		if len(own) == 0 {
			return nil, 0, errNotOurs
		}
		epoch = own[0].CreateRevision
	}
	older := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(epoch-1), clientv3.WithKeysOnly())
	guarded, err := c.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(c.key), "=", epoch)).
		Then(clientv3.OpGet(c.leaders, older...)).
		Commit()
	switch {
	case err != nil:
		return nil, 0, err
	case !guarded.Succeeded:
		return nil, 0, errors.New("candidate's key was deleted")
	}
	if kvs := found(guarded.Responses[0]); len(kvs) > 0 {
		return &predecessor{string(kvs[0].Key), guarded.Header.Revision}, epoch, nil
	}
	return nil, epoch, nil
}

// awaitEnd returns nil when the predecessor's key has been deleted, or an error if
// the watch fails.
func (c *campaign) awaitEnd(ctx context.Context, before *predecessor) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	watch := c.client.Watch(ctx, before.key, clientv3.WithRev(before.rev+1), clientv3.WithFilterPut())
	for resp := range watch {
		if err := resp.Err(); err != nil {
			return err
		}
		if len(resp.Events) > 0 {
			return nil
		}
	}
	return errors.New("watch of the previous candidate ended")
}

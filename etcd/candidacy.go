package etcd

// One candidacy: a lease, a key under it, and waiting for those before it.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// candidacy is one candidacy, from its lease to its end.
//
// It does by itself what concurrency.Election does, on the same keys. That ends a
// campaign whose context is done by a write without a deadline, which never
// returns where etcd is away; gives up where a watch was compacted; needs a
// Session, which keeps the lease alive of its own accord (see held); and does
// not compare the own key when it finds itself first.
type candidacy struct {
	client   *clientv3.Client
	log      *slog.Logger
	held     *held
	deadline *lease.Deadline
	key      string
	leaders  string // what the candidates' keys begin with
	prefix   string
	format   string // the key that says that the prefix is ours
	name     string

	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// begin gets a lease, and has it kept alive for as long as the candidacy lasts:
// that long lives the context that it returns, which ends with the reason. It
// outlives ctx: a leader that is told to stop still leads until it has brought to
// an end what it has begun.
func (e *Election) begin(ctx context.Context) (*candidacy, context.Context, error) {
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
	c := &candidacy{
		client: e.client, log: e.logger, held: held, deadline: deadline,
		key: e.layout.Leader(int64(held.id)), leaders: e.layout.Leaders(), prefix: e.prefix, format: e.layout.Format(), name: e.name,
		cancel: cancel,
	}
	c.wg.Go(func() {
		select {
		case <-deadline.Done():
			cancel(fmt.Errorf("%w: etcd has acknowledged no keepalive for %v", orchestrator.ErrDeposed, e.lease-e.lease/10))
		case <-ctx.Done():
		}
	})
	c.wg.Go(func() {
		// This ends with ctx, which the deadline ends: nothing keeps alive what we
		// have given up.
		if err := held.keep(ctx); ctx.Err() == nil {
			cancel(fmt.Errorf("%w: %w", orchestrator.ErrDeposed, err))
		}
	})
	return c, ctx, nil
}

// end stops keeping the lease alive, then gives it back, and the key with it, so
// that the next candidate need not wait for its end.
func (c *candidacy) end(ctx context.Context, owed *debt) {
	c.cancel(errOver)
	c.wg.Wait()
	c.deadline.End()
	owed.end(ctx, c.held)
}

// errOver is the cause that a candidacy ends with when it has run its course.
var errOver = errors.New("resigned")

// rival is a candidate that was there, as of a revision.
type rival struct {
	key string
	rev int64
}

// campaign returns when the key is the oldest, with the revision at which it was
// created. Failures of etcd are retried for as long as ctx lives.
func (c *candidacy) campaign(ctx context.Context) (epoch int64, err error) {
	pause := shortest
	for {
		before, epoch, err := c.look(ctx)
		if err == nil {
			if before == nil {
				return epoch, nil
			}
			pause = shortest
			err = c.gone(ctx, before)
		}
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, errNotOurs):
			return 0, err // whoever stands again makes it ours
		case err != nil:
			c.log.Debug("campaign goes on after a failure", "candidate", c.name, "err", err)
			if err := wait(ctx, pause); err != nil {
				return 0, err
			}
			pause = min(2*pause, longest)
		}
	}
}

// look puts the key where it is not there yet, and returns the candidate just
// before it, or nil where there is none: then it leads, since whoever comes
// later has a younger key.
func (c *candidacy) look(ctx context.Context) (before *rival, epoch int64, err error) {
	// A put whose answer was lost is found here by the next attempt: nobody else
	// has a key with this lease.
	resp, err := c.client.Txn(ctx).If(absent(c.key), present(c.format)).
		Then(clientv3.OpPut(c.key, c.name, clientv3.WithLease(c.held.id))).
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
		return nil, 0, errors.New("the candidate's key was deleted")
	}
	if kvs := found(guarded.Responses[0]); len(kvs) > 0 {
		return &rival{string(kvs[0].Key), guarded.Header.Revision}, epoch, nil
	}
	return nil, epoch, nil
}

// gone returns when the rival's key is deleted, or with an error when that can
// no longer be told.
func (c *candidacy) gone(ctx context.Context, before *rival) error {
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
	return errors.New("the watch of the candidate before has ended")
}

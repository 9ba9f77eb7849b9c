package etcd

// Leases: granted, kept alive, and given back.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/f8949c05/orchestrator"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// errLeaseGone says that etcd has ended a lease, or that somebody has revoked it.
var errLeaseGone = errors.New("the lease is gone")

// held is a lease at etcd.
//
// It is kept alive by requests on a stream of its own, each answered before the
// next. The client's own KeepAlive, and with it concurrency.Session, is not used: it
// does not tell when it sent what was acknowledged, which is what its holder has to
// count from, and it goes on by itself, in a goroutine that knows nothing of
// whether its holder has given up. Nor is KeepAliveOnce, which opens a stream for
// each request: a client with a password logs in for each. A lease that outlives its holder's decision keeps the tasks of one that
// has stopped from being started elsewhere.
type held struct {
	client *clientv3.Client
	log    *slog.Logger
	id     clientv3.LeaseID
	length time.Duration
	// cluster is the id of the cluster that granted it. No other knows it.
	cluster uint64
	sending func() (acknowledged func())
}

// checkLease refuses what etcd cannot grant: its leases last whole seconds.
func checkLease(d time.Duration) error {
	if d < time.Second || d%time.Second != 0 {
		return fmt.Errorf("%w: a lease of %v: must be whole seconds, at least 1s", orchestrator.ErrInvalid, d)
	}
	return nil
}

// grant gets a lease of exactly that length. sending is called before each
// request that puts off its end, and what it returns when that was acknowledged.
func grant(ctx context.Context, c *clientv3.Client, log *slog.Logger, length time.Duration, sending func() (acknowledged func())) (*held, error) {
	if err := checkLease(length); err != nil {
		return nil, err
	}
	// A lease that is shorter than its holder believes would end too early. One
	// that is longer would be safe, but all that its holder has would stand still
	// for longer than the user has asked for: better he knows.
	acknowledged := sending()
	resp, err := c.Grant(ctx, int64(length/time.Second))
	if err != nil {
		return nil, fmt.Errorf("get a lease of %v: %w", length, err)
	}
	h := &held{client: c, log: log, id: resp.ID, length: length, cluster: resp.ClusterId, sending: sending}
	if granted := time.Duration(resp.TTL) * time.Second; granted != length {
		h.revoke(ctx)
		return nil, fmt.Errorf("%w: asked for %v, granted %v", ErrLeaseTooShort, length, granted)
	}
	acknowledged()
	return h, nil
}

// keep keeps the lease alive until ctx ends, and returns its cause; or an error
// that wraps errLeaseGone or ErrClusterChanged, as soon as etcd says so. It is
// for the holder to see that nothing was acknowledged for too long, and to end
// ctx.
func (h *held) keep(ctx context.Context) error {
	// Six chances before the end; each is given up when the next is due, so that
	// one answer that is lost does not hold up the others.
	every := h.length / 6
	beats := keepalives{lease: clientv3.RetryLeaseClient(h.client), id: int64(h.id)}
	defer beats.close()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := h.once(ctx, &beats, every)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errLeaseGone), errors.Is(err, ErrClusterChanged):
			return err
		case err != nil:
			failing = true
			h.log.Warn("a keepalive was not acknowledged", "lease", fmt.Sprintf("%x", h.id), "err", err)
		case failing:
			failing = false
			h.log.Info("keepalives are acknowledged again", "lease", fmt.Sprintf("%x", h.id))
		}
	}
}

func (h *held) once(ctx context.Context, beats *keepalives, timeout time.Duration) error {
	acknowledged := h.sending()
	resp, err := beats.once(ctx, timeout)
	switch {
	case err != nil:
		return err
	case resp.Header.GetClusterId() != h.cluster:
		return fmt.Errorf("%w: it was %x and is %x", ErrClusterChanged, h.cluster, resp.Header.GetClusterId())
	case resp.TTL <= 0:
		return fmt.Errorf("%w: %x", errLeaseGone, h.id)
	}
	acknowledged()
	return nil
}

// keepalives is the stream that the requests of one lease go by. It is opened
// when there is none, and given up with a request that has no answer in time.
type keepalives struct {
	lease  etcdserverpb.LeaseClient
	id     int64
	stream etcdserverpb.Lease_LeaseKeepAliveClient // nil: none
	end    context.CancelFunc                      // ends it
}

func (k *keepalives) once(ctx context.Context, timeout time.Duration) (resp *etcdserverpb.LeaseKeepAliveResponse, err error) {
	opening := k.stream == nil
	if opening {
		ctx, k.end = context.WithCancel(ctx)
	}
	overdue := time.AfterFunc(timeout, k.end)
	if opening {
		k.stream, err = k.lease.LeaseKeepAlive(ctx)
	}
	if err == nil {
		err = k.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: k.id})
	}
	if err == nil {
		resp, err = k.stream.Recv()
	}
	// Where the answer came together with the end of its time, it counts, but the
	// stream has ended.
	if inTime := overdue.Stop(); err != nil || !inTime {
		k.close()
	}
	if err != nil {
		return nil, fmt.Errorf("keepalive: %w", err)
	}
	return resp, nil
}

func (k *keepalives) close() {
	if k.end != nil {
		k.end()
	}
	k.stream, k.end = nil, nil
}

// revoke gives the lease back, and with it every key under it. It also tries
// where ctx has ended, for no longer than the lease can last. It reports whether
// the lease is gone; where it is not it ends by itself.
func (h *held) revoke(ctx context.Context) (gone bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(h.length, 2*time.Second))
	defer cancel()
	_, err := h.client.Revoke(ctx, h.id)
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return true
	}
	h.log.Warn("a lease was not given back, and ends by itself", "lease", fmt.Sprintf("%x", h.id), "err", err)
	return false
}

// debt is the lease that could not be given back last, if any. It belongs to
// somebody who holds one lease after the other, and has stopped all that ran
// under it.
//
// An etcd that was away for longer than a lease gives every lease its whole
// length again when it is back. Whoever has meanwhile stopped, and wants to come
// back, would wait for his own past self.
type debt struct{ held *held }

// pay gives back what is owed, now that etcd answers, and reports whether nothing
// is any more. Who does not wait for that may come to owe another one, and forgets
// this.
func (d *debt) pay(ctx context.Context) bool {
	if d.held != nil && d.held.revoke(ctx) {
		d.held = nil
	}
	return d.held == nil
}

// end gives a lease back, or owes it.
func (d *debt) end(ctx context.Context, h *held) {
	if !h.revoke(ctx) {
		d.held = h
	}
}

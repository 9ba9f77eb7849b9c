package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/loglimit"
)

// errLeaseGone reports that a lease expired or was revoked.
var errLeaseGone = errors.New("lease is gone")

// etcdLease is a lease at etcd.
//
// It is kept alive by requests on a separate stream, each answered before the next.
// The client's KeepAlive, and with it concurrency.Session, is not used for two
// reasons. It does not reveal when it sent the acknowledged request, from which the
// holder must count. And its goroutine continues even if the holder has stopped; a
// lease that outlives the holder's decision keeps its tasks from starting elsewhere.
// KeepAliveOnce is not used because it opens a stream for each request, and a client
// with a password logs in for each stream.
type etcdLease struct {
	client *clientv3.Client
	log    *slog.Logger
	id     clientv3.LeaseID
	length time.Duration
	// cluster is the id of the cluster that granted the lease. Other clusters do not
	// know the lease.
	cluster uint64
	sending func() (acknowledged func())
}

// checkLease returns an error unless d is a positive number of whole seconds, as
// etcd requires.
func checkLease(d time.Duration) error {
	if d < time.Second || d%time.Second != 0 {
		return fmt.Errorf("%w: a lease of %v: must be whole seconds, at least 1s", orchestrator.ErrInvalid, d)
	}
	return nil
}

// grant gets a lease of exactly that length. It calls sending before each request
// that extends the lease, and the returned function when that request was
// acknowledged.
func grant(ctx context.Context, c *clientv3.Client, log *slog.Logger, length time.Duration, sending func() (acknowledged func())) (*etcdLease, error) {
	if err := checkLease(length); err != nil {
		return nil, err
	}
	// A lease shorter than its holder believes would expire too early. A longer
	// lease would be safe, but after a crash the holder's tasks would wait longer
	// than configured. So both are errors.
	acknowledged := sending()
	resp, err := c.Grant(ctx, int64(length/time.Second))
	if err != nil {
		return nil, fmt.Errorf("get a lease of %v: %w", length, err)
	}
	l := &etcdLease{client: c, log: log, id: resp.ID, length: length, cluster: resp.ClusterId, sending: sending}
	if granted := time.Duration(resp.TTL) * time.Second; granted != length {
		l.revoke(ctx)
		return nil, fmt.Errorf("%w: asked for %v, granted %v", ErrLeaseTooShort, length, granted)
	}
	acknowledged()
	return l, nil
}

// keep keeps the lease alive until ctx ends, and returns its cause. It returns an
// error that wraps errLeaseGone or ErrClusterChanged as soon as etcd reports one.
// The holder must watch for a lack of acknowledgements, and end ctx.
func (l *etcdLease) keep(ctx context.Context) error {
	// Six attempts fit into the lease. Each is cancelled when the next is due, so
	// that one lost answer does not block the others.
	every := l.length / 6
	beats := keepalives{lease: clientv3.RetryLeaseClient(l.client), id: int64(l.id)}
	defer beats.close()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var failing loglimit.Limiter
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := l.once(ctx, &beats, every)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errLeaseGone), errors.Is(err, ErrClusterChanged):
			return err
		case err != nil:
			if omitted, ok := failing.Take(time.Now(), ""); ok {
				l.log.Warn("keepalive not acknowledged", "lease", fmt.Sprintf("%x", l.id), "err", err, loglimit.Omitted(omitted))
			}
		case failing.Reset():
			l.log.Info("keepalives acknowledged again", "lease", fmt.Sprintf("%x", l.id))
		}
	}
}

func (l *etcdLease) once(ctx context.Context, beats *keepalives, timeout time.Duration) error {
	acknowledged := l.sending()
	resp, err := beats.once(ctx, timeout)
	switch {
	case err != nil:
		return err
	case resp.Header.GetClusterId() != l.cluster:
		return fmt.Errorf("%w: cluster id was %x, is %x", ErrClusterChanged, l.cluster, resp.Header.GetClusterId())
	case resp.TTL <= 0:
		return fmt.Errorf("%w: %x", errLeaseGone, l.id)
	}
	acknowledged()
	return nil
}

// keepalives is the stream for the keepalive requests of one lease. It is opened on
// demand, and closed when a request has no answer in time.
type keepalives struct {
	lease  etcdserverpb.LeaseClient
	id     int64
	stream etcdserverpb.Lease_LeaseKeepAliveClient // nil: not open
	end    context.CancelFunc                      // cancels the stream
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
	// An answer that arrives just at the timeout counts, but its stream has ended.
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

// revoke revokes the lease, which deletes every key under it. It also tries if ctx
// has ended, for at most the length of the lease or two seconds. It reports whether
// the lease is gone; otherwise the lease will expire.
func (l *etcdLease) revoke(ctx context.Context) (gone bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(l.length, 2*time.Second))
	defer cancel()
	_, err := l.client.Revoke(ctx, l.id)
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return true
	}
	l.log.Warn("lease not revoked, will expire", "lease", fmt.Sprintf("%x", l.id), "err", err)
	return false
}

// unrevokedLease is the last lease that could not be revoked, if any. Its owner holds
// one lease after another, and has stopped everything that ran under this one.
//
// After an outage longer than a lease, etcd extends every lease by its full length.
// Without another attempt to revoke its last lease, a returning owner would wait for
// the end of that lease.
type unrevokedLease struct{ lease *etcdLease }

// retry revokes the lease, and reports whether none is left. A caller that ignores
// false may replace the lease by a later one that could not be revoked.
func (u *unrevokedLease) retry(ctx context.Context) bool {
	if u.lease != nil && u.lease.revoke(ctx) {
		u.lease = nil
	}
	return u.lease == nil
}

// end revokes a lease, or keeps it for retry.
func (u *unrevokedLease) end(ctx context.Context, l *etcdLease) {
	if !l.revoke(ctx) {
		u.lease = l
	}
}

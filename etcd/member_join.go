package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// errOwing reports that an earlier lease of the member has not been revoked yet.
var errOwing = errors.New("earlier lease not revoked yet")

// joinAttempt is an attempt to join under a name, which may be taken.
type joinAttempt struct {
	*session
	since time.Time     // when the name was first found taken; zero: never
	limit time.Duration // how long after since a dead member can hold the name
	term  uint64        // the raft term of etcd in which limit is valid
}

// expiryDelay bounds how late etcd deletes an expired lease. It checks every half
// second, and takes longer with many leases.
const expiryDelay = 2 * time.Second

// try puts the member's key, or waits for a limited time for the present key to go.
// It reports whether the member was admitted. If it returns false and no error, the
// caller calls try again.
func (a *joinAttempt) try(ctx context.Context) (admitted bool, err error) {
	fenced, err := a.fence(ctx)
	if err != nil {
		return false, fmt.Errorf("join: %w", err)
	}
	key := a.id.layout.Member(a.id.name)
	resp, err := a.m.client.Txn(ctx).
		If(append(fenced, absent(key), present(a.id.layout.Format()))...).
		Then(clientv3.OpPut(key, a.value(false), clientv3.WithLease(a.id.lease))).
		Else(clientv3.OpGet(key), clientv3.OpGet(a.id.layout.Format(), clientv3.WithKeysOnly())).
		Commit()
	if err != nil {
		return false, fmt.Errorf("join: %w", err)
	}
	if resp.Header.ClusterId != a.id.cluster {
		return false, ErrClusterChanged
	}
	if resp.Succeeded {
		a.id.member = resp.Header.Revision
		return true, nil
	}
	if first(resp.Responses[1]) == nil {
		return false, errNotOurs
	}
	kv := first(resp.Responses[0])
	if kv == nil && len(fenced) > 0 {
		return false, nil // the leader has changed since fence
	}
	if kv == nil {
		return false, errShape
	}
	if clientv3.LeaseID(kv.Lease) == a.id.lease {
		a.id.member = kv.CreateRevision // put by an earlier attempt whose answer was lost
		return true, nil
	}
	return false, a.wait(ctx, kv, resp.Header)
}

// wait waits until the name is free, or until the member that has the name must be
// alive. It returns ErrNameTaken in that case.
func (a *joinAttempt) wait(ctx context.Context, taken *mvccpb.KeyValue, as *etcdserverpb.ResponseHeader) error {
	// A new leader of etcd, such as after a restart, extends every lease by its full
	// length, including those of dead members.
	if a.since.IsZero() || a.term != as.RaftTerm {
		ttl, err := a.m.client.TimeToLive(ctx, clientv3.LeaseID(taken.Lease))
		if err != nil {
			return fmt.Errorf("read lease of the name's holder: %w", err)
		}
		// Use the full TTL, because the lease may have been renewed.
		a.limit = time.Duration(max(ttl.GrantedTTL, 0))*time.Second + expiryDelay
		a.since, a.term = time.Now(), as.RaftTerm
		a.m.log.Info("name taken, waiting for the lease to end", "worker", a.id.name, "limit", a.limit)
	}
	left := a.limit - time.Since(a.since)
	if left <= 0 {
		return fmt.Errorf("%w: worker %s has been a member since revision %d", ErrNameTaken, a.id.name, taken.CreateRevision)
	}
	limited, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), left)
	defer cancel()
	gone := a.m.client.Watch(limited, string(taken.Key), clientv3.WithRev(as.Revision+1), clientv3.WithFilterPut())
	for resp := range gone {
		if err := resp.Err(); err != nil {
			return fmt.Errorf("wait for the name: %w", err)
		}
		if len(resp.Events) > 0 {
			return nil
		}
	}
	return nil
}

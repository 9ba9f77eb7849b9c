package etcd

// Joining under a name, which may be taken.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// errOwing says that an earlier lease of the member could not be given back yet.
var errOwing = errors.New("an earlier lease was not given back")

// admission is the attempt to join under a name.
type admission struct {
	*session
	since time.Time     // when the name was found taken first; zero: it was not
	limit time.Duration // for how long whoever has it can hold it if he is dead
	term  uint64        // of etcd's own leader, for which that holds
}

// expiryDelay is how much later than it could a lease is ended at most: etcd
// looks every half second, and takes its time with many.
const expiryDelay = 2 * time.Second

// try puts the member's key, or waits for some time for the one that is there to
// go. It reports whether the member was admitted; without an error, it is to be
// called again.
func (a *admission) try(ctx context.Context) (admitted bool, err error) {
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
		return false, nil // another leads by now
	}
	if kv == nil {
		return false, errShape
	}
	if clientv3.LeaseID(kv.Lease) == a.id.lease {
		a.id.member = kv.CreateRevision // by an earlier attempt, which had no answer
		return true, nil
	}
	return false, a.wait(ctx, kv, resp.Header)
}

// wait waits until the name is free, or until it is certain that whoever has it
// lives.
func (a *admission) wait(ctx context.Context, taken *mvccpb.KeyValue, as *etcdserverpb.ResponseHeader) error {
	// Another leader of etcd, as after its restart, gives every lease its whole
	// length again, those of the dead too.
	if a.since.IsZero() || a.term != as.RaftTerm {
		ttl, err := a.m.client.TimeToLive(ctx, clientv3.LeaseID(taken.Lease))
		if err != nil {
			return fmt.Errorf("how long is the name taken: %w", err)
		}
		// Not what is left of it: it may have been renewed since.
		a.limit = time.Duration(max(ttl.GrantedTTL, 0))*time.Second + expiryDelay
		a.since, a.term = time.Now(), as.RaftTerm
		a.m.log.Info("name taken, waiting for the lease to end", "worker", a.id.name, "limit", a.limit)
	}
	left := a.limit - time.Since(a.since)
	if left <= 0 {
		return fmt.Errorf("%w: worker %s is a member since revision %d", ErrNameTaken, a.id.name, taken.CreateRevision)
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

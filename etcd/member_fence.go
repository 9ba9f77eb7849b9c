package etcd

// Members that take no assignments from etcd, but from a leader directly: what
// keeps the leaders before it from commanding them, and how they drain.

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// WithoutAssignments has the member join, keep its lease, fence itself and join
// again, and no more: it takes no assignments from etcd. They come by another
// transport, straight from whoever leads, such as communicator/grpc, whose Server
// serves the same worker.
//
// What keeps leaders apart is then no longer a transaction that compares the
// leader's key, but the worker's fence: whoever is elected uses
// [Leadership.Epoch] as the epoch (orchestrator.WithEpoch), and a worker refuses
// what is of a lower one than it has heard of. That this is enough takes four
// things, of which the member sees to the first two:
//
//   - Who has just joined has heard of nobody. So the member raises the fence to the
//     epoch of who leads (worker.Worker.Fence) before it joins, and joins only
//     where the same still leads, in one transaction: nothing of any leader before
//     is ever accepted by somebody that the present one hears of only now.
//   - Whoever joins again is another incarnation ([MemberState.Process]), and calls
//     are for one incarnation.
//   - Who joined before a leader was elected is known to it at its first term, if
//     that comes after a [Membership.Watch], begun after the election, has told it
//     of everybody. Until such a worker has answered, which raises its fence,
//     an orchestrator starts nothing that it may be running.
//   - orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved): silence proves
//     nothing. Who is a member no more has stopped everything (W5), and is removed.
//
// Not promised is what rests on transactions and revisions of single tasks: there are no tokens
// (worker.Token), [Owners] knows nothing, and no load is written. And where etcd is replaced by
// one that counts lower revisions, workers refuse its leaders, whose epochs are
// lower, until their processes are restarted.
func WithoutAssignments() MemberOption {
	return memberOption(func(s *memberSettings) { s.unassigned = true })
}

// reign is who leads as of some revision: an epoch, above all before and below
// all to come, and what compares that it is still so.
type reign struct {
	epoch     uint64
	unchanged clientv3.Cmp
}

// reigning reads who leads. Where nobody does, the revision stands for a leader:
// those before were elected earlier, and all to come are elected later.
func (a *admission) reigning(ctx context.Context) (reign, error) {
	prefix := a.id.layout.Leaders()
	resp, err := a.m.client.Get(ctx, prefix, clientv3.WithFirstCreate()...)
	switch {
	case err != nil:
		return reign{}, fmt.Errorf("who leads: %w", err)
	case resp.Header.ClusterId != a.id.cluster:
		return reign{}, ErrClusterChanged
	case len(resp.Kvs) == 0:
		nobody := clientv3.Compare(clientv3.CreateRevision(prefix), "=", 0).WithPrefix()
		return reign{uint64(resp.Header.Revision), nobody}, nil
	}
	leader := resp.Kvs[0]
	still := clientv3.Compare(clientv3.CreateRevision(string(leader.Key)), "=", leader.CreateRevision)
	return reign{uint64(leader.CreateRevision), still}, nil
}

// fence has the worker refuse what is of earlier leaders, and returns what the
// transaction that joins has to compare for that to hold; nothing where
// assignments come from etcd.
func (a *admission) fence(ctx context.Context) ([]clientv3.Cmp, error) {
	if !a.m.settings.unassigned {
		return nil, nil
	}
	r, err := a.reigning(ctx)
	if err != nil {
		return nil, err
	}
	a.m.worker.Fence(orchestrator.Term{Epoch: r.epoch})
	return []clientv3.Cmp{r.unchanged}, nil
}

// idle returns a channel that is closed once all the tasks of the worker have
// moved.
func (s *session) idle() <-chan struct{} {
	empty := make(chan struct{})
	s.part(func(ctx context.Context) error {
		if s.end.Emptied(ctx) {
			close(empty)
		}
		return nil
	})
	return empty
}

package etcd

// Members that take no assignments from etcd, but from a leader directly: how they
// are fenced against earlier leaders, and how they drain.
import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// WithoutAssignments limits the member to its membership: it joins, keeps its lease,
// fences itself and rejoins, but takes no assignments from etcd. The leader sends
// them over another transport, such as communicator/grpc, whose Server serves the
// same worker.
//
// Leaders are then fenced by the worker, not by a transaction on the leader's key.
// The leader uses [Leadership.Epoch] as its epoch (orchestrator.WithEpoch), and a
// worker refuses epochs below the highest it has seen. This is safe under four
// conditions, of which the member ensures the first two:
//
//   - Before it joins, the member raises the worker's fence to the current leader's
//     epoch (worker.Worker.Fence). It joins in a transaction that requires the same
//     leader. So a worker that a leader has just discovered accepts nothing from
//     earlier leaders.
//   - Each rejoin has a new incarnation ([MemberState.Process]), and each call is
//     for one incarnation.
//   - The leader's first term comes after a [Membership.Watch], begun after the
//     election, has delivered all members. Until a worker that joined earlier has
//     answered, which raises its fence, the orchestrator starts nothing that it may
//     be running.
//   - The grace period is orchestrator.HoldUntilRemoved. A worker that is no longer
//     a member has stopped everything (W5) and is removed.
//
// What depends on transactions and revisions of single tasks is missing: tokens
// (worker.Token), [Owners] and loads. If etcd is replaced by a cluster with lower
// revisions, workers refuse its leaders until their processes restart.
func WithoutAssignments() MemberOption {
	return memberOption(func(s *memberSettings) { s.unassigned = true })
}

// leaderGuard is the present leader as of a revision: an epoch above all earlier and below
// all later ones, and a comparison that holds until the leader changes.
type leaderGuard struct {
	epoch     uint64
	unchanged clientv3.Cmp
}

// reigning reads the present leader. Without a leader, the revision serves as the
// epoch: earlier leaders were elected before it, and later ones will be elected
// after it.
func (a *joinAttempt) reigning(ctx context.Context) (leaderGuard, error) {
	prefix := a.id.layout.Leaders()
	resp, err := a.m.client.Get(ctx, prefix, clientv3.WithFirstCreate()...)
	switch {
	case err != nil:
		return leaderGuard{}, fmt.Errorf("read leader: %w", err)
	case resp.Header.ClusterId != a.id.cluster:
		return leaderGuard{}, ErrClusterChanged
	case len(resp.Kvs) == 0:
		nobody := clientv3.Compare(clientv3.CreateRevision(prefix), "=", 0).WithPrefix()
		return leaderGuard{uint64(resp.Header.Revision), nobody}, nil
	}
	leader := resp.Kvs[0]
	still := clientv3.Compare(clientv3.CreateRevision(string(leader.Key)), "=", leader.CreateRevision)
	return leaderGuard{uint64(leader.CreateRevision), still}, nil
}

// fence makes the worker refuse calls of earlier leaders. It returns comparisons
// that the joining transaction must include. It returns none if assignments come
// from etcd.
func (a *joinAttempt) fence(ctx context.Context) ([]clientv3.Cmp, error) {
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

// idle returns a channel that is closed once all tasks of the worker have moved.
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

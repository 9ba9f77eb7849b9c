package etcd

// The writes of a member, as parts of a transaction that compares the member's own
// key. Each is one operation for one task, and has no effect if its comparisons
// fail. A write without an answer may have been applied. It is repeated until etcd
// has answered, and the repeated write detects whether the first was applied.

import (
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
)

// entry is one write of a member for one task.
type entry struct {
	kind   action // doClaim, doRefuse, doConfirm or doLeave
	task   string
	basis  int64
	claim  int64
	reason error // why the assignment is refused; nil: no refusal is written
}

// identity holds what a member needs to write its keys.
type identity struct {
	layout      keys.Layout
	name        string
	incarnation string // the worker's
	lease       clientv3.LeaseID
	member      int64 // create revision of the member's key
	cluster     uint64
}

// there compares that this membership still exists.
func (id identity) there() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(id.layout.Member(id.name)), "=", id.member)
}

// operation returns the operation that writes an entry.
func (id identity) operation(e entry) clientv3.Op {
	assigned, active := id.layout.Assigned(id.name, e.task), id.layout.Active(id.name, e.task)
	asAssigned := clientv3.Compare(clientv3.ModRevision(assigned), "=", e.basis)
	asClaimed := clientv3.Compare(clientv3.CreateRevision(active), "=", e.claim) // 0: not claimed
	value := claim{Incarnation: id.incarnation, Starting: e.kind == doClaim}
	put := clientv3.OpPut(active, encode(value), clientv3.WithLease(id.lease))
	decline := func() clientv3.Op {
		ops := []clientv3.Op{clientv3.OpDelete(assigned)}
		if e.reason != nil {
			ops = append(ops, clientv3.OpPut(id.layout.Refused(id.name, e.task),
				encode(newRefusal(e.reason, e.basis)), clientv3.WithLease(id.lease)))
		}
		return clientv3.OpTxn([]clientv3.Cmp{asAssigned}, ops, nil)
	}
	switch e.kind {
	case doClaim:
		// Do not read the content here. With many claims in one transaction, the
		// contents could delay the answer past its timeout. A claim without an
		// answer blocks all other writes of the member.
		return clientv3.OpTxn([]clientv3.Cmp{asAssigned, asClaimed}, []clientv3.Op{put}, []clientv3.Op{clientv3.OpGet(active)})
	case doConfirm:
		return clientv3.OpTxn([]clientv3.Cmp{asClaimed}, []clientv3.Op{put}, nil)
	case doRefuse:
		return decline()
	}
	leave := clientv3.OpTxn([]clientv3.Cmp{asClaimed}, []clientv3.Op{clientv3.OpDelete(active)}, nil)
	if e.reason == nil {
		return leave
	}
	return clientv3.OpTxn(nil, []clientv3.Op{leave, decline()}, nil)
}

// claimResult is the outcome of a claim. The claim was made, or it is blocked by a claim
// under the same name. If neither is set, the assignment has changed.
type claimResult struct {
	claim   int64
	blocked error
}

// gained returns the outcome of a claim. A claim of this membership that it finds
// was made by an earlier attempt whose answer was lost.
func (id identity) gained(rev int64, resp *pb.TxnResponse) (claimResult, error) {
	if len(resp.GetResponses()) != 1 {
		return claimResult{}, errShape
	}
	if resp.Succeeded {
		return claimResult{claim: rev}, nil
	}
	switch kv := first(resp.Responses[0]); {
	case kv == nil:
		return claimResult{}, nil
	case decode[claim](kv.Value).Incarnation == id.incarnation:
		return claimResult{claim: kv.CreateRevision}, nil
	}
	return claimResult{blocked: errors.New("claimed by another worker of this name")}, nil
}

// first returns the first key of a read, or nil.
func first(r *pb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

package etcd

// The writes of a member, as parts of a transaction that compares the member's
// own key. Each is one operation about one task, which does nothing where things
// have changed, and which can be made again until etcd has answered: no answer
// means perhaps made, and the second attempt finds out.

import (
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
)

// entry is one write of a member about one task.
type entry struct {
	kind   action // doClaim, doRefuse, doConfirm or doLeave
	task   string
	basis  int64
	claim  int64
	reason error // why the assignment is deleted; nil: nothing is said about it
}

// identity is what the keys of a member are written with.
type identity struct {
	layout      keys.Layout
	name        string
	incarnation string // of the worker
	lease       clientv3.LeaseID
	member      int64 // create revision of the member's key
	cluster     uint64
}

// there compares that this membership still stands.
func (id identity) there() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(id.layout.Member(id.name)), "=", id.member)
}

// operation returns what makes an entry.
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
		// The content is not read here. Of many claims at once it could be so much
		// that no answer comes in time, and a claim that has no answer holds up all
		// that the member has to write.
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

// gain is what came of a claim: either it was made, or blocked by what is
// claimed under the name, or neither, since the assignment is another one by
// now.
type gain struct {
	claim   int64
	blocked error
}

// gained tells what came of a claim. One that finds a claim of this membership
// there was made by an earlier attempt that had no answer.
func (id identity) gained(rev int64, resp *pb.TxnResponse) (gain, error) {
	if len(resp.GetResponses()) != 1 {
		return gain{}, errShape
	}
	if resp.Succeeded {
		return gain{claim: rev}, nil
	}
	switch kv := first(resp.Responses[0]); {
	case kv == nil:
		return gain{}, nil
	case decode[claim](kv.Value).Incarnation == id.incarnation:
		return gain{claim: kv.CreateRevision}, nil
	}
	return gain{blocked: errors.New("another worker of this name has claimed it")}, nil
}

// first returns the key that a read found, or nil.
func first(r *pb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

package etcd

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// commit makes the writes that are not settled, in as few transactions as possible.
// If a transaction fails, commit does not try the following ones. The error is then
// the result of all writes that were not made.
func (b *batch) commit(ctx context.Context, term orchestrator.Term) error {
	v, err := b.c.assignmentCache.look(b.worker.Name, nil)
	if err != nil {
		return err
	}
	value := encode(assignment{Epoch: term.Epoch, Term: term.Number, Member: b.worker.Incarnation})
	g := b.c.guards(b.rev, b.worker)
	var ops []clientv3.Op
	var of []*pending // the write of each operation
	size := g.size()
	for i := range b.writes {
		p := &b.writes[i]
		if p.settled {
			continue
		}
		op := b.operation(p.Write, value, clientv3.LeaseID(v.lease))
		if size += count(op); size > maxOps {
			if err := b.transact(ctx, g, ops, of); err != nil {
				return err
			}
			ops, of, size = nil, nil, g.size()+count(op)
		}
		ops, of = append(ops, op), append(of, p)
	}
	return b.transact(ctx, g, ops, of)
}

// operation returns the operation of a write. A Remove also reads the claim.
func (b *batch) operation(w orchestrator.Write[string], value string, lease clientv3.LeaseID) clientv3.Op {
	key := b.c.layout.Assigned(b.worker.Name, w.Task)
	if w.Op == orchestrator.OpAdd {
		return clientv3.OpPut(key, value, clientv3.WithLease(lease))
	}
	claim := clientv3.OpGet(b.c.layout.Active(b.worker.Name, w.Task), clientv3.WithKeysOnly())
	return clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpDelete(key), claim}, nil)
}

// transact makes the writes and records the claims that it found.
func (b *batch) transact(ctx context.Context, g guards, ops []clientv3.Op, of []*pending) error {
	resp, err := b.c.client.Txn(ctx).If(g.compare...).Then(ops...).Else(g.read...).Commit()
	switch {
	case err != nil:
		return failed(b.worker, err)
	case !resp.Succeeded:
		return g.broken(resp)
	case len(resp.Responses) != len(ops):
		return errShape
	}
	for i, p := range of {
		p.made = resp.Header.Revision
		if p.Op != orchestrator.OpRemove {
			continue
		}
		found := resp.Responses[i].GetResponseTxn().GetResponses()
		if len(found) != 2 {
			return errShape
		}
		kv := first(found[1])
		if kv == nil {
			continue
		}
		p.found = kv.CreateRevision
		if found[0].GetResponseDeleteRange().GetDeleted() == 0 {
			// An earlier Remove has deleted the assignment, perhaps one whose answer
			// was lost, or another leader's. That Remove may have waited for the
			// stop already. This one does not wait, so that the task delays no term
			// more than once. The move waits for the next term.
			p.settle(fmt.Errorf("%w: task %s has not stopped", orchestrator.ErrStopping, p.Task))
		}
	}
	return nil
}

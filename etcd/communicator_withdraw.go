package etcd

// Withdrawing: an assignment that its worker has not claimed is deleted, so that the
// task can go to another worker. Claim and withdrawal compare each other's key, so
// only one of them succeeds.

import (
	"context"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// withdraw deletes assignments of a worker that have not been claimed, given with
// their revisions. It returns the tasks withdrawn, sorted. An error ends it and is
// only logged: a later List withdraws the others.
func (c *Communicator) withdraw(ctx context.Context, rev int64, worker Worker, late map[string]int64) (withdrawn []string) {
	g := c.guards(rev, worker)
	tasks := slices.Sorted(maps.Keys(late))
	for len(tasks) > 0 {
		var ops []clientv3.Op
		for size := g.size(); len(ops) < len(tasks); {
			op := c.withdrawal(worker.Name, tasks[len(ops)], late)
			if size += count(op); size > maxOps {
				break
			}
			ops = append(ops, op)
		}
		resp, err := c.client.Txn(ctx).If(g.compare...).Then(ops...).Else(g.read...).Commit()
		if err == nil && !resp.Succeeded {
			err = g.broken(resp)
		} else if err == nil && len(resp.Responses) != len(ops) {
			err = errShape
		}
		if err != nil {
			c.log.Debug("unclaimed tasks not withdrawn", "worker", worker.Name, "err", err)
			return withdrawn
		}
		for i, task := range tasks[:len(ops)] {
			if resp.Responses[i].GetResponseTxn().GetSucceeded() {
				c.log.Info("unclaimed task withdrawn", "worker", worker.Name, "task", task)
				withdrawn = append(withdrawn, task)
			}
		}
		tasks = tasks[len(ops):]
	}
	return withdrawn
}

// withdrawal returns the operation that withdraws one assignment if it is unchanged
// and unclaimed.
func (c *Communicator) withdrawal(worker, task string, late map[string]int64) clientv3.Op {
	assigned, active := c.layout.Assigned(worker, task), c.layout.Active(worker, task)
	return clientv3.OpTxn([]clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(assigned), "=", late[task]),
		clientv3.Compare(clientv3.CreateRevision(active), "=", 0),
	}, []clientv3.Op{clientv3.OpDelete(assigned)}, nil)
}

// tidy withdraws unclaimed assignments of a worker, and returns when the cache shows
// it. List still includes those that could not be withdrawn, because the worker may
// still claim them.
func (c *Communicator) tidy(ctx context.Context, rev int64, worker Worker, late map[string]int64) {
	withdrawn := c.withdraw(ctx, rev, worker, late)
	for {
		v, err := c.assignmentCache.look(worker.Name, withdrawn)
		if err != nil || !slices.ContainsFunc(withdrawn, func(task string) bool {
			return v.states[task].assigned == late[task]
		}) {
			return
		}
		select {
		case <-v.change:
		case <-ctx.Done():
			return
		}
	}
}

package etcd

// Add, Remove and Apply. A batch passes these phases: settleBefore settles the writes
// that need no transaction, commit makes the others, and wait waits for their results. An
// assignment that its worker does not claim in time is withdrawn.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
)

// Add assigns task to worker, and returns when the worker has claimed and started
// it. If the worker has not claimed it shortly before ctx ends, Add withdraws the
// assignment and fails with [orchestrator.ErrRejected]. If the worker refuses the
// task, Add fails with ErrRejected and the worker's reason. If the task was claimed
// but has not started when ctx ends, the start continues and the result is unknown.
func (c *Communicator) Add(ctx context.Context, worker WorkerID, task string) error {
	return c.applyOne(ctx, worker, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
}

// Remove deletes the assignment of task, and returns when the task has stopped on
// worker. If ctx ends first, Remove fails with [orchestrator.ErrStopping]. Further
// calls then fail with it immediately until the task has stopped, so that the task
// delays only one term.
func (c *Communicator) Remove(ctx context.Context, worker WorkerID, task string) error {
	return c.applyOne(ctx, worker, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: task})
}

func (c *Communicator) applyOne(ctx context.Context, worker WorkerID, write orchestrator.Write[string]) error {
	if errs := c.Apply(ctx, worker, []orchestrator.Write[string]{write}); errs != nil {
		return errs[0]
	}
	return nil
}

// Apply makes several writes, with as many in one transaction as fit, and waits for
// all of them together.
func (c *Communicator) Apply(ctx context.Context, worker WorkerID, writes []orchestrator.Write[string]) []error {
	b := c.newBatch(worker, writes)
	b.run(ctx)
	for i := range b.writes {
		if b.writes[i].err != nil {
			return b.errors()
		}
	}
	return nil
}

// batch is one call of Apply in progress.
type batch struct {
	c      *Communicator
	worker WorkerID
	tasks  []string // to look up on the cache: those of the writes that are not settled
	writes []pending
	rev    int64 // of the term's fence
}

// pending is one write of a batch.
type pending struct {
	orchestrator.Write[string]
	made      int64 // the revision at which it was made; 0: not made yet
	found     int64 // the claim that a Remove found then
	settled   bool
	err       error // the result; valid when settled
	withdrawn bool  // an Add that was withdrawn

	reported bool // with orchestrator.Applied
}

func (p *pending) settle(err error) { p.settled, p.err = true, err }

func (c *Communicator) newBatch(worker WorkerID, writes []orchestrator.Write[string]) *batch {
	b := &batch{c: c, worker: worker, tasks: make([]string, len(writes)), writes: make([]pending, len(writes))}
	for i, w := range writes {
		b.tasks[i], b.writes[i].Write = w.Task, w
	}
	return b
}

func (b *batch) errors() []error {
	errs := make([]error, len(b.writes))
	for i := range b.writes {
		errs[i] = b.writes[i].err
	}
	return errs
}

// settleRest gives all unsettled writes the same result.
func (b *batch) settleRest(err error) {
	for i := range b.writes {
		if !b.writes[i].settled {
			b.writes[i].settle(err)
		}
	}
}

// run makes the writes and waits for their results.
func (b *batch) run(ctx context.Context) {
	if err := context.Cause(ctx); err != nil {
		b.settleRest(fmt.Errorf("%w: context ended before the call: %w", orchestrator.ErrRejected, err))
		return
	}
	term, ok := orchestrator.TermFromContext(ctx)
	if !ok {
		b.settleRest(fmt.Errorf("%w: write without a term", orchestrator.ErrStale))
		return
	}
	b.c.noteDeadline(ctx)
	var err error
	if b.rev, err = b.c.begin(ctx, term); err != nil {
		b.settleRest(err)
		return
	}
	if err := b.c.reached(ctx, b.rev); err != nil {
		b.settleRest(err)
		return
	}
	if b.settleBefore() {
		return
	}
	if err := b.commit(ctx, term); err != nil {
		// Writes of earlier transactions were made, and get their own results.
		for i := range b.writes {
			if p := &b.writes[i]; !p.settled && p.made == 0 {
				p.settle(err)
			}
		}
	}
	b.wait(ctx)
}

// settleBefore settles the writes that need no transaction, and reports whether these are
// all.
func (b *batch) settleBefore() (all bool) {
	v, err := b.c.cache.look(b.worker.Name, b.tasks)
	if err == nil && v.member != b.worker.Incarnation {
		err = gone(b.worker)
	}
	if err != nil {
		b.settleRest(err)
		return true
	}
	all = true
	for i := range b.writes {
		p := &b.writes[i]
		if done, err := resultBefore(p.Op, v.states[p.Task]); done {
			p.settle(err)
		}
		all = all && p.settled
	}
	return all
}

// commit makes the writes that are not settled, in as few transactions as possible.
// If a transaction fails, commit does not try the following ones. The error is then
// the result of all writes that were not made.
func (b *batch) commit(ctx context.Context, term orchestrator.Term) error {
	v, err := b.c.cache.look(b.worker.Name, nil)
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
		return resultOfError(b.worker, err)
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

// wait settles each write as soon as the cache shows its result.
func (b *batch) wait(ctx context.Context) {
	alarm, stop := b.alarm(ctx)
	defer stop()
	for {
		v, err := b.c.cache.look(b.worker.Name, b.tasks)
		if err != nil {
			b.settleRest(err)
			return
		}
		open := b.tasks[:0] // the tasks to look up next time
		for i := range b.writes {
			p := &b.writes[i]
			if p.settled {
				continue
			}
			if done, err := resultAfter(p.Op, p.made, p.found, v.rev, v.states[p.Task]); done {
				p.settle(err)
			} else {
				open = append(open, p.Task)
			}
		}
		if b.tasks = open; len(open) == 0 {
			return
		}
		for i := range b.writes {
			if p := &b.writes[i]; p.settled && p.err == nil && !p.reported {
				p.reported = true
				orchestrator.Applied(ctx, p.Write)
			}
		}
		select {
		case <-v.change:
		case <-alarm:
			alarm = nil
			b.withdrawUnclaimed(ctx)
		case <-ctx.Done():
			b.settleUnfinished(context.Cause(ctx))
			return
		}
	}
}

// alarm returns a timer for the withdrawal of unclaimed assignments. It fires one
// second before the deadline, or after four fifths of the time if that is later.
func (b *batch) alarm(ctx context.Context) (<-chan time.Time, func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, func() {}
	}
	left := time.Until(deadline)
	timer := time.NewTimer(left - min(left/5, time.Second))
	return timer.C, func() { timer.Stop() }
}

// withdrawUnclaimed withdraws the unclaimed assignments. The cache will show the
// withdrawals.
func (b *batch) withdrawUnclaimed(ctx context.Context) {
	v, err := b.c.cache.look(b.worker.Name, b.tasks)
	if err != nil {
		return
	}
	late := make(map[string]int64)
	for i := range b.writes {
		if p := &b.writes[i]; !p.settled && p.Op == orchestrator.OpAdd && v.states[p.Task].claim == 0 {
			late[p.Task] = p.made
		}
	}
	if len(late) == 0 {
		return
	}
	withdrawn := b.c.withdraw(ctx, b.rev, b.worker, late)
	for i := range b.writes {
		if p := &b.writes[i]; !p.settled {
			_, p.withdrawn = slices.BinarySearch(withdrawn, p.Task)
		}
	}
}

// settleUnfinished settles the remaining writes when the call ends.
func (b *batch) settleUnfinished(cause error) {
	for i := range b.writes {
		switch p := &b.writes[i]; {
		case p.settled:
		case p.withdrawn:
			p.settle(errUnclaimed)
		default:
			p.settle(resultAtEnd(p.Op, p.Task, cause))
		}
	}
}

// withdraw deletes assignments of a worker that have not been claimed, given with
// their revisions. It returns the tasks withdrawn, sorted. An error ends it and is
// only logged: a later List withdraws the others.
func (c *Communicator) withdraw(ctx context.Context, rev int64, worker WorkerID, late map[string]int64) (withdrawn []string) {
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

// withdrawAndWait withdraws unclaimed assignments of a worker, and returns when the cache shows
// it. List still includes those that could not be withdrawn, because the worker may
// still claim them.
func (c *Communicator) withdrawAndWait(ctx context.Context, rev int64, worker WorkerID, late map[string]int64) {
	withdrawn := c.withdraw(ctx, rev, worker, late)
	for {
		v, err := c.cache.look(worker.Name, withdrawn)
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

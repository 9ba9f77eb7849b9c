package etcd

// Add, Remove and Apply: the writes of a term, and the waits for what the
// worker makes of them. What an outcome means is in communicator_outcome.go.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Add assigns task to worker, and returns when the worker has claimed and
// started it. Where the worker has not claimed it shortly before ctx ends, the
// assignment is withdrawn: Add then fails with [orchestrator.ErrRejected], as it
// does where the worker refuses, with the reason that the worker gave. A task
// that was claimed and has not started when ctx ends goes on starting; the
// error then leaves open what becomes of it.
func (c *Communicator) Add(ctx context.Context, worker Worker, task string) error {
	return c.one(ctx, worker, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
}

// Remove takes the assignment of task away from worker, and returns when the
// task has stopped there; with [orchestrator.ErrStopping] where ctx ends before.
func (c *Communicator) Remove(ctx context.Context, worker Worker, task string) error {
	return c.one(ctx, worker, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: task})
}

func (c *Communicator) one(ctx context.Context, worker Worker, write orchestrator.Write[string]) error {
	if errs := c.Apply(ctx, worker, []orchestrator.Write[string]{write}); errs != nil {
		return errs[0]
	}
	return nil
}

// Apply makes several writes, as many as fit in one transaction, and waits for
// all of them together.
func (c *Communicator) Apply(ctx context.Context, worker Worker, writes []orchestrator.Write[string]) []error {
	b := c.newBatch(worker, writes)
	b.run(ctx)
	for i := range b.writes {
		if b.writes[i].err != nil {
			return b.errors()
		}
	}
	return nil
}

// batch is one call of Apply under way.
type batch struct {
	c      *Communicator
	worker Worker
	tasks  []string
	writes []pending
	rev    int64 // of the term's fence
}

// pending is one write of a batch.
type pending struct {
	orchestrator.Write[string]
	made    int64 // the revision at which it was made; 0: not yet
	found   int64 // the claim that it found then, if it was a Remove
	settled bool
	err     error // the answer; counts when settled
	taken   bool  // it was an Add, and was withdrawn
}

func (p *pending) settle(err error) { p.settled, p.err = true, err }

func (c *Communicator) newBatch(worker Worker, writes []orchestrator.Write[string]) *batch {
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

// settleRest gives the same answer to all that have none yet.
func (b *batch) settleRest(err error) {
	for i := range b.writes {
		if !b.writes[i].settled {
			b.writes[i].settle(err)
		}
	}
}

// run makes the writes and waits for them.
func (b *batch) run(ctx context.Context) {
	if err := context.Cause(ctx); err != nil {
		b.settleRest(fmt.Errorf("%w: the call had ended before: %w", orchestrator.ErrRejected, err))
		return
	}
	term, ok := orchestrator.TermFromContext(ctx)
	if !ok {
		b.settleRest(fmt.Errorf("%w: the write is of no term", orchestrator.ErrStale))
		return
	}
	b.c.learnPatience(ctx)
	var err error
	if b.rev, err = b.c.begin(ctx, term); err != nil {
		b.settleRest(err)
		return
	}
	if err := b.c.reached(ctx, b.rev); err != nil {
		b.settleRest(err)
		return
	}
	if b.before() {
		return
	}
	if err := b.commit(ctx, term); err != nil {
		return
	}
	b.wait(ctx)
}

// before settles what the board tells to need no write.
func (b *batch) before() (all bool) {
	v, err := b.c.board.look(b.worker.Name, b.tasks)
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
		if done, err := before(p.Op, v.spots[p.Task]); done {
			p.settle(err)
		}
		all = all && p.settled
	}
	return all
}

// commit makes the writes that are not settled, in as few transactions as they
// fit into. Where one fails, so do those that would have followed.
func (b *batch) commit(ctx context.Context, term orchestrator.Term) error {
	v, err := b.c.board.look(b.worker.Name, nil)
	if err != nil {
		b.settleRest(err)
		return err
	}
	g := b.c.guards(b.rev, b.worker)
	value := encode(assignment{Epoch: term.Epoch, Term: term.Number, Member: b.worker.Incarnation})
	var ops []clientv3.Op
	var of []*pending // the write that each of them belongs to
	size := g.size()
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		resp, err := b.c.client.Txn(ctx).If(g.compare...).Then(ops...).Else(g.read...).Commit()
		if err == nil && !resp.Succeeded {
			err = g.broken(resp)
		}
		if err != nil {
			b.settleRest(failed(b.worker, err))
			return err
		}
		for i, p := range of {
			p.made = resp.Header.Revision
			if p.Op != orchestrator.OpRemove {
				continue
			}
			if kv := first(resp.Responses[i].GetResponseTxn().GetResponses()[1]); kv != nil {
				p.found = kv.CreateRevision
			}
		}
		ops, of, size = nil, nil, g.size()
		return nil
	}
	for i := range b.writes {
		p := &b.writes[i]
		if p.settled {
			continue
		}
		key := b.c.layout.Assigned(b.worker.Name, p.Task)
		op := clientv3.OpPut(key, value, clientv3.WithLease(clientv3.LeaseID(v.lease)))
		if p.Op == orchestrator.OpRemove {
			claim := clientv3.OpGet(b.c.layout.Active(b.worker.Name, p.Task), clientv3.WithKeysOnly())
			op = clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpDelete(key), claim}, nil)
		}
		if size+count(op) > maxOps {
			if err := flush(); err != nil {
				return err
			}
		}
		ops, of, size = append(ops, op), append(of, p), size+count(op)
	}
	return flush()
}

// wait settles each write as soon as the board tells how.
func (b *batch) wait(ctx context.Context) {
	alarm, stop := b.alarm(ctx)
	defer stop()
	for {
		v, err := b.c.board.look(b.worker.Name, b.tasks)
		if err != nil {
			b.settleRest(err)
			return
		}
		all := true
		for i := range b.writes {
			p := &b.writes[i]
			if p.settled {
				continue
			}
			if done, err := after(p.Op, p.made, p.found, v.rev, v.spots[p.Task]); done {
				p.settle(err)
			}
			all = all && p.settled
		}
		if all {
			return
		}
		select {
		case <-v.change:
		case <-alarm:
			alarm = nil
			b.giveUp(ctx)
		case <-ctx.Done():
			b.late(context.Cause(ctx))
			return
		}
	}
}

// alarm returns when it is time to withdraw what was not claimed: when a fifth of
// the time that is left, or a second, is left.
func (b *batch) alarm(ctx context.Context) (<-chan time.Time, func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, func() {}
	}
	left := time.Until(deadline)
	timer := time.NewTimer(left - min(left/5, time.Second))
	return timer.C, func() { timer.Stop() }
}

// giveUp withdraws the assignments that were not claimed. The board will tell
// of those that this took back.
func (b *batch) giveUp(ctx context.Context) {
	v, err := b.c.board.look(b.worker.Name, b.tasks)
	if err != nil {
		return
	}
	late := make(map[string]int64)
	for i := range b.writes {
		if p := &b.writes[i]; !p.settled && p.Op == orchestrator.OpAdd && v.spots[p.Task].claim == 0 {
			late[p.Task] = p.made
		}
	}
	if len(late) == 0 {
		return
	}
	for _, task := range b.c.withdraw(ctx, b.rev, b.worker, late) {
		b.writes[slices.Index(b.tasks, task)].taken = true
	}
}

// late answers for what is not settled when the call ends.
func (b *batch) late(cause error) {
	for i := range b.writes {
		switch p := &b.writes[i]; {
		case p.settled:
		case p.taken:
			p.settle(errUnclaimed)
		default:
			p.settle(late(p.Op, p.Task, cause))
		}
	}
}

package etcd

// Add, Remove and Apply, up to results that need no write. The writes are in
// communicator_commit.go, the waits in communicator_wait.go, and the results in
// communicator_outcome.go.

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// Add assigns task to worker, and returns when the worker has claimed and started
// it. If the worker has not claimed it shortly before ctx ends, Add withdraws the
// assignment and fails with [orchestrator.ErrRejected]. If the worker refuses the
// task, Add fails with ErrRejected and the worker's reason. If the task was claimed
// but has not started when ctx ends, the start continues and the result is unknown.
func (c *Communicator) Add(ctx context.Context, worker Worker, task string) error {
	return c.one(ctx, worker, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
}

// Remove deletes the assignment of task, and returns when the task has stopped on
// worker. If ctx ends first, Remove fails with [orchestrator.ErrStopping]. Further
// calls then fail with it immediately until the task has stopped, so that the task
// delays only one term.
func (c *Communicator) Remove(ctx context.Context, worker Worker, task string) error {
	return c.one(ctx, worker, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: task})
}

func (c *Communicator) one(ctx context.Context, worker Worker, write orchestrator.Write[string]) error {
	if errs := c.Apply(ctx, worker, []orchestrator.Write[string]{write}); errs != nil {
		return errs[0]
	}
	return nil
}

// Apply makes several writes, with as many in one transaction as fit, and waits for
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

// batch is one call of Apply in progress.
type batch struct {
	c      *Communicator
	worker Worker
	tasks  []string // to look up on the cache: those of the writes that are not settled
	writes []pending
	rev    int64 // of the term's fence
}

// pending is one write of a batch.
type pending struct {
	orchestrator.Write[string]
	made    int64 // the revision at which it was made; 0: not made yet
	found   int64 // the claim that a Remove found then
	settled bool
	err     error // the result; valid when settled
	taken   bool  // an Add that was withdrawn

	reported bool // with orchestrator.Applied
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
		// Writes of earlier transactions were made, and get their own results.
		for i := range b.writes {
			if p := &b.writes[i]; !p.settled && p.made == 0 {
				p.settle(err)
			}
		}
	}
	b.wait(ctx)
}

// before settles the writes that need no transaction, and reports whether these are
// all.
func (b *batch) before() (all bool) {
	v, err := b.c.assignmentCache.look(b.worker.Name, b.tasks)
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
		if done, err := before(p.Op, v.states[p.Task]); done {
			p.settle(err)
		}
		all = all && p.settled
	}
	return all
}

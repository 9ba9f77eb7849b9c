package etcd

// Add, Remove and Apply: the calls, up to what can be answered without a write.
// The writes are in communicator_commit.go, the waits for what the worker makes
// of them in communicator_wait.go, and what an outcome means in
// communicator_outcome.go.

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
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
// task has stopped there; with [orchestrator.ErrStopping] where ctx ends before,
// and from then on at once for as long as it has not stopped, so that a task that
// does not stop holds up one term, and not each.
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
	tasks  []string // of the writes that are not settled, when there is something to look up
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

	reported bool // as applied, before the others are settled
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
		// What earlier transactions made is made, and has its own answers.
		for i := range b.writes {
			if p := &b.writes[i]; !p.settled && p.made == 0 {
				p.settle(err)
			}
		}
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

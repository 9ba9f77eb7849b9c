package etcd

// Waiting for the results of a batch, and withdrawing what the worker does not
// claim.

import (
	"context"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// wait settles each write as soon as the cache shows its result.
func (b *batch) wait(ctx context.Context) {
	alarm, stop := b.alarm(ctx)
	defer stop()
	for {
		v, err := b.c.assignmentCache.look(b.worker.Name, b.tasks)
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
			if done, err := after(p.Op, p.made, p.found, v.rev, v.states[p.Task]); done {
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
			b.giveUp(ctx)
		case <-ctx.Done():
			b.late(context.Cause(ctx))
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

// giveUp withdraws the unclaimed assignments. The assignmentCache will show the withdrawals.
func (b *batch) giveUp(ctx context.Context) {
	v, err := b.c.assignmentCache.look(b.worker.Name, b.tasks)
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
	taken := b.c.withdraw(ctx, b.rev, b.worker, late)
	for i := range b.writes {
		if p := &b.writes[i]; !p.settled {
			_, p.taken = slices.BinarySearch(taken, p.Task)
		}
	}
}

// late settles the remaining writes when the call ends.
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

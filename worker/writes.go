package worker

// Add, Remove and Apply. Each write has two halves: begin applies it, at once
// and under the lock; finish waits for what has to follow, without it.

import (
	"context"
	"fmt"
	"sync"

	"github.com/f8949c05/orchestrator"
)

// Add runs task. It answers with nil once the task was started, or is ready
// where [WithReadiness] is set, or is in the queue where [WithSlots] is set and
// no slot is free; and for a task that is any of this already. The task goes on
// when ctx ends. A task that has not stopped yet since it was removed is
// started again once it has.
//
// Errors:
//
//   - ErrDeposed and ErrStale as in [orchestrator.Communicator], C7;
//   - ErrRejected if the worker is closed, if ctx had ended beforehand, or if
//     the task was removed while it was starting and has stopped;
//   - ErrStopping if ctx ended before an earlier stop of the task had, after
//     which this call does not start it; or if it was removed while it was
//     starting and has not stopped;
//   - any other if ctx ended before the task was ready: it goes on starting.
func (w *Worker[T]) Add(ctx context.Context, task T) error {
	write := orchestrator.Write[T]{Op: orchestrator.OpAdd, Task: task}
	return w.finish(ctx, write, w.begin(ctx, write))
}

// Remove ends the task's context with the cause [ErrRemoved], and answers with
// nil when its function has returned and the task is out of List; or at once for
// a task of which nothing runs, or that is unknown.
//
// Errors:
//
//   - ErrDeposed and ErrStale as in [orchestrator.Communicator], C7; ErrDeposed
//     also if a call of a higher epoch came before the task had stopped;
//   - ErrRejected if ctx had ended beforehand;
//   - ErrStopping if ctx ended before the task had stopped. It stays in List
//     until it has.
func (w *Worker[T]) Remove(ctx context.Context, task T) error {
	write := orchestrator.Write[T]{Op: orchestrator.OpRemove, Task: task}
	return w.finish(ctx, write, w.begin(ctx, write))
}

// Apply carries out the writes side by side, begun in their order, and answers
// for each as Add and Remove do, when it can answer for all: with nil if all
// succeeded. A write that is neither is refused with ErrRejected.
func (w *Worker[T]) Apply(ctx context.Context, writes []orchestrator.Write[T]) []error {
	steps := make([]step, len(writes))
	for i, write := range writes {
		steps[i] = w.begin(ctx, write)
	}
	errs := make([]error, len(writes))
	var restarts sync.WaitGroup
	for i, s := range steps {
		if s.again {
			// It has something left to begin, for which the others do not wait.
			restarts.Go(func() { errs[i] = w.finish(ctx, writes[i], s) })
		}
	}
	for i, s := range steps {
		if !s.again {
			errs[i] = w.finish(ctx, writes[i], s)
		}
	}
	restarts.Wait()
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	return nil
}

// step is how far a write has come: answered with err, or waiting.
type step struct {
	wait <-chan struct{} // nil: answered
	// again: the write was not applied, and is tried again after the wait.
	again bool
	// outcome is the answer after the wait; nil: success.
	outcome func() error
	// late is the answer where ctx ends before the wait does.
	late func(cause error) error
	err  error
}

// begin applies a write if that is possible now. It never waits.
//
// To refuse and to apply is one step under the lock, which is what makes the
// fence tight:
//
//  1. A write of term 5 is on its way; it may have waited anywhere.
//  2. A List of term 6 takes the lock, raises the fence, reads.
//  3. The write takes the lock and finds the higher fence: refused. Or it took
//     the lock before 2, and the List has seen its effect.
func (w *Worker[T]) begin(ctx context.Context, write orchestrator.Write[T]) step {
	c := callerOf(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admitWrite(c); err != nil {
		return step{err: err}
	}
	e := w.tasks[write.Task]
	switch write.Op {
	case orchestrator.OpAdd:
		return w.beginAdd(write.Task, e)
	case orchestrator.OpRemove:
		return w.beginRemove(c, write.Task, e)
	}
	return step{err: fmt.Errorf("%w: %v is not a write", orchestrator.ErrRejected, write.Op)}
}

func (w *Worker[T]) beginAdd(task T, e *entry[T]) step {
	switch {
	case w.closed:
		return step{err: fmt.Errorf("%w: %w", orchestrator.ErrRejected, ErrClosed)}
	case e == nil:
		e = w.accept(task)
	case e.state == Stopping:
		// Nothing is noted down for later: the start is made by this very call,
		// after the wait, and only by an attempt that is admitted anew. So
		//
		//  1. Add finds the task stopping, and waits;
		//  2. its context ends, and it answers ErrStopping;
		//  3. the task stops
		//
		// starts nothing at 3, nor does a List of a later term at 2 let the Add
		// through.
		return step{wait: e.gone, again: true, late: stillStopping(task)}
	}
	if e.settled == nil || e.state == Queued {
		return step{}
	}
	return step{
		wait:    e.settled,
		outcome: func() error { return w.started(e) },
		late: func(cause error) error {
			return fmt.Errorf("task %v is not ready yet: %w", task, cause)
		},
	}
}

func (w *Worker[T]) beginRemove(c caller, task T, e *entry[T]) step {
	if e == nil {
		return step{}
	}
	if e.state != Stopping {
		w.stop(e, ErrRemoved)
	}
	// Whoever waits for this entry does not care whether another of the same
	// name has been added by the time he looks.
	return step{wait: e.gone, late: stillStopping(task), outcome: func() error { return w.stopped(c) }}
}

// stopped answers a Remove that has waited for its task to stop. A leader that
// was deposed meanwhile must not take the stop for its own:
//
//  1. The leader of epoch 5 removes a task, which takes its time to stop.
//  2. The leader of epoch 6 lists the worker: the task is there still. It removes
//     it too, to move it to w2.
//  3. The task has stopped. Were both told so, the first leader could start it
//     on w3, which the second has not reached yet.
func (w *Worker[T]) stopped(c caller) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.admitRead(c)
}

// started answers an Add that has waited for e to become ready.
func (w *Worker[T]) started(e *entry[T]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.state {
	case Stopping:
		return fmt.Errorf("%w: task %v was removed while it was starting", orchestrator.ErrStopping, e.name)
	case 0:
		return fmt.Errorf("%w: task %v was removed while it was starting", orchestrator.ErrRejected, e.name)
	}
	return nil
}

func stillStopping[T any](task T) func(error) error {
	return func(error) error {
		return fmt.Errorf("%w: task %v has not stopped yet", orchestrator.ErrStopping, task)
	}
}

// finish waits until a write is done, or ctx ends, and answers for it.
func (w *Worker[T]) finish(ctx context.Context, write orchestrator.Write[T], s step) error {
	for s.wait != nil {
		select {
		case <-s.wait:
		case <-ctx.Done():
			select {
			case <-s.wait: // done wins where both are
			default:
				return s.late(context.Cause(ctx))
			}
		}
		if !s.again {
			if s.outcome == nil {
				return nil
			}
			return s.outcome()
		}
		s = w.begin(ctx, write)
	}
	return s.err
}

package worker

// Add, Remove, Apply, Update, and those With content. Each write has two halves:
// begin applies it, at once and under the lock; finish waits for what has to
// follow, without it.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

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
//   - ErrRejected if the worker is closed, has no lease or has rejoined since
//     ([WithLease]), or does not accept the task ([WithAccept]); if ctx had ended
//     beforehand; or if the task was told to stop while it was starting and has
//     stopped;
//   - ErrStopping if ctx ended before an earlier stop of the task had, after
//     which this call does not start it; or if it was told to stop while it was
//     starting and has not stopped;
//   - any other if ctx ended before the task was ready: it goes on starting.
func (w *Worker[T]) Add(ctx context.Context, task T) error {
	return w.AddWith(ctx, task, Grant{})
}

// AddWith is Add for a task that comes with content, or a token, or both. Where
// the task is there already, a higher version is an Update, as in
// [Worker.Update]; and a token that is another owner's (a higher one, or one of
// another scope) has the task run anew under it, in place, as its context would
// go on telling the old one. No token never replaces one.
func (w *Worker[T]) AddWith(ctx context.Context, task T, g Grant) error {
	r := request[T]{Write: orchestrator.Write[T]{Op: orchestrator.OpAdd, Task: task}, grant: g}
	return w.finish(ctx, &r, w.begin(ctx, &r))
}

// Update gives a task the content of g, with its receipt, where its version is higher
// than that of the content it has; else it does nothing. The token of g counts as in
// [Worker.AddWith]. It answers with nil as soon as the
// content is noted, and does not wait for the task. What comes of it:
//
//   - a task that runs is told by the function given to [WithUpdate], or is
//     restarted in place where there is none: its context ends with the cause
//     ErrUpdated, and its next run begins as soon as it has returned, without a
//     pause and in the same slot;
//   - one that is starting is restarted in place too; with WithUpdate it is told
//     once it is ready;
//   - one that waits for a slot starts with it when it has one;
//   - one that waits to be restarted is started at once, as what failed is not
//     what runs now;
//   - one that has completed with older content is run again, as soon as it has
//     a slot: what it has done is not what there is to do now.
//
// Of updates that come faster than they are taken, the last counts.
//
// Errors: ErrDeposed and ErrStale as in [orchestrator.Communicator], C7;
// ErrRejected if the task is unknown or is being stopped, if the worker has no
// lease, or if ctx had ended beforehand.
func (w *Worker[T]) Update(ctx context.Context, task T, g Grant) error {
	c := callerOf(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admitWrite(c, new(*tenure)); err != nil {
		return err
	}
	e := w.tasks[task]
	switch {
	case e == nil:
		return fmt.Errorf("%w: task %v is not here", orchestrator.ErrRejected, task)
	case e.state == Stopping:
		return fmt.Errorf("%w: task %v is being stopped", orchestrator.ErrRejected, task)
	}
	w.take(e, g)
	return nil
}

// Remove ends the task's context with the cause [ErrRemoved], and answers with
// nil when its function has returned and the task is out of List; or at once for
// a task of which nothing runs, or that is unknown.
//
// Errors:
//
//   - ErrDeposed and ErrStale as in [orchestrator.Communicator], C7; ErrDeposed
//     also if a call of a higher epoch came before the task had stopped;
//   - ErrRejected if ctx had ended beforehand, if the worker has no lease
//     ([WithLease]), or if the task is a job that has begun to run, or ended, since
//     List or Report said that it could be moved ([WithCompletion]);
//   - ErrStopping if ctx ended before the task had stopped, and from then on at
//     once, unless ctx was cancelled: nobody waits twice for a task that does not
//     stop. It stays in List until it has.
func (w *Worker[T]) Remove(ctx context.Context, task T) error {
	r := request[T]{Write: orchestrator.Write[T]{Op: orchestrator.OpRemove, Task: task}}
	return w.finish(ctx, &r, w.begin(ctx, &r))
}

// Apply carries out the writes side by side, begun in their order, and answers
// for each as Add and Remove do, when it can answer for all: with nil if all
// succeeded. A write that is neither is refused with ErrRejected. If it has to wait,
// it reports the writes that are done with [orchestrator.Applied], every hundredth of
// the time that ctx leaves.
func (w *Worker[T]) Apply(ctx context.Context, writes []orchestrator.Write[T]) []error {
	requests := make([]request[T], len(writes))
	for i, write := range writes {
		requests[i].Write = write
	}
	return w.applyAll(ctx, requests)
}

// Change is a write, and what the task is given where it is an Add.
type Change[T comparable] struct {
	orchestrator.Write[T]
	Grant Grant
}

// ApplyWith is Apply for tasks that come with content, or a token, or both: an
// Add among the changes does what [Worker.AddWith] does.
func (w *Worker[T]) ApplyWith(ctx context.Context, changes []Change[T]) []error {
	requests := make([]request[T], len(changes))
	for i, change := range changes {
		requests[i].Write, requests[i].grant = change.Write, change.Grant
	}
	return w.applyAll(ctx, requests)
}

func (w *Worker[T]) applyAll(ctx context.Context, requests []request[T]) []error {
	steps := make([]step, len(requests))
	for i := range requests {
		steps[i] = w.begin(ctx, &requests[i])
	}
	errs := make([]error, len(requests))
	defer reporting(ctx, requests, steps)()
	var restarts sync.WaitGroup
	for i, s := range steps {
		if s.again {
			// It has something left to begin, for which the others do not wait.
			restarts.Go(func() { errs[i] = w.finish(ctx, &requests[i], s) })
		}
	}
	for i, s := range steps {
		if !s.again {
			errs[i] = w.finish(ctx, &requests[i], s)
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

// reporting reports the writes that are done while others are waited for, until the
// caller calls end.
func reporting[T comparable](ctx context.Context, requests []request[T], steps []step) (end func()) {
	deadline, ok := ctx.Deadline()
	if !ok || len(steps) < 2 || !slices.ContainsFunc(steps, func(s step) bool { return s.wait != nil }) {
		return func() {}
	}
	every := max(time.Until(deadline)/100, time.Millisecond)
	done := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		reported := make([]bool, len(steps))
		for {
			select {
			case <-ticker.C:
			case <-done:
				return
			}
			for i := range steps {
				if !reported[i] && steps[i].succeeded() {
					reported[i] = true
					orchestrator.Applied(ctx, requests[i].Write)
				}
			}
		}
	})
	return func() {
		close(done)
		reporter.Wait()
	}
}

// request is a write, and what goes with it.
type request[T comparable] struct {
	orchestrator.Write[T]
	grant Grant
	// tenure is the one in which the write came; nil: it has not been looked at.
	tenure *tenure
	// accepted: WithAccept's function was asked, and had nothing against it.
	accepted bool
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

// succeeded reports whether the answer is known by now, and is nil.
func (s *step) succeeded() bool {
	if s.wait == nil {
		return s.err == nil
	}
	select {
	case <-s.wait:
		return !s.again && (s.outcome == nil || s.outcome() == nil)
	default:
		return false
	}
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
//
// The user's say in what is accepted comes before that, and without the lock.
func (w *Worker[T]) begin(ctx context.Context, r *request[T]) step {
	s, ask := w.apply(ctx, r)
	if ask {
		if err := w.ask(ctx, r.Task, r.grant.Content); err != nil {
			return step{err: fmt.Errorf("%w: %w", orchestrator.ErrRejected, err)}
		}
		r.accepted = true
		s, _ = w.apply(ctx, r)
	}
	return s
}

// apply is begin, unless the user is to be asked first.
func (w *Worker[T]) apply(ctx context.Context, r *request[T]) (s step, ask bool) {
	c := callerOf(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admitWrite(c, &r.tenure); err != nil {
		return step{err: err}, false
	}
	e := w.tasks[r.Task]
	switch r.Op {
	case orchestrator.OpAdd:
		if e == nil && !w.closed && w.hooks.accept != nil && !r.accepted {
			return step{}, true
		}
		return w.beginAdd(r, e), false
	case orchestrator.OpRemove:
		return w.beginRemove(c, e), false
	}
	return step{err: fmt.Errorf("%w: %v is not a write", orchestrator.ErrRejected, r.Op)}, false
}

func (w *Worker[T]) beginAdd(r *request[T], e *entry[T]) step {
	task := r.Task
	switch {
	case w.closed:
		return step{err: fmt.Errorf("%w: %w", orchestrator.ErrRejected, ErrClosed)}
	case e == nil:
		e = w.accept(task, r.grant)
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
		return step{wait: e.gone, again: true, late: w.stopOverdue(e)}
	default:
		w.take(e, r.grant)
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

func (w *Worker[T]) beginRemove(c caller, e *entry[T]) step {
	if e == nil {
		return step{}
	}
	switch {
	case e.unpinned && w.pinned(e):
		// The leader means to move what it saw waiting. One that lists it again sees it
		// pinned, and a Remove of that term is meant.
		return step{err: fmt.Errorf("%w: job %v is %v, which the last report did not say", orchestrator.ErrRejected, e.name, e.state)}
	case e.state != Stopping:
		w.stop(e, ErrRemoved)
	case e.overdue:
		// A leader that waited anew in each term could do nothing else meanwhile.
		return step{err: stillStopping(e)}
	}
	// Whoever waits for this entry does not care whether another of the same
	// name has been added by the time he looks.
	return step{wait: e.gone, late: w.stopOverdue(e), outcome: func() error { return w.stopped(c) }}
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
	return w.admitTerm(c) // it has stopped, whatever incarnation it is by now
}

// started answers an Add that has waited for e to become ready.
func (w *Worker[T]) started(e *entry[T]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.state {
	case Stopping:
		return fmt.Errorf("%w: task %v was told to stop while it was starting", orchestrator.ErrStopping, e.name)
	case 0:
		return fmt.Errorf("%w: task %v was told to stop while it was starting", orchestrator.ErrRejected, e.name)
	}
	return nil
}

// stopOverdue returns what is to be done where a call gives up waiting for a task
// to stop: nobody waits for it again. A caller that was not interested to the end of
// its time ([context.Canceled]) says nothing of the task.
func (w *Worker[T]) stopOverdue(e *entry[T]) func(error) error {
	return func(cause error) error {
		if errors.Is(cause, context.Canceled) {
			return stillStopping(e)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !e.overdue {
			e.overdue = true
			w.cfg.logger.Warn("task does not stop", slog.Any("task", e.name), slog.Time("since", e.since))
		}
		return stillStopping(e)
	}
}

func stillStopping[T comparable](e *entry[T]) error {
	return fmt.Errorf("%w: task %v has not stopped yet", orchestrator.ErrStopping, e.name)
}

// finish waits until a write is done, or ctx ends, and answers for it.
func (w *Worker[T]) finish(ctx context.Context, r *request[T], s step) error {
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
		s = w.begin(ctx, r)
	}
	return s.err
}

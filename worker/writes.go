package worker

// Add, Remove, Apply, Update, and the variants with content. Each write has two
// halves: begin applies it immediately, with mu held; finish waits for the rest,
// without mu.

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

// Add runs task. It returns nil once the task has started, or is ready
// ([WithReadiness]), or is queued because no slot is free ([WithSlots]). It also
// returns nil if the task is in such a state already. The task keeps running after
// ctx has ended. If an earlier stop of the task is under way, the task is started
// after it.
//
// Errors:
//
//   - ErrDeposed and ErrStale as in [orchestrator.Communicator], C7;
//   - ErrRejected if the worker is closed, has no lease ([WithLease]), has rejoined
//     in the meantime, or does not accept the task ([WithAccept]); if ctx had ended
//     before the call; or if the task was told to stop before it was ready, while
//     its function did not run;
//   - ErrElsewhere, which wraps ErrRejected, if the task has called [Reschedule] here;
//   - ErrStopping if ctx ended before an earlier stop of the task had finished, in
//     which case this call does not start the task; or if the task was told to stop
//     before it was ready, while its function ran;
//   - any other error if ctx ended before the task was ready, in which case the task
//     keeps starting.
func (w *Worker[T]) Add(ctx context.Context, task T) error {
	return w.AddWith(ctx, task, Grant{})
}

// AddWith is Add for a task with content, a token, or both. If the worker has the
// task already, a higher version is an update as in [Worker.Update]. A token of
// another owner is a higher token, or one of another scope. It restarts the task in
// place, because the task's context would still return the old token. A token is
// never replaced by none.
func (w *Worker[T]) AddWith(ctx context.Context, task T, g Grant) error {
	r := request[T]{Write: orchestrator.Write[T]{Op: orchestrator.OpAdd, Task: task}, grant: g}
	return w.finish(ctx, &r, w.begin(ctx, &r))
}

// Update gives a task the content and receipt of g if their version is higher than
// that of the task's content; otherwise it ignores them. The token of g counts as in
// [Worker.AddWith]. Update returns nil as soon as the content is recorded, and does
// not wait for the task. The effect depends on the task's state:
//
//   - A running task gets the content through the function given to [WithUpdate].
//     Without the option it is restarted in place: its context ends with the cause
//     ErrUpdated. Its next run begins as soon as the function has returned, without
//     a pause and in the same slot.
//   - A starting task is restarted in place too; with WithUpdate, it gets the
//     content once it is ready.
//   - A queued task starts with the content when it gets a slot.
//   - A task that waits for a restart is started immediately, because the content
//     that failed has been replaced.
//   - A task that has completed or failed with older content is queued and run
//     again, because the new content is not done yet.
//
// If updates arrive faster than they are applied, the last one counts.
//
// Errors: ErrDeposed and ErrStale as in [orchestrator.Communicator], C7; ErrRejected
// if the task is unknown or stopping, if the worker has no lease, or if ctx had
// ended before the call.
func (w *Worker[T]) Update(ctx context.Context, task T, g Grant) error {
	c := callerOf(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admitWrite(c, new(*leasePeriod)); err != nil {
		return err
	}
	e := w.tasks[task]
	switch {
	case e == nil:
		return fmt.Errorf("%w: unknown task %v", orchestrator.ErrRejected, task)
	case e.state == Stopping:
		return fmt.Errorf("%w: task %v is stopping", orchestrator.ErrRejected, task)
	}
	w.applyGrant(e, g)
	return nil
}

// Remove ends the task's context with the cause [ErrRemoved]. It returns nil when
// the task's function has returned and the task is no longer in List. It returns
// immediately if the task is unknown or its function does not run.
//
// Errors:
//
//   - ErrDeposed and ErrStale as in [orchestrator.Communicator], C7; ErrDeposed also
//     if a call with a higher epoch arrived before the task had stopped;
//   - ErrRejected if ctx had ended before the call or the worker has no lease
//     ([WithLease]), if the task is a job that was movable in the last List or
//     Report, but has begun to run or ended since ([WithCompletion]), or if it is a
//     job that runs and the last List could not pin;
//   - ErrStopping if ctx ended before the task had stopped. From then on Remove
//     returns ErrStopping immediately, so that no leader waits twice for a task that
//     does not stop. This does not hold if ctx was cancelled before its deadline. The
//     task stays in List until it has stopped.
func (w *Worker[T]) Remove(ctx context.Context, task T) error {
	r := request[T]{Write: orchestrator.Write[T]{Op: orchestrator.OpRemove, Task: task}}
	return w.finish(ctx, &r, w.begin(ctx, &r))
}

// Apply begins the writes in order, waits for them together, and returns once all
// have ended. It returns nil if all succeeded, otherwise one result per write, as
// Add and Remove return it. A write that is neither fails with ErrRejected. While Apply
// waits, it reports the writes that are done with [orchestrator.Applied], every hundredth
// of the time until ctx ends.
func (w *Worker[T]) Apply(ctx context.Context, writes []orchestrator.Write[T]) []error {
	requests := make([]request[T], len(writes))
	for i, write := range writes {
		requests[i].Write = write
	}
	return w.applyAll(ctx, requests)
}

// Change is a write, with the grant for the task if it is an Add.
type Change[T comparable] struct {
	orchestrator.Write[T]
	Grant Grant
}

// ApplyWith is Apply for tasks with content, tokens, or both: an Add does what
// [Worker.AddWith] does.
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
			// Begin this write again after its wait, without delaying the others.
			restarts.Go(func() { errs[i] = w.finish(ctx, &requests[i], s) })
		}
	}
	for i, s := range steps {
		if !s.again {
			errs[i] = w.finish(ctx, &requests[i], s)
		}
	}
	restarts.Wait()
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// reporting reports the writes that are done while others wait, until the caller calls
// end.
func reporting[T comparable](ctx context.Context, requests []request[T], steps []step) (end func()) {
	deadline, ok := ctx.Deadline()
	if !ok || len(steps) < 2 || !slices.ContainsFunc(steps, func(s step) bool { return s.wait != nil }) {
		return func() {}
	}
	// Package simulator lets each party act at nanoseconds of its own, with this period.
	every := max(time.Until(deadline)/100, time.Millisecond).Truncate(1 << 15)
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

// request is a write with its grant and its progress.
type request[T comparable] struct {
	orchestrator.Write[T]
	grant Grant
	// leasePeriod is the worker's lease period when the write arrived; nil: not yet
	// checked.
	leasePeriod *leasePeriod
	// accepted: the function of WithAccept has accepted the task.
	accepted bool
}

// step is the progress of a write: answered with err, or waiting.
type step struct {
	wait <-chan struct{} // nil: answered
	// again: the write was not applied, and is tried again after the wait.
	again bool
	// outcome returns the answer after the wait; nil: success.
	outcome func() error
	// late returns the answer if ctx ends before the wait.
	late func(cause error) error
	err  error
}

// succeeded reports whether the answer is known by now, and is nil.
func (s *step) succeeded() bool {
	if s.wait == nil {
		return s.err == nil
	}
	return isClosed(s.wait) && !s.again && (s.outcome == nil || s.outcome() == nil)
}

// begin applies a write if that is possible now. It never waits.
//
// The check and the write are one step with mu held, so that no write passes the fence
// late: a List of a later term sees the write's effect, or has raised the fence, and the
// write is refused. The function of WithAccept is called before that, without mu.
func (w *Worker[T]) begin(ctx context.Context, r *request[T]) step {
	s, ask := w.apply(ctx, r)
	if ask {
		accept := func() error { return w.hooks.accept(ctx, r.Task, r.grant.Content) }
		if err := w.call(r.Task, accept); err != nil {
			return step{err: fmt.Errorf("%w: %w", orchestrator.ErrRejected, err)}
		}
		r.accepted = true
		s, _ = w.apply(ctx, r)
	}
	return s
}

// apply is begin without the call of WithAccept's function. ask reports that the
// caller must call that function first.
func (w *Worker[T]) apply(ctx context.Context, r *request[T]) (s step, ask bool) {
	c := callerOf(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admitWrite(c, &r.leasePeriod); err != nil {
		return step{err: err}, false
	}
	e := w.tasks[r.Task]
	switch r.Op {
	case orchestrator.OpAdd:
		if e == nil {
			if err := w.refused(r.Task, r.grant.Version); err != nil {
				return step{err: err}, false
			}
			if !w.closed && w.hooks.accept != nil && !r.accepted {
				return step{}, true
			}
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
		// The start is not recorded for later. This call makes it after the wait, and only
		// if an admission check then succeeds: not if ctx has ended, nor if a List of a
		// later term has arrived.
		return step{wait: e.gone, again: true, late: w.stopOverdue(e)}
	default:
		w.applyGrant(e, r.grant)
	}
	s := e.settled
	if s == nil || e.state == Queued {
		return step{}
	}
	return step{
		wait: s.done,
		outcome: func() error {
			if s.err == nil {
				return nil
			}
			return fmt.Errorf("%w: task %v was told to stop while starting", s.err, task)
		},
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
		// The leader wants to move a job that it saw waiting. After another List
		// the leader sees the job pinned; a Remove of that term is deliberate.
		return step{err: fmt.Errorf("%w: job %v is %v, but was movable in the last report", orchestrator.ErrRejected, e.name, e.state)}
	case w.log.lost && w.pinned(e) && e.state != Completed && e.state != Failed:
		// The leader cannot know that the job runs, so this may be a move. Jobs that have
		// ended can be removed: otherwise they would stay in the list for ever.
		return step{err: fmt.Errorf("%w: job %v is %v, and the transport does not carry pins", orchestrator.ErrRejected, e.name, e.state)}
	case e.state != Stopping:
		w.stop(e, ErrRemoved)
	case e.overdue:
		// A leader that waited again in each term could make no other call to this
		// worker.
		return step{err: stillStopping(e)}
	}
	// The caller waits for this entry. Another entry of the same name may exist by
	// the time it stops waiting.
	return step{wait: e.gone, late: w.stopOverdue(e), outcome: func() error { return w.stopped(c) }}
}

// stopped answers a Remove that has waited for its task to stop. A leader that was
// deposed during the wait must get ErrDeposed: its successor has listed the task, and
// removes it too. If both Removes returned nil, each leader could start the task on
// another worker.
func (w *Worker[T]) stopped(c caller) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Do not check the incarnation: the task has stopped, even if a Rejoin came
	// between.
	return w.admitTerm(c)
}

// stopOverdue returns a function for a call that stops waiting for e to stop. It
// marks e as overdue, so that no later Remove waits for e. It does not mark e if the
// caller cancelled the call ([context.Canceled]).
func (w *Worker[T]) stopOverdue(e *entry[T]) func(error) error {
	return func(cause error) error {
		w.mu.Lock()
		first, since := !e.overdue && !errors.Is(cause, context.Canceled), e.since
		e.overdue = e.overdue || first
		w.mu.Unlock()
		if first {
			w.cfg.logger.Warn("task does not stop", slog.Any("task", e.name), slog.Time("since", since))
		}
		return stillStopping(e)
	}
}

func stillStopping[T comparable](e *entry[T]) error {
	return fmt.Errorf("%w: task %v has not stopped yet", orchestrator.ErrStopping, e.name)
}

// finish waits until a write is done or ctx ends, and returns its result.
func (w *Worker[T]) finish(ctx context.Context, r *request[T], s step) error {
	for s.wait != nil {
		select {
		case <-s.wait:
		case <-ctx.Done():
			if !isClosed(s.wait) { // if both are done, the write counts
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

package worker

// What runs outside the lock: a task's function, and what follows when it ends.

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// run is one call of a task's function.
type run struct {
	ctx    context.Context // the function's, from which those of updates derive
	cancel context.CancelCauseFunc
	began  time.Time

	// Guarded by Worker.mu.
	version  int64         // of the content that the function, or WithUpdate's, was given last
	over     bool          // the function has returned
	movable  bool          // the function has called Movable
	cut      bool          // while an update was under way
	updating chan struct{} // closed when no update is under way any more; nil: none is
}

// Ready says that the task whose function was given ctx is ready: the Add that
// started it may answer (see [WithReadiness]). It does nothing when called
// again, without that option, with another context, or after the function has
// returned.
func Ready(ctx context.Context) {
	if in, ok := insightOf(ctx); ok && in.ready != nil {
		in.ready()
	}
}

// ready takes note of a Ready by one run of e, unless it has ended since.
func (w *Worker[T]) ready(e *entry[T], r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.state == Starting && e.run == r {
		w.enter(e, Running)
		e.settle()
		w.inform(e)
	}
}

// Movable says that the task whose function was given ctx may be moved although its
// worker lets tasks complete (see [WithCompletion]): it goes on for ever, or it has
// saved how far it has come. It holds for this run. It does nothing when called again,
// without that option, or with another context.
func Movable(ctx context.Context) {
	if in, ok := insightOf(ctx); ok && in.unpin != nil {
		in.unpin()
	}
}

func (w *Worker[T]) unpin(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !r.movable {
		r.movable = true
		w.listed = nil
		w.changed()
	}
}

// attempt is one run of a task, and the whole of a goroutine. There is none
// while a task waits, be it for a slot or for a restart.
//
// The end is dealt with in a deferred function, since that runs whatever the
// task's function does: return, panic, or leave by runtime.Goexit. The price is
// that the goroutine may be on its way out already, so that a restart needs a
// new one.
func (w *Worker[T]) attempt(e *entry[T], r *run) {
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = w.panicked(e.name, v)
		}
		r.cancel(ErrReturned)
		w.awaitUpdate(r)
		w.ended(e, err)
	}()
	err = w.run(r.ctx, e.name)
}

// panicked makes an error of what a function panicked with, and logs the stack.
// It is called while the stack still stands.
func (w *Worker[T]) panicked(task T, v any) error {
	err, ok := v.(error)
	if ok {
		err = fmt.Errorf("panic: %w", err)
	} else {
		err = fmt.Errorf("panic: %v", v)
	}
	w.cfg.logger.Error("task panicked", slog.Any("task", task), slog.Any("err", err),
		slog.String("stack", string(debug.Stack())))
	return err
}

// ended decides what follows a run.
func (w *Worker[T]) ended(e *entry[T], err error) {
	err = readable(err)
	switch state, pause := w.conclude(e, err); state {
	case Stopping:
		w.cfg.logger.Debug("task stopped", slog.Any("task", e.name), slog.Any("err", err))
	case Starting:
		w.cfg.logger.Debug("task started again with its update", slog.Any("task", e.name), slog.Any("err", err))
	case Completed:
		w.cfg.logger.Debug("task completed", slog.Any("task", e.name))
		w.call(e.name, func() { w.hooks.completed(e.name) })
	case Failed:
		w.cfg.logger.Error("job failed, and is not run again", slog.Any("task", e.name),
			slog.Any("err", err), slog.Int("attempts", w.cfg.attempts))
		w.call(e.name, func() { w.hooks.failed(e.name, err) })
	default:
		w.cfg.logger.Warn("task ended, to be started again", slog.Any("task", e.name),
			slog.Any("err", err), slog.Duration("pause", pause))
	}
}

// readable returns err, or an error in its place if its Error panics, as that of a
// nil pointer may: its text is read with the lock held.
func readable(err error) (safe error) {
	if err == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			safe = fmt.Errorf("a %T, whose Error panics: %v", err, v)
		}
	}()
	_ = err.Error()
	return err
}

// conclude takes the step that follows a run, and returns what it was: Stopping
// for a task that was to stop and has, Starting for one whose next run was to
// begin at once, Completed, Failed, or Backoff with the pause.
func (w *Worker[T]) conclude(e *entry[T], err error) (State, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.state == Stopping:
		w.drop(e)
		return Stopping, 0
	case e.again, err == nil && w.hooks.completed != nil && !e.run.tookAll(e.grant):
		e.again = false
		e.err = ErrUpdated
		e.restarts++
		w.enter(e, Backoff)
		w.startAgain(e)
		return Starting, 0
	case err == nil && w.hooks.completed != nil:
		w.enter(e, Completed)
		w.note(e.name)
		e.settle()
		w.freeSlot()
		return Completed, 0
	}
	if err == nil {
		err = ErrReturned
	}
	e.err = err
	e.restarts++
	if e.run.movable && time.Since(e.run.began) >= w.cfg.backoff.longest {
		e.attempts = 0 // it goes on for ever: a long run ends the row
	}
	e.attempts++
	if w.cfg.attempts > 0 && e.attempts >= w.cfg.attempts {
		w.enter(e, Failed)
		w.note(e.name)
		e.settle()
		w.freeSlot()
		return Failed, 0
	}
	if time.Since(e.run.began) >= w.cfg.backoff.longest {
		e.failures = 0
	}
	e.failures++
	pause := w.cfg.backoff.pause(e.failures, w.random.Float64())
	w.enter(e, Backoff)
	e.next = e.since.Add(pause)
	restarts := e.restarts
	e.timer = time.AfterFunc(pause, func() { w.restart(e, restarts) })
	return Backoff, pause
}

// tookAll reports whether what the function has done, it has done with the newest
// content: not so where it returned before an update that it was told of had.
func (r *run) tookAll(g Grant) bool { return !r.cut && r.version >= g.Version }

// restart ends the pause before a task's next run.
//
//  1. The timer fires; this function waits for the lock.
//  2. Remove holds it: the task is dropped, and perhaps a new entry of the same
//     name accepted.
//  3. This function gets the lock: e is no longer in Backoff, and nothing must
//     start.
//
// Where an update has ended the pause instead, e may be in a later one.
func (w *Worker[T]) restart(e *entry[T], restarts int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.state == Backoff && e.restarts == restarts {
		w.startAgain(e)
	}
}

// call calls a function of the user's, which must not take the worker down either.
func (w *Worker[T]) call(task T, f func()) {
	defer func() {
		if v := recover(); v != nil {
			_ = w.panicked(task, v)
		}
	}()
	f()
}

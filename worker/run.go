package worker

// What runs outside the lock: a task's function, and what follows when it ends.

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

type readyKey struct{}

// Ready says that the task whose function was given ctx is ready: the Add that
// started it may answer (see [WithReadiness]). It does nothing when called
// again, without that option, with another context, or after the function has
// returned.
func Ready(ctx context.Context) {
	if ready, ok := ctx.Value(readyKey{}).(func()); ok {
		ready()
	}
}

// ready takes note of a Ready by one attempt to run e, unless it comes from an
// attempt that has ended since.
func (w *Worker[T]) ready(e *entry[T], attempt int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.state == Starting && e.restarts == attempt {
		e.enter(Running)
		e.settle()
	}
}

// attempt is one run of a task, and the whole of a goroutine. There is none
// while a task waits, be it for a slot or for a restart.
//
// The end is dealt with in a deferred function, since that runs whatever the
// task's function does: return, panic, or leave by runtime.Goexit. The price is
// that the goroutine may be on its way out already, so that a restart needs a
// new one.
func (w *Worker[T]) attempt(ctx context.Context, cancel context.CancelCauseFunc, e *entry[T]) {
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = w.panicked(e.name, v)
		}
		cancel(ErrReturned)
		w.ended(e, err)
	}()
	err = w.run(ctx, e.name)
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
	switch state, pause := w.conclude(e, err); state {
	case Stopping:
		w.cfg.logger.Debug("task stopped", slog.Any("task", e.name), slog.Any("err", err))
	case Completed:
		w.cfg.logger.Debug("task completed", slog.Any("task", e.name))
		w.reportCompletion(e.name)
	default:
		w.cfg.logger.Warn("task ended, to be started again", slog.Any("task", e.name),
			slog.Any("err", err), slog.Duration("pause", pause))
	}
}

// conclude takes the step that follows a run, and returns what it was: Stopping
// for a task that was to stop and has, Completed, or Backoff with the pause.
func (w *Worker[T]) conclude(e *entry[T], err error) (State, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.state == Stopping:
		w.drop(e)
		return Stopping, 0
	case err == nil && w.completed != nil:
		e.enter(Completed)
		e.settle()
		w.freeSlot()
		return Completed, 0
	}
	if err == nil {
		err = ErrReturned
	}
	e.err = err
	e.restarts++
	if time.Since(e.began) >= w.cfg.backoff.longest {
		e.failures = 0
	}
	e.failures++
	pause := w.cfg.backoff.pause(e.failures, w.random.Float64())
	e.enter(Backoff)
	e.timer = time.AfterFunc(pause, func() { w.restart(e) })
	return Backoff, pause
}

// restart ends the pause before a task's next run.
//
//  1. The timer fires; this function waits for the lock.
//  2. Remove holds it: the task is dropped, and perhaps a new entry of the same
//     name accepted.
//  3. This function gets the lock: e is no longer in Backoff, and nothing must
//     start.
func (w *Worker[T]) restart(e *entry[T]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.state == Backoff {
		w.start(e)
	}
}

// reportCompletion calls the user's function, which must not take the worker
// down either.
func (w *Worker[T]) reportCompletion(task T) {
	defer func() {
		if v := recover(); v != nil {
			_ = w.panicked(task, v)
		}
	}()
	w.completed(task)
}

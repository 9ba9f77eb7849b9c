package worker

// The code that runs without mu: a task's function, and the step after its end.

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/panics"
)

// run is one call of a task's function.
type run struct {
	ctx    context.Context // of the function; the contexts of updates derive from it
	cancel context.CancelCauseFunc
	began  time.Time

	// Guarded by Worker.mu.
	version  int64         // of the content last given to the function, or to WithUpdate's
	over     bool          // the function has returned
	movable  bool          // the function has called Movable
	cut      bool          // the function returned while an update was under way
	updating chan struct{} // closed when no update is under way; nil: none is
	updates  chan struct{} // nil: the function has not called Updated
}

// Ready marks the task whose function was given ctx as ready, so that the Add that
// started it returns (see [WithReadiness]). Ready has no effect when called again,
// without that option, with another context, or after the function has returned.
func Ready(ctx context.Context) {
	if in, ok := taskContextOf(ctx); ok && in.ready != nil {
		in.ready()
	}
}

// ready marks e as ready, unless the run r of e has ended.
func (w *Worker[T]) ready(e *entry[T], r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.state == Starting && e.run == r {
		w.enter(e, Running)
		e.settle(nil)
		w.deliverUpdate(e)
	}
}

// Movable allows the task whose function was given ctx to be moved although it runs
// (see [WithCompletion]): it runs forever, or has saved its progress. Movable
// applies to the present run. It has no effect when called again, without that
// option, or with another context.
func Movable(ctx context.Context) {
	if in, ok := taskContextOf(ctx); ok && in.unpin != nil {
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

// Reschedule asks that the task whose function was given ctx run on another worker: a
// device is missing here, or a service cannot be reached from this machine. ctx ends
// with a cause that wraps [ErrRescheduled] and has why. When the function has returned,
// with any result, the worker does not have the task any more, and the leader starts it
// elsewhere.
//
// From then on the worker refuses the task with [orchestrator.ErrElsewhere] and why, also
// after a [Worker.Rejoin], until it is given content of another version or the process ends.
// But it gives way to a leader that has kept asking for a minute, because no other worker takes
// the task. A worker keeps at most 10,000 refusals.
//
// why is for people. It must not be empty, and is cut to 200 bytes. Reschedule may be
// called from any goroutine of the run, and from the function given to [WithUpdate]. The
// error says that why is empty or that ctx is not a task's ([orchestrator.ErrInvalid]), or
// wraps the cause if ctx has ended: after the run, for a second call, or because the task
// is stopped or restarted anyway. Then nothing has changed.
func Reschedule(ctx context.Context, why string) error {
	in, ok := taskContextOf(ctx)
	switch why = strings.ToValidUTF8(why[:min(len(why), maxWhy)], ""); {
	case !ok:
		return fmt.Errorf("%w: Reschedule with a context that is not a task's", orchestrator.ErrInvalid)
	case why == "":
		return fmt.Errorf("%w: Reschedule without a reason", orchestrator.ErrInvalid)
	}
	return in.reschedule(why)
}

// The bounds of refusals.
const (
	maxWhy      = 200
	maxRefusals = 10_000
	asksFor     = time.Minute // a leader that keeps asking, with pauses of at most twice as long
)

// refusal is what a worker knows of a task that has asked to run elsewhere.
type refusal struct {
	err         error
	version     int64     // of the content with which it ran
	first, last time.Time // when a leader asked that keeps asking
}

func (w *Worker[T]) reschedule(e *entry[T], r *run, why string) error {
	w.mu.Lock()
	if err := context.Cause(r.ctx); err != nil {
		w.mu.Unlock()
		return fmt.Errorf("reschedule: the run has ended: %w", err)
	}
	e.refusal = &refusal{err: fmt.Errorf("%w: %s", orchestrator.ErrElsewhere, why), version: r.version}
	w.stop(e, fmt.Errorf("%w: %s", ErrRescheduled, why))
	w.mu.Unlock()
	w.cfg.logger.Warn("task is to run elsewhere", slog.Any("task", e.name), slog.String("err", why))
	return nil
}

// refused returns an error if a task is refused because it has asked to run elsewhere. The
// caller holds mu.
func (w *Worker[T]) refused(task T, version int64) error {
	f, now := w.refusals[task], time.Now()
	if f == nil || f.version != version {
		return nil
	}
	if now.Sub(f.last) > 2*asksFor {
		f.first = now
	}
	if f.last = now; now.Sub(f.first) >= asksFor {
		delete(w.refusals, task)
		return nil
	}
	return f.err
}

// attempt is one run of a task, in a separate goroutine. A task that waits for a
// slot or for a restart has no goroutine.
//
// A deferred function handles the end, because it runs whether the task's function
// returns, panics or calls runtime.Goexit. The goroutine may be exiting by then, so
// a restart needs a new one.
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

// panicked turns the value of a panic into an error, and logs the stack. It must be
// called from the deferred function that recovers, while the stack is intact.
func (w *Worker[T]) panicked(task T, v any) error {
	err := panics.Error(v)
	w.cfg.logger.Error("task panicked", slog.Any("task", task), slog.Any("err", err),
		slog.String("stack", string(debug.Stack())))
	return err
}

// ended handles the end of a run: it takes the next step, logs it and calls the
// hooks.
func (w *Worker[T]) ended(e *entry[T], err error) {
	text, err := readable(err)
	switch state, pause := w.conclude(e, err, text); state {
	case Stopping:
		w.cfg.logger.Debug("task stopped", slog.Any("task", e.name), slog.Any("err", err))
	case Starting:
		w.cfg.logger.Debug("task restarted with its update", slog.Any("task", e.name), slog.Any("err", err))
	case Completed:
		w.cfg.logger.Debug("task completed", slog.Any("task", e.name))
		_ = w.call(e.name, func() error { w.hooks.completed(e.name); return nil })
	case Failed:
		w.cfg.logger.Error("job failed for good", slog.Any("task", e.name),
			slog.Any("err", err), slog.Int("attempts", w.cfg.attempts))
		_ = w.call(e.name, func() error { w.hooks.failed(e.name, err); return nil })
	default:
		w.cfg.logger.Warn("task ended, will be restarted", slog.Any("task", e.name),
			slog.Any("err", err), slog.Duration("pause", pause))
	}
}

// readable returns the text of err, and err itself or, if err.Error panics, such as on a
// nil pointer, a replacement. It is called without mu, because the method is the user's.
func readable(err error) (text string, safe error) {
	if err == nil {
		return "", nil
	}
	defer func() {
		if v := recover(); v != nil {
			safe = fmt.Errorf("a %T, whose Error panics: %s", err, panics.Text(v))
			text = safe.Error()
		}
	}()
	return err.Error(), err
}

// conclude takes the step after a run, and returns it: Stopping if the task was told
// to stop, Starting if its next run begins immediately, Completed, Failed, or
// Backoff with the pause.
func (w *Worker[T]) conclude(e *entry[T], err error, text string) (State, time.Duration) {
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
		e.settle(nil)
		w.freeSlot()
		return Completed, 0
	}
	if err == nil {
		err = ErrReturned
	}
	e.err, e.text = err, text
	e.restarts++
	w.failedRuns++
	w.endRow(e)
	if e.attempts++; e.attempts == 1 {
		e.failing = time.Now()
	}
	if w.cfg.attempts > 0 && e.attempts >= w.cfg.attempts {
		w.enter(e, Failed)
		w.note(e.name)
		e.settle(nil)
		w.freeSlot()
		return Failed, 0
	}
	if time.Since(e.run.began) >= w.cfg.backoff.Longest {
		e.failures = 0
	}
	e.failures++
	pause := w.cfg.backoff.After(e.failures, w.random.Float64())
	w.enter(e, Backoff)
	e.next = e.since.Add(pause)
	restarts := e.restarts
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = time.AfterFunc(pause, func() { w.restart(e, restarts) })
	return Backoff, pause
}

// endRow resets the count of failed runs in a row if the present run of a task is long: for as long as the
// longest pause. A run of a job that is not movable is no success before it has completed.
func (w *Worker[T]) endRow(e *entry[T]) {
	if (w.hooks.completed == nil || e.run.movable) && time.Since(e.run.began) >= w.cfg.backoff.Longest {
		e.attempts = 0
	}
}

// lasted records that a run of a task that has failed before is long.
func (w *Worker[T]) lasted(e *entry[T], r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.state == Running && e.run == r {
		w.endRow(e)
		w.changed()
	}
}

// tookAll reports whether the function has worked with the newest content. It has
// not if it returned before an update under way had ended, or been received.
func (r *run) tookAll(g Grant) bool {
	return !r.cut && len(r.updates) == 0 && r.version >= g.Version
}

// restart ends the pause before a task's next run. While it waited for mu, a Remove may
// have dropped e, which is in Backoff no longer, or an update may have ended this pause,
// and e may be in a later one, after another number of restarts.
func (w *Worker[T]) restart(e *entry[T], restarts int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.state == Backoff && e.restarts == restarts {
		w.startAgain(e)
	}
}

// call calls a function of the user and turns a panic into an error.
func (w *Worker[T]) call(task T, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = w.panicked(task, v)
		}
	}()
	return f()
}

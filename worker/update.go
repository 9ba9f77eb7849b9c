package worker

// What follows when a task's content, or its token, changes while it is here
// (W7).

import (
	"context"
	"log/slog"
)

// take has a task go on with what is newer in g. The lock is held, the lease
// holds, and the task is not stopping.
func (w *Worker[T]) take(e *entry[T], g Grant) {
	old := e.grant
	content := g.Version > old.Version
	owner := g.Token != 0 && (g.Scope != old.Scope || g.Token > old.Token)
	if content {
		e.attempts = 0
		e.grant.Content, e.grant.Version, e.grant.Receipt = g.Content, g.Version, g.Receipt
	}
	if owner {
		e.grant.Token, e.grant.Scope = g.Token, g.Scope
	}
	if content || owner {
		w.note(e.name)
		w.changed()
	}
	switch {
	case !content && !owner:
	case content && (e.state == Completed || e.state == Failed):
		w.runOnceMore(e)
	case e.state == Backoff:
		e.timer.Stop() // one that has fired already finds the task running
		e.failures = 0
		w.start(e)
	case e.state != Starting && e.state != Running: // it starts with it, or never
	case owner, w.hooks.update == nil:
		w.runAnew(e)
	default:
		w.inform(e)
	}
}

// runOnceMore puts a job that has completed, or failed, at the end of the queue.
func (w *Worker[T]) runOnceMore(e *entry[T]) {
	if e.settled != nil {
		e.settled = make(chan struct{})
	}
	e.restarts++
	e.failures, e.err = 0, nil
	e.turn = w.queue.push(e)
	w.enter(e, Queued)
	w.fillSlots()
}

// runAnew ends the present run of a task, which conclude then follows up with
// another.
func (w *Worker[T]) runAnew(e *entry[T]) {
	e.again = true
	e.run.cancel(ErrUpdated)
}

// inform hands a task that runs its newest content, unless it has it. Only one
// update of a task is under way at a time; what comes meanwhile waits for its
// end, and the last of it counts. The lock is held.
func (w *Worker[T]) inform(e *entry[T]) {
	r := e.run
	if r.updating == nil && e.goesOn() && r.version < e.grant.Version {
		r.updating = make(chan struct{})
		w.beginUpdate(e, r)
	}
}

// goesOn reports whether the present run of a task is neither over nor meant to
// end, so that it is worth an update.
func (e *entry[T]) goesOn() bool {
	return e.state == Running && !e.again && !e.run.over
}

func (w *Worker[T]) beginUpdate(e *entry[T], r *run) {
	r.version = e.grant.Version
	go w.update(insight{grant: e.grant, tenure: w.tenure}.into(r.ctx), e, r)
}

// update is one call of the user's function, and the whole of a goroutine, for
// the reasons given at attempt.
func (w *Worker[T]) update(ctx context.Context, e *entry[T], r *run) {
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = w.panicked(e.name, v)
		}
		if w.updated(e, r, err) {
			w.cfg.logger.Warn("task did not take its update, to be started again with it",
				slog.Any("task", e.name), slog.Any("err", err))
		}
	}()
	err = w.hooks.update(ctx, e.name)
}

// updated takes the step that follows an update, and reports whether the task
// is run anew because it failed.
func (w *Worker[T]) updated(e *entry[T], r *run, err error) (anew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	goesOn := e.goesOn() // and e.run is r, which waits for this
	if goesOn && err == nil && r.version < e.grant.Version {
		w.beginUpdate(e, r)
		return false
	}
	close(r.updating)
	r.updating = nil
	if goesOn && err != nil {
		w.runAnew(e)
		return true
	}
	return false
}

// awaitUpdate returns when nothing of a run whose function has returned goes on
// any more: an update is the task's doing too, and must not overlap with its
// next run, here or elsewhere.
func (w *Worker[T]) awaitUpdate(r *run) {
	w.mu.Lock()
	r.over = true
	updating := r.updating
	r.cut = updating != nil
	w.mu.Unlock()
	if updating != nil {
		<-updating
	}
}

package worker

// What an owner gives a task to run with, and changes of it while the worker has the
// task (W7).

import (
	"context"
	"log/slog"
)

// Grant is what a worker receives with a task. Content is not copied: neither side
// may change the bytes.
type Grant struct {
	// Content is the input of the task.
	Content []byte
	// Version rises with each new content; 0: no content yet.
	Version int64
	// Token rises with each new owner of the task, so that a store can refuse a
	// token lower than it has seen; 0: none. Tokens of different scopes cannot be
	// compared.
	Token, Scope uint64
	// Receipt belongs to Version. The side that assigned the task made it, and
	// accepts it as proof that this worker was given this content.
	Receipt string
}

// Content returns the content of the task whose function was given ctx, and its
// version: those at the start of the run, or the new ones in the function given to
// [WithUpdate]. The caller must not change the bytes. Content returns nil and 0 if
// there is no content.
func Content(ctx context.Context) (content []byte, version int64) {
	in, _ := taskContextOf(ctx)
	return in.grant.Content, in.grant.Version
}

// Token returns a number that rises with each new owner of the task whose function
// was given ctx, and the scope in which it rises. It returns 0 and 0 if there is
// none. The package documentation describes the use of tokens.
func Token(ctx context.Context) (token, scope uint64) {
	in, _ := taskContextOf(ctx)
	return in.grant.Token, in.grant.Scope
}

// Updated returns a channel that receives a value when the content of the task whose
// function was given ctx has changed. The function then reads its input again; [Content]
// still returns what the run started with. Several changes may be one value. A run that
// has called Updated takes each later content this way. It is not restarted, and
// [WithUpdate] is not called. With a context that is not a task's, nothing is received.
func Updated(ctx context.Context) <-chan struct{} {
	if in, ok := taskContextOf(ctx); ok && in.updated != nil {
		return in.updated()
	}
	return nil
}

// Check returns an error if the task whose function was given ctx must not continue:
// the cause of ctx if ctx has ended, or [ErrLeaseLost] if the lease can have ended.
// With a context that is not a task's, it returns only the cause. Check reads the
// clock, so after a pause of the process it reports a lost lease before the context
// has ended.
//
// A task that is being stopped may call Check(context.WithoutCancel(ctx)) to learn
// whether it may still write. The result is nil until only the margin of the lease
// is left (see [WithLease]).
//
// A nil result holds at the time of the call. A later write can still be too late;
// only a token protects against that.
func Check(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if in, ok := taskContextOf(ctx); ok {
		return in.leasePeriod.lost()
	}
	return nil
}

// taskContext is the worker's value in a task's context.
type taskContext struct {
	grant       Grant
	leasePeriod *leasePeriod
	ready       func() // nil without WithReadiness
	unpin       func() // nil without WithCompletion
	updated     func() <-chan struct{}
	reschedule  func(why string) error
}

type taskContextKey struct{}

func (in taskContext) into(ctx context.Context) context.Context {
	return context.WithValue(ctx, taskContextKey{}, in)
}

func taskContextOf(ctx context.Context) (in taskContext, ok bool) {
	in, ok = ctx.Value(taskContextKey{}).(taskContext)
	return in, ok
}

// applyGrant updates a task with the newer parts of g. The caller holds mu, the worker
// holds its lease, and the task is not stopping.
func (w *Worker[T]) applyGrant(e *entry[T], g Grant) {
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
		e.timer.Stop() // if it has fired already, restart finds the task running
		e.failures = 0
		w.start(e)
	case e.state != Starting && e.state != Running: // a later run, if any, gets the new grant
	case owner:
		w.runAnew(e)
	case e.run.updates != nil && !e.run.over:
		e.run.version = e.grant.Version
		select {
		case e.run.updates <- struct{}{}:
		default: // one value is enough
		}
	case w.hooks.update == nil:
		w.runAnew(e)
	default:
		w.deliverUpdate(e)
	}
}

// runOnceMore queues a job that has completed or failed.
func (w *Worker[T]) runOnceMore(e *entry[T]) {
	if e.settled != nil {
		e.settled = newSettlement()
	}
	e.restarts++
	e.failures, e.err = 0, nil
	e.turn = w.queue.PushBack(e)
	w.enter(e, Queued)
	w.fillSlots()
}

// runAnew ends the present run of a task. conclude then begins another.
func (w *Worker[T]) runAnew(e *entry[T]) {
	e.again = true
	e.run.cancel(ErrUpdated)
}

// updates returns the channel of [Updated] for a run.
func (w *Worker[T]) updates(r *run) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.updates == nil {
		r.updates = make(chan struct{}, 1)
	}
	return r.updates
}

// deliverUpdate passes the newest content to a running task, unless the task has it. A task
// gets one update at a time. Later ones wait, and the last one counts. The caller
// holds mu.
func (w *Worker[T]) deliverUpdate(e *entry[T]) {
	r := e.run
	if r.updating == nil && e.goesOn() && r.version < e.grant.Version {
		r.updating = make(chan struct{})
		w.beginUpdate(e, r)
	}
}

// goesOn reports whether the present run of a task has not ended and is not meant to
// end, so that it can take an update.
func (e *entry[T]) goesOn() bool {
	return e.state == Running && !e.again && !e.run.over
}

func (w *Worker[T]) beginUpdate(e *entry[T], r *run) {
	r.version = e.grant.Version
	in := taskContext{grant: e.grant, leasePeriod: w.leasePeriod}
	in.reschedule = func(why string) error { return w.reschedule(e, r, why) }
	go w.update(in.into(r.ctx), e, r)
}

// update is one call of WithUpdate's function, in a separate goroutine. As in
// attempt, a deferred function handles the end.
func (w *Worker[T]) update(ctx context.Context, e *entry[T], r *run) {
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = w.panicked(e.name, v)
		}
		if w.updated(e, r, err) {
			w.cfg.logger.Warn("update failed, task will be restarted with it",
				slog.Any("task", e.name), slog.Any("err", err))
		}
	}()
	err = w.hooks.update(ctx, e.name)
}

// updated takes the step after an update. It reports whether the task is restarted
// because the update failed.
func (w *Worker[T]) updated(e *entry[T], r *run, err error) (anew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	goesOn := e.goesOn() // if so, e.run is r, because r waits for its update to end
	if goesOn && err == nil && r.version < e.grant.Version {
		w.beginUpdate(e, r)
		return false
	}
	close(r.updating)
	r.updating = nil
	if anew = goesOn && err != nil; anew {
		w.runAnew(e)
	}
	return anew
}

// awaitUpdate waits until no update is under way for a run whose function has
// returned. An update is part of the run, and must not overlap with the task's next
// run, on this worker or another.
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

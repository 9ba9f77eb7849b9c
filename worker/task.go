package worker

// The states of a task and the steps between them. Everything here is called
// with the lock held and returns without waiting; what has to happen outside
// the lock is in run.go.

import (
	"context"
	"time"
)

// entry is a task that the worker has accepted, until it has stopped.
type entry[T comparable] struct {
	name     T
	state    State // 0: dropped
	since    time.Time
	restarts int
	err      error // what the run before this one ended with

	place *link[*entry[T]] // in Worker.order
	turn  *link[*entry[T]] // in Worker.queue; nil unless Queued

	grant    Grant       // the newest
	run      *run        // the present one; Starting, Running, Stopping
	again    bool        // the present run was ended for another to begin at once
	overdue  bool        // Stopping: a call has waited for it for as long as it could
	unpinned bool        // the last List or Report of a leader did not pin it
	failures int         // in a row, from which the pauses follow: a long run ends the row
	attempts int         // that failed in a row with this content
	timer    *time.Timer // Backoff: starts the next run
	next     time.Time   // Backoff: when that is

	settled chan struct{} // WithReadiness: closed when an Add has no more to wait for; else nil
	gone    chan struct{} // closed when dropped
}

// enter has a task be in a state.
func (w *Worker[T]) enter(e *entry[T], s State) {
	e.state, e.since = s, time.Now()
	if w.hooks.completed != nil {
		w.listed = nil // its order follows from the states
	}
	w.changed()
}

// pinned reports whether a task is a job that must not be moved: it would begin
// again elsewhere.
func (w *Worker[T]) pinned(e *entry[T]) bool {
	if w.hooks.completed == nil {
		return false
	}
	switch e.state {
	case Starting, Running:
		return !e.run.movable
	case Completed, Failed:
		return true
	}
	return false
}

// settle lets the Adds that wait for the task to be ready go on.
func (e *entry[T]) settle() {
	if e.settled == nil {
		return
	}
	select {
	case <-e.settled:
	default:
		close(e.settled)
	}
}

// holdsSlot reports whether the task counts against WithSlots.
func (e *entry[T]) holdsSlot() bool {
	switch e.state {
	case Starting, Running, Backoff, Stopping:
		return true
	}
	return false
}

// accept takes a task in, and starts it where there is a slot.
func (w *Worker[T]) accept(task T, g Grant) *entry[T] {
	e := &entry[T]{name: task, grant: g, gone: make(chan struct{})}
	if w.cfg.readiness {
		e.settled = make(chan struct{})
	}
	e.place = w.order.push(e)
	w.tasks[task] = e
	w.listed = nil
	w.note(task)
	e.turn = w.queue.push(e)
	w.enter(e, Queued)
	w.fillSlots()
	return e
}

// fillSlots starts those that wait longest, as long as there are slots.
func (w *Worker[T]) fillSlots() {
	for w.queue.first != nil && (w.cfg.slots == 0 || w.busy < w.cfg.slots) && !w.closed && w.holds() == nil {
		e := w.queue.first.value
		w.queue.remove(e.turn)
		e.turn = nil
		w.busy++
		w.start(e)
	}
}

// freeSlot gives back the slot of a task, for the next to start.
func (w *Worker[T]) freeSlot() {
	w.busy--
	w.fillSlots()
}

// start begins a run of a task that holds a slot.
func (w *Worker[T]) start(e *entry[T]) {
	r := &run{version: e.grant.Version}
	in := insight{grant: e.grant, tenure: w.tenure}
	e.run = r
	if w.cfg.readiness {
		in.ready = func() { w.ready(e, r) }
		w.enter(e, Starting)
	} else {
		w.enter(e, Running)
	}
	if w.hooks.completed != nil {
		in.unpin = func() { w.unpin(r) }
	}
	r.began = e.since
	r.ctx, r.cancel = context.WithCancelCause(in.into(context.Background()))
	go w.attempt(e, r)
}

// startAgain begins the next run of a task that holds a slot, unless the lease
// is over: it is about to be stopped then.
func (w *Worker[T]) startAgain(e *entry[T]) {
	if w.holds() == nil {
		w.start(e)
	}
}

// stopEach makes every task leave.
func (w *Worker[T]) stopEach(cause error) {
	for e := range w.order.all() {
		if e.state != Stopping {
			w.stop(e, cause)
		}
	}
}

// stop makes a task that is not stopping yet leave: at once where nothing runs,
// else as soon as its run has returned.
func (w *Worker[T]) stop(e *entry[T], cause error) {
	switch e.state {
	case Starting, Running:
		w.enter(e, Stopping)
		e.run.cancel(cause)
		e.settle()
	default:
		w.drop(e)
	}
}

// drop forgets a task of which nothing runs any more.
func (w *Worker[T]) drop(e *entry[T]) {
	held := e.holdsSlot()
	if e.timer != nil {
		e.timer.Stop() // one that has fired already finds the task dropped
	}
	if e.turn != nil {
		w.queue.remove(e.turn)
	}
	w.order.remove(e.place)
	delete(w.tasks, e.name)
	w.listed = nil
	w.note(e.name)
	w.changed()
	e.state = 0
	e.settle()
	close(e.gone)
	if held {
		w.freeSlot()
	}
	w.settleIfEmpty()
}

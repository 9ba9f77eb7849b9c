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

	cancel   context.CancelCauseFunc // of the present run; Starting, Running, Stopping
	began    time.Time               // when the present run began
	failures int                     // in a row
	timer    *time.Timer             // Backoff: starts the next run

	settled chan struct{} // WithReadiness: closed when an Add has no more to wait for; else nil
	gone    chan struct{} // closed when dropped
}

func (e *entry[T]) enter(s State) {
	e.state, e.since = s, time.Now()
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
func (w *Worker[T]) accept(task T) *entry[T] {
	e := &entry[T]{name: task, gone: make(chan struct{})}
	if w.cfg.readiness {
		e.settled = make(chan struct{})
	}
	e.place = w.order.push(e)
	w.tasks[task] = e
	w.listed = nil
	e.turn = w.queue.push(e)
	e.enter(Queued)
	w.fillSlots()
	return e
}

// fillSlots starts those that wait longest, as long as there are slots.
func (w *Worker[T]) fillSlots() {
	for !w.closed && w.queue.first != nil && (w.cfg.slots == 0 || w.busy < w.cfg.slots) {
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
	ctx := context.Background()
	if w.cfg.readiness {
		attempt := e.restarts
		ctx = context.WithValue(ctx, readyKey{}, func() { w.ready(e, attempt) })
		e.enter(Starting)
	} else {
		e.enter(Running)
	}
	ctx, e.cancel = context.WithCancelCause(ctx)
	e.began = e.since
	go w.attempt(ctx, e.cancel, e)
}

// stop makes a task that is not stopping yet leave: at once where nothing runs,
// else as soon as its run has returned.
func (w *Worker[T]) stop(e *entry[T], cause error) {
	switch e.state {
	case Starting, Running:
		e.enter(Stopping)
		e.cancel(cause)
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
	e.state = 0
	e.settle()
	close(e.gone)
	if held {
		w.freeSlot()
	}
	w.closeIfIdle()
}

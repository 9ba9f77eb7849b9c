package worker

// The states of a task and the steps between them. The functions here are called
// with mu held, and do not wait. Those that run without mu are in run.go.

import (
	"container/list"
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// entry is a task that the worker has accepted and that has not stopped.
type entry[T comparable] struct {
	name     T
	state    State // 0: dropped
	since    time.Time
	restarts int
	err      error  // the result of the previous run
	text     string // of err, if the run failed

	place *list.Element // in Worker.order
	turn  *list.Element // in Worker.queue, if Queued

	grant    Grant       // the newest
	run      *run        // the present run; for Starting, Running and Stopping
	again    bool        // the present run was ended so that another begins immediately
	overdue  bool        // Stopping: the context of a call that waited for it has ended
	unpinned bool        // not pinned in the leader's last List or Report
	failures int         // failed runs in a row, for the pauses; reset by a long run
	attempts int         // failed runs in a row with this content
	failing  time.Time   // since the first of them
	timer    *time.Timer // Backoff: starts the next run; Running: see lasted
	next     time.Time   // Backoff: when the next run starts

	refusal *refusal      // the present run has asked to run elsewhere; otherwise nil
	settled *settlement   // WithReadiness: releases the Adds that wait; otherwise nil
	gone    chan struct{} // closed when dropped
}

// enter sets the state of a task.
func (w *Worker[T]) enter(e *entry[T], s State) {
	e.state, e.since = s, time.Now()
	if w.hooks.completed != nil {
		w.listed = nil // its order depends on the states
	}
	w.changed()
}

// pinned reports whether a task is a job that must not be moved, because it would
// start from the beginning elsewhere.
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

// settlement is the answer to the Adds that wait until a task is ready. It is fixed
// when the wait ends, not when an Add reads it: by then the task may have stopped, and
// the answer would depend on the scheduler.
type settlement struct {
	done chan struct{} // closed when the answer is known
	// err is nil if the task became ready or its job ended, ErrStopping if it was told
	// to stop before while its function ran, ErrRejected if its function did not run.
	err error
}

func newSettlement() *settlement { return &settlement{done: make(chan struct{})} }

// settle answers the Adds that wait until the task is ready, unless they have their
// answer.
func (e *entry[T]) settle(err error) {
	if e.settled != nil && !isClosed(e.settled.done) {
		e.settled.err = err
		close(e.settled.done)
	}
}

// accept adds a task to the queue, and starts it if a slot is free.
func (w *Worker[T]) accept(task T, g Grant) *entry[T] {
	e := &entry[T]{name: task, grant: g, gone: make(chan struct{})}
	if w.cfg.readiness {
		e.settled = newSettlement()
	}
	e.place = w.order.PushBack(e)
	w.tasks[task] = e
	w.listed = nil
	w.note(task)
	e.turn = w.queue.PushBack(e)
	w.enter(e, Queued)
	w.fillSlots()
	return e
}

// fillSlots starts queued tasks, oldest first, while slots are free.
func (w *Worker[T]) fillSlots() {
	for w.queue.Len() > 0 && (w.cfg.slots == 0 || w.busy < w.cfg.slots) && !w.closed && w.checkLease() == nil {
		e, _ := w.queue.Remove(w.queue.Front()).(*entry[T])
		w.busy++
		w.start(e)
	}
}

// freeSlot releases the slot of a task, and starts the next task.
func (w *Worker[T]) freeSlot() {
	w.busy--
	w.fillSlots()
}

// start begins a run of a task that holds a slot.
func (w *Worker[T]) start(e *entry[T]) {
	r := &run{version: e.grant.Version}
	in := taskContext{grant: e.grant, leasePeriod: w.leasePeriod}
	in.updated = func() <-chan struct{} { return w.updates(r) }
	in.reschedule = func(why string) error { return w.reschedule(e, r, why) }
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
	if e.attempts > 0 {
		e.timer = time.AfterFunc(w.cfg.backoff.Longest, func() { w.lasted(e, r) })
	}
	go w.attempt(e, r)
}

// startAgain begins the next run of a task that holds a slot. If the lease is lost
// it does nothing, because the task is about to be stopped.
func (w *Worker[T]) startAgain(e *entry[T]) {
	if w.checkLease() == nil {
		w.start(e)
	}
}

// stopEach stops every task that is not stopping yet.
func (w *Worker[T]) stopEach(cause error) {
	for e := range w.entries() {
		if e.state != Stopping {
			w.stop(e, cause)
		}
	}
}

// stop removes a task that is not stopping yet: immediately if its function does not
// run, otherwise as soon as the function has returned.
func (w *Worker[T]) stop(e *entry[T], cause error) {
	switch e.state {
	case Starting, Running:
		w.enter(e, Stopping)
		e.run.cancel(cause)
		e.settle(orchestrator.ErrStopping)
	default:
		w.drop(e)
	}
}

// drop removes a task whose function does not run.
func (w *Worker[T]) drop(e *entry[T]) {
	held := slices.Contains([]State{Starting, Running, Backoff, Stopping}, e.state) // a slot
	if e.timer != nil {
		e.timer.Stop() // if it has fired already, restart finds the task dropped
	}
	w.queue.Remove(e.turn) // has no effect unless it is queued
	w.order.Remove(e.place)
	delete(w.tasks, e.name)
	w.listed = nil
	w.note(e.name)
	w.changed()
	e.state = 0
	if e.refusal != nil { // it has asked to run elsewhere
		if len(w.refusals) >= maxRefusals {
			maps.DeleteFunc(w.refusals, func(T, *refusal) bool { return len(w.refusals) >= maxRefusals })
		}
		w.refusals[e.name] = e.refusal
	}
	e.settle(orchestrator.ErrRejected)
	close(e.gone)
	if held {
		w.freeSlot()
	}
	w.settleIfEmpty()
}

// entries iterates over all tasks, in the order in which they were added. The current one
// may be dropped.
func (w *Worker[T]) entries() iter.Seq[*entry[T]] {
	return func(yield func(*entry[T]) bool) {
		for at := w.order.Front(); at != nil; {
			e, _ := at.Value.(*entry[T])
			if at = at.Next(); !yield(e) {
				return
			}
		}
	}
}

package worker

// What a worker tells about its tasks.

import (
	"fmt"
	"time"
)

// State is where a task is in its life; see the package documentation.
type State uint8

const (
	// Queued says that it waits for a slot (see WithSlots).
	Queued State = iota + 1
	// Starting says that its function runs and has not called Ready yet (see
	// WithReadiness).
	Starting
	// Running says that its function runs.
	Running
	// Backoff says that its function has returned or panicked, and will be
	// started again after a pause (see WithBackoff).
	Backoff
	// Stopping says that its context has ended, and that its function has not
	// returned yet.
	Stopping
	// Completed says that its function has returned nil (see WithCompletion).
	Completed
	// Failed says that its function has failed too often in a row (see
	// WithAttempts).
	Failed
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Queued:
		return "queued"
	case Starting:
		return "starting"
	case Running:
		return "running"
	case Backoff:
		return "backoff"
	case Stopping:
		return "stopping"
	case Completed:
		return "completed"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText returns what String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// TaskStatus is what a worker tells about one of its tasks.
type TaskStatus[T comparable] struct {
	Task  T
	State State
	// Since is when the task entered State.
	Since time.Time
	// Restarts counts how often its function has ended and was, or will be,
	// started again, since the task was added.
	Restarts int
	// Err is what the function ended with last time: an error, a panic as an
	// error, or ErrReturned where it returned nil and was not to; or ErrUpdated
	// where it was ended to be restarted in place. It is nil where Restarts is 0,
	// and where the task had completed.
	Err error
	// Attempts counts the runs that failed in a row with the present content. Next
	// is when the next one begins; zero unless State is Backoff.
	Attempts int
	Next     time.Time
	// Pinned says that it is a job that must not be moved (see WithCompletion).
	Pinned bool
	// Version is that of the newest content that the worker has for the task
	// (see Worker.Update). The task's function may not have been given it yet.
	Version int64
	// Token and Scope are what Token tells the task, and Receipt belongs to
	// Version; see Grant.
	Token, Scope uint64
	Receipt      string
}

// Status returns the state of every task in List, in its order. The slice is
// the caller's.
func (w *Worker[T]) Status() []TaskStatus[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status()
}

// status is Status with the lock held.
func (w *Worker[T]) status() []TaskStatus[T] {
	all := make([]TaskStatus[T], 0, len(w.tasks))
	for e := range w.order.all() {
		s := TaskStatus[T]{
			Task:     e.name,
			State:    e.state,
			Since:    e.since,
			Restarts: e.restarts,
			Err:      e.err,
			Version:  e.grant.Version,
			Token:    e.grant.Token,
			Scope:    e.grant.Scope,
			Receipt:  e.grant.Receipt,
			Attempts: e.attempts,
			Pinned:   w.pinned(e),
		}
		if e.state == Backoff {
			s.Next = e.next
		}
		all = append(all, s)
	}
	return all
}

package worker

import (
	"context"
	"fmt"
	"time"
)

// State is the state of a task; the package documentation shows the transitions.
type State uint8

const (
	// Queued: the task waits for a slot (see WithSlots).
	Queued State = iota + 1
	// Starting: the task's function runs and has not called Ready yet (see
	// WithReadiness).
	Starting
	// Running: the task's function runs.
	Running
	// Backoff: the task's function has returned or panicked, and will be called
	// again after a pause (see WithBackoff).
	Backoff
	// Stopping: the task's context has ended, and its function has not returned yet.
	Stopping
	// Completed: the task's function has returned nil (see WithCompletion).
	Completed
	// Failed: the task's function has failed too often in a row (see WithAttempts).
	Failed
)

// String returns the name of the state in lower case.
func (s State) String() string {
	names := [...]string{
		Queued: "queued", Starting: "starting", Running: "running", Backoff: "backoff",
		Stopping: "stopping", Completed: "completed", Failed: "failed",
	}
	if s > 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText returns the result of String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// TaskStatus is the status of one task.
type TaskStatus[T comparable] struct {
	Task  T
	State State
	// Since is when the task entered State.
	Since time.Time
	// Restarts counts how often the function has ended and was, or will be, called
	// again since the task was added.
	Restarts int
	// Err is the result of the previous run: an error; a panic as an error;
	// ErrReturned if the function returned nil but must not end; or ErrUpdated if
	// the run was ended for a restart in place. Err is nil if Restarts is 0 or if
	// the task had completed.
	Err error
	// Attempts counts the runs that failed in a row with the present content, and
	// Failing is when the first of them failed; zero without any. A run that is as long
	// as the longest pause ends the row, unless it is that of a job that must not be
	// moved. Next is when the next run begins; zero unless State is Backoff.
	Attempts int
	Failing  time.Time
	Next     time.Time
	// Pinned: the task is a job that must not be moved (see WithCompletion).
	Pinned bool
	// Version is that of the newest content that the worker has for the task (see
	// Worker.Update). The task's function may not have received this content yet.
	Version int64
	// Token and Scope are the results of the function Token in the task. Receipt
	// belongs to Version; see Grant.
	Token, Scope uint64
	Receipt      string
}

// Status returns the status of every task, in the order in which they were added.
// The caller owns the slice.
func (w *Worker[T]) Status() []TaskStatus[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status()
}

// FailedRuns returns how many runs of tasks have failed since the worker was created.
func (w *Worker[T]) FailedRuns() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failedRuns
}

// status is Status with mu held.
func (w *Worker[T]) status() []TaskStatus[T] {
	all := make([]TaskStatus[T], 0, len(w.tasks))
	for e := range w.entries() {
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
		if e.attempts > 0 {
			s.Failing = e.failing
		}
		all = append(all, s)
	}
	return all
}

// changeLog counts changes. Worker.mu guards it.
type changeLog struct {
	count uint64
	seen  uint64        // count at the last List or Report of a leader
	lost  bool          // nothing collected the pins of that List
	told  bool          // a List has logged that
	next  chan struct{} // closed with the next change; nil: not requested
}

// changed records a change of what Status returns. The caller holds mu.
func (w *Worker[T]) changed() {
	w.log.count++
	if w.log.next != nil {
		close(w.log.next)
		w.log.next = nil
	}
}

// Changes returns how often the result of [Worker.Status] has changed: a task was
// added or has gone, has entered another state, or has newer content or another
// token. next is closed with the next change. n is at least 1, never falls, and is
// kept across a [Worker.Rejoin].
func (w *Worker[T]) Changes() (n uint64, next <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log.next == nil {
		w.log.next = make(chan struct{})
	}
	return w.log.count, w.log.next
}

// Report combines List, Status and Changes in one step. known is the n of an earlier
// report, or 0. If nothing has changed since that report, tasks is nil and nothing
// is copied. Report fails as [Worker.List] does. The caller owns the slice, and pins
// the tasks with Pinned in the leader's List ([orchestrator.Pin]).
func (w *Worker[T]) Report(ctx context.Context, known uint64) (n uint64, tasks []TaskStatus[T], err error) {
	c := callerOf(ctx)
	if c.ended != nil {
		return 0, nil, c.ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admitRead(c); err != nil {
		return 0, nil, err
	}
	if known != w.log.count {
		tasks = w.status()
	}
	w.recordSeen(c, true)
	return w.log.count, tasks, nil
}

// recordSeen records which tasks the leader has now seen unpinned, and whether its
// transport carried the pins. A read of an earlier term that arrives late, or of none
// after the first, such as that of a dry run, is not the leader's and is not recorded.
// recordSeen returns true once, if pins are lost. The caller holds mu.
func (w *Worker[T]) recordSeen(c caller, carried bool) (lost bool) {
	if w.hooks.completed == nil || c.term != w.fence {
		return false
	}
	w.log.lost = !carried
	if w.log.seen != w.log.count {
		w.log.seen = w.log.count
		for e := range w.entries() {
			e.unpinned = !w.pinned(e)
		}
	}
	lost = w.log.lost && !w.log.told && w.pins > 0
	w.log.told = w.log.told || lost
	return lost
}

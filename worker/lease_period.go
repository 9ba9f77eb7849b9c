package worker

// A worker's lease period: its incarnation and the state of its lease. The changes are
// made in lease.go.

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/f8949c05/orchestrator/internal/lease"
)

// leasePeriod is the period from New or Rejoin until all tasks have stopped because the
// lease was lost or the worker was closed. Fields not marked as guarded never
// change.
type leasePeriod struct {
	incarnation uint64
	// leave is when tasks are told to stop, gone is when only the margin is left.
	// Both are nil in a worker without a lease.
	leave, gone *lease.Deadline
	fenced      chan struct{} // closed when all tasks were told to stop for lack of a lease
	stopped     chan struct{} // closed when fenced, or the worker closed, and no task is left

	// Guarded by Worker.mu.
	begun  bool            // the lease has been acknowledged
	resort *lease.Deadline // when to call the last resort; nil: never
}

func (w *Worker[T]) newLeasePeriod() *leasePeriod {
	t := &leasePeriod{
		incarnation: 1 + rand.Uint64N(math.MaxInt64), // never 0, and fits any database
		fenced:      make(chan struct{}),
		stopped:     make(chan struct{}),
	}
	if d := w.cfg.lease; d > 0 {
		t.gone = lease.NewDeadline(d - margin(d))
		t.leave = lease.NewDeadline(d - margin(d) - w.cfg.stop)
		t.resort = t.gone
	}
	return t
}

// margin returns the part of a lease of length d in which no task may run. It covers
// clocks that run at different speeds, and the run time of the last resort.
func margin(d time.Duration) time.Duration { return d / 10 }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lost returns ErrLeaseLost if a run of this lease period must not continue. It reads the
// clock, and needs no lock.
func (t *leasePeriod) lost() error {
	d := t.leave
	fenced := isClosed(t.fenced)
	if fenced {
		d = t.gone // stopping tasks may run until then
	}
	if d == nil && fenced || d != nil && d.Left() <= 0 {
		return ErrLeaseLost
	}
	return nil
}

// holds returns an error if the state of the lease forbids writes and starts now.
// The caller holds mu.
func (w *Worker[T]) holds() error {
	t := w.leasePeriod
	switch {
	case w.closed: // nothing starts in any case, and Remove needs no lease
		return nil
	case isClosed(t.fenced):
		return ErrLeaseLost
	case t.leave == nil:
		return nil
	case !t.begun:
		return errNoLease
	case t.leave.Left() <= 0: // the guard has not fenced the worker yet
		return ErrLeaseLost
	}
	return nil
}

// empty waits until t is fenced or the worker closed, and no task is left.
func (w *Worker[T]) empty(ctx context.Context, t *leasePeriod) error {
	select {
	case <-t.stopped:
		return nil
	default: // if both are done, success counts
	}
	select {
	case <-t.stopped:
		return nil
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Errorf("%d tasks have not stopped: %w", len(w.tasks), context.Cause(ctx))
	}
}

// settleIfEmpty closes t.stopped, for which Close and Rejoin wait, if no task is
// left. The caller holds mu.
func (w *Worker[T]) settleIfEmpty() {
	t := w.leasePeriod
	if isClosed(t.stopped) || len(w.tasks) > 0 || !w.closed && !isClosed(t.fenced) {
		return
	}
	close(t.stopped)
	if t.leave != nil { // leave no timer and no goroutine behind
		t.leave.End()
		t.gone.End()
		t.resort.End()
	}
}

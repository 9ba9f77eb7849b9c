package worker

// A worker's tenure: by which lease it runs what it runs, and what is known of
// that. What changes it is in lease.go.

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/f8949c05/orchestrator/internal/lease"
)

// tenure is the time from New, or Rejoin, until everything was stopped for want
// of the lease. What is not said to be guarded never changes.
type tenure struct {
	incarnation uint64
	// leave is when tasks are told to stop, gone when only the margin is left.
	// Both are nil in a worker without a lease.
	leave, gone *lease.Deadline
	fenced      chan struct{} // closed when everything was told to stop
	stopped     chan struct{} // closed once fenced, or closed, and empty

	// Guarded by Worker.mu.
	begun  bool            // the lease was acknowledged once
	resort *lease.Deadline // when the last resort's turn has come; nil: never
}

func (w *Worker[T]) newTenure() *tenure {
	t := &tenure{
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

// margin is what is left of a lease when nothing may run any more: clocks that
// do not go at the same speed, and a last resort that needs a moment.
func margin(d time.Duration) time.Duration { return d / 10 }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lost says, by the clock as it is now, why a run of this tenure may not go on.
// It needs no lock.
func (t *tenure) lost() error {
	d := t.leave
	fenced := isClosed(t.fenced)
	if fenced {
		d = t.gone // what is being stopped has until then
	}
	if d == nil && fenced || d != nil && d.Left() <= 0 {
		return ErrLeaseLost
	}
	return nil
}

// holds says why nothing may be written or started now for want of the lease;
// nil: it may. The lock is held.
func (w *Worker[T]) holds() error {
	t := w.tenure
	switch {
	case w.closed: // nothing is started in any case, and nothing else needs a lease
		return nil
	case isClosed(t.fenced):
		return ErrLeaseLost
	case t.leave == nil:
		return nil
	case !t.begun:
		return errNoLease
	case t.leave.Left() <= 0: // and the guard is about to see to it
		return ErrLeaseLost
	}
	return nil
}

// empty waits until t has ended and nothing is left of it.
func (w *Worker[T]) empty(ctx context.Context, t *tenure) error {
	select {
	case <-t.stopped:
		return nil
	default: // nothing left wins over a context that has ended
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

// settleIfEmpty lets Close and Rejoin return once nothing is left. The lock is
// held.
func (w *Worker[T]) settleIfEmpty() {
	t := w.tenure
	if isClosed(t.stopped) || len(w.tasks) > 0 || !w.closed && !isClosed(t.fenced) {
		return
	}
	close(t.stopped)
	if t.leave != nil { // no timer and no goroutine stays behind
		t.leave.End()
		t.gone.End()
		t.resort.End()
	}
}

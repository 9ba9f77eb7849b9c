package worker

// Self-fencing (W5): what stops everything before the worker's lease can have
// ended, and what lets the worker begin anew.

import (
	"context"
	"fmt"
	"log/slog"
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

// Lease returns the length given to [WithLease]: what a transport asks its
// coordinator for. 0 means that the worker has none.
func (w *Worker[T]) Lease() time.Duration { return w.cfg.lease }

// Sending takes the time: a transport calls it right before it sends a request
// that asks for the lease, or renews it, and calls the function that it returns
// once that was acknowledged. The lease then lasts from the call of Sending,
// however late the acknowledgement came. An acknowledgement is of no use once
// the lease was lost, and none for another tenure: that of a request sent
// before a Rejoin says nothing about the lease after it.
//
// From the first acknowledgement on the worker accepts tasks. The function may
// be called at any time, again, or never; without WithLease it does nothing.
func (w *Worker[T]) Sending() (acknowledged func()) {
	sent := lease.Now() // first: what is earlier is safe
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tenure
	return func() { w.renew(t, sent) }
}

func (w *Worker[T]) renew(t *tenure, sent lease.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.leave == nil {
		return
	}
	// What is being stopped may have that much longer.
	t.leave.Extend(sent)
	t.gone.Extend(sent)
	if t == w.tenure && !t.begun {
		t.begun = true
		go w.guard(t)
	}
}

// Fenced returns a channel that is closed once the worker has begun to stop
// everything for want of its lease. A transport then keeps nothing of the lease
// alive, and calls Rejoin. After that Fenced returns another channel.
func (w *Worker[T]) Fenced() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tenure.fenced
}

// GiveUp says that the lease is gone, though the clock would not have it so: the
// coordinator has forgotten it, or is another one. All tasks end at once, with
// a cause that wraps ErrLeaseLost and cause, and have as long to stop as they
// always have. It does nothing while the worker is fenced.
//
// Without WithLease it does the same, but for the last resort.
func (w *Worker[T]) GiveUp(cause error) {
	if cause != nil {
		cause = fmt.Errorf("%w: %w", ErrLeaseLost, cause)
	} else {
		cause = ErrLeaseLost
	}
	w.mu.Lock()
	news := w.giveUp(w.tenure, cause)
	w.mu.Unlock()
	news()
}

// giveUp is GiveUp with the lock held; what it returns is to be called without.
func (w *Worker[T]) giveUp(t *tenure, cause error) (news func()) {
	if isClosed(t.fenced) || isClosed(t.stopped) {
		return func() {}
	}
	if t.leave != nil {
		t.resort = lease.NewDeadline(min(w.cfg.stop, t.gone.Left()))
		t.resort.Extend(lease.Now())
		t.gone.End() // Check is to know
		t.leave.End()
	}
	return w.leave(t, cause)
}

// leave tells everything to stop, for want of the lease. The lock is held; what
// is returned is to be called without it.
func (w *Worker[T]) leave(t *tenure, cause error) (news func()) {
	if isClosed(t.fenced) || isClosed(t.stopped) {
		return func() {}
	}
	close(t.fenced) // first: nothing is started in the slots that become free
	tasks := len(w.tasks)
	w.stopEach(cause)
	w.settleIfEmpty()
	return func() {
		w.cfg.logger.Warn("lease lost, stopping everything", slog.Int("tasks", tasks), slog.Any("err", cause))
	}
}

// guard sees to it that nothing of a tenure outlives its lease. It ends with
// the tenure.
func (w *Worker[T]) guard(t *tenure) {
	<-t.leave.Done()
	w.mu.Lock()
	news := w.leave(t, ErrLeaseLost)
	resort := t.resort
	w.mu.Unlock()
	go news()     // a log that hangs must not hold up what follows
	resort.Left() // the machine may have slept through both
	select {
	case <-t.stopped:
	case <-resort.Done():
		w.lastResort(t)
	}
}

// lastResort hands what has not stopped to the user.
func (w *Worker[T]) lastResort(t *tenure) {
	w.mu.Lock()
	left := make([]T, 0, len(w.tasks))
	if t == w.tenure {
		for e := range w.order.all() {
			left = append(left, e.name)
		}
	}
	w.mu.Unlock()
	if len(left) == 0 {
		return
	}
	if w.hooks.resort != nil {
		w.hooks.resort(left) // before anything that may hang
	}
	w.cfg.logger.Error("tasks have not stopped, and the lease ends", slog.Any("tasks", left))
}

// Rejoin waits until everything has stopped, and then lets the worker begin
// anew: empty, under a new Incarnation, and with WithLease accepting tasks again
// once the first Sending after it was acknowledged. A worker that was not
// fenced is, as if by GiveUp(nil). The terms that were seen are not forgotten.
//
// What asks for the former lease has to be at rest before: a call of Sending
// after Rejoin is taken to be about the next one.
//
// A write that began before does not take effect after it. Rejoin returns an
// error where ctx ends before everything has stopped, which counts what has
// not and wraps the context's cause, after which it may be called again; and
// one that wraps ErrClosed where the worker is closed.
func (w *Worker[T]) Rejoin(ctx context.Context) error {
	w.mu.Lock()
	t, news := w.tenure, func() {}
	if !w.closed {
		news = w.giveUp(t, ErrLeaseLost)
	}
	w.mu.Unlock()
	news()
	if err := w.empty(ctx, t); err != nil {
		return fmt.Errorf("rejoin: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return fmt.Errorf("rejoin: %w", ErrClosed)
	case w.tenure == t: // else another Rejoin was faster
		w.tenure = w.newTenure()
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

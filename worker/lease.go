package worker

// Self-fencing (W5): what a transport says of the lease, and what follows.

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/f8949c05/orchestrator/internal/lease"
)

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
	w.leases.Sent++
	t, first := w.tenure, true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if first {
			first = false
			w.leases.Acknowledged++
		}
		w.renew(t, sent)
	}
}

// LeaseStats tells how a worker's lease is doing, for monitoring.
type LeaseStats struct {
	// Left is how long the worker goes on without a further acknowledgement before it
	// stops its tasks; 0: it has no lease, or has lost it.
	Left time.Duration
	// Sent counts the requests that asked for the lease or renewed it, Acknowledged
	// those that were acknowledged. The rest are under way, or were missed.
	Sent, Acknowledged uint64
	// Rejoins counts how often the worker has begun anew; see [Worker.Rejoin].
	Rejoins uint64
}

// LeaseStats returns the figures of the lease; all are 0 without [WithLease] and a
// transport that asks for one.
func (w *Worker[T]) LeaseStats() LeaseStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.leases
	if t := w.tenure; t.begun && !isClosed(t.fenced) && !isClosed(t.stopped) {
		s.Left = max(t.leave.Left(), 0)
	}
	return s
}

// renew takes note of an acknowledgement. The lock is held.
func (w *Worker[T]) renew(t *tenure, sent lease.Instant) {
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
		w.leases.Rejoins++
	}
	return nil
}

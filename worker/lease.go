package worker

// Self-fencing (W5): the calls of a transport about the lease, and their effects.

import (
	"context"
	"fmt"
	"log/slog"
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
	ended       chan struct{} // closed when all tasks were told to stop for lack of a lease
	stopped     chan struct{} // closed when ended, or the worker closed, and no task is left

	// Guarded by Worker.mu.
	begun  bool            // the lease has been acknowledged
	resort *lease.Deadline // when to call the last resort; nil: never
}

func (w *Worker[T]) newLeasePeriod() *leasePeriod {
	p := &leasePeriod{
		incarnation: 1 + rand.Uint64N(math.MaxInt64), // never 0, and fits any database
		ended:       make(chan struct{}),
		stopped:     make(chan struct{}),
	}
	if d := w.cfg.lease; d > 0 {
		p.gone = lease.NewDeadline(d - margin(d))
		p.leave = lease.NewDeadline(d - margin(d) - w.cfg.stop)
		p.resort = p.gone
	}
	return p
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
func (p *leasePeriod) lost() error {
	d := p.leave
	ended := isClosed(p.ended)
	if ended {
		d = p.gone // stopping tasks may run until then
	}
	if d == nil && ended || d != nil && d.Left() <= 0 {
		return ErrLeaseLost
	}
	return nil
}

// checkLease returns an error if the state of the lease forbids writes and starts now.
// The caller holds mu.
func (w *Worker[T]) checkLease() error {
	p := w.leasePeriod
	switch {
	case w.closed: // nothing starts in any case, and Remove needs no lease
		return nil
	case isClosed(p.ended):
		return ErrLeaseLost
	case p.leave == nil:
		return nil
	case !p.begun:
		return errNoLease
	case p.leave.Left() <= 0: // the guard has not run yet
		return ErrLeaseLost
	}
	return nil
}

// awaitEmpty waits until p has ended or the worker closed, and no task is left.
func (w *Worker[T]) awaitEmpty(ctx context.Context, p *leasePeriod) error {
	select {
	case <-p.stopped:
		return nil
	case <-ctx.Done():
		if isClosed(p.stopped) { // if both are done, success counts
			return nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Errorf("%d tasks have not stopped: %w", len(w.tasks), context.Cause(ctx))
	}
}

// settleIfEmpty closes p.stopped, for which Close and Rejoin wait, if no task is
// left. The caller holds mu.
func (w *Worker[T]) settleIfEmpty() {
	p := w.leasePeriod
	if isClosed(p.stopped) || len(w.tasks) > 0 || !w.closed && !isClosed(p.ended) {
		return
	}
	close(p.stopped)
	if p.leave != nil { // leave no timer and no goroutine behind
		p.leave.End()
		p.gone.End()
		p.resort.End()
	}
}

// Lease returns the length given to [WithLease], which a transport requests from its
// coordinator. 0 means that the worker has no lease.
func (w *Worker[T]) Lease() time.Duration { return w.cfg.lease }

// Sending records the current time. A transport calls it right before it sends a
// request for the lease or for its renewal. It calls the returned function when that
// request is acknowledged. The lease then lasts from the call of Sending, however
// late the acknowledgement arrives. An acknowledgement has no effect once the lease
// is lost. The acknowledgement of a request sent before a Rejoin has no effect on
// the lease after it.
//
// From the first acknowledgement on, the worker accepts tasks. The returned function
// may be called at any time, repeatedly, or never. Without WithLease it only counts
// (see [LeaseStats]).
func (w *Worker[T]) Sending() (acknowledged func()) {
	sent := lease.Now() // before waiting for the lock: an earlier time is safe
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases.Sent++
	p, first := w.leasePeriod, true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if first {
			first = false
			w.leases.Acknowledged++
		}
		w.renew(p, sent)
	}
}

// LeaseStats describes the state of a worker's lease, for monitoring.
type LeaseStats struct {
	// Left is how long the worker runs its tasks without a further acknowledgement.
	// It is 0 if the worker has no lease or has lost it.
	Left time.Duration
	// Sent counts the requests for the lease and for its renewal, Acknowledged those
	// that were acknowledged. The others are under way or have failed.
	Sent, Acknowledged uint64
	// Rejoins counts the calls of [Worker.Rejoin] that began a new incarnation.
	Rejoins uint64
}

// LeaseStats returns the figures of the lease. Left is 0 without [WithLease]; the
// others are 0 unless a transport requests leases or rejoins.
func (w *Worker[T]) LeaseStats() LeaseStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.leases
	if p := w.leasePeriod; p.begun && !isClosed(p.ended) && !isClosed(p.stopped) {
		s.Left = max(p.leave.Left(), 0)
	}
	return s
}

// renew records an acknowledgement. The caller holds mu.
func (w *Worker[T]) renew(p *leasePeriod, sent lease.Instant) {
	if p.leave == nil {
		return
	}
	// Do so after the loss of the lease as well: tasks that are stopping get more
	// time.
	p.leave.Extend(sent)
	p.gone.Extend(sent)
	if p == w.leasePeriod && !p.begun {
		p.begun = true
		go w.guard(p)
	}
}

// LeaseLost returns a channel that is closed once the worker has begun to stop all
// tasks because its lease was lost. The transport must then stop renewing the lease,
// and call Rejoin. After Rejoin, LeaseLost returns another channel.
func (w *Worker[T]) LeaseLost() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leasePeriod.ended
}

// StopTime returns the time that [WithLease] gives tasks to stop, 0 without a lease.
func (w *Worker[T]) StopTime() time.Duration { return w.cfg.stop }

// EndLease ends the lease before its time, because the coordinator has forgotten it or
// was replaced. The contexts of all tasks end immediately, with a cause that wraps
// ErrLeaseLost and cause, and the tasks have the usual time to stop. EndLease does
// nothing if the lease is already lost or the worker has stopped.
//
// Without WithLease it does the same, but calls no last resort.
func (w *Worker[T]) EndLease(cause error) {
	if cause != nil {
		cause = fmt.Errorf("%w: %w", ErrLeaseLost, cause)
	} else {
		cause = ErrLeaseLost
	}
	w.mu.Lock()
	logLoss := w.endLease(w.leasePeriod, cause)
	w.mu.Unlock()
	logLoss()
}

// endLease is EndLease with mu held. The caller calls logLoss when it has released mu.
func (w *Worker[T]) endLease(p *leasePeriod, cause error) (logLoss func()) {
	if p.leave != nil && !isClosed(p.ended) && !isClosed(p.stopped) {
		p.resort = lease.NewDeadline(min(w.cfg.stop, p.gone.Left()))
		p.resort.Extend(lease.Now())
		p.gone.End() // for Check
		p.leave.End()
	}
	return w.stopForLease(p, cause)
}

// stopForLease tells all tasks to stop because the lease is lost. The caller holds mu, and
// calls logLoss after it has released mu.
func (w *Worker[T]) stopForLease(p *leasePeriod, cause error) (logLoss func()) {
	if isClosed(p.ended) || isClosed(p.stopped) {
		return func() {}
	}
	close(p.ended) // before the stops, so that no task starts in a freed slot
	tasks := len(w.tasks)
	level := slog.LevelWarn
	if tasks == 0 && !p.begun { // it has not been granted: a transport that cannot join may try often
		level = slog.LevelDebug
	}
	w.stopEach(cause)
	w.settleIfEmpty()
	return func() {
		w.cfg.logger.Log(context.Background(), level, "lease lost, stopping all tasks", slog.Int("tasks", tasks), slog.Any("err", cause))
	}
}

// guard stops the tasks of a lease period before its lease ends. It returns when the
// lease period has ended.
func (w *Worker[T]) guard(p *leasePeriod) {
	<-p.leave.Done()
	w.mu.Lock()
	logLoss := w.stopForLease(p, ErrLeaseLost)
	resort := p.resort
	w.mu.Unlock()
	go logLoss()  // a logger that blocks must not delay the last resort
	resort.Left() // checks the clock: the machine may have been suspended past both deadlines
	select {
	case <-p.stopped:
	case <-resort.Done():
		w.lastResort(p)
	}
}

// lastResort calls the user's function with the tasks that have not stopped.
func (w *Worker[T]) lastResort(p *leasePeriod) {
	w.mu.Lock()
	left := make([]T, 0, len(w.tasks))
	if p == w.leasePeriod {
		for e := range w.entries() {
			left = append(left, e.name)
		}
	}
	w.mu.Unlock()
	if len(left) == 0 {
		return
	}
	if w.hooks.resort != nil {
		w.hooks.resort(left) // before the log, which may block
	}
	w.cfg.logger.Error("tasks not stopped, lease about to end", slog.Any("tasks", left))
}

// Rejoin waits until all tasks have stopped, and then starts over with no tasks and
// a new Incarnation. With WithLease the worker accepts tasks again once a Sending
// after Rejoin has been acknowledged. If the lease is not lost yet, Rejoin ends
// it as EndLease(nil) does. The worker keeps the fence against earlier terms.
//
// The transport must stop requesting the former lease before Rejoin, because a call
// of Sending after Rejoin belongs to the next lease.
//
// A write that began before Rejoin does not take effect after it. If ctx ends before
// all tasks have stopped, the error counts the remaining tasks and wraps the cause
// of ctx; Rejoin may then be called again. If the worker is closed, the error wraps
// ErrClosed.
func (w *Worker[T]) Rejoin(ctx context.Context) error {
	w.mu.Lock()
	p, logLoss := w.leasePeriod, func() {}
	if !w.closed {
		logLoss = w.endLease(p, ErrLeaseLost)
	}
	w.mu.Unlock()
	logLoss()
	if err := w.awaitEmpty(ctx, p); err != nil {
		return fmt.Errorf("rejoin: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return fmt.Errorf("rejoin: %w", ErrClosed)
	case w.leasePeriod == p: // otherwise a concurrent Rejoin was faster
		w.leasePeriod = w.newLeasePeriod()
		w.leases.Rejoins++
	}
	return nil
}

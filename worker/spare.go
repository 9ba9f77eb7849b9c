package worker

// Spare time: the worker calls a function while a slot is free.

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/f8949c05/orchestrator/internal/panics"
)

// WithSpareTime sets a function f to call while a slot is free, which means that no
// task waits for one. f is called at most once per interval every, from one
// goroutine that runs no task. It is meant for side jobs that have no owner, such as
// those of package recruit:
//
//	worker.WithSpareTime(time.Second, func(ctx context.Context) { r.Enlist(ctx) })
//
// This example draws at most once a second. At a rate of 0.01, which suits a web
// server, a job would run at most once in a hundred seconds. So use a separate
// recruiter, not shared with a web server, with rates that add up to almost 1.
//
// f and tasks do not wait for each other: a task that is added during a call of f
// starts immediately. f is not called while the worker may accept no task for lack
// of a lease. A worker without [WithSlots] always has a free slot.
//
// [Worker.Close] ends the context of f with the cause [ErrClosed], and waits at most
// one second until f has returned. A panic in f is logged, and f is called again.
//
// By default there is no such function and no such goroutine. The goroutine ends
// only with Close. every must be positive and f must not be nil.
func WithSpareTime(every time.Duration, f func(ctx context.Context)) Option {
	return optionFunc(func(c *config) {
		if every <= 0 {
			c.invalid("WithSpareTime(%v, …): must be positive", every)
		}
		if f == nil {
			c.invalid("WithSpareTime(%v, nil): must be a function", every)
		}
		c.spare = spareTime{every: every, f: f}
	})
}

// spareTime holds the arguments of WithSpareTime; zero: none.
type spareTime struct {
	every time.Duration
	f     func(ctx context.Context)
}

// spareTimer controls the goroutine that calls the function of WithSpareTime.
type spareTimer struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has ended
}

// newSpareTimer starts the goroutine, if there is a function to call.
func (w *Worker[T]) newSpareTimer() *spareTimer {
	ctx, cancel := context.WithCancelCause(context.Background())
	t := &spareTimer{cancel: cancel, done: make(chan struct{})}
	if w.cfg.spare.f == nil {
		cancel(nil)
		close(t.done)
		return t
	}
	go func() {
		defer close(t.done)
		w.callInSpareTime(ctx)
	}()
	return t
}

// callInSpareTime calls the function of WithSpareTime until ctx ends.
func (w *Worker[T]) callInSpareTime(ctx context.Context) {
	due := time.NewTimer(w.cfg.spare.every)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		}
		began := time.Now()
		if w.hasSpareTime() {
			w.callSpare(ctx)
		}
		// Count from the beginning of this call. A ticker keeps its own schedule,
		// and would call f twice in a row after a long call.
		due.Reset(w.cfg.spare.every - time.Since(began))
	}
}

// hasSpareTime reports whether a task that is added now would start immediately. If so,
// no task waits for a slot.
func (w *Worker[T]) hasSpareTime() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && w.checkLease() == nil && (w.cfg.slots == 0 || w.busy < w.cfg.slots)
}

// callSpare calls the user's function and recovers its panics.
func (w *Worker[T]) callSpare(ctx context.Context) {
	defer func() {
		if v := recover(); v != nil {
			w.cfg.logger.Error("spare time panicked", slog.Any("err", panics.Error(v)),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	w.cfg.spare.f(ctx)
}

// spareTimeout limits how long Close waits for the goroutine to end. The caller of
// Close may keep a lease alive until then, although no task needs it.
const spareTimeout = time.Second

// end waits until the goroutine has ended. The caller has cancelled its context.
func (t *spareTimer) end(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	default: // if both are done, success counts
	}
	ctx, cancel := context.WithTimeoutCause(ctx, spareTimeout, errBusy)
	defer cancel()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the function of WithSpareTime has not returned: %w", context.Cause(ctx))
	}
}

// errBusy is the cause if the function has not returned within spareTimeout.
var errBusy = fmt.Errorf("timed out after %v", spareTimeout)

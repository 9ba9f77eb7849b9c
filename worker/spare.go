package worker

// Spare time: what the worker does while it has nothing better to do.

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// WithSpareTime has f called when a slot is free and no task waits for one: at
// most once in every, from one goroutine, which is not that of any task. It is
// the moment for side jobs that nobody owns, as those of package recruit:
//
//	worker.WithSpareTime(time.Second, func(ctx context.Context) { r.Enlist(ctx) })
//
// That draws at most once a second: at a rate of 0.01, which suits a web server, a
// job would come at best once in a hundred seconds. Rates here should add up to 1
// or nearly so, in a recruiter that no web server draws from too.
//
// No task waits for f, and f for none: one that comes while f is called starts
// at once. Nor is f called while the worker may accept no task for want of its
// lease. A worker without [WithSlots] always has a slot free.
//
// f's context ends with [Worker.Close], with the cause [ErrClosed]; Close waits
// until f has returned, for a second at most. A panic in f is logged, and f is called again.
//
// Default: nothing is called, and there is no such goroutine; where there is one,
// only Close ends it. Range: every > 0; a nil f is out of range.
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

// spareTime is what WithSpareTime was given; the zero value: nothing.
type spareTime struct {
	every time.Duration
	f     func(ctx context.Context)
}

// idler is the goroutine that calls it.
type idler struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has ended
}

// newIdler starts the goroutine, if there is anything to call.
func (w *Worker[T]) newIdler() *idler {
	ctx, cancel := context.WithCancelCause(context.Background())
	i := &idler{cancel: cancel, done: make(chan struct{})}
	if w.cfg.spare.f == nil {
		cancel(nil)
		close(i.done)
		return i
	}
	go func() {
		defer close(i.done)
		w.idle(ctx)
	}()
	return i
}

func (w *Worker[T]) idle(ctx context.Context) {
	due := time.NewTimer(w.cfg.spare.every)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		}
		began := time.Now()
		if w.hasTime() {
			w.passTime(ctx)
		}
		// From one call's beginning to the next one's. A ticker would count from when
		// the first was due, and call twice in a row after one that took long.
		due.Reset(w.cfg.spare.every - time.Since(began))
	}
}

// hasTime reports whether a task that came now would start at once. None waits for
// a slot that is free.
func (w *Worker[T]) hasTime() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && w.holds() == nil && (w.cfg.slots == 0 || w.busy < w.cfg.slots)
}

// passTime calls the user's function, which must not take the worker down.
func (w *Worker[T]) passTime(ctx context.Context) {
	defer func() {
		if v := recover(); v != nil {
			w.cfg.logger.Error("spare time panicked", slog.Any("err", fmt.Errorf("panic: %v", v)),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	w.cfg.spare.f(ctx)
}

// sparePatience is how long the goroutine may take to end. Whoever closes the
// worker may hold a lease until then, without a task to hold it for.
const sparePatience = time.Second

// end waits until the goroutine has ended, which was told to.
func (i *idler) end(ctx context.Context) error {
	select {
	case <-i.done:
		return nil
	default: // over wins over a context that has ended
	}
	ctx, cancel := context.WithTimeoutCause(ctx, sparePatience, errBusy)
	defer cancel()
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the function of WithSpareTime has not returned: %w", context.Cause(ctx))
	}
}

// errBusy is why it is waited for no longer.
var errBusy = fmt.Errorf("it was given %v", sparePatience)

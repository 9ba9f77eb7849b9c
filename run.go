package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"time"
)

// The ticker around NextTerm.

// Run runs a term at once, then one every so often, and one whenever the
// expectations have changed and then been quiet for a moment (see
// [WithSettle]); a change during a term always leads to another one. Load the
// tasks before, or all at once with UpdateTasks.
//
// It returns when ctx is done, with its cause, or when the leader is deposed,
// with an error that wraps [ErrDeposed], after every call has ended that ends
// with its context or by its deadline. Failures of terms are logged, those that stay
// the same once a minute, and do not end it. They are logged at Warn, but at Info the
// first time if they are stops that workers rejected. every has to be positive.
func (o *Orchestrator[W, T]) Run(ctx context.Context, every time.Duration) error {
	if every <= 0 {
		return invalid("Run(every %v): must be above 0", every)
	}
	o.tick.Store(int64(every))
	defer o.tick.Store(0)
	if o.cfg.grace > 0 && o.cfg.grace < 2*every {
		o.cfg.logger.Warn("grace period shorter than two ticks, one missed answer loses a worker",
			"grace", o.cfg.grace, "every", every)
	}
	var failing reminder
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		o.seen()
		err := o.NextTerm(ctx)
		switch {
		case ctx.Err() != nil:
			err = causeOf(ctx)
			o.lines.end(err)
			return err
		case errors.Is(err, ErrDeposed):
			o.lines.end(err)
			return err
		}
		if err == nil {
			failing = reminder{}
		} else if omitted, due := failing.due(failuresOf[W, T](err), time.Now()); due {
			level := slog.LevelWarn
			if omitted == 0 && refusedStopsOnly[W, T](err) {
				level = slog.LevelInfo
			}
			o.cfg.logger.Log(ctx, level, "term had failures", withOmitted(omitted, "err", err)...)
		}
		o.wait(ctx, ticker.C)
	}
}

// refusedStopsOnly reports whether workers refused stops, and nothing else failed: jobs
// began to run, or ended, after they were listed. It happens where jobs move, and the
// next term sees it.
func refusedStopsOnly[W, T comparable](err error) bool {
	term, ok := errors.AsType[*TermError](err)
	return ok && !slices.ContainsFunc(term.Failures, func(failure error) bool {
		call, ok := errors.AsType[*CallError[W, T]](failure)
		return !ok || call.Op != OpRemove || !errors.Is(call, ErrRejected)
	})
}

// failuresOf is a key for what a term has failed in, and with whom: not how, since
// one cause is put into words in more than one way.
func failuresOf[W, T comparable](err error) string {
	term, ok := errors.AsType[*TermError](err)
	if !ok {
		return fmt.Sprint(err)
	}
	h := fnv.New64a()
	for _, failure := range term.Failures {
		if call, ok := errors.AsType[*CallError[W, T]](failure); ok {
			_, _ = fmt.Fprintln(h, call.Op, call.Worker, call.Task)
		} else {
			_, _ = fmt.Fprintln(h, failure)
		}
	}
	return string(h.Sum(nil))
}

// seen takes note of all changes so far: the term that begins now knows them.
func (o *Orchestrator[W, T]) seen() {
	select {
	case <-o.changed:
	default:
	}
}

// wait returns when the next term is due, or ctx is done.
func (o *Orchestrator[W, T]) wait(ctx context.Context, tick <-chan time.Time) {
	select {
	case <-ctx.Done():
		return
	case <-tick:
		return
	case <-o.changed:
	}
	settle := o.cfg.settle
	latest := time.NewTimer(settleAtMost * settle)
	defer latest.Stop()
	for {
		quiet := time.NewTimer(settle)
		select {
		case <-o.changed:
			quiet.Stop()
			continue
		case <-quiet.C:
		case <-latest.C:
		case <-tick:
		case <-ctx.Done():
		}
		quiet.Stop()
		return
	}
}

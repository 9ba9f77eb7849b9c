package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/loglimit"
)

// Run runs a term at once, then one every interval, and one when the expectations have
// changed and settled ([WithSettle]). A change during a term always leads to another
// term. Load the tasks before, or all at once with UpdateTasks.
//
// Run returns the cause of ctx when ctx is done, or an error that wraps [ErrDeposed]
// when the leader is deposed. It first waits until each call in flight has returned or
// reached its deadline. Failures of terms do not end Run. They are logged at Warn,
// unchanged ones once a minute. Failures that are only stops rejected by workers are
// logged at Info the first time. every must be positive.
func (o *Orchestrator[W, T]) Run(ctx context.Context, every time.Duration) error {
	if every <= 0 {
		return invalid("Run(every %v): must be above 0", every)
	}
	o.tick.Store(int64(every))
	defer o.tick.Store(0)
	if o.cfg.GracePeriod > 0 && o.cfg.GracePeriod < 2*every {
		o.cfg.logger.Warn("grace period shorter than two ticks, one missed answer loses a worker",
			"grace", o.cfg.GracePeriod, "every", every)
	}
	var failing loglimit.Limiter
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select { // the term sees what changed before
		case <-o.changed:
		default:
		}
		err := o.NextTerm(ctx)
		ended := ctx.Err() != nil
		if ended {
			err = causeOf(ctx)
		}
		if ended || errors.Is(err, ErrDeposed) {
			o.inflight.end(err)
			return err
		}
		if err == nil {
			failing.Reset()
		} else if omitted, ok := failing.Take(time.Now(), failuresOf[W, T](err)); ok {
			level := slog.LevelWarn
			if omitted == 0 && refusedStopsOnly[W, T](err) {
				level = slog.LevelInfo
			}
			o.cfg.logger.Log(ctx, level, "term had failures", "err", err, loglimit.Omitted(omitted))
		}
		o.wait(ctx, ticker.C)
	}
}

// refusedStopsOnly reports whether the only failures are stops that workers refused:
// jobs began to run, or ended, after they were listed. This is normal when jobs move,
// and the next term corrects it.
func refusedStopsOnly[W, T comparable](err error) bool {
	term, ok := errors.AsType[*TermError](err)
	return ok && !slices.ContainsFunc(term.Failures, func(failure error) bool {
		call, ok := errors.AsType[*CallError[W, T]](failure)
		return !ok || call.Op != OpRemove || !errors.Is(call, ErrRejected)
	})
}

// failuresOf returns a key of the failed calls of a term. It leaves out the causes,
// because the text of one cause varies.
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

// wait returns when the next term is due, or ctx is done.
func (o *Orchestrator[W, T]) wait(ctx context.Context, tick <-chan time.Time) {
	select {
	case <-ctx.Done():
		return
	case <-tick:
		return
	case <-o.changed:
	}
	latest := time.After(settleAtMost * o.cfg.Settle)
	for {
		select {
		case <-o.changed:
			continue
		case <-time.After(o.cfg.Settle):
		case <-latest:
		case <-tick:
		case <-ctx.Done():
		}
		return
	}
}

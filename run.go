package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator/internal/loglimit"
)

// Run runs terms until ctx ends; the workers run on. It runs a term at once, then one every
// interval, and one when the expectations have changed, or the initial wait has ended, and
// settled ([WithSettle]). A change during a term always leads to another term. Load the tasks
// before, or all at once with UpdateTasks.
//
// Run returns the cause of ctx when ctx is done, or an error that wraps [ErrDeposed]
// when the leader is deposed. It first waits until each call in flight has returned or
// reached its deadline. Failures of terms do not end Run. They are logged at Warn, those of
// one task, or of one worker, once a minute. Failures that are only stops rejected by workers
// are logged at Info the first time. every must be positive.
func (o *Orchestrator[W, T]) Run(ctx context.Context, every time.Duration) error {
	if every <= 0 {
		return invalid("Run(every %v): must be above 0", every)
	}
	o.tick.Store(int64(every))
	defer o.tick.Store(0)
	over := new(atomic.Bool)
	o.runOver.Store(over)
	defer func() { o.runOver.Store(nil); over.Store(true) }()
	if o.cfg.GracePeriod > 0 && o.cfg.GracePeriod < 2*every {
		o.cfg.logger.Warn("grace period shorter than two ticks, one missed answer loses a worker",
			"grace", o.cfg.GracePeriod, "every", every)
	}
	failing := failureLog{at: make(map[failureKey]time.Time)}
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
		if omitted, ok := failing.take(time.Now(), failuresOf[W, T](err)); ok {
			level := slog.LevelWarn
			if omitted == 0 && refusedStopsOnly[W, T](err) {
				level = slog.LevelInfo
			}
			term, _ := errors.AsType[*TermError](err)
			o.cfg.logger.Log(ctx, level, "term had failures", append(term.attrs(), "err", err, loglimit.Omitted(omitted))...)
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

// attrs returns the attributes of the term for the log. e may be nil.
func (e *TermError) attrs() []any {
	if e == nil {
		return nil
	}
	return []any{"epoch", e.Term.Epoch, "term", e.Term.Number}
}

// failureKey is what a failure is about: a worker that does not answer List ("list"), one to which
// writes fail ("worker"), their task ("task"), or a text ("").
type failureKey struct {
	kind string
	name any
}

// failuresOf returns what each failure of a term is about, in two ways. It leaves out the texts of
// calls, because that of one cause varies.
func failuresOf[W, T comparable](err error) (failures [][2]failureKey) {
	add := func(a, b failureKey) { failures = append(failures, [2]failureKey{a, b}) }
	all := []error{err}
	if term, ok := errors.AsType[*TermError](err); ok {
		all = term.Failures
	}
	for _, failure := range all {
		call, ok := errors.AsType[*CallError[W, T]](failure)
		switch {
		case failure == nil:
		case !ok:
			add(failureKey{"", failure.Error()}, failureKey{"", failure.Error()})
		case call.Op == OpList:
			add(failureKey{"list", call.Worker}, failureKey{"list", call.Worker})
		default:
			add(failureKey{"worker", call.Worker}, failureKey{"task", call.Task})
		}
	}
	return failures
}

// failureLog limits the lines about failures of terms: one a minute for a task that fails on any
// worker, and for a worker on which any task fails.
type failureLog struct {
	at      map[failureKey]time.Time // of the last line
	omitted int                      // terms since the last line
}

// take reports whether a line about the failures of a term may be logged now, and how many were
// omitted since the last one.
func (l *failureLog) take(now time.Time, failures [][2]failureKey) (omitted int, ok bool) {
	lasts := make(map[failureKey]bool)
	for _, f := range failures {
		lasts[f[0]] = true
	}
	maps.DeleteFunc(l.at, func(key failureKey, at time.Time) bool {
		writes := key.kind == "worker" || key.kind == "task" // these are tried again after a pause
		return now.Sub(at) >= time.Minute || !writes && !lasts[key]
	})
	for _, f := range failures {
		ok = ok || l.at[f[0]].IsZero() && l.at[f[1]].IsZero()
	}
	if !ok {
		l.omitted += min(1, len(failures))
		return 0, false
	}
	for _, f := range failures {
		l.at[f[0]], l.at[f[1]] = now, now
	}
	omitted, l.omitted = l.omitted, 0
	return omitted, true
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

package orchestrator

// Single calls to the Communicator: their contexts, and the meaning of their errors.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/internal/panics"
)

// callTimeout returns how long the context of a call lasts: a little less than the
// timeout, so that a call that honours its context has returned by then and does not
// count as stuck.
func callTimeout(timeout time.Duration) time.Duration {
	return timeout - timeout/10_000
}

// callContext returns the parent context of a term's calls: the values of ctx without
// its cancellation, and the term unless this is a dry run.
func (o *Orchestrator[W, T]) callContext(ctx context.Context, term Term) context.Context {
	ctx = context.WithoutCancel(ctx)
	if o.cfg.DryRun {
		return ctx
	}
	return ContextWithTerm(ctx, term)
}

// errPanic is the error of a call that panicked.
var errPanic = errors.New("the Communicator panicked")

// errGoexit is the error of a call that ended its goroutine.
var errGoexit = errors.New("the Communicator ended its goroutine")

// recovered turns a panic of the Communicator into the error of the call. Each call
// defers it, so that it also covers the methods of the returned error (T11).
func (o *Orchestrator[W, T]) recovered(err *error, op Op, w W) {
	if v := recover(); v != nil {
		text := panics.Text(v)
		o.cfg.logger.Error("communicator panicked", "op", op.String(), "worker", w,
			"err", text, slog.String("stack", string(debug.Stack())))
		*err = fmt.Errorf("%w: %s", errPanic, text)
	}
}

// classes are the errors that this package looks for in the error of a call and in the
// cause of a context.
var classes = []error{ErrDeposed, ErrRejected, ErrStale, ErrElsewhere, ErrStopping, ErrSilent, context.Canceled, context.DeadlineExceeded}

// mostWrapped bounds how many errors an error may wrap.
const mostWrapped = 10_000

// examined returns err after calling the methods that are called on it later: Error,
// Unwrap, and Is for each of the classes. If a method panics, so does examined. If err
// wraps itself, errors.Is would not return, so examined returns another error instead.
func examined(err error) error {
	if err == nil {
		return nil
	}
	if wrapped(err, 0) > mostWrapped {
		return fmt.Errorf("an error of type %T wraps itself, or more than %d errors", err, mostWrapped)
	}
	_ = err.Error()
	for _, class := range classes {
		_ = errors.Is(err, class)
	}
	return err
}

// wrapped returns n plus the number of errors in the tree of err. It stops above
// mostWrapped.
func wrapped(err error, n int) int {
	for err != nil && n <= mostWrapped {
		n++
		switch e := err.(type) { //nolint:errorlint // the tree is walked here
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, branch := range e.Unwrap() {
				n = wrapped(branch, n)
			}
			return n
		default:
			return n
		}
	}
	return n
}

// causeOf returns the cause of a context that is done. If a method of the cause
// panics, it returns an error that wraps the context's.
func causeOf(ctx context.Context) (cause error) {
	defer func() {
		if v := recover(); v != nil {
			cause = fmt.Errorf("%w: its cause panicked: %s", ctx.Err(), panics.Text(v))
		}
	}()
	return examined(context.Cause(ctx))
}

func (o *Orchestrator[W, T]) callList(ctx context.Context, w W) (list []T, err error) {
	defer o.recovered(&err, OpList, w)
	list, err = o.comm.List(ctx, w)
	return list, examined(err)
}

// callWrites makes the writes for one worker: one by Add or Remove, or any number
// through an Applier. It returns an error or nil for each write.
func (o *Orchestrator[W, T]) callWrites(ctx context.Context, w W, writes []Write[T]) []error {
	if o.applier != nil {
		return o.callApply(ctx, w, writes)
	}
	errs := make([]error, len(writes))
	for i, write := range writes {
		errs[i] = o.callWrite(ctx, w, write)
	}
	return errs
}

func (o *Orchestrator[W, T]) callWrite(ctx context.Context, w W, write Write[T]) (err error) {
	defer o.recovered(&err, write.Op, w)
	if write.Op == OpAdd {
		return examined(o.comm.Add(ctx, w, write.Task))
	}
	return examined(o.comm.Remove(ctx, w, write.Task))
}

func (o *Orchestrator[W, T]) callApply(ctx context.Context, w W, writes []Write[T]) []error {
	var panicked error
	errs := func() (errs []error) {
		defer o.recovered(&panicked, OpApply, w)
		return o.applier.Apply(ctx, w, writes)
	}()
	switch {
	case panicked != nil:
		return slices.Repeat([]error{panicked}, len(writes))
	case errs == nil:
		return make([]error, len(writes))
	case len(errs) != len(writes):
		return slices.Repeat([]error{fmt.Errorf("apply answered %d of %d writes", len(errs), len(writes))}, len(writes))
	}
	answers := make([]error, len(errs))
	for i, err := range errs {
		answers[i] = o.examinedWrite(err, writes[i].Op, w)
	}
	return answers
}

// examinedWrite examines the answer to one write of an Applier, so that a panic fails
// only that write.
func (o *Orchestrator[W, T]) examinedWrite(answer error, op Op, w W) (err error) {
	defer o.recovered(&err, op, w)
	return examined(answer)
}

// meaning classifies the error of a write.
func meaning(err error) handover.Result {
	switch {
	case err == nil:
		return handover.Done
	case errors.Is(err, ErrRejected):
		return handover.Refused
	case errors.Is(err, ErrStopping):
		return handover.Stopping
	}
	return handover.Unknown
}

// count adds a call's result to the statistics.
func (s *CallStats) count(err error, timedOut bool) {
	switch {
	case err == nil:
		s.Done++
	case errors.Is(err, ErrDeposed):
		s.Deposed++
	case errors.Is(err, ErrRejected):
		s.Rejected++
	case errors.Is(err, ErrStopping):
		s.Stopping++
	case timedOut:
		s.Timeout++
	default:
		s.Failed++
	}
}

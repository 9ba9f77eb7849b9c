package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// Single calls to the Communicator, and what their errors mean.

// errPanic is what a call has failed with that panicked.
var errPanic = errors.New("the Communicator panicked")

// errGoexit is what a call has failed with that ended its goroutine.
var errGoexit = errors.New("the Communicator ended its goroutine")

// recovered turns a panic of the Communicator into the error of the call.
func (o *Orchestrator[W, T]) recovered(err *error, op Op, w W) {
	if v := recover(); v != nil {
		o.cfg.logger.Error("communicator panicked", "op", op.String(), "worker", w,
			"err", fmt.Sprint(v), slog.String("stack", string(debug.Stack())))
		*err = fmt.Errorf("%w: %v", errPanic, v)
	}
}

func (o *Orchestrator[W, T]) callList(ctx context.Context, w W) (list []T, err error) {
	defer o.recovered(&err, OpList, w)
	return o.comm.List(ctx, w)
}

// callWrites makes the writes for one worker: one by Add or Remove, or any
// number through an Applier. It returns an error, or nil, for each.
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
		return o.comm.Add(ctx, w, write.Task)
	}
	return o.comm.Remove(ctx, w, write.Task)
}

func (o *Orchestrator[W, T]) callApply(ctx context.Context, w W, writes []Write[T]) []error {
	var panicked error
	errs := func() (errs []error) {
		defer o.recovered(&panicked, OpApply, w)
		return o.applier.Apply(ctx, w, writes)
	}()
	switch {
	case panicked != nil:
		return repeat(panicked, len(writes))
	case errs == nil:
		return make([]error, len(writes))
	case len(errs) != len(writes):
		return repeat(fmt.Errorf("apply answered %d of %d writes", len(errs), len(writes)), len(writes))
	}
	return errs
}

func repeat(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// meaning returns what the error of a write says about it.
func meaning(err error) handover.Answer {
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

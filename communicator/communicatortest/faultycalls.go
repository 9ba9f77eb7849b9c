package communicatortest

// The caller's side of the fault injector: the Communicator, and the one that is
// also an Applier.

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// faultyCalls is the Communicator of a Faulty.
type faultyCalls[W, T comparable] struct{ f *Faulty[W, T] }

// faultyApplier is the Communicator of a Faulty whose wrapped Communicator is an
// Applier.
type faultyApplier[W, T comparable] struct {
	faultyCalls[W, T]
	next orchestrator.Applier[W, T]
}

var (
	_ orchestrator.Communicator[int, int] = faultyCalls[int, int]{}
	_ orchestrator.Communicator[int, int] = faultyApplier[int, int]{}
	_ orchestrator.Applier[int, int]      = faultyApplier[int, int]{}
)

// List implements orchestrator.Communicator.
func (c faultyCalls[W, T]) List(ctx context.Context, worker W) ([]T, error) {
	var none T
	fault := c.f.fault(ctx, orchestrator.OpList, worker, none)
	if fault.none() {
		return c.f.next.List(ctx, worker)
	}
	a := c.f.carry(ctx, []Fault{fault}, func(ctx context.Context, _ []int) []answer[T] {
		tasks, err := c.f.next.List(ctx, worker)
		return []answer[T]{{tasks, err}}
	})[0]
	return a.tasks, a.err
}

// Add implements orchestrator.Communicator.
func (c faultyCalls[W, T]) Add(ctx context.Context, worker W, task T) error {
	return c.write(ctx, orchestrator.OpAdd, worker, task, c.f.next.Add)
}

// Remove implements orchestrator.Communicator.
func (c faultyCalls[W, T]) Remove(ctx context.Context, worker W, task T) error {
	return c.write(ctx, orchestrator.OpRemove, worker, task, c.f.next.Remove)
}

func (c faultyCalls[W, T]) write(ctx context.Context, op orchestrator.Op, worker W, task T,
	next func(context.Context, W, T) error,
) error {
	fault := c.f.fault(ctx, op, worker, task)
	if fault.none() {
		return next(ctx, worker, task)
	}
	return c.f.carry(ctx, []Fault{fault}, func(ctx context.Context, _ []int) []answer[T] {
		return []answer[T]{{err: next(ctx, worker, task)}}
	})[0].err
}

// Apply implements orchestrator.Applier.
func (c faultyApplier[W, T]) Apply(ctx context.Context, worker W, writes []orchestrator.Write[T]) []error {
	faults := make([]Fault, len(writes))
	clean := true
	for i, write := range writes {
		faults[i] = c.f.fault(ctx, write.Op, worker, write.Task)
		clean = clean && faults[i].none()
	}
	if clean {
		return c.next.Apply(ctx, worker, writes)
	}
	answers := c.f.carry(ctx, faults, func(ctx context.Context, calls []int) []answer[T] {
		some := make([]orchestrator.Write[T], len(calls))
		for j, i := range calls {
			some[j] = writes[i]
		}
		errs := c.next.Apply(ctx, worker, some)
		answers := make([]answer[T], len(calls))
		for j := range answers {
			switch {
			case len(errs) == len(calls):
				answers[j].err = errs[j]
			case errs != nil:
				answers[j].err = fmt.Errorf("%d writes were answered with %d errors", len(calls), len(errs))
			}
		}
		return answers
	})
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = a.err
	}
	return errs
}

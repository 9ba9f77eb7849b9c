package communicatortest

// The checks of an Applier: the way to make any check through Apply, and the checks of
// several writes in one call.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/f8949c05/orchestrator"
)

// viaApply is a Communicator that makes every write through Apply.
type viaApply[W, T comparable] struct {
	orchestrator.Communicator[W, T]
	orchestrator.Applier[W, T]
}

// Add applies one write.
func (a viaApply[W, T]) Add(ctx context.Context, worker W, task T) error {
	return a.one(ctx, worker, orchestrator.Write[T]{Op: orchestrator.OpAdd, Task: task})
}

// Remove applies one write.
func (a viaApply[W, T]) Remove(ctx context.Context, worker W, task T) error {
	return a.one(ctx, worker, orchestrator.Write[T]{Op: orchestrator.OpRemove, Task: task})
}

func (a viaApply[W, T]) one(ctx context.Context, worker W, write orchestrator.Write[T]) error {
	errs := a.Apply(ctx, worker, []orchestrator.Write[T]{write})
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return fmt.Errorf("one write was answered with %d errors, want 1, or nil", len(errs))
}

// apply applies writes to a worker, and returns exactly one answer for each.
func (k *kit[W, T]) apply(term orchestrator.Term, worker W, writes ...orchestrator.Write[T]) []error {
	k.Helper()
	given := slices.Clone(writes)
	ctx, cancel := k.callContext(term, k.Timeout)
	defer cancel()
	var errs []error
	ended := k.start(ctx, func(ctx context.Context) error {
		errs = k.applier.Apply(ctx, worker, given)
		return nil
	})()
	switch {
	case errors.Is(ended, errEndless):
		k.failf("Apply(%v, %v): %v", worker, writes, ended)
	case !slices.Equal(given, writes):
		k.failf("Apply(%v) changed its argument from %v to %v, want it unchanged", worker, writes, given)
	case errs == nil:
		return make([]error, len(writes))
	case len(errs) != len(writes):
		k.failf("Apply(%v, %v) answered with %d errors, want one for each of the %d writes, or nil",
			worker, writes, len(errs), len(writes))
	}
	return errs
}

// checkSeveralWrites applies adds and removes together.
func checkSeveralWrites[W, T comparable](k *kit[W, T]) {
	worker, a, b, c := k.Workers[0], k.Tasks[0], k.Tasks[1], k.Tasks[2]
	add, remove := orchestrator.OpAdd, orchestrator.OpRemove
	writes := [][]orchestrator.Write[T]{
		{{Op: add, Task: a}, {Op: add, Task: b}},
		{{Op: remove, Task: a}, {Op: add, Task: b}, {Op: add, Task: c}},
		{{Op: remove, Task: c}, {Op: remove, Task: a}, {Op: remove, Task: b}},
	}
	want := [][]T{{a, b}, {b, c}, {}}
	for i := range writes {
		for j, err := range k.apply(k.term, worker, writes[i]...) {
			if errors.Is(err, orchestrator.ErrStopping) {
				err = k.finish(writes[i][j].Op, worker, writes[i][j].Task)
			}
			if err != nil {
				k.failf("Apply(%v, %v) answered number %d with %q, want nil", worker, writes[i], j, err)
			}
		}
		k.listed(worker, "Apply answered nil for all its writes", want[i]...)
	}
}

// checkMixedAnswers applies a refused write among others.
func checkMixedAnswers[W, T comparable](k *kit[W, T]) {
	k.needs("Refuse", k.Refuse != nil, "a refusal that is done, or counts as unknown")
	for bad, worker := range k.Workers[:2] {
		k.undo(k.Refuse(worker, k.Tasks[bad]))
		writes := make([]orchestrator.Write[T], len(k.Tasks))
		for i, task := range k.Tasks {
			writes[i] = orchestrator.Write[T]{Op: orchestrator.OpAdd, Task: task}
		}
		for i, err := range k.apply(k.term, worker, writes...) {
			switch {
			case i == bad && !errors.Is(err, orchestrator.ErrRejected):
				k.failf("Apply(%v, %v) answered number %d, which the worker refuses, with %v, want an error that wraps ErrRejected",
					worker, writes, i, quote(err))
			case i != bad && err != nil:
				k.failf("Apply(%v, %v) answered number %d with %q, want nil: each write has its own answer, in the order of the writes",
					worker, writes, i, err)
			}
		}
		k.listed(worker, "Apply does each write that is not refused",
			slices.Concat(k.Tasks[:bad], k.Tasks[bad+1:])...)
	}
}

// checkEachWriteFenced applies several writes of earlier terms.
func checkEachWriteFenced[W, T comparable](k *kit[W, T]) {
	worker, absent, present, other := k.Workers[0], k.Tasks[0], k.Tasks[1], k.Tasks[2]
	k.add(worker, present)
	writes := []orchestrator.Write[T]{
		{Op: orchestrator.OpAdd, Task: absent},
		{Op: orchestrator.OpRemove, Task: present},
		{Op: orchestrator.OpAdd, Task: other},
	}
	fenced := func(past orchestrator.Term, want error) {
		k.Helper()
		k.list(worker)
		for i, err := range k.apply(past, worker, writes...) {
			k.refusedWith(err, want, fmt.Sprintf("write %d of Apply(%v, %v) %s", i, worker, writes, in(past)),
				"a later term was seen before")
		}
		k.listed(worker, "all writes of Apply were refused", present)
	}
	past := k.term
	k.nextTerm()
	fenced(past, orchestrator.ErrStale)
	fenced(orchestrator.Term{}, orchestrator.ErrStale)
	k.nextEpoch()
	fenced(past, orchestrator.ErrDeposed)
}

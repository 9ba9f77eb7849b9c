// Package communicator helps to implement an [orchestrator.Communicator].
//
// [Func] adapts three functions. Package memory, below this one, is an in-process
// cluster for tests and first steps. Package communicatortest is the conformance kit
// that every implementation should pass.
//
// # Wrappers
//
// A Communicator that wraps another, to log, count or limit its calls, must pass on:
//
//   - the context, which carries the call's term (see
//     [orchestrator.TermFromContext]) and collects pins. Without the term, workers refuse
//     the writes; without the pins, they refuse to stop jobs that run;
//   - the errors, wrapped or unchanged, because errors such as
//     orchestrator.ErrRejected determine what the orchestrator does next;
//   - the slice that List returns, because the same slice means "unchanged";
//   - [orchestrator.Applier], if and only if the wrapped Communicator implements it.
//     The orchestrator makes every write to an Applier through Apply. So a wrapper
//     that passes Apply through unwrapped sees no writes, and a wrapper that always
//     has Apply promises what it may not be able to do. Use two types, of which one
//     embeds the other.
//
// Every wrapper in this repository forwards Applier.
package communicator

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// Func is a Communicator made of functions. Each function must keep the contract of
// its method; see [orchestrator.Communicator] for concurrency and the ownership of
// slices. The fields must not be changed once the Func is in use.
//
// If a function is nil, its method returns an error that names it. The error of a
// write wraps [orchestrator.ErrRejected]: the write is certainly not done. A Func
// without AddFunc and RemoveFunc suffices for WithDryRun, which writes nothing.
type Func[W, T comparable] struct {
	ListFunc   func(ctx context.Context, worker W) ([]T, error)
	AddFunc    func(ctx context.Context, worker W, task T) error
	RemoveFunc func(ctx context.Context, worker W, task T) error
}

var _ orchestrator.Communicator[int, int] = Func[int, int]{}

// List calls ListFunc.
func (f Func[W, T]) List(ctx context.Context, worker W) ([]T, error) {
	if f.ListFunc == nil {
		return nil, fmt.Errorf("%w: communicator.Func has no ListFunc", orchestrator.ErrInvalid)
	}
	return f.ListFunc(ctx, worker)
}

// Add calls AddFunc.
func (f Func[W, T]) Add(ctx context.Context, worker W, task T) error {
	if f.AddFunc == nil {
		return missing("AddFunc")
	}
	return f.AddFunc(ctx, worker, task)
}

// Remove calls RemoveFunc.
func (f Func[W, T]) Remove(ctx context.Context, worker W, task T) error {
	if f.RemoveFunc == nil {
		return missing("RemoveFunc")
	}
	return f.RemoveFunc(ctx, worker, task)
}

func missing(name string) error {
	return fmt.Errorf("%w: %w: communicator.Func has no %s", orchestrator.ErrRejected, orchestrator.ErrInvalid, name)
}

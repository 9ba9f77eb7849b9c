package communicator

// Func, the adapter for plain functions.

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

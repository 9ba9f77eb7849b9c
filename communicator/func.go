package communicator

// Func, the adapter for plain functions.

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// Func is a Communicator made of functions, each of which has to keep the
// contract of the method that it stands for; for the concurrency of the calls
// and the ownership of slices see [orchestrator.Communicator]. The fields must
// not be changed once it is in use.
//
// Where a function is nil, its method returns an error that says so; a write
// is then certainly not done ([orchestrator.ErrRejected]). A Func without
// AddFunc and RemoveFunc is enough for WithDryRun, which writes nothing.
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

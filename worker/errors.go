package worker

// What the context of a task ends with, and what a task may end with.

import (
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// The causes that the context of a running task ends with, as context.Cause
// tells them.
var (
	// ErrRemoved is the cause where the task was removed.
	ErrRemoved = errors.New("the task was removed")

	// ErrClosed is the cause where the worker was closed.
	ErrClosed = errors.New("the worker was closed")

	// ErrLeaseLost is the cause where the worker can no longer be sure of its
	// lease (see WithLease): what it runs may soon run elsewhere. Check returns
	// it too.
	ErrLeaseLost = errors.New("the lease is lost")

	// ErrUpdated is the cause where the task is restarted in place, with new
	// content or under a new token.
	ErrUpdated = errors.New("the task was updated")

	// ErrReturned is the cause where the task's function has returned: it is
	// what ends the goroutines that the function left behind.
	ErrReturned = errors.New("the task's function has returned")
)

// ErrIncarnation is what a call is refused with that is meant for another
// incarnation of the worker (see ContextWithIncarnation). It wraps
// [orchestrator.ErrRejected].
var ErrIncarnation = fmt.Errorf("%w: the call is meant for another incarnation", orchestrator.ErrRejected)

// errNoLease is why a worker refuses what comes before its lease.
var errNoLease = errors.New("the worker's lease was not acknowledged yet")

// errGoexit is how a task failed whose function neither returned nor panicked.
var errGoexit = errors.New("the task's function called runtime.Goexit")

package worker

// The errors that a task's context ends with, and those that a task fails with.

import (
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// The causes with which the context of a running task ends, as returned by
// context.Cause.
var (
	// ErrRemoved is the cause if the task was removed.
	ErrRemoved = errors.New("the task was removed")

	// ErrClosed is the cause if the worker was closed.
	ErrClosed = errors.New("the worker was closed")

	// ErrLeaseLost is the cause if the worker may have lost its lease (see
	// WithLease), so that its tasks may soon run elsewhere. Check returns it too.
	ErrLeaseLost = errors.New("the lease is lost")

	// ErrUpdated is the cause if the task is restarted in place, with new content
	// or under a new token.
	ErrUpdated = errors.New("the task was updated")

	// ErrReturned is the cause if the task's function has returned. It ends the
	// goroutines that the function left behind.
	ErrReturned = errors.New("the task's function has returned")
)

// ErrIncarnation reports a call meant for another incarnation of the worker (see
// ContextWithIncarnation). It wraps [orchestrator.ErrRejected].
var ErrIncarnation = fmt.Errorf("%w: the call is meant for another incarnation", orchestrator.ErrRejected)

// errNoLease refuses writes that come before the lease is acknowledged.
var errNoLease = errors.New("the worker's lease is not acknowledged yet")

// errGoexit is the failure of a task whose function neither returned nor panicked.
var errGoexit = errors.New("the task's function called runtime.Goexit")

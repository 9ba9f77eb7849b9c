package orchestrator

import (
	"context"
	"fmt"
)

// Communicator reaches the workers. It is the one thing a user has to bring:
// an in-process cluster for tests is in communicator/memory, an adapter for
// three plain functions is communicator.Func, and communicatortest.Run checks
// whether an implementation keeps the contract below, clause by clause.
//
// # Concurrency
//
// (C1) The methods are called from many goroutines, for different workers at
// once; a call that hangs for one worker must not block a call for another.
// The orchestrator never makes two calls at once for the same worker.
//
// # Ownership
//
// (C2) The slice that List returns belongs to both sides from then on, and
// neither changes it. To return the very same slice again means "unchanged",
// and saves the orchestrator from comparing it.
//
// # Blocking
//
// (C3) A call ends when its context does. A term is protected from calls that
// do not: it goes on without them, and makes no further call to that worker
// until they have returned.
//
// # Meaning
//
// (C4) Add and Remove are idempotent: to add what runs, or to remove what does
// not, succeeds.
//
// (C5) A nil error means done: after Add the task is in List; after Remove it
// has stopped and is not in List.
//
// (C7) A worker remembers the highest [Term] that any call to it carried, List
// included, and refuses a write of a lower one, at the moment the write would
// be applied, also if it waited in a queue in between: with [ErrDeposed] where
// the write's epoch is lower, with [ErrStale] (which wraps [ErrRejected]) where
// only its number is. Once any term was seen, writes without one are refused
// with ErrStale too. So a write that was slow can never land after a later
// term has looked. A Remove that waits for its task to stop when a call of a
// higher epoch comes fails with ErrDeposed: the stop is the later leader's, and
// the first must not start the task elsewhere. worker.Worker does all this for
// every transport that hands the term through.
//
// A name stands for the process that AddWorker was called for. A transport that
// lets another process take over a name must not let a call reach it before
// RemoveWorker and AddWorker were called again: that process would run what its
// leader believes to have gone with the first.
//
// # Pinned tasks
//
// (C8) Within a call of List, [Pin] names tasks that must not be moved now, such as
// jobs that are running. A worker refuses, with ErrRejected, to stop a running job
// that its last List did not pin.
//
// # Errors
//
// (C6) The error of a call decides what the orchestrator may conclude:
//
//	nil           done (C5)
//	ErrDeposed    a higher epoch is known: the term ends, and the leader should
//	              stop. List may return it too. If its own term no longer waits
//	              for the call, the term under way ends, or the next one
//	ErrRejected   certainly not done, and it will not be
//	ErrStopping   a stop is under way and the task is still in List; not a failure.
//	              An Add with this answer will not start the task later
//	any other     unknown: it may have happened, may happen until the next List, or
//	              not at all; the next term looks
//
// They may be wrapped. If an error wraps several of them, the first of them counts.
//
// A call that panics fails with an unknown outcome, and the stack is logged. The
// same holds if Error, Is or Unwrap of the returned error panics, as with a nil
// pointer in an error: the orchestrator calls these methods before the call counts
// as returned. Of an [Applier], only the write with that error fails. An error that
// wraps itself, or more than 10,000 errors, is replaced by one that says so. Every
// other error reaches the caller of NextTerm as the same value, for errors.Is and
// errors.As.
type Communicator[W, T comparable] interface {
	// List returns the tasks that worker runs, in any order: what it was told
	// to run and has not stopped, whether queued, starting, running, between
	// two restarts, completed or stopping. Where a worker that joins is to get
	// some of it, that is what is listed first: so what costs least to move, such
	// as what only waits in a queue, should be.
	//
	// A name that cannot be compared, as a slice in an interface, or is not equal to
	// itself, as NaN, makes the answer unusable: it counts as a failed call.
	List(ctx context.Context, worker W) ([]T, error)
	// Add makes worker run task.
	Add(ctx context.Context, worker W, task T) error
	// Remove makes worker stop task, and returns when it has stopped.
	Remove(ctx context.Context, worker W, task T) error
}

// Applier is what a [Communicator] may also be: one call that carries several
// writes for one worker, for transports where a round trip costs more than its
// content. The orchestrator finds it by type assertion and then makes every
// write through it.
//
// Apply carries out the writes as if each had been a call of Add or Remove of
// its own, in any order or side by side, and answers for each, all together:
// with a slice of as many errors as there are writes, in their order, or with
// nil where all of them succeeded. An answer of any other length says nothing,
// and every write's outcome is then unknown. Writes names each task at most
// once and is not changed by either side. Everything in the contract of
// Communicator holds for Apply as well.
type Applier[W, T comparable] interface {
	Apply(ctx context.Context, worker W, writes []Write[T]) []error
}

// Write is one element of what an [Applier] applies.
type Write[T comparable] struct {
	// Op is OpAdd or OpRemove.
	Op   Op
	Task T
}

// Op is a kind of call to a worker.
type Op uint8

// The kinds of call. OpApply is a call that carries several writes; each of
// them is an OpAdd or an OpRemove.
const (
	OpList Op = iota + 1
	OpAdd
	OpRemove
	OpApply
)

// String returns the operation's name in lower case.
func (op Op) String() string {
	switch op {
	case OpList:
		return "list"
	case OpAdd:
		return "add"
	case OpRemove:
		return "remove"
	case OpApply:
		return "apply"
	}
	return fmt.Sprintf("op(%d)", uint8(op))
}

// MarshalText returns what String does.
func (op Op) MarshalText() ([]byte, error) { return []byte(op.String()), nil }

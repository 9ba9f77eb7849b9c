package rebalance

// The input, a Problem in dense integers, and the output, a Plan.

import (
	"errors"
	"fmt"
)

// State is how a worker may change.
type State uint8

// The states of a worker.
const (
	Open        State = iota // may gain, keep and lose
	Draining                 // loses every copy that has another place
	Frozen                   // keeps exactly its copies
	Quarantined              // may keep or lose, and gain up to Problem.MaxGain
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Open:
		return "open"
	case Draining:
		return "draining"
	case Frozen:
		return "frozen"
	case Quarantined:
		return "quarantined"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// NoLimit as [Problem.MaxMoves] does not limit the moves.
const NoLimit = -1

// None is the number of no worker.
const None int32 = -1

// Pair is a task and a worker.
type Pair struct{ Task, Worker int32 }

// Problem holds the wanted and the running copies. Tasks are the numbers from 0 to
// len(Want)-1, workers those from 0 to len(States)-1. The planner neither changes nor
// keeps the slices.
type Problem struct {
	// Want is, by task, the number of instances wanted, each on a different
	// worker. 0 means that the task is unexpected: all its copies stop, except
	// those on frozen workers.
	Want []int32
	// States holds, by worker, how it may change.
	States []State
	// Running lists, by worker, the tasks that it runs. The planner prefers to move the
	// first ones. A task listed twice counts once.
	Running [][]int32
	// Pinned is, by worker, how many tasks at the end of Running[w] are pinned; nil
	// means none. A pinned copy counts in the load and does not move, neither
	// for an even spread nor off a draining worker. It stops only if its task is
	// unexpected, or if stopping all other copies still leaves too many.
	Pinned []int32
	// MaxGain is, by worker, how many copies it may gain in this plan if it is
	// quarantined; nil means none. It gains no more than its even share, except
	// copies that no open worker has a place for. The planner ignores MaxGain for
	// workers in other states.
	MaxGain []int32
	// Forbidden lists pairs of a task and a worker that may not gain it. A copy that
	// already runs there may stay. The order does not matter, and a pair may be listed
	// twice.
	Forbidden []Pair
	// MoveLast lists copies whose moves come last: under MaxMoves they use the moves that
	// the others leave. Each pair is a task and the worker that runs it.
	MoveLast []Pair
	// MaxMoves is how many copies may move; 0 moves none, and a negative value, such as
	// NoLimit, is no limit. Starts of missing copies and stops of surplus ones are never
	// limited: a missing copy overfills a worker instead of waiting for a move. Repeated
	// calls converge.
	MaxMoves int
}

// ErrInvalid reports an inconsistent problem. The text names the field, the index and the
// value.
var ErrInvalid = errors.New("invalid problem")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// check returns the first inconsistency of the problem. It does not check the tasks in
// Running, because the scan visits them.
func (pr *Problem) check() error {
	if pr == nil {
		return invalid("nil")
	}
	if len(pr.Running) != len(pr.States) {
		return invalid("Running is for %d workers, States for %d", len(pr.Running), len(pr.States))
	}
	if pr.Pinned != nil && len(pr.Pinned) != len(pr.States) {
		return invalid("Pinned is for %d workers, States for %d", len(pr.Pinned), len(pr.States))
	}
	if pr.MaxGain != nil && len(pr.MaxGain) != len(pr.States) {
		return invalid("MaxGain is for %d workers, States for %d", len(pr.MaxGain), len(pr.States))
	}
	for w, s := range pr.States {
		if s > Quarantined {
			return invalid("States[%d] is %d", w, s)
		}
	}
	for w, n := range pr.Pinned {
		if n < 0 || int(n) > len(pr.Running[w]) {
			return invalid("Pinned[%d] is %d, Running[%d] lists %d tasks", w, n, w, len(pr.Running[w]))
		}
	}
	for w, n := range pr.MaxGain {
		if n < 0 {
			return invalid("MaxGain[%d] is %d", w, n)
		}
	}
	if err := pr.checkPairs("Forbidden", pr.Forbidden); err != nil {
		return err
	}
	return pr.checkPairs("MoveLast", pr.MoveLast)
}

func (pr *Problem) checkPairs(field string, pairs []Pair) error {
	for i, f := range pairs {
		if uint32(f.Task) >= uint32(len(pr.Want)) {
			return invalid("%s[%d].Task is %d, there are %d tasks", field, i, f.Task, len(pr.Want))
		}
		if uint32(f.Worker) >= uint32(len(pr.States)) {
			return invalid("%s[%d].Worker is %d, there are %d workers", field, i, f.Worker, len(pr.States))
		}
	}
	return nil
}

// Plan lists the changes to make. The planner owns its slices. They are valid until its
// next call.
type Plan struct {
	// Changes lists the starts and moves, and then the stops, in a fixed order.
	Changes []Change
	// Unplaced lists the wanted copies without a place, by task, and then the
	// copies that wait on a draining worker.
	Unplaced []Unplaced
	// Adds is the number of changes that start a copy, and Moves the number of these
	// that move one.
	Adds, Moves int
	// LowerBound is the fewest starts with which any plan could reach the same loads. If
	// MaxMoves defers moves, these are the loads without the deferred moves.
	LowerBound int
	// Deferred is the number of moves that MaxMoves left to later calls.
	Deferred int
}

// Change is one start, stop or move of a copy.
type Change struct {
	Task int32
	// From is the worker that loses the copy, None in a start. To is the worker
	// that gains it, None in a stop.
	From, To int32
	Reason   Reason
}

// Reason is why a copy starts, stops or moves.
type Reason uint8

// The reasons.
const (
	Missing    Reason = iota // start: fewer run than are wanted
	Unexpected               // stop: none is wanted
	Surplus                  // stop: more run than are wanted
	Rebalance                // move: for an even spread
	Drain                    // move: off a draining worker
)

// String returns the reason in lower case.
func (r Reason) String() string {
	switch r {
	case Missing:
		return "missing"
	case Unexpected:
		return "unexpected"
	case Surplus:
		return "surplus"
	case Rebalance:
		return "rebalance"
	case Drain:
		return "drain"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Unplaced is a number of copies of a task that have no place.
type Unplaced struct {
	Task, Copies int32
	// Worker is the draining worker on which the copy stays, or None.
	Worker int32
	Reason UnplacedReason
}

// UnplacedReason is the reason for which a copy has no place.
type UnplacedReason uint8

// The reasons for which a copy has no place.
const (
	// NoOpenWorker: no worker is open.
	NoOpenWorker UnplacedReason = iota
	// NoOtherWorker: every open worker already has a copy of the task.
	NoOtherWorker
	// NoAllowedWorker: the open workers without a copy may not gain one.
	NoAllowedWorker
	// CopyPinned: the copy is pinned to a draining worker.
	CopyPinned
)

// String returns the reason as the end of a sentence.
func (r UnplacedReason) String() string {
	switch r {
	case NoOpenWorker:
		return "no worker is open"
	case NoOtherWorker:
		return "every open worker already has a copy"
	case NoAllowedWorker:
		return "the other workers may not gain a copy"
	case CopyPinned:
		return "pinned"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

package rebalance

import (
	"errors"
	"fmt"
)

// What goes in: the problem, in dense integers.

// State is how a worker may change.
type State uint8

// The states of a worker.
const (
	Open     State = iota // may gain, keep and lose
	Draining              // ends empty, as far as its tasks have somewhere to go
	Frozen                // holds exactly what it holds
	Closed                // may keep or lose, not gain
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
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// NoLimit as [Problem.MaxMoves] lets every move be made.
const NoLimit = -1

// None stands for a worker where there is none.
const None int32 = -1

// Pair is a task and a worker.
type Pair struct{ Task, Worker int32 }

// Problem is what is wanted, and how things are. Tasks are the numbers from 0
// up to len(Want), workers those up to len(States). The planner changes none of
// its slices, and keeps none.
type Problem struct {
	// Want is, by task, how many instances are wanted, each on a worker of its
	// own. 0 means that the task is expected nowhere: all its copies go, except
	// those on frozen workers.
	Want []int32
	// States is, by worker, how it may change.
	States []State
	// Held is, by worker, the tasks that it runs, in any order. A task listed
	// twice counts once.
	Held [][]int32
	// Bounds is, by worker, how many tasks it may gain up to; negative means no
	// bound, and a nil slice none for anyone. What a worker holds beyond its
	// bound moves elsewhere, where there is room, and otherwise stays: a bound
	// is no reason to stop what runs. It applies to open workers.
	Bounds []int32
	// Forbidden lists the pairs in which the task may not be added to the
	// worker. A copy that is there already may stay. The order does not matter,
	// and a pair may be listed twice.
	Forbidden []Pair
	// MaxMoves is how many copies may be moved at most; 0 moves nothing, and a
	// negative value, such as NoLimit, is no limit. To start what is missing
	// and to stop what is too much is never limited: a missing copy rather
	// overfills a worker, also beyond its bound, than waits for a move. Repeated
	// calls converge, but for problems with Bounds: there a call may put off a
	// move that another waits for.
	MaxMoves int
}

// ErrInvalid says that a problem contradicts itself. The text names the field,
// the index and the value.
var ErrInvalid = errors.New("invalid problem")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// check returns what is wrong with the problem, but for the tasks in Held,
// which the scan looks at anyway.
func (pr *Problem) check() error {
	if pr == nil {
		return invalid("it is nil")
	}
	if len(pr.Held) != len(pr.States) {
		return invalid("Held is for %d workers, States for %d", len(pr.Held), len(pr.States))
	}
	if pr.Bounds != nil && len(pr.Bounds) != len(pr.States) {
		return invalid("Bounds is for %d workers, States for %d", len(pr.Bounds), len(pr.States))
	}
	for w, s := range pr.States {
		if s > Closed {
			return invalid("States[%d] is %d", w, s)
		}
	}
	for i, f := range pr.Forbidden {
		if uint32(f.Task) >= uint32(len(pr.Want)) {
			return invalid("Forbidden[%d].Task is %d, there are %d tasks", i, f.Task, len(pr.Want))
		}
		if uint32(f.Worker) >= uint32(len(pr.States)) {
			return invalid("Forbidden[%d].Worker is %d, there are %d workers", i, f.Worker, len(pr.States))
		}
	}
	return nil
}

package rebalance

import "fmt"

// The output: the plan.

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
	Why    Why
}

// Why is the reason for which a copy has no place.
type Why uint8

// The reasons for which a copy has no place.
const (
	// NoOpenWorker: no worker is open.
	NoOpenWorker Why = iota
	// NoOtherWorker: every open worker already has a copy of the task.
	NoOtherWorker
	// WhyForbidden: the open workers without a copy may not gain one.
	WhyForbidden
	// WhyPinned: the copy is pinned to a draining worker.
	WhyPinned
)

// String returns the reason as the end of a sentence.
func (w Why) String() string {
	switch w {
	case NoOpenWorker:
		return "no worker is open"
	case NoOtherWorker:
		return "every open worker already has a copy"
	case WhyForbidden:
		return "the other workers may not gain a copy"
	case WhyPinned:
		return "pinned"
	}
	return fmt.Sprintf("why(%d)", uint8(w))
}

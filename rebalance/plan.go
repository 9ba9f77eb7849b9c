package rebalance

import "fmt"

// What comes out: the plan.

// Plan is what has to change. Its slices belong to the planner, and are valid
// until its next call.
type Plan struct {
	// Changes holds the starts and moves, and then the stops, in a fixed order.
	Changes []Change
	// Unplaced holds the copies that are wanted and have no place, by task, and
	// then those that have to wait on a draining worker.
	Unplaced []Unplaced
	// Adds is how many changes start a copy, and Moves how many do so by
	// moving one.
	Adds, Moves int
	// LowerBound is how many starts any plan to the same end needs at least. A
	// limit on moves does not count: it is the bound of the whole plan.
	LowerBound int
	// Deferred is how many moves MaxMoves left to later calls.
	Deferred int
}

// Change is one start, stop or move of a copy.
type Change struct {
	Task int32
	// From is the worker that loses the copy, None in a start; To is the one
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
	// Worker is the draining one that the copy stays on, or None.
	Worker int32
	Why    Why
}

// Why is why a copy has no place.
type Why uint8

// The reasons why a copy has no place.
const (
	// NoOpenWorker: no worker is open.
	NoOpenWorker Why = iota
	// NoOtherWorker: every open worker has a copy of the task already.
	NoOtherWorker
	// WhyForbidden: those without a copy may not be given one.
	WhyForbidden
	// Bounded: those that may be given one are full.
	Bounded
)

// String returns the reason as the end of a sentence.
func (w Why) String() string {
	switch w {
	case NoOpenWorker:
		return "no worker is open"
	case NoOtherWorker:
		return "every open worker has one already"
	case WhyForbidden:
		return "the other workers may not have one"
	case Bounded:
		return "the workers that may have one are full"
	}
	return fmt.Sprintf("why(%d)", uint8(w))
}

package rebalance

// The input, a Problem in dense integers, and the output, a Plan.

import (
	"errors"
	"fmt"
	"math"
	"slices"
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

// NoTasks as an element of [Problem.MaxTasks] lets the worker run no copy.
const NoTasks = -1

// MaxWeight is the highest number that RoundWeight takes as it is.
const MaxWeight = 1 << 40

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
	// Class is, by task, its class, and Kind, by worker, its kind; nil means that all are 0.
	// May lists, by class, the kinds of the workers that may run its tasks, in ascending
	// order; a nil list admits all kinds, and so does a nil May. A copy that runs where
	// its class may not is evicted: it moves as off a draining worker.
	Class, Kind []int32
	May         [][]int32
	// Zone is, by worker, the number of its zone; nil means that there is one zone.
	Zone []int32
	// MaxPerZone is, by task, how many copies one zone may run; nil means 0 for all. 0 spreads
	// the copies over the zones (P13), and a negative number is no rule. It binds only if
	// there are at least two zones, or if it is above 0.
	MaxPerZone []int32
	// Share is, by worker, its part of the whole relative to the others, at least 1; nil
	// means 1 for all.
	Share []int32
	// MaxTasks is, by worker, how many copies it may run: nil or 0 means no limit, and NoTasks
	// none.
	MaxTasks []int32
	// Weight is, by task, what one copy takes; nil means 1 for all. Band is how far from its level a worker's load may be without a move, in
	// millionths; it is used only if weights differ.
	Weight []Weight
	Band   int32
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

// maxNumber is the highest number of a kind or a zone: the planner keeps a list for each.
const maxNumber = 1 << 24

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
	if err := pr.checkPairs("MoveLast", pr.MoveLast); err != nil {
		return err
	}
	return pr.checkRules()
}

// checkRules returns the first inconsistency of the rules.
func (pr *Problem) checkRules() error {
	for _, f := range []struct {
		name      string
		has, need int
	}{
		{"Class", len(pr.Class), len(pr.Want)},
		{"MaxPerZone", len(pr.MaxPerZone), len(pr.Want)},
		{"Weight", len(pr.Weight), len(pr.Want)},
		{"Kind", len(pr.Kind), len(pr.States)},
		{"Zone", len(pr.Zone), len(pr.States)},
		{"Share", len(pr.Share), len(pr.States)},
		{"MaxTasks", len(pr.MaxTasks), len(pr.States)},
	} {
		if f.has != 0 && f.has != f.need {
			return invalid("%s has %d elements instead of %d", f.name, f.has, f.need)
		}
	}
	lastClass := int64(math.MaxInt32)
	if pr.May != nil {
		lastClass = int64(len(pr.May)) - 1
	}
	for _, f := range []struct {
		name        string
		values      []int32
		least, most int64
	}{
		{"Class", pr.Class, 0, lastClass},
		{"Kind", pr.Kind, 0, maxNumber},
		{"Zone", pr.Zone, 0, maxNumber},
		{"Share", pr.Share, 1, math.MaxInt32},
		{"MaxTasks", pr.MaxTasks, int64(NoTasks), math.MaxInt32},
	} {
		if i := outside(f.values, f.least, f.most); i >= 0 {
			return invalid("%s[%d] is %d, which is not between %d and %d", f.name, i, f.values[i], f.least, f.most)
		}
	}
	for c, kinds := range pr.May {
		if !slices.IsSorted(kinds) || len(kinds) > 0 && kinds[0] < 0 {
			return invalid("May[%d] is not in ascending order from 0", c)
		}
	}
	if pr.Band < 0 {
		return invalid("Band is %d", pr.Band)
	}
	return nil
}

// outside returns the index of the first number that is not between least and most, or -1.
func outside(numbers []int32, least, most int64) int {
	signs := int64(0) // negative if one is outside: a branch for each would take twice as long
	for _, n := range numbers {
		signs |= (int64(n) - least) | (most - int64(n))
	}
	if signs >= 0 {
		return -1
	}
	return slices.IndexFunc(numbers, func(n int32) bool { return int64(n) < least || int64(n) > most })
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
	// If weights differ, Highest is the highest load by share, and no placement of the same
	// copies gets below HighestBound. MovesBound is at most the
	// number of moves of any plan whose highest and lowest load by share are no worse, in
	// each pool of workers of the same level. It is 0 if a copy has no place. They are not
	// set if the plan is empty because every worker is in band.
	Highest, HighestBound Use
	MovesBound            int
	// Loads holds, by worker, what it runs by weight when the plan is carried out, and its
	// level. It is nil unless weights differ.
	Loads []Load
}

// Load is what a worker runs by weight. Level is what it should run (P17), or 0 if it drains
// or is frozen.
type Load struct{ Weight, Level int64 }

// Use is a load by share.
type Use struct{ Load, Share int64 }

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
	EvictLabel               // move: off a worker that may not run the task
	EvictZone                // move: out of a zone with too many copies
	EvictLimit               // move: off a worker with more tasks than its limit
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
	case EvictLabel:
		return "requires"
	case EvictZone:
		return "zone"
	case EvictLimit:
		return "limit"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Unplaced is a number of copies of a task that have no place.
type Unplaced struct {
	Task, Copies int32
	// Worker is the worker on which the copy stays although it should leave, or None.
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
	// NoPlaceByRules: labels, zones or limits leave no worker for the copy. If the copy runs,
	// Worker is the one from which a rule evicts it, and on which it stays.
	NoPlaceByRules
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
	case NoPlaceByRules:
		return "labels, zones or limits leave no worker"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

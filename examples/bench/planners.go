//go:build peers

package main

// The planners: their interface, this library's, and the check of every plan.

import (
	"fmt"
	"math"

	"github.com/f8949c05/orchestrator/rebalance"
)

// planner is a participant in the comparison.
type planner struct {
	name string
	// even: the planner promises loads that differ by at most one.
	even bool
	// warm: an untimed plan of the same problem precedes the timed one.
	warm bool
	// takes returns the maximum number of rounds in which it takes part; 0 means
	// none.
	takes func(size, event) int
	// prepare converts the problem to the planner's own form, untimed. before is the
	// number of workers before the event.
	prepare func(now fleet, before int) (attempt, error)
}

// attempt is a problem in a planner's own form.
type attempt struct {
	found fleet        // the moves of the plan are counted from it
	plan  func() error // timed
	// placed returns the tasks of each worker after the plan.
	placed func() ([][]int32, error)
	// changes returns the number of changes in the plan. It is nil if that is
	// unknown.
	changes func() int
}

// judge computes the outcome of the last plan. If the planner promised even loads,
// judge fails unless they differ by at most one.
func (a attempt) judge(even bool) (outcome, error) {
	placed, err := a.placed()
	if err != nil {
		return outcome{}, err
	}
	o, err := judge(a.found, placed)
	if err == nil && even && o.spread > 1 {
		err = fmt.Errorf("promised even loads, but the spread is %d", o.spread)
	}
	return o, err
}

// us is the name of this library in tables. usAlone names its race against the scan
// alone.
const (
	us        = "this library"
	usAlone   = us + ", with the scan only"
	usAtFirst = us + ", its first plan"
)

// always makes a planner take part in every round.
func always(size, event) int { return math.MaxInt }

// ours reuses one Planner, as the orchestrator does.
func ours() planner {
	return planner{
		name:    us,
		even:    true,
		warm:    true,
		takes:   always,
		prepare: func(now fleet, _ int) (attempt, error) { return now.attempt(false), nil },
	}
}

// oursAtFirst plans a cold start with a new Planner each time, which must allocate
// its memory. This is the first term of a leader.
func oursAtFirst() planner {
	return planner{
		name: usAtFirst,
		even: true,
		takes: func(s size, e event) int {
			if e.name != cold.name {
				return 0
			}
			return always(s, e)
		},
		prepare: func(now fleet, _ int) (attempt, error) { return now.attempt(true), nil },
	}
}

// attempt returns the fleet as a problem for one Planner, or for a new one each time
// if anew is true.
func (f fleet) attempt(anew bool) attempt {
	pr := f.problem()
	keeper, plan := new(rebalance.Planner), rebalance.Plan{}
	return attempt{
		found: f,
		plan: func() (err error) {
			if anew {
				keeper = new(rebalance.Planner)
			}
			plan, err = keeper.Plan(pr)
			return err
		},
		placed: func() ([][]int32, error) {
			if plan.Adds != plan.LowerBound {
				return nil, fmt.Errorf("%d starts, want %d", plan.Adds, plan.LowerBound)
			}
			return f.after(plan), nil
		},
		changes: func() int { return len(plan.Changes) },
	}
}

// problem returns the fleet in the form of this library's planner.
func (f fleet) problem() *rebalance.Problem {
	return &rebalance.Problem{
		Want: f.want, States: make([]rebalance.State, f.workers()), Running: f.held, MaxMoves: rebalance.NoLimit,
	}
}

// after returns the tasks of each worker after the plan.
func (f fleet) after(plan rebalance.Plan) [][]int32 {
	gone, come := make([][]int32, f.workers()), make([][]int32, f.workers())
	for _, c := range plan.Changes {
		if c.From != rebalance.None {
			gone[c.From] = append(gone[c.From], c.Task)
		}
		if c.To != rebalance.None {
			come[c.To] = append(come[c.To], c.Task)
		}
	}
	stamps := make([]int32, len(f.want)) // by task, the last worker that gave it up or lists it, plus one
	placed := make([][]int32, f.workers())
	for w, list := range f.held {
		for _, t := range gone[w] {
			stamps[t] = int32(w + 1)
		}
		for _, t := range list {
			if stamps[t] != int32(w+1) {
				stamps[t] = int32(w + 1) // a task listed twice runs once
				placed[w] = append(placed[w], t)
			}
		}
		placed[w] = append(placed[w], come[w]...)
	}
	return placed
}

// The outcome of a plan, computed from the plan alone, so that a fast but wrong
// planner fails.

// outcome is the quality of a plan.
type outcome struct {
	spread int // the largest load minus the smallest
	moves  int // copies that start on a worker that did not run them before
}

// worse returns the worse value of each field.
func (o outcome) worse(p outcome) outcome {
	return outcome{max(o.spread, p.spread), max(o.moves, p.moves)}
}

// judge computes the outcome of a plan that leaves the workers of a fleet with the
// tasks in placed. It fails unless every task is on as many different workers as
// wanted, or on all workers if there are fewer.
func judge(now fleet, placed [][]int32) (outcome, error) {
	if len(placed) != now.workers() {
		return outcome{}, fmt.Errorf("the plan has %d workers, want %d", len(placed), now.workers())
	}
	copies := make([]int32, len(now.want))
	ran := make([]int32, len(now.want))  // by task, the last worker that ran it, plus one
	runs := make([]int32, len(now.want)) // by task, the last worker that should run it, plus one
	least, most, moves := len(now.want)+1, 0, 0
	for w, list := range placed {
		stamp := int32(w + 1)
		for _, t := range now.held[w] {
			ran[t] = stamp
		}
		for _, t := range list {
			if t < 0 || int(t) >= len(copies) {
				return outcome{}, fmt.Errorf("worker %d should run task %d, which does not exist", w, t)
			}
			if runs[t] == stamp {
				return outcome{}, fmt.Errorf("worker %d should run task %d twice", w, t)
			}
			runs[t] = stamp
			copies[t]++
			if ran[t] != stamp {
				moves++
			}
		}
		least, most = min(least, len(list)), max(most, len(list))
	}
	for t, n := range copies {
		if want := min(int(now.want[t]), now.workers()); int(n) != want {
			return outcome{}, fmt.Errorf("task %d is on %d workers, want %d", t, n, want)
		}
	}
	return outcome{most - least, moves}, nil
}

// The variants of franz-go in which only planning is timed.
const (
	franzGoOne  = "franz-go, one topic"
	franzGoMany = "franz-go, 100 topics"
)

// byWorker turns the owner of each task into the tasks of each worker.
func byWorker(owners []int32, workers int) [][]int32 {
	placed := make([][]int32, workers)
	for t, w := range owners {
		placed[w] = append(placed[w], int32(t))
	}
	return placed
}

// scramble is the finalizer of SplitMix64, a hash of a number.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

package main

import (
	"fmt"
	"math"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This library's planner, and what every planner is to the comparison.

// planner is one of those that are compared.
type planner struct {
	name string
	// even says that it promises loads that differ by one at most.
	even bool
	// warm says that it is timed right after an untimed plan of the same.
	warm bool
	// takes says in how many rounds it takes part at most; 0 is in none.
	takes func(size, event) int
	// prepare does what does not count: it brings the problem into the
	// planner's own form. before is the number of workers that there were.
	prepare func(now fleet, before int) (attempt, error)
}

// attempt is a problem in a planner's own form.
type attempt struct {
	found fleet        // what the plan's moves are counted from
	plan  func() error // is timed
	// placed says what the plan has each worker run.
	placed func() ([][]int32, error)
	// changes says how many changes the plan has; nil where it does not say.
	changes func() int
}

// judge works out the last plan's outcome. Where the planner promised loads that
// differ by one at most, it fails unless they do.
func (a attempt) judge(even bool) (outcome, error) {
	placed, err := a.placed()
	if err != nil {
		return outcome{}, err
	}
	o, err := judge(a.found, placed)
	if err == nil && even && o.spread > 1 {
		err = fmt.Errorf("promised to be even, and has a spread of %d", o.spread)
	}
	return o, err
}

// us is what this library is called in tables; usAlone where nobody but the scan
// takes turns with it.
const (
	us        = "this library"
	usAlone   = us + ", with the scan only"
	usAtFirst = us + ", its first plan"
)

// always is to take part in every round.
func always(size, event) int { return math.MaxInt }

// ours plans with one Planner over and over, as the orchestrator does.
func ours() planner {
	return planner{
		name:    us,
		even:    true,
		warm:    true,
		takes:   always,
		prepare: func(now fleet, _ int) (attempt, error) { return now.attempt(false), nil },
	}
}

// oursAtFirst plans a cold start with a new Planner each time, which has to come
// by its memory: what the first term of a leader sees.
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

// attempt is the fleet as a problem for one Planner, or for a new one each time.
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
				return nil, fmt.Errorf("%d starts, where %d would do", plan.Adds, plan.LowerBound)
			}
			return f.after(plan), nil
		},
		changes: func() int { return len(plan.Changes) },
	}
}

// problem is the fleet as the planner of this library takes it.
func (f fleet) problem() *rebalance.Problem {
	return &rebalance.Problem{
		Want: f.want, States: make([]rebalance.State, f.workers()), Held: f.held, MaxMoves: rebalance.NoLimit,
	}
}

// after is what the workers run when the plan has been carried out.
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
	stamps := make([]int32, len(f.want)) // the last worker that it has left or is listed by, plus one
	placed := make([][]int32, f.workers())
	for w, list := range f.held {
		for _, t := range gone[w] {
			stamps[t] = int32(w + 1)
		}
		for _, t := range list {
			if stamps[t] != int32(w+1) {
				stamps[t] = int32(w + 1) // what is listed twice runs once
				placed[w] = append(placed[w], t)
			}
		}
		placed[w] = append(placed[w], come[w]...)
	}
	return placed
}

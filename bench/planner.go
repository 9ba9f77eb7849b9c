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

// What came of a plan, worked out from the plan alone: a planner that is fast
// and wrong is not fast.

// outcome is how good a plan is.
type outcome struct {
	spread int // the largest load less the smallest
	moves  int // copies that start on a worker that did not run them
}

// worse returns, of two outcomes, the worse in either respect.
func (o outcome) worse(p outcome) outcome {
	return outcome{max(o.spread, p.spread), max(o.moves, p.moves)}
}

// judge works out the outcome of a plan that leaves the workers of a fleet with
// the tasks in placed. It fails where the plan is not whole: every task on as
// many different workers as are wanted, or on all where there are fewer.
func judge(now fleet, placed [][]int32) (outcome, error) {
	if len(placed) != now.workers() {
		return outcome{}, fmt.Errorf("the plan is for %d workers of %d", len(placed), now.workers())
	}
	copies := make([]int32, len(now.want))
	ran := make([]int32, len(now.want))  // the last worker that ran it, plus one
	runs := make([]int32, len(now.want)) // the last worker that is to run it, plus one
	least, most, moves := len(now.want)+1, 0, 0
	for w, list := range placed {
		stamp := int32(w + 1)
		for _, t := range now.held[w] {
			ran[t] = stamp
		}
		for _, t := range list {
			if t < 0 || int(t) >= len(copies) {
				return outcome{}, fmt.Errorf("worker %d is to run task %d: there is no such task", w, t)
			}
			if runs[t] == stamp {
				return outcome{}, fmt.Errorf("worker %d is to run task %d twice", w, t)
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
			return outcome{}, fmt.Errorf("task %d is to run on %d workers in place of %d", t, n, want)
		}
	}
	return outcome{most - least, moves}, nil
}

// The hard cases: problems that have to be searched, not only passed over.

// hardCase is one, with what a throw-away prototype of the same algorithm took
// for it when the algorithm was chosen, in multiples of its scan of a million
// pairs: that took it 8 to 10 ms, and the cases 15 to 20, 140 to 220 and 40 to
// 46 ms; the multiples are the larger one of best by best and worst by worst.
type hardCase struct {
	name      string
	prototype float64
	fleet     func(size) fleet
}

var hardCases = []hardCase{
	{"1% over-replicated", 2.0, func(s size) fleet { return s.even().hundredthOver() }},
	{"random over-replication", 22, func(s size) fleet { return s.even().scattered(s.instances * 3 / 2) }},
	{"wants near the number of workers", 5.0, func(s size) fleet { return crowded(s.instances/100, 100) }},
}

// hard is what came of one case.
type hard struct {
	hardCase
	pairs, workers int
	scan, ownScan  samples // of the even fleet; of the case itself
	took           samples
	outcome        outcome
}

// measureHard measures the hard cases that go with size s.
func measureHard(cfg config, s size) ([]hard, error) {
	var found []hard
	even := s.even()
	for _, c := range hardCases {
		cfg.log("hard cases of %s: %s", s, c.name)
		now := c.fleet(s)
		h := hard{hardCase: c, pairs: now.pairs(), workers: now.workers()}
		a := now.attempt(false)
		times, err := race(cfg.rounds, []entrant{
			{name: "scan", warm: true, run: newScan(even).run},
			{name: "its scan", warm: true, run: newScan(now).run},
			{name: us, warm: true, run: a.plan},
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		if h.outcome, err = a.judge(true); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		h.scan, h.ownScan, h.took = times[0], times[1], times[2]
		found = append(found, h)
	}
	return found, nil
}

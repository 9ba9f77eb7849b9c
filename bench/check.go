package main

import "fmt"

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

package orchestrator

import (
	"cmp"
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/internal/standing"
	"github.com/f8949c05/orchestrator/rebalance"
)

// Suspects: tasks that failed to start though the worker was not to blame (T9).
//
// Each try of such a task goes to another worker, and where that has its share
// already, an even plan makes room: something healthy would be moved out of the
// way, for a task that then fails again, try after try. So the plan is made
// without what is missing of suspects, and that is started on top of it. Where it
// runs at last, the next term makes the spread even.

// suspect is a task, and how many of its instances are to be tried.
type suspect struct{ task, missing int32 }

// setAside has the planner want no more of each suspect than there is. One pass
// over what everybody holds, where there are any suspects.
func (d *decider[W, T]) setAside() {
	p := &d.problem
	d.suspects = d.suspects[:0]
	round := d.fleet.nextRound()
	for _, task := range d.book.Suspects() {
		if d.expect.expected(task) {
			d.suspects = append(d.suspects, suspect{task: task})
			d.fleet.stamps[task] = round
		}
	}
	if len(d.suspects) == 0 {
		return
	}
	copies := make(map[int32]int32, len(d.suspects))
	d.suspected = make(map[standing.Pair]bool)
	for w, held := range p.Held {
		for _, task := range held {
			if d.fleet.stamps[task] != round {
				continue
			}
			if pair := d.pair(task, w); !d.suspected[pair] {
				d.suspected[pair] = true
				copies[task]++
			}
		}
	}
	d.capped = append(d.capped[:0], p.Want...)
	for i := range d.suspects {
		s := &d.suspects[i]
		s.missing = max(0, d.capped[s.task]-copies[s.task])
		d.capped[s.task] -= s.missing
	}
	p.Want = d.capped
}

// pair is a task and a worker, as the planner numbers it.
func (d *decider[W, T]) pair(task int32, w int) standing.Pair {
	return standing.Pair{Task: task, Worker: d.fleet.workers[d.index[w]].serial}
}

// tryOut starts what is missing of the suspects, on the open workers that have
// the least once the plan is carried out. O(workers · log(workers)), and a step
// for each change of the plan, each start, and each pair that is passed over.
func (d *decider[W, T]) tryOut() {
	d.suspects = slices.DeleteFunc(d.suspects, func(s suspect) bool { return s.missing == 0 })
	if len(d.suspects) == 0 {
		return
	}
	d.gaining()
	open := d.leastLoaded()
	next := 0
	for _, s := range d.suspects {
		why := ReasonNoOtherWorker
		if len(open) == 0 {
			why = ReasonNoWorker
		}
		for range len(open) {
			if s.missing == 0 {
				break
			}
			w := open[next]
			next = (next + 1) % len(open)
			pair := d.pair(s.task, w)
			if d.suspected[pair] {
				continue
			}
			if d.book.Avoided(pair, d.term) {
				why = ReasonAvoided
				continue
			}
			s.missing--
			d.out.adds++
			d.out.lowerBound++
			d.out.missing++
			d.out.changes = append(d.out.changes, change{
				Change: handover.Change{Task: s.task, From: handover.None, To: d.index[w]},
				reason: d.missing(s.task),
			})
		}
		if s.missing > 0 {
			d.out.missing += int(s.missing)
			d.out.unplaced += int(s.missing)
			d.out.waiting = append(d.out.waiting, waiting{s.task, int(s.missing), why, handover.None})
		}
	}
}

// leastLoaded returns the open workers, as the planner numbers them, those
// first that have the least when the plan is carried out.
func (d *decider[W, T]) leastLoaded() (open []int) {
	after := make([]int, len(d.fleet.workers))
	for i, w := range d.fleet.workers {
		after[i] = len(w.runs)
	}
	for i := range d.out.changes {
		c := &d.out.changes[i]
		if c.From != handover.None {
			after[c.From]--
		}
		if c.To != handover.None {
			after[c.To]++
		}
	}
	for w, state := range d.problem.States {
		if state == rebalance.Open {
			open = append(open, w)
		}
	}
	slices.SortStableFunc(open, func(v, w int) int { return cmp.Compare(after[d.index[v]], after[d.index[w]]) })
	return open
}

// gaining takes note of to whom the plan moves copies of suspects.
func (d *decider[W, T]) gaining() {
	for i := range d.out.changes {
		c := &d.out.changes[i]
		_, suspected := slices.BinarySearchFunc(d.suspects, c.Task, func(s suspect, task int32) int {
			return cmp.Compare(s.task, task)
		})
		if suspected && c.To != handover.None {
			d.suspected[standing.Pair{Task: c.Task, Worker: d.fleet.workers[c.To].serial}] = true
		}
	}
}

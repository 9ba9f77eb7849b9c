package orchestrator

import (
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/internal/standing"
	"github.com/f8949c05/orchestrator/rebalance"
)

// Probes: how a worker that failed gets back to work (T9).

// probe gives each worker on probation one task.
func (d *decider[W, T]) probe(maxMoves int) {
	if d.book.Empty() {
		return
	}
	moves := 0
	for i := range d.out.changes {
		if d.out.changes[i].kind().Op == Move {
			moves++
		}
	}
	taken := make(map[int]bool) // changes that are a probe already
	for i, w := range d.fleet.workers {
		_, probation := d.book.Closed(w.serial, d.term)
		if !probation || w.state != Answering || w.draining {
			continue
		}
		planned := len(d.out.changes)
		at, ok := 0, false
		for trust := failedNowhereElse; !ok && trust <= d.leastTrust(); trust++ {
			at, ok = d.probeOf(int32(i), d.mayTake(w, trust), taken, maxMoves < 0 || moves < maxMoves)
		}
		if ok && len(d.out.changes) > planned && d.out.changes[at].kind().Op == Move {
			moves++
		}
		if ok {
			taken[at] = true
		}
	}
}

// probeOf finds the probe of worker i. It is, in this order, one that the plan
// starts elsewhere, since that puts nothing at risk; one for which the plan
// found no place; one that the plan moves elsewhere; one that waits on a
// draining worker; and else one from the worker that has the most. The last two
// are moves beyond those of the plan, where mayMove.
func (d *decider[W, T]) probeOf(i int32, may func(int32) bool, taken map[int]bool, mayMove bool) (at int, ok bool) {
	if at, ok = d.redirect(Start, i, may, taken); ok {
		return at, true
	}
	if at, ok = d.place(i, may, false); ok {
		return at, true
	}
	if at, ok = d.redirect(Move, i, may, taken); ok || !mayMove {
		return at, ok
	}
	if at, ok = d.place(i, may, true); ok {
		return at, true
	}
	return d.spare(i, may)
}

// trust is how sure it has to be that a probe's failure would be the worker's.
type trust int

const (
	failedNowhereElse trust = iota
	hasRun                  // it did once, so it can
	anything
)

// leastTrust is what a probe may come down to. Where no worker is open everybody
// has failed, and so, perhaps, has every task: whoever is to blame, somebody has
// to begin.
func (d *decider[W, T]) leastTrust() trust {
	if slices.Contains(d.problem.States, rebalance.Open) {
		return hasRun
	}
	return anything
}

// mayTake returns a function that says which tasks may be w's probe: none that
// it runs or that is avoided there.
func (d *decider[W, T]) mayTake(w *worker[W, T], least trust) func(task int32) bool {
	// The plan adds nothing to a closed worker, so what it does not run yet is
	// not on its way there either.
	runs := make(map[int32]bool, len(w.runs))
	for _, task := range w.runs {
		runs[task] = true
	}
	return func(task int32) bool {
		pair := standing.Pair{Task: task, Worker: w.serial}
		switch {
		case runs[task] || d.book.Avoided(pair, d.term):
			return false
		case least == failedNowhereElse:
			return !d.book.FailedElsewhere(pair)
		case least == hasRun:
			return d.fleet.flags[task]&taskSeen != 0
		}
		return true
	}
}

// redirect has a change of the plan go to worker i instead.
func (d *decider[W, T]) redirect(op ChangeOp, i int32, may func(int32) bool, taken map[int]bool) (at int, ok bool) {
	for at := range d.out.changes {
		c := &d.out.changes[at]
		if c.kind().Op == op && !taken[at] && may(c.Task) {
			c.To = i
			return at, true
		}
	}
	return 0, false
}

// place starts on worker i an instance that has no place, or moves one there
// that waits on a draining worker.
func (d *decider[W, T]) place(i int32, may func(int32) bool, draining bool) (at int, ok bool) {
	for k := range d.out.waiting {
		w := &d.out.waiting[k]
		without := w.reason == ReasonNoWorker || w.reason == ReasonNoOtherWorker || w.reason == ReasonAvoided
		if !without || (w.worker != handover.None) != draining || !may(w.task) {
			continue
		}
		reason := ReasonDrain
		if !draining {
			reason = d.missing(w.task)
			d.out.unplaced--
		}
		d.out.adds++
		d.out.changes = append(d.out.changes, change{
			Change: handover.Change{Task: w.task, From: w.worker, To: i},
			reason: reason,
		})
		if w.instances--; w.instances == 0 {
			d.out.waiting = slices.Delete(d.out.waiting, k, k+1)
		}
		return len(d.out.changes) - 1, true
	}
	return 0, false
}

// spare moves a task to worker i from the one that has the most, where that has at least two more, so that the move makes the spread better.
func (d *decider[W, T]) spare(i int32, may func(int32) bool) (at int, ok bool) {
	after := make([]int, len(d.fleet.workers))
	for j, w := range d.fleet.workers {
		after[j] = len(w.runs)
	}
	changed := make(map[int32]bool, len(d.out.changes))
	for k := range d.out.changes {
		c := &d.out.changes[k]
		changed[c.Task] = true
		if c.From != handover.None {
			after[c.From]--
		}
		if c.To != handover.None {
			after[c.To]++
		}
	}
	from := -1
	for j, w := range d.fleet.workers {
		if w.state == Answering && !w.draining && int32(j) != i && (from < 0 || after[j] > after[from]) {
			from = j
		}
	}
	if from < 0 || after[from] < after[i]+2 {
		return 0, false
	}
	for _, task := range d.fleet.workers[from].runs {
		if !changed[task] && may(task) {
			d.out.adds++
			d.out.changes = append(d.out.changes, change{
				Change: handover.Change{Task: task, From: int32(from), To: i},
				reason: ReasonProbe,
			})
			return len(d.out.changes) - 1, true
		}
	}
	return 0, false
}

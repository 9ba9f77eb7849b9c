package rebalance

// The last steps: from drops and adds to changes, and which moves are made now.

import (
	"slices"
)

// assembly is the step that makes the changes of the plan from drops and adds.
type assembly struct {
	*draft
	starts numbering // the tasks of which a copy starts that is not moved
	latest []int32   // by number in starts: the latest drop that is not part of a change yet, plus one
	late   rows      // by worker: the tasks whose moves come last
}

// leftover lists the copies without a place, and drops the copies on draining workers that
// have another place. It takes O(tasks) if a copy is left, and a pass over the lists of
// the draining workers.
func (a *assembly) leftover() {
	var left []int32 // by task: copies that stay on draining workers; nil if all have a place
	if a.isShort {
		left = a.unplaced()
	}
	if a.has[Draining] {
		a.drain(left)
	}
}

// unplaced lists the copies without a place, except those that run on draining workers.
// It returns the number of the latter by task.
func (a *assembly) unplaced() []int32 {
	left := sized(a.scratch, len(a.Want))
	a.scratch = left
	for t, target := range a.target {
		if target == 0 {
			continue
		}
		if a.staying {
			target -= a.stays[t]
		}
		left[t] = target - a.need[t]
		if left[t] == 0 {
			continue
		}
		waits := int32(0)
		if a.has[Draining] {
			waits = min(left[t], a.drained[t])
		}
		if copies := left[t] - waits; copies > 0 {
			a.plan.Unplaced = append(a.plan.Unplaced, Unplaced{Task: int32(t), Copies: copies, Worker: None, Reason: a.why(int32(t))})
		}
		left[t] = waits
	}
	return left
}

// drain drops the copies on draining workers that are neither pinned nor left.
func (a *assembly) drain(left []int32) {
	for w, list := range a.Running {
		if a.States[w] != Draining {
			continue
		}
		for k, t := range list {
			at := a.offset[w] + int32(k)
			switch {
			case a.flags[at] == pinned:
				a.plan.Unplaced = append(a.plan.Unplaced, Unplaced{Task: t, Copies: 1, Worker: int32(w), Reason: CopyPinned})
			case a.flags[at] != kept:
			case left != nil && left[t] > 0:
				left[t]--
				a.plan.Unplaced = append(a.plan.Unplaced, Unplaced{Task: t, Copies: 1, Worker: int32(w), Reason: a.why(t)})
			default:
				a.lose(t, int32(w), at)
			}
		}
	}
}

// why returns why a copy of t has no place.
func (a *assembly) why(t int32) UnplacedReason {
	switch {
	case len(a.open) == 0:
		return NoOpenWorker
	case int(a.places(t)) < len(a.open):
		return NoAllowedWorker
	}
	return NoOtherWorker
}

// pair pairs drops and adds of the same task into moves. Other drops become stops, and
// other adds starts. Copies on draining workers, which were dropped last, are paired
// first.
func (a *assembly) pair() {
	if a.loose {
		a.tidy()
	}
	if len(a.drops) > 0 {
		a.findStarts()
	}
	for i := range a.drops {
		d := &a.drops[i]
		if a.flags[d.position] != dropped {
			d.worker = None // kept again, or listed twice
			continue
		}
		a.flags[d.position] = inChange
		if a.starts.has(d.task) {
			latest := &a.latest[a.starts.of(d.task)]
			d.next = *latest
			*latest = int32(i) + 1
		}
	}
	if len(a.drops) > 0 && a.starts.count > 0 {
		a.pairUp()
	}
	a.plan.Adds = len(a.changes)
	for i := range a.drops {
		d := &a.drops[i]
		if d.worker == None {
			continue
		}
		reason := Surplus
		if a.least == 0 && !a.isExpected(d.task) {
			reason = Unexpected
		}
		a.changes = append(a.changes, Change{Task: d.task, From: d.worker, To: None, Reason: reason})
	}
	a.plan.Changes = a.changes
}

// tidy removes cancelled changes, and makes a start of a move whose copy is kept or
// already moved: a copy that was kept again and dropped again is in two changes, or in
// one and among the drops.
func (a *assembly) tidy() {
	changes, out := a.changes, 0
	for i := range changes {
		c := &changes[i]
		if c.To == None {
			continue
		}
		if c.From != None {
			if flag := &a.flags[a.adds[i].position]; *flag == dropped {
				*flag = inChange
			} else {
				c.From, c.Reason = None, Missing
				a.plan.Moves--
			}
		}
		changes[out] = *c
		out++
	}
	a.changes = changes[:out]
}

// findStarts numbers the tasks of which a copy starts without a move.
func (a *assembly) findStarts() {
	starts := a.starts.emptied(len(a.Want))
	for _, c := range a.changes {
		if c.From == None {
			starts.add(c.Task)
		}
	}
	a.starts.set = starts
	a.starts.number()
	a.latest = sized(a.latest, a.starts.count)
}

// pairUp makes each start a move from a worker that drops a copy of the task, if there is
// such a worker.
func (a *assembly) pairUp() {
	for i := range a.changes {
		c := &a.changes[i]
		if c.From != None {
			continue
		}
		latest := &a.latest[a.starts.of(c.Task)]
		if *latest == 0 {
			continue
		}
		d := &a.drops[*latest-1]
		*latest = d.next
		c.From, c.Reason = d.worker, Rebalance
		if a.States[d.worker] == Draining {
			c.Reason = Drain
		}
		d.worker = None
		a.plan.Moves++
	}
}

// postpone leaves all but MaxMoves of the moves to later calls. Moves off draining
// workers come first. Of the others it chooses moves that do not make the spread worse at
// the loads at that point. Copies listed in MoveLast move last.
//
// There is always a move to choose. Let l be the loads before the moves and f those
// after. The sum over all moves of l(from) − l(to) is the sum over the workers of
// l·(l − f), which is half of (Σl² − Σf² + Σ(l − f)²). Since no loads have a smaller sum
// of squares than f, this is above zero while l differs from f. So some move goes from a
// worker to one that has less. The moves that are left after it are again such a set, one
// smaller. So repeated calls converge.
func (a *assembly) postpone() {
	if a.MaxMoves < 0 || a.plan.Moves <= a.MaxMoves {
		return
	}
	// now holds the loads without any move.
	now := a.load
	for _, c := range a.plan.Changes {
		if c.From != None && c.To != None {
			now[c.To]--
			now[c.From]++
		}
	}
	a.late.fill(len(a.States), a.MoveLast)
	chosen := sized(a.scratch, len(a.plan.Changes))
	a.scratch = chosen
	left := a.MaxMoves
	// choose chooses the moves for which passes is true, and reports whether there were any.
	choose := func(late bool, pass func(c Change) bool) (some bool) {
		for i, c := range a.plan.Changes {
			if left == 0 || c.From == None || c.To == None || chosen[i] != 0 || !pass(c) {
				continue
			}
			if !late && slices.Contains(a.late.row(c.From), c.Task) {
				continue
			}
			chosen[i] = 1
			now[c.From]--
			now[c.To]++
			left--
			some = true
		}
		return some
	}
	drains := func(c Change) bool { return c.Reason == Drain }
	evens := func(gain int32) func(c Change) bool {
		return func(c Change) bool {
			return c.Reason == Rebalance && (a.States[c.From] == Quarantined || now[c.From]-now[c.To] >= gain)
		}
	}
	for _, late := range []bool{false, true} {
		choose(late, drains)
		// First those that make the spread better: a move that leaves it as it is could
		// displace a move from a fuller worker.
		for again := true; again; {
			again = choose(late, evens(2)) || choose(late, evens(1))
		}
	}
	changes := a.plan.Changes[:0]
	for i, c := range a.plan.Changes {
		if c.From != None && c.To != None && chosen[i] == 0 {
			a.plan.Deferred++
			a.plan.Adds--
			a.plan.Moves--
			continue
		}
		changes = append(changes, c)
	}
	a.plan.Changes = changes
	// A plan to these loads together with the deferred moves reaches the full plan's
	// loads. Missing copies start in any case.
	a.plan.LowerBound = max(a.plan.Adds-a.plan.Moves, a.plan.LowerBound-a.plan.Deferred)
}

package rebalance

// The last steps: from drops and adds to changes, and which moves are made now.

import "math"

// assembly is the step that makes the changes of the plan from drops and adds.
type assembly struct {
	*draft
	starts numbering // the tasks of which a copy starts that is not moved
	latest []int32   // by number in starts: the latest drop that is not part of a change yet, plus one
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
	d := a.draft
	left := sized(d.scratch, len(d.Want))
	d.scratch = left
	for t, target := range d.target {
		if target == 0 {
			continue
		}
		if d.staying {
			target -= d.stays[t]
		}
		left[t] = target - d.need[t]
		if left[t] == 0 {
			continue
		}
		waits := int32(0)
		if d.has[Draining] {
			waits = min(left[t], d.drained[t])
		}
		if copies := left[t] - waits; copies > 0 {
			d.plan.Unplaced = append(d.plan.Unplaced, Unplaced{Task: int32(t), Copies: copies, Worker: None, Reason: a.why(int32(t))})
		}
		left[t] = waits
	}
	return left
}

// drain drops the copies on draining workers that are neither pinned nor left.
func (a *assembly) drain(left []int32) {
	d := a.draft
	for w, list := range d.Running {
		if d.States[w] != Draining {
			continue
		}
		for k, t := range list {
			at := d.offset[w] + int32(k)
			switch {
			case d.flags[at] == pinned:
				d.plan.Unplaced = append(d.plan.Unplaced, Unplaced{Task: t, Copies: 1, Worker: int32(w), Reason: CopyPinned})
			case d.flags[at] != kept:
			case left != nil && left[t] > 0:
				left[t]--
				d.plan.Unplaced = append(d.plan.Unplaced, Unplaced{Task: t, Copies: 1, Worker: int32(w), Reason: a.why(t)})
			default:
				d.lose(t, int32(w), at)
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
	d := a.draft
	if d.loose {
		a.tidy()
	}
	if len(d.drops) > 0 {
		a.findStarts()
	}
	for i := range d.drops {
		x := &d.drops[i]
		if d.flags[x.position] != dropped {
			x.worker = None // kept again, or listed twice
			continue
		}
		d.flags[x.position] = inChange
		if a.starts.has(x.task) {
			latest := &a.latest[a.starts.of(x.task)]
			x.next = *latest
			*latest = int32(i) + 1
		}
	}
	if len(d.drops) > 0 && a.starts.count > 0 {
		a.pairUp()
	}
	d.plan.Adds = len(d.changes)
	for i := range d.drops {
		x := &d.drops[i]
		if x.worker == None {
			continue
		}
		reason := Surplus
		if d.least == 0 && !d.isExpected(x.task) {
			reason = Unexpected
		}
		d.changes = append(d.changes, Change{Task: x.task, From: x.worker, To: None, Reason: reason})
	}
	d.plan.Changes = d.changes
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
	d := a.draft
	starts := a.starts.emptied(len(d.Want))
	for _, c := range d.changes {
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
	d := a.draft
	for i := range d.changes {
		c := &d.changes[i]
		if c.From != None {
			continue
		}
		latest := &a.latest[a.starts.of(c.Task)]
		if *latest == 0 {
			continue
		}
		x := &d.drops[*latest-1]
		*latest = x.next
		c.From, c.Reason = x.worker, Rebalance
		if d.States[x.worker] == Draining {
			c.Reason = Drain
		}
		x.worker = None
		d.plan.Moves++
	}
}

// postpone leaves all but MaxMoves of the moves to later calls, and with Still all that are for
// an even spread: without rules no copy needs room. Moves off draining
// workers come first. Of the others it chooses moves that do not make the spread worse at
// the loads at that point.
//
// There is always a move to choose. Let l be the loads before the moves and f those
// after. The sum over all moves of l(from) − l(to) is the sum over the workers of
// l·(l − f), which is half of (Σl² − Σf² + Σ(l − f)²). Since no loads have a smaller sum
// of squares than f, this is above zero while l differs from f. So some move goes from a
// worker to one that has less. The moves that are left after it are again such a set, one
// smaller. So repeated calls converge.
func (a *assembly) postpone() {
	d := a.draft
	left, held := d.allowance(d.plan.Changes)
	if held == 0 && d.plan.Moves <= left {
		return
	}
	// now holds the loads without any move.
	now := d.load
	for _, c := range d.plan.Changes {
		if c.From != None && c.To != None {
			now[c.To]--
			now[c.From]++
		}
	}
	chosen := sized(d.scratch, len(d.plan.Changes))
	d.scratch = chosen
	// choose chooses the moves for which passes is true, and reports whether there were any.
	choose := func(pass func(c Change) bool) (some bool) {
		for i, c := range d.plan.Changes {
			if left == 0 || c.From == None || c.To == None || chosen[i] != 0 || !pass(c) {
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
			return c.Reason == Rebalance && (d.States[c.From] == Quarantined || now[c.From]-now[c.To] >= gain)
		}
	}
	choose(drains)
	// First those that make the spread better: a move that leaves it as it is could
	// displace a move from a fuller worker.
	for again := !d.Still; again; {
		again = choose(evens(2)) || choose(evens(1))
	}
	changes := d.plan.Changes[:0]
	for i, c := range d.plan.Changes {
		if c.From != None && c.To != None && chosen[i] == 0 {
			d.leaveOut(&c)
			continue
		}
		changes = append(changes, c)
	}
	d.plan.Changes = changes
	// A plan to these loads together with the moves that are left out reaches the full plan's
	// loads. Missing copies start in any case.
	d.plan.LowerBound = max(d.plan.Adds-d.plan.Moves, d.plan.LowerBound-d.plan.Deferred-d.plan.Held)
}

// allowance returns how many moves the plan may have, and how many of the changes Still holds.
func (d *draft) allowance(changes []Change) (moves, held int) {
	moves = math.MaxInt
	if d.MaxMoves >= 0 {
		moves = d.MaxMoves
	}
	if d.Trial {
		moves = min(moves, 1)
	}
	for i := range changes {
		if d.Still && changes[i].Reason == Rebalance {
			held++
		}
	}
	return moves, held
}

// leaveOut counts a move that is left to a later call.
func (d *draft) leaveOut(c *Change) {
	if d.Still && (c.Reason == Rebalance || d.MaxMoves < 0 && !d.Trial) {
		d.plan.Held++
	} else {
		d.plan.Deferred++
	}
	d.plan.Adds--
	d.plan.Moves--
}

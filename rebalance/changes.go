package rebalance

// The last steps: from drops and adds to changes, and which moves are made now.

import (
	"slices"
)

// leftover lists the copies without a place, and drops the copies on draining workers that
// have another place. It takes O(tasks) if a copy is left, and a pass over the lists of
// the draining workers.
func (p *Planner) leftover() {
	if p.isConstrained() {
		p.plan.LowerBound = p.plainBound()
	} else {
		p.plan.LowerBound += p.exchanged
	}
	var left []int32 // by task: copies that stay on draining workers; nil if all have a place
	if p.isShort {
		left = p.unplaced()
	}
	if p.has[Draining] {
		p.drain(left)
	}
}

// unplaced lists the copies without a place, except those that run on draining workers.
// It returns the number of the latter by task.
func (p *Planner) unplaced() []int32 {
	left := sized(p.scratch, len(p.Want))
	p.scratch = left
	for t, target := range p.target {
		if target == 0 {
			continue
		}
		if p.staying {
			target -= p.stays[t]
		}
		left[t] = target - p.need[t]
		if left[t] == 0 {
			continue
		}
		waits := int32(0)
		if p.has[Draining] {
			waits = min(left[t], p.drained[t])
		}
		if copies := left[t] - waits; copies > 0 {
			p.plan.Unplaced = append(p.plan.Unplaced, Unplaced{Task: int32(t), Copies: copies, Worker: None, Why: p.why(int32(t))})
		}
		left[t] = waits
	}
	return left
}

// drain drops the copies on draining workers that are neither pinned nor left.
func (p *Planner) drain(left []int32) {
	for w, list := range p.Held {
		if p.States[w] != Draining {
			continue
		}
		for k, t := range list {
			at := p.offset[w] + int32(k)
			switch {
			case p.flags[at] == pinned:
				p.plan.Unplaced = append(p.plan.Unplaced, Unplaced{Task: t, Copies: 1, Worker: int32(w), Why: WhyPinned})
			case p.flags[at] != kept:
			case left != nil && left[t] > 0:
				left[t]--
				p.plan.Unplaced = append(p.plan.Unplaced, Unplaced{Task: t, Copies: 1, Worker: int32(w), Why: p.why(t)})
			default:
				p.lose(t, int32(w), at)
			}
		}
	}
}

// why returns why a copy of t has no place.
func (p *Planner) why(t int32) Why {
	switch {
	case len(p.open) == 0:
		return NoOpenWorker
	case int(p.places(t)) < len(p.open):
		return WhyForbidden
	}
	return NoOtherWorker
}

// makeChanges pairs drops and adds of the same task into moves. Other drops become stops, and
// other adds starts. Copies on draining workers, which were dropped last, are paired
// first.
func (p *Planner) makeChanges() {
	if p.loose {
		p.tidy()
	}
	if len(p.drops) > 0 {
		p.findStarts()
	}
	for i := range p.drops {
		d := &p.drops[i]
		if p.flags[d.position] != dropped {
			d.worker = None // kept again, or listed twice
			continue
		}
		p.flags[d.position] = inChange
		if p.starts.has(d.task) {
			latest := &p.latest[p.starts.of(d.task)]
			d.next = *latest
			*latest = int32(i) + 1
		}
	}
	if len(p.drops) > 0 && p.starts.count > 0 {
		p.pairUp()
	}
	p.plan.Adds = len(p.changes)
	for i := range p.drops {
		d := &p.drops[i]
		if d.worker == None {
			continue
		}
		reason := Surplus
		if p.least == 0 && !p.isExpected(d.task) {
			reason = Unexpected
		}
		p.changes = append(p.changes, Change{Task: d.task, From: d.worker, To: None, Reason: reason})
	}
	p.plan.Changes = p.changes
}

// tidy removes cancelled changes, and makes a start of a move whose copy is kept or
// already moved: a copy that was kept again and dropped again is in two changes, or in
// one and among the drops.
func (p *Planner) tidy() {
	changes, out := p.changes, 0
	for i := range changes {
		c := &changes[i]
		if c.To == None {
			continue
		}
		if c.From != None {
			if flag := &p.flags[p.adds[i].position]; *flag == dropped {
				*flag = inChange
			} else {
				c.From, c.Reason = None, Missing
				p.plan.Moves--
			}
		}
		changes[out] = *c
		out++
	}
	p.changes = changes[:out]
}

// findStarts numbers the tasks of which a copy starts without a move.
func (p *Planner) findStarts() {
	starts := p.starts.emptied(len(p.Want))
	for _, c := range p.changes {
		if c.From == None {
			starts.add(c.Task)
		}
	}
	p.starts.set = starts
	p.starts.number()
	p.latest = sized(p.latest, p.starts.count)
}

// pairUp makes each start a move from a worker that drops a copy of the task, if there is
// such a worker.
func (p *Planner) pairUp() {
	for i := range p.changes {
		c := &p.changes[i]
		if c.From != None {
			continue
		}
		latest := &p.latest[p.starts.of(c.Task)]
		if *latest == 0 {
			continue
		}
		d := &p.drops[*latest-1]
		*latest = d.next
		c.From, c.Reason = d.worker, Rebalance
		if p.States[d.worker] == Draining {
			c.Reason = Drain
		}
		d.worker = None
		p.plan.Moves++
	}
}

// postpone leaves all but MaxMoves of the moves to later calls. Moves off draining
// workers come first. Of the others it chooses moves that do not make the spread worse at
// the loads at that point. Copies listed in Late move last.
//
// There is always a move to choose. Let l be the loads before the moves and f those
// after. The sum over all moves of l(from) − l(to) is the sum over the workers of
// l·(l − f), which is half of (Σl² − Σf² + Σ(l − f)²). Since no loads have a smaller sum
// of squares than f, this is above zero while l differs from f. So some move goes from a
// worker to one that has less. The moves that are left after it are again such a set, one
// smaller. So repeated calls converge.
func (p *Planner) postpone() {
	if p.MaxMoves < 0 || p.plan.Moves <= p.MaxMoves {
		return
	}
	// now holds the loads without any move.
	now := p.load
	for _, c := range p.plan.Changes {
		if c.From != None && c.To != None {
			now[c.To]--
			now[c.From]++
		}
	}
	p.late.fill(len(p.States), p.Late)
	chosen := sized(p.scratch, len(p.plan.Changes))
	p.scratch = chosen
	left := p.MaxMoves
	// choose chooses the moves for which passes is true, and reports whether there were any.
	choose := func(late bool, pass func(c Change) bool) (some bool) {
		for i, c := range p.plan.Changes {
			if left == 0 || c.From == None || c.To == None || chosen[i] != 0 || !pass(c) {
				continue
			}
			if !late && slices.Contains(p.late.row(c.From), c.Task) {
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
			return c.Reason == Rebalance && (p.States[c.From] == Quarantined || now[c.From]-now[c.To] >= gain)
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
	changes := p.plan.Changes[:0]
	for i, c := range p.plan.Changes {
		if c.From != None && c.To != None && chosen[i] == 0 {
			p.plan.Deferred++
			p.plan.Adds--
			p.plan.Moves--
			continue
		}
		changes = append(changes, c)
	}
	p.plan.Changes = changes
	// A plan to these loads together with the deferred moves reaches the full plan's
	// loads. Missing copies start in any case.
	p.plan.LowerBound = max(p.plan.Adds-p.plan.Moves, p.plan.LowerBound-p.plan.Deferred)
}

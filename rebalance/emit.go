package rebalance

// The last steps: from drops and adds to changes, and which moves are made now.

// leftover lists what has no place, and empties the draining workers but for
// copies that have nowhere to go. O(tasks) where something is left, and a pass
// over the lists of the draining workers.
func (p *Planner) leftover() {
	if p.isConstrained() {
		p.plan.LowerBound = p.plainBound()
	} else {
		p.plan.LowerBound += p.exchanged
	}
	full := p.mark()
	var left []int32 // by task: copies that wait where they drain; nil if none has no place
	if len(p.pending) > 0 || p.isShort {
		left = p.unplaced(full)
	}
	if p.has[Draining] {
		p.drain(left, full)
	}
}

// unplaced lists the copies without a place, but for those that run on draining
// workers. It returns how many of each task do, and marks the tasks that have a
// place that is full.
func (p *Planner) unplaced(full uint32) []int32 {
	left := sized(p.scratch, len(p.Want))
	p.scratch = left
	for _, x := range p.pending {
		left[x.task] = x.copies
		p.marks[x.task] = full
	}
	for t, target := range p.target {
		if target == 0 {
			continue
		}
		if p.has[Closed] {
			target -= p.closed[t]
		}
		left[t] += target - p.need[t]
		if left[t] == 0 {
			continue
		}
		waits := int32(0)
		if p.has[Draining] {
			waits = min(left[t], p.drained[t])
		}
		if copies := left[t] - waits; copies > 0 {
			p.plan.Unplaced = append(p.plan.Unplaced, Unplaced{Task: int32(t), Copies: copies, Worker: None, Why: p.why(int32(t), full)})
		}
		left[t] = waits
	}
	return left
}

// drain drops what draining workers run, but for what is left of a task.
func (p *Planner) drain(left []int32, full uint32) {
	for w, list := range p.Held {
		if p.States[w] != Draining {
			continue
		}
		for k, t := range list {
			at := p.offset[w] + int32(k)
			switch {
			case p.flags[at] != kept:
			case left != nil && left[t] > 0:
				left[t]--
				p.plan.Unplaced = append(p.plan.Unplaced, Unplaced{Task: t, Copies: 1, Worker: int32(w), Why: p.why(t, full)})
			default:
				p.lose(t, int32(w), at)
			}
		}
	}
}

// why says why a copy of t has no place. Tasks marked full have a place that is
// full.
func (p *Planner) why(t int32, full uint32) Why {
	switch {
	case len(p.open) == 0:
		return NoOpenWorker
	case p.marks[t] == full:
		return Bounded
	case int(p.places(t)) < len(p.open):
		return WhyForbidden
	}
	return NoOtherWorker
}

// emit pairs drops and adds of the same task into moves; what is left of drops
// stops, and what is left of adds starts. Copies on draining workers, which
// were dropped last, are paired first.
func (p *Planner) emit() {
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
		p.flags[d.position] = emitted
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

// tidy strikes out what was taken back, and makes a start of a move of which the
// copy is kept after all.
func (p *Planner) tidy() {
	changes, out := p.changes, 0
	for i := range changes {
		c := &changes[i]
		if c.To == None {
			continue
		}
		if c.From != None && p.flags[p.adds[i].position] != dropped {
			c.From, c.Reason = None, Missing
			p.plan.Moves--
		}
		changes[out] = *c
		out++
	}
	p.changes = changes[:out]
}

// findStarts numbers the tasks of which a copy starts that is not moved.
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

// pairUp makes each start a move from where a copy of the task was dropped, if one
// was.
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

// postpone leaves all but MaxMoves of the moves to later calls: those off
// draining workers come first, and of those between open workers only such as
// make the spread no worse, at the loads that there are by then. None takes a
// worker beyond its bound.
//
// Without Bounds there is always one of these. Let l be the loads before the moves and f those
// after. The sum over all moves of l(from) − l(to) is the sum over the workers
// of l·(l − f), which is half of (Σl² − Σf² + Σ(l − f)²). Since no spread has
// smaller squares than f, this is above zero while l differs from f; so some
// move goes from a worker to one that has less. What is left after it is again
// such a set of moves, one smaller. So repeated calls converge.
func (p *Planner) postpone() {
	if p.MaxMoves < 0 || p.plan.Moves <= p.MaxMoves {
		return
	}
	// Now is what each worker has when no move is made.
	now := p.load
	for _, c := range p.plan.Changes {
		if c.From != None && c.To != None {
			now[c.To]--
			now[c.From]++
		}
	}
	chosen := sized(p.scratch, len(p.plan.Changes))
	p.scratch = chosen
	left := p.MaxMoves
	choose := func(i int, c Change) {
		chosen[i] = 1
		now[c.From]--
		now[c.To]++
		left--
	}
	for i, c := range p.plan.Changes {
		if left > 0 && c.Reason == Drain && !p.hasBound(c.To, now[c.To]) {
			choose(i, c)
		}
	}
	pass := func(gain int32) (some bool) {
		for i, c := range p.plan.Changes {
			if left == 0 || c.Reason != Rebalance || chosen[i] != 0 || p.hasBound(c.To, now[c.To]) {
				continue
			}
			if p.States[c.From] == Closed || now[c.From]-now[c.To] >= gain {
				choose(i, c)
				some = true
			}
		}
		return some
	}
	// Those that make the spread better first: one that leaves it as it is may take
	// the place that one from a fuller worker is to have.
	for some := true; some && left > 0; {
		some = pass(2) || pass(1)
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
}

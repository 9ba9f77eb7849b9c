package rebalance

// Pinned copies count in the load, and do not move.

// pin marks the pinned copies, and counts them by task and by worker. Those on
// draining workers count as copies that stay. O(tasks + workers + pinned copies),
// and a pass over each list with a pinned task that it names twice.
func (p *Planner) pin() {
	if p.Pinned == nil {
		return
	}
	p.pinned = sized(p.pinned, len(p.Want))
	p.fixed = sized(p.fixed, len(p.States))
	isSurplus := false
	for w, n := range p.Pinned {
		if n == 0 || p.States[w] == Frozen {
			continue
		}
		list := p.Held[w]
		first, flags, again := len(list)-int(n), p.flags[p.offset[w]:], uint32(0)
		pinAt := func(k int) {
			t := list[k]
			flags[k] = pinned
			p.pinned[t]++
			p.fixed[w]++
			isSurplus = isSurplus || p.pinned[t] > p.target[t]
		}
		for k := first; k < len(list); k++ {
			switch flags[k] {
			case kept:
				pinAt(k)
			case repeated:
				if again == 0 {
					again = p.mark()
				}
				p.marks[list[k]] = again
			}
		}
		if again == 0 {
			continue
		}
		for k, t := range list[:first] { // the first position of a repeated task
			if p.marks[t] == again && flags[k] == kept {
				pinAt(k)
			}
		}
	}
	if isSurplus {
		p.stopPinned()
	}
	for w, n := range p.fixed {
		if n == 0 || p.States[w] == Open {
			continue
		}
		for k, t := range p.Held[w] {
			if p.flags[p.offset[w]+int32(k)] != pinned {
				continue
			}
			p.pinned[t]--
			if p.States[w] == Draining {
				p.drained[t]--
				p.stays[t]++
				p.waiting++
			}
		}
	}
}

// stopPinned drops the pinned copies that exceed the target even if all others stop:
// first on draining workers, last on open ones, and in each state first on the fullest.
func (p *Planner) stopPinned() {
	workers := p.scratch[:0]
	for w, n := range p.fixed {
		if n > 0 {
			workers = append(workers, int32(w))
		}
	}
	p.scratch = workers
	p.byLoad(workers)
	for _, s := range [...]State{Draining, Quarantined, Open} {
		for _, w := range workers {
			if p.States[w] != s {
				continue
			}
			for k, t := range p.Held[w] {
				at := p.offset[w] + int32(k)
				if p.flags[at] != pinned || p.pinned[t] <= p.target[t] {
					continue
				}
				p.lose(t, w, at)
				p.pinned[t]--
				p.fixed[w]--
				if s == Open {
					p.tasks[t].lack++
				} else {
					p.countOf(w)[t]--
				}
			}
		}
	}
}

// pinnedOn returns how many pinned copies w has.
func (p *Planner) pinnedOn(w int32) int32 {
	if p.Pinned == nil {
		return 0
	}
	return p.fixed[w]
}

// pinnedOf returns how many pinned copies of t the open workers have.
func (p *Planner) pinnedOf(t int32) int32 {
	if p.Pinned == nil {
		return 0
	}
	return p.pinned[t]
}

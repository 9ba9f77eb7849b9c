package rebalance

// Step 3: every copy that needs a place gets one, on the worker with the least.

import "slices"

// place places the items of some tiers, in the order of P9. What no worker can simply take looks for
// a path.
func (p *Planner) place(from, to tier) {
	s := &p.state
	p.deal(from, to)
	p.stuck = p.stuck[:0]
	p.forgetFailed()
	for i := range p.keeping.items {
		x := &p.keeping.items[i]
		if x.tier < from || x.tier > to || !p.needsPlace(x) {
			continue
		}
		w, tried := None, false
		if (!s.relaxed || !p.leavesForCap(x)) && !p.hasFailed(x) { // a full zone is no reason to leave another one
			w, tried = s.leastFor(x), true
		}
		switch {
		case w != None && x.from != None && !p.mayMove(1):
			p.deferred = true
			continue
		case w != None:
			p.assign(x, w)
			continue
		case tried:
			p.fail(x)
		}
		p.stuck = append(p.stuck, int32(i))
	}
	if len(p.stuck) > 0 {
		p.placeByPaths()
	}
}

// forgetFailed forgets which items no worker can take.
func (p *Planner) forgetFailed() {
	n := len(p.state.Want)
	if p.state.zoned {
		n *= p.state.zones
	}
	p.failed = p.failed.emptied(n)
}

// failure returns what is alike for all items of a task that no worker can take: a zone is less full for its own.
func (p *Planner) failure(x *item) int32 {
	s := &p.state
	switch {
	case !s.zoned:
		return x.task
	case x.from == None:
		return x.task * int32(s.zones)
	}
	return x.task*int32(s.zones) + s.zone(x.from)
}

// fail notes that no worker can take an item. A copy on a worker that does not drain may make room there.
func (p *Planner) fail(x *item) {
	if x.from == None || p.state.States[x.from] == Draining {
		p.failed.add(p.failure(x))
	}
}

// hasFailed reports whether no worker can take an item, as far as that is known.
func (p *Planner) hasFailed(x *item) bool { return p.failed.has(p.failure(x)) }

// needsPlace reports whether the item is still without a place.
func (p *Planner) needsPlace(x *item) bool {
	if x.from == None {
		return x.copy == noRef
	}
	return p.state.flags[x.copy] == leaving
}

// leavesForCap reports whether a copy leaves its worker because of a cap only.
func (p *Planner) leavesForCap(x *item) bool {
	s := &p.state
	return x.from != None && s.States[x.from] != Draining && s.admitsClass(x.task, s.workers[x.from].hub)
}

// assign puts the item on w.
func (p *Planner) assign(x *item, w int32) {
	if x.from != None {
		p.state.take(x.from, x.copy)
	} else {
		x.copy = placed
		p.placed++
	}
	p.state.put(x.task, w)
}

// leastFor returns the worker with the least that can gain the item, or None. By weight that is the
// one with the least when it has the item.
func (s *state) leastFor(x *item) int32 {
	best := None
	if hubs, few := s.hubsOf(s.class(x.task)); few || s.weights != nil && s.largest > 1 {
		for _, h := range hubs { // by weight and share they are in no order
			if s.mayHaveLess(h, best, x, s.hubs[h].share) {
				best = s.lessOf(x, h, best)
			}
		}
		return best
	}
	for h := range s.hubsInOrder {
		if !s.mayHaveLess(h, best, x, s.largest) {
			break
		}
		best = s.lessOf(x, h, best)
	}
	return best
}

// mayHaveLess reports whether a worker of a hub has room, and may have less than best if its share is no larger than
// some. If not, no worker of the hubs after it in the order does.
func (s *state) mayHaveLess(h, best int32, x *item, share int32) bool {
	takers := &s.takers[h]
	switch {
	case len(takers.items) == 0 || !s.workers[takers.items[0]].hasRoom():
		return false
	case best == None:
		return true
	case s.weights == nil:
		return takers.top().before(takers.keys[best])
	}
	n := s.weightOf(x.task)
	return compareProducts(s.weight[takers.items[0]]+n, int64(s.workers[best].share), s.weight[best]+n, int64(share)) < 0
}

// lessOf returns the worker of a hub with the least that can gain the item, if that is less than best, or best.
func (s *state) lessOf(x *item, h, best int32) int32 {
	w := s.leastOf(x, h)
	if w == None || best == None {
		return max(w, best)
	}
	if s.weights == nil {
		if s.takers[h].keys[w].before(s.takers[h].keys[best]) {
			return w
		}
		return best
	}
	n := s.weightOf(x.task)
	if compareProducts(s.weight[w]+n, int64(s.workers[best].share), s.weight[best]+n, int64(s.workers[w].share)) < 0 {
		return w
	}
	return best
}

// leastOf returns the worker of a hub with the least that can gain the item, or None.
func (s *state) leastOf(x *item, h int32) int32 {
	if !s.admits(x.task, h, x.from) {
		return None
	}
	takers, tries := &s.takers[h], 64
	for w := range takers.inOrder(&s.queue[0]) {
		switch tries--; {
		case !s.workers[w].hasRoom():
			return None
		case s.fits(x.task, w):
			return w
		case tries == 0: // most run the task: to look at all is faster than the order
			best := None
			for _, w := range takers.items {
				if (best == None || takers.keys[w].before(takers.keys[best])) && s.workers[w].hasRoom() && s.fits(x.task, w) {
					best = w
				}
			}
			return best
		}
	}
	return None
}

// placeByPaths places the items that no worker can simply take: a worker takes the copy and hands
// another one on, and so forth, until one has room. In each tier the cheapest paths come first.
func (p *Planner) placeByPaths() {
	p.search.done = false
	p.forgetFailed()
	for i := 0; i < len(p.stuck); {
		n := i
		for n < len(p.stuck) && p.keeping.items[p.stuck[n]].tier == p.keeping.items[p.stuck[i]].tier {
			n++
		}
		for _, most := range []int32{1, 2, 3, unlimited} {
			failed := None
			for _, k := range p.stuck[i:n] {
				x := &p.keeping.items[k]
				if p.needsPlace(x) && !p.hasFailed(x) && (x.from != None || x.task != failed) && !p.placeByPath(x, most) && x.from == None {
					failed = x.task
				}
			}
		}
		i = n
	}
	p.search.done = false
}

// placeByPath places an item by a path with at most so many starts.
func (p *Planner) placeByPath(x *item, most int32) bool {
	s, f := &p.state, &p.search
	if s.relaxed && p.leavesForCap(x) {
		return false
	}
	if !s.hasTaker(x) {
		p.fail(x)
		return false
	}
	// A copy that leaves makes room where it was: full workers may hand on in a circle.
	circle := x.from != None && s.States[x.from] == Open && s.workers[x.from].load == s.workers[x.from].room
	if !f.done || circle {
		f.roots = f.roots[:0]
		for w := range s.workers {
			if s.workers[w].hasRoom() || circle && int32(w) == x.from {
				f.roots = append(f.roots, int32(w))
			}
		}
		f.begin(s)
		f.leaves = true
		f.explore(nil)
		f.done = !circle
	}
	best := p.takerOf(x)
	if best == None || f.labels[best].cost > most {
		return false
	}
	hops := f.path(best)
	moves := s.starts(hops)
	if x.from != None {
		moves++
	}
	if moves > 0 && !p.mayMove(moves) {
		p.deferred, x.waits = true, true
		return false
	}
	f.done = false
	if x.from != None {
		return s.apply(append(hops, hop{from: x.from, to: best, copy: x.copy}))
	}
	if !s.apply(hops) {
		return false
	}
	if !s.can(x.task, best, None) { // the path has used up what the copy needs
		s.undo(hops)
		return false
	}
	p.assign(x, best)
	return true
}

// takerOf returns the worker with the cheapest path among those that can gain the item, or None.
func (p *Planner) takerOf(x *item) int32 {
	s, labels, best := &p.state, p.search.labels, None
	for w := range s.workers {
		w := int32(w)
		if l := &labels[w]; l.cost > 0 && !s.workers[w].isOver() && (best == None || l.cost < labels[best].cost) && s.can(x.task, w, x.from) {
			best = w
		}
	}
	return best
}

// hasTaker reports whether some worker could take the item if it had room.
func (s *state) hasTaker(x *item) bool {
	hubs, _ := s.hubsOf(s.class(x.task))
	return slices.ContainsFunc(hubs, func(h int32) bool {
		return s.admits(x.task, h, x.from) && slices.ContainsFunc(s.members(h), func(w int32) bool {
			return s.workers[w].state == Open && !s.workers[w].isOver() && s.fits(x.task, w)
		})
	})
}

// giveUp lets the copies stay that have no other place.
func (p *Planner) giveUp() {
	s := &p.state
	p.gaveUp = s.taken
	for _, i := range p.stuck {
		if x := &p.keeping.items[i]; x.from != None && p.needsPlace(x) && !x.waits {
			s.stay(x.from, x.copy)
		}
	}
}

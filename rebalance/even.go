package rebalance

// Step 4: the loads become even. Each move lowers Σ load²/share, so the step ends.

import "slices"

// even evens the loads until no path does. The direct moves are a shortcut: paths alone would find
// them too, and more slowly.
func (p *Planner) even() {
	if p.state.weights != nil {
		p.evenByWeight()
		return
	}
	if p.evenDirectly() {
		p.evenByPaths(nil)
	}
}

// extremes returns the worker with the most, and the one with the least among those with room that
// gains admits. They are uneven if one copy less on the first saves more than one more on the second costs.
// Workers that the search has excluded do not count.
func (p *Planner) extremes(gains func(w int32) bool) (most, least int32, uneven bool) {
	s, excluded := &p.state, p.search.excluded
	most, least = None, None
	var high, low cost
	for w := range s.workers {
		at, w := &s.workers[w], int32(w)
		if !at.takesPart() || len(excluded) > 0 && excluded.has(w) {
			continue
		}
		if c := s.removing(w); most == None || high.less(c) {
			most, high = w, c
		}
		if c := at.adding(); at.hasRoom() && (least == None || c.less(low)) && (gains == nil || gains(w)) {
			least, low = w, c
		}
	}
	return most, least, least != None && low.less(high)
}

// exchangeSurplus chooses other surplus copies to stop, where that makes the loads more even. It is spared if
// what is missing fills all workers to the load of the fullest.
func (p *Planner) exchangeSurplus() {
	s, d := &p.state, &p.dealer
	d.listTakers(s, s.ofHub)
	height := s.fillTo(d.workers, int64(p.missing()))
	if slices.ContainsFunc(s.workers, func(at worker) bool { return at.takesPart() && int64(at.remaining()) > height*int64(at.share) }) {
		p.evenByPaths(func(w int32) bool { return s.workers[w].lost > 0 })
	}
}

// evenDirectly moves copies from the workers with the most to those with the least. It reports whether they are
// still uneven.
func (p *Planner) evenDirectly() bool {
	s := &p.state
	p.handOver()
	for moved := true; ; {
		_, least, uneven := p.extremes(nil)
		if !uneven || !moved {
			return uneven
		}
		moved = false
		s.rankGivers(s.adding(least))
		for len(s.givers.items) > 0 {
			u := s.givers.items[0]
			switch {
			case p.giveDirectly(u):
				moved = true
			case !p.isAboveSome(u):
				s.givers.items = s.givers.items[:0] // nor would any other one help
			default:
				s.givers.drop()
			}
		}
		s.gives = false
	}
}

// handOver is a shortcut for many moves between workers that are all alike: each worker that has less than
// the mean takes all that it lacks, one copy from each that has more, in turn.
func (p *Planner) handOver() {
	s := &p.state
	if len(s.hubs) > 1 || s.zoned || s.MaxTasks != nil || s.onlyOver || p.limit >= 0 {
		return
	}
	copies, shares, needed := int64(0), int64(0), int64(0)
	for w := range s.workers {
		if at := &s.workers[w]; at.takesPart() {
			copies, shares = copies+int64(at.remaining()), shares+int64(at.share)
		}
	}
	mean := copies / max(1, shares)
	p.sources = p.sources[:0]
	for w := range s.workers {
		at := &s.workers[w]
		switch {
		case at.state == Open && s.missingTo(int32(w), mean) > 0:
			needed += s.missingTo(int32(w), mean)
		case at.takesPart() && int64(at.remaining()) > (mean+1)*int64(at.share):
			p.sources = append(p.sources, int32(w))
		}
	}
	if needed < bulk {
		return
	}
	s.inUse = false
	next := 0
	for v := range int32(len(s.workers)) {
		if s.workers[v].state != Open {
			continue
		}
		idle := 0
		for n := s.missingTo(v, mean); n > 0 && idle < len(p.sources); {
			next = (next + 1) % len(p.sources)
			u := &s.workers[p.sources[next]]
			idle++
			if int64(u.remaining()) <= (mean+1)*int64(u.share) {
				continue
			}
			if c, _ := s.pick(p.sources[next], v, false); c != noRef {
				s.put(s.take(p.sources[next], c), v)
				n--
				idle = 0
			}
		}
	}
	s.rank(endless)
}

// isAboveSome reports whether one copy less on u saves more than one more on another worker costs.
func (p *Planner) isAboveSome(u int32) (above bool) {
	for h := range p.state.hubsInOrder {
		return p.state.leastCost(h).less(p.state.removing(u))
	}
	return false
}

// leastCost returns what one copy more in a hub costs.
func (s *state) leastCost(hub int32) cost {
	if items := s.takers[hub].items; len(items) > 0 && s.workers[items[0]].hasRoom() {
		return s.adding(items[0])
	}
	return endless
}

// giveDirectly moves a copy of u to the worker with the least that can have one. Among equal ones
// those of its own hub come first, so that fewer workers both gain and lose.
func (p *Planner) giveDirectly(u int32) bool {
	s := &p.state
	if !p.mayMove(1) {
		p.deferred = true
		return false
	}
	own, gain, asked := s.workers[u].hub, s.removing(u), 0
	for h := range s.hubsInOrder {
		least := s.leastCost(h)
		if !least.less(gain) {
			return false
		}
		if asked == 0 && h != own && !least.less(s.leastCost(own)) && s.giveTo(u, own, gain) {
			return true
		}
		if s.mayGive(u, h) && s.giveTo(u, h, gain) {
			return true
		}
		if asked++; asked == 16 && s.labels {
			if hubs, few := s.hubsBelow(u, gain); few {
				return slices.ContainsFunc(hubs, func(h int32) bool { return s.giveTo(u, h, gain) })
			}
		}
	}
	return false
}

// giveTo moves a copy of u to a worker of a hub where one more costs less than gain. It tries a few.
func (s *state) giveTo(u, hub int32, gain cost) bool {
	tries := 8
	for w := range s.takers[hub].inOrder(&s.queue[0]) {
		if tries--; tries < 0 || !s.workers[w].hasRoom() || !s.adding(w).less(gain) {
			return false
		}
		c, blocked := s.pick(u, w, false)
		if c != noRef {
			s.put(s.take(u, c), w)
			return true
		}
		if !blocked {
			return false // labels and zones admit nothing: the others of the hub are no better
		}
	}
	return false
}

// evenByPaths evens the loads by paths of any length, until no path is left. gains admits workers that
// gain; if it is not nil, paths cost nothing.
func (p *Planner) evenByPaths(gains func(w int32) bool) {
	f := &p.search
	for moved := true; moved; {
		moved = false
		f.excluded = f.excluded.emptied(len(p.state.workers))
		for p.evenOnce(gains) {
			moved = gains == nil
		}
	}
	f.excluded = f.excluded.emptied(len(p.state.workers))
	f.done = false
}

// evenOnce moves copies along the shortest paths to the workers with the least to which there are any.
// It reports whether there were some.
func (p *Planner) evenOnce(gains func(w int32) bool) bool {
	s, f := &p.state, &p.search
	for {
		_, least, uneven := p.extremes(gains)
		if !uneven {
			return false
		}
		f.roots = f.roots[:0]
		limit := s.adding(least)
		for w := range s.workers {
			at, w := &s.workers[w], int32(w)
			if at.takesPart() && !f.excluded.has(w) && at.hasRoom() && !limit.less(at.adding()) && (gains == nil || gains(w)) {
				f.roots = append(f.roots, w)
			}
		}
		f.begin(s)
		if f.free = gains != nil; f.free {
			f.unlabelled = [2][]int32{f.unlabelled[0][:0], f.unlabelled[1][:0]}
		}
		if f.explore(func(u int32) bool { return limit.less(s.removing(u)) }) && p.moveAlong() {
			return true
		}
		for _, w := range f.found {
			f.excluded.add(w)
		}
	}
}

// moveAlong moves copies along the paths that were found, from the workers with the most on.
func (p *Planner) moveAlong() (moved bool) {
	s, f := &p.state, &p.search
	p.sources = p.sources[:0]
	for _, w := range f.found {
		if l := f.labels[w]; l.via != None && s.adding(l.root).less(s.removing(w)) {
			p.sources = append(p.sources, w)
		}
	}
	slices.SortStableFunc(p.sources, func(a, b int32) int { return s.removing(b).compare(s.removing(a)) })
	f.divide()
	for _, u := range p.sources {
		hops := f.route(u, s.removing(u))
		switch {
		case len(hops) == 0:
		case p.limit >= 0 && !p.mayMove(s.starts(hops)):
			p.deferred = true
		case s.apply(hops):
			moved = true
		}
	}
	return moved
}

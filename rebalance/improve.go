package rebalance

import "slices"

// Step 5: fewer starts for loads as even. A copy that has moved may go elsewhere for nothing, and one
// that returns saves a start. If no cycle of such moves saves one, no plan with loads as even has
// fewer starts: the state is a flow of least cost (Klein, A Primal Method for Minimal Cost Flows,
// Management Science 14, 1967).

// improver looks for cycles that save starts. A label is how many starts a walk to a worker saves.
// Only walks that have saved some are followed, because every cycle that saves something can be
// entered where all its beginnings do.
type improver struct {
	s      *state
	saved  []int32 // by worker
	parent []hop   // by worker: how the walk came there; copy is noRef where only loads change
	queue  []int32
	queued set
	steps  int // that are left

	placed [2]set // by tier: the tasks of missing copies that have a place
	rivals []item // missing copies that have none, one of a task: they may take such a place
	cut    bool   // there are more
	evicts bool   // then copies may leave that stay although they must leave

	hubSaved []int32  // by hub: what walks to all its workers save at least
	byCost   []costly // the workers that may lose a copy, by what that saves
	shifted  []int32  // by place in byCost, of the first with a cost: what walks to all save
}

// costly is a worker and what one copy less on it saves.
type costly struct {
	cost
	worker int32
}

// improve saves starts until no cycle does. It reports whether that is proven.
func (p *Planner) improve() bool {
	s, m := &p.state, &p.improver
	m.s, m.steps = s, 8*(len(s.flags)+len(s.fresh)+1000)
	m.findRivals(p)
	m.evicts = len(m.rivals) > 0 && p.keeping.evicts && p.limit < 0
	if s.added == 0 || len(s.left) == 0 && !m.evicts || p.isCertain() {
		return true
	}
	m.reset()
	workers, failed := int32(len(s.workers)), false
	for w, clean := int32(0), int32(0); clean < workers && m.steps >= 0; {
		at := None
		if s.workers[w].takesPart() && (s.workers[w].got > 0 || m.evicts) {
			at = m.search(w)
		}
		turned := at != None && p.turn(at)
		if at != None {
			failed = failed || !turned
			m.reset()
		}
		if turned {
			clean = 0
		} else {
			w, clean = (w+1)%workers, clean+1
		}
	}
	return m.steps >= 0 && !failed && !m.cut
}

// isCertain reports whether no cycle saves a start, because no worker has both lost and gained copies,
// and each that has lost some has at least as much as each that has gained some.
func (p *Planner) isCertain() bool {
	s := &p.state
	if p.keeping.trimmed || p.keeping.evicts {
		return false
	}
	gained, lost := None, None
	for w := range s.workers {
		switch at, w := &s.workers[w], int32(w); {
		case at.got > 0 && at.lost > 0:
			return false
		case at.got > 0 && (gained == None || s.removing(gained).less(s.removing(w))):
			gained = w
		case at.lost > 0 && at.takesPart() && (lost == None || s.adding(w).less(s.adding(lost))):
			lost = w
		}
	}
	return gained == None || lost == None || s.removing(gained).less(s.adding(lost))
}

// findRivals finds which missing copies have a place, and some that have none only because workers are full.
func (m *improver) findRivals(p *Planner) {
	const most = 256
	m.cut = false
	if m.rivals = m.rivals[:0]; p.missing() == 0 || m.s.MaxTasks == nil {
		return
	}
	for of := range m.placed {
		m.placed[of] = m.placed[of].emptied(len(m.s.Want))
	}
	last := None
	for _, x := range p.keeping.items {
		switch {
		case x.from != None || x.copy == noRef && (x.task == last || m.cut):
		case x.copy == placed:
			m.placed[x.tier].add(x.task)
		default:
			if last = x.task; m.s.hasTaker(&x) {
				m.cut = len(m.rivals) == most
				m.rivals = append(m.rivals, x)
			}
		}
	}
}

// reset forgets all labels.
func (m *improver) reset() {
	workers := len(m.s.workers)
	m.saved, m.hubSaved = sized(m.saved, workers), sized(m.hubSaved, len(m.s.hubs))
	m.parent = roomy(m.parent, workers)
	for w := range m.parent {
		m.parent[w].from = None
	}
	m.queue, m.queued, m.byCost = m.queue[:0], m.queued.emptied(workers), m.byCost[:0]
}

// search follows all walks from w, and returns a worker on a cycle that saves a start, or None.
func (m *improver) search(w int32) int32 {
	m.queue = append(m.queue[:0], w)
	m.queued.add(w)
	for i := 0; i < len(m.queue) && m.steps >= 0; i++ {
		u := m.queue[i]
		m.queued.remove(u)
		if at := m.expand(u); at != None {
			return at
		}
	}
	return None
}

// reach labels v if the walk by h saves more than the others. It returns v if the walk has come to it
// before: that is a cycle.
func (m *improver) reach(v, saved int32, h hop) int32 {
	if saved <= m.saved[v] {
		return None
	}
	m.saved[v], m.parent[v] = saved, h
	for w := h.from; w != None; w = m.parent[w].from {
		if w == v {
			return v
		}
	}
	if !m.queued.has(v) {
		m.queued.add(v)
		m.queue = append(m.queue, v)
	}
	return None
}

// expand follows all arcs from u.
func (m *improver) expand(u int32) int32 {
	s, saved := m.s, m.saved[u]
	at := &s.workers[u]
	for i := at.fresh; i > 0; i = s.fresh[i-1].nextOn {
		t, c := s.fresh[i-1].task, ^(i - 1)
		m.steps--
		if v := m.expandFresh(t, u, hop{from: u, copy: c}, saved); v != None {
			return v
		}
		for _, x := range m.rivals {
			if m.steps--; !m.placed[x.tier].has(t) {
				continue
			}
			if v := m.expandFresh(x.task, None, hop{from: u, copy: c, other: x.task + 1}, saved); v != None {
				return v
			}
		}
	}
	if anywhere := saved > 1 && slices.Min(m.hubSaved) < saved-1; saved > 0 && s.multi || anywhere || m.evicts {
		if v := m.expandRunning(u, saved, anywhere); v != None {
			return v
		}
	}
	if saved > 0 && at.hasRoom() {
		return m.shift(u, saved)
	}
	return None
}

// expandFresh follows the arcs of a fresh copy of t, which is on some worker or on None.
func (m *improver) expandFresh(t, from int32, h hop, saved int32) int32 {
	v := m.toReturn(t, from, h, saved+1)
	if v == None && saved > 0 {
		v = m.toAny(t, from, h, saved)
	}
	return v
}

// expandRunning follows the arcs of copies that run on u: to another worker that has lost a copy of
// the task, for nothing, and to any other one, for a start. One that stays although it must leave saves
// more than all starts.
func (m *improver) expandRunning(u, saved int32, anywhere bool) int32 {
	const eviction = 1 << 16
	s := m.s
	m.steps -= len(s.Running[u])
	for k, t := range s.Running[u] {
		c := s.workers[u].offset + int32(k)
		if m.evicts && s.stays(c) {
			if v := m.toAny(t, u, hop{from: u, copy: c}, saved+eviction); v != None {
				return v
			}
		}
		if s.flags[c] != 0 || saved == 0 {
			continue
		}
		if s.multi {
			if v := m.toReturn(t, u, hop{from: u, copy: c}, saved); v != None {
				return v
			}
		}
		if anywhere {
			if v := m.toAny(t, u, hop{from: u, copy: c}, saved-1); v != None {
				return v
			}
		}
	}
	return None
}

// toReturn follows the arcs of a copy of t, which is on some worker or on None, to the workers that run t and
// have lost it.
func (m *improver) toReturn(t, from int32, h hop, saved int32) int32 {
	s := m.s
	for i := s.trails[t].left; i > 0; i = s.left[i-1].next {
		l := &s.left[i-1]
		at := &s.workers[l.worker]
		if s.flags[l.copy]&(gone|leaving) != gone || l.worker == from || !at.takesPart() || at.isOver() || saved <= m.saved[l.worker] || !s.can(t, l.worker, from) {
			continue
		}
		h.to = l.worker
		if v := m.reach(l.worker, saved, h); v != None {
			return v
		}
	}
	return None
}

// toAny follows the arcs of a copy of t, which is on some worker or on None, to all workers.
func (m *improver) toAny(t, from int32, h hop, saved int32) int32 {
	s, u := m.s, h.from
	hubs, _ := s.hubsOf(s.class(t))
	for _, hub := range hubs {
		if m.hubSaved[hub] >= saved || !s.admits(t, hub, from) {
			continue
		}
		workers := s.members(hub)
		m.steps -= len(workers) / 8
		all := true
		for _, w := range workers {
			if saved <= m.saved[w] || w == u || s.workers[w].state != Open || s.workers[w].isOver() {
				continue
			}
			if !s.fits(t, w) {
				all = false
				continue
			}
			h.to = w
			if v := m.reach(w, saved, h); v != None {
				return v
			}
		}
		if all && m.saved[u] >= saved {
			m.hubSaved[hub] = saved
		}
	}
	return None
}

// shift follows the arcs to the workers where one copy less saves what one more on u costs: the loads
// change, and are as even as before.
func (m *improver) shift(u, saved int32) int32 {
	s := m.s
	if len(m.byCost) == 0 {
		for w := range s.workers {
			if s.workers[w].takesPart() {
				m.byCost = append(m.byCost, costly{s.removing(int32(w)), int32(w)})
			}
		}
		slices.SortStableFunc(m.byCost, func(a, b costly) int { return a.compare(b.cost) })
		m.shifted = sized(m.shifted, len(m.byCost))
	}
	c := s.adding(u)
	i, _ := slices.BinarySearchFunc(m.byCost, c, func(x costly, c cost) int { return x.compare(c) })
	if i == len(m.byCost) || m.byCost[i].compare(c) != 0 || m.shifted[i] >= saved {
		return None
	}
	m.shifted[i] = saved
	for _, x := range m.byCost[i:] {
		if x.compare(c) != 0 {
			break
		}
		if v := m.reach(x.worker, saved, hop{from: u, to: x.worker, copy: noRef}); v != None {
			return v
		}
	}
	return None
}

// turn moves the copies of the cycle through w. It does not if two of them give their places to others: both might
// be the same.
func (p *Planner) turn(w int32) bool {
	hops, exchanges := p.search.hops[:0], false
	for v := w; ; {
		h := p.improver.parent[v]
		if h.copy != noRef {
			if h.other > 0 {
				if exchanges {
					return false
				}
				exchanges = true
			}
			hops = append(hops, h)
		}
		if v = h.from; v == w {
			break
		}
	}
	slices.Reverse(hops)
	p.search.hops = hops
	if !p.state.leaveAll(hops) {
		return false
	}
	if exchanges {
		h := &hops[slices.IndexFunc(hops, func(h hop) bool { return h.other > 0 })]
		p.exchangeItems(h.task, h.other-1)
		p.improver.findRivals(p)
	}
	return true
}

// leaveAll makes all hops or none, also of copies that stay although they must leave.
func (s *state) leaveAll(hops []hop) bool {
	for _, h := range hops {
		if h.copy >= 0 && s.stays(h.copy) {
			s.leave(h.from, h.copy)
		}
	}
	if s.apply(hops) {
		return true
	}
	for _, h := range hops {
		if h.copy >= 0 && s.flags[h.copy]&leaving != 0 {
			s.stay(h.from, h.copy)
		}
	}
	return false
}

// exchangeItems notes that the last missing copy of a task that has a place gives it to the first one of another
// task that has none.
func (p *Planner) exchangeItems(from, to int32) {
	items, gives, takes := p.keeping.items, 0, None
	for i, x := range items {
		switch {
		case x.from != None:
		case x.task == from && x.copy == placed:
			gives = i
		case x.task == to && x.copy == noRef && takes == None:
			takes = int32(i)
		}
	}
	items[gives].copy, items[takes].copy = noRef, placed
}

package rebalance

// Rules: the search for what the counts left over. It walks from worker to worker: a worker
// gains a copy, and gives another one to the next.

import (
	"cmp"
	"slices"
)

// pathSearch searches breadth-first for a path along which copies move, each through the
// gate.
type pathSearch struct {
	from    []int32 // by worker: the worker before it, None at the beginning
	by      []hop   // by worker: the copy that it gains
	reached []int32
	hops    []hop   // of the worker that the search expands
	unseen  []int32 // workers that may still be reached, in ascending order
	zones   visits  // if zones bind: by task and zone, where the search has moved copies
	tasks   visits  // if zones bind: the tasks of which it has let copies change zone
	dead    set     // workers from which earlier searches have found no path
	alive   []int32 // the others, in ascending order
	steps   int     // how often the gate may still be asked, in all searches of a plan
}

// visits is a set that is emptied in time linear in its members.
type visits struct {
	set
	members []int32
}

// begin empties the set, for numbers below n.
func (v *visits) begin(n int) { v.set, v.members = v.emptied(n), v.members[:0] }

func (v *visits) visit(i int32) {
	if !v.has(i) {
		v.add(i)
		v.members = append(v.members, i)
	}
}

func (v *visits) forget() {
	for _, i := range v.members {
		v.remove(i)
	}
	v.members = v.members[:0]
}

// searchSteps bounds the searches of a plan. What they have not found then has no place
// until a later plan, or the spread stays less even.
const searchSteps = 50_000_000

// directTries is how many workers are tried before all are.
const directTries = 4

// fewHops is how many copies are looked up in the list of a worker, which is fast: mostly the
// first one passes. For more, all tasks of the list are marked.
const fewHops = 4

// hop is a copy that moves: a running one at a position, or a planned one.
type hop struct {
	task     int32
	position int32 // None for a planned one
	change   int32 // of a planned one
	returns  bool  // the worker ran it before, so that it gains nothing
}

// placeRest places what is left over, and then evens the loads as far as single paths do. If
// all counts were realized, there is nothing to even.
func (r *rules) placeRest() {
	r.inexact = r.inexact || len(r.rest) > 0
	r.placeAll()
	if !r.inexact || r.weights.weighted {
		return
	}
	for n := -1; n != len(r.rest); { // evening may free what quarantined workers may gain
		n = len(r.rest)
		r.evenOut()
		if n > 0 {
			r.placeAll()
		}
	}
}

// placeAll places the copies of rest that have a place, in the order of the tiers.
func (r *rules) placeAll() {
	for again := true; again; {
		for n := -1; n != len(r.rest); {
			n = len(r.rest)
			for tier := range int32(tiers) {
				r.revive()
				r.rest = slices.DeleteFunc(r.rest, func(x item) bool { return x.tier == tier && r.findPlace(&x) })
				if r.zoned {
					r.rest = slices.DeleteFunc(r.rest, func(x item) bool { return x.tier == tier && r.placeBeyondCap(x) })
				}
			}
		}
		if !r.limits || !r.anyRoom() {
			return
		}
		again = r.relieveAll()
		if !again && len(r.rest) > 0 && r.defaultCaps { // they leave no copy without a place
			r.beyondCaps = true
			again = r.relieveAll()
			r.beyondCaps = false
		}
	}
}

// relieveAll moves copies from workers that run more than they may, and reports whether it moved
// any.
func (r *rules) relieveAll() (some bool) {
	r.revive()
	for w := range r.States {
		for r.isOverfull(int32(w)) && r.relieve(int32(w)) {
			some = true
		}
	}
	return some
}

// anyRoom reports whether some worker has room for a copy. Otherwise no path has an end.
func (r *rules) anyRoom() bool {
	for w, n := range r.load {
		if n < r.most(int32(w)) && r.isProper(int32(w)) {
			return true
		}
	}
	return false
}

// placeBeyondCap places a copy for which default caps leave no place: its own, or those of
// the others that move for it.
func (r *rules) placeBeyondCap(x item) bool {
	if l := x.leaving; l != None && r.leaving[l].why != Drain && r.leaving[l].why != EvictLabel {
		return false
	}
	r.beyondCaps = true
	r.revive()
	ok := r.findPlace(&x)
	r.beyondCaps = false
	return ok
}

// evenOut moves copies along paths to less used workers.
func (r *rules) evenOut() {
	order := r.byUse()
	for changed := r.anyRoom() && (r.has[Quarantined] || !r.isEven()); changed; {
		changed = false
		slices.SortFunc(order, r.byLastCost)
		r.revive()
		for _, w := range order {
			if !slices.ContainsFunc(r.searching.alive, func(u int32) bool { return r.evens(w, u) }) {
				break // later ones have less to give
			}
			for !r.searching.dead.has(w) && r.improve(w) {
				changed = true
			}
		}
	}
}

// byUse returns the workers that may give copies, the fullest first. The slice is valid until the
// next call.
func (r *rules) byUse() []int32 {
	order := append(r.order[:0], r.open...)
	for w, s := range r.States {
		if s == Quarantined {
			order = append(order, int32(w))
		}
	}
	r.order = order
	slices.SortFunc(order, r.byLastCost)
	return order
}

// byLastCost sorts workers by how much their last copy adds to the sum of load²/share, the
// most first. So a search that fails from one worker says that later ones, which have less
// to give, need not come by the workers that it has reached.
func (r *rules) byLastCost(v, w int32) int {
	return cmp.Or(r.compareAdded(w, 0, v, 0), cmp.Compare(v, w))
}

// findPlace finds a place for a copy, if need be by moving others.
func (r *rules) findPlace(x *item) bool {
	// A full worker that gives the copy up may get another one for it.
	origin := r.originOf(x)
	swaps := origin != None && r.leaving[x.leaving].stuck && r.load[origin] == r.most(origin) && r.gain[origin] > 0
	if swaps {
		r.revive() // earlier searches had other ends
	}
	r.beginSearch(None)
	hops := []hop{{task: x.task, position: None, change: None}}
	if best := r.direct(None, origin, hops, r.isBelowLimit, r.hasRoom); best != None {
		r.put(x, r.apply(best))
		return true
	}
	r.beginSearch(None)
	r.reach(None, origin, hops)
	best := r.nearest(func(w int32) bool { return r.hasRoom(w) || swaps && w == origin })
	if best == None {
		return false
	}
	first := r.apply(best)
	r.put(x, first)
	return true
}

func (r *rules) isBelowLimit(w int32) bool { return r.load[w] < r.most(w) }

// hasRoom reports whether w, which the search has reached, has room for a copy.
func (r *rules) hasRoom(w int32) bool { return r.isBelowLimit(w) && r.gainsMore(w) }

// gainsMore reports whether w may gain the copy for which the search reached it, although it
// gives none up.
func (r *rules) gainsMore(w int32) bool { return r.gain[w] > 0 || r.searching.by[w].returns }

func (r *rules) isOverfull(w int32) bool {
	return r.limits && r.load[w] > r.most(w) && r.isProper(w)
}

// relieve moves a copy from w, which runs more than it may, to a worker with room.
func (r *rules) relieve(w int32) bool {
	r.beginFrom(w)
	best := r.nearest(r.hasRoom)
	if best != None {
		r.apply(best)
	}
	return best != None
}

// beginFrom begins a search at a worker that gives a copy up.
func (r *rules) beginFrom(w int32) {
	r.beginSearch(w)
	r.searching.reached = append(r.searching.reached, w)
	r.searching.from[w], r.searching.by[w] = None, hop{task: None}
}

// improve moves a copy from w along a path to a worker that is less used even with it.
func (r *rules) improve(w int32) bool {
	evens := func(u int32) bool { return r.evens(w, u) }
	r.beginFrom(w)
	best := r.direct(w, w, r.hopsOf(w), evens, r.hasRoom)
	if best == None {
		r.beginFrom(w)
		best = r.nearest(func(u int32) bool { return evens(u) && r.hasRoom(u) })
	}
	if best == None {
		return false
	}
	r.apply(best)
	return true
}

// evens reports whether a copy that moves from w to u would lower the sum of load²/share.
func (r *rules) evens(w, u int32) bool {
	return u != w && r.isBelowLimit(u) && r.compareAdded(w, 0, u, 1) > 0
}

// beginSearch begins a search that does not reach worker but.
func (r *rules) beginSearch(but int32) {
	s := &r.searching
	workers := len(r.States)
	s.from, s.by = slices.Grow(s.from[:0], workers)[:workers], slices.Grow(s.by[:0], workers)[:workers]
	s.reached, s.unseen = s.reached[:0], s.unseen[:0]
	if r.zoned {
		s.zones.forget()
		s.tasks.forget()
	}
	for _, w := range s.alive {
		if w != but && r.load[w] <= r.most(w) {
			s.unseen = append(s.unseen, w)
		}
	}
}

// gains reports whether w gains a copy as planned. It may gain another one instead.
func (r *rules) gains(w int32) bool {
	for i := r.addHead[w]; i > 0; i = r.adds[i-1].next {
		if r.changes[i-1].To == w {
			return true
		}
	}
	return false
}

// revive lets searches reach all workers again.
func (r *rules) revive() {
	s := &r.searching
	s.dead = s.dead.emptied(len(r.States))
	s.alive = s.alive[:0]
	for w := range int32(len(r.States)) {
		if r.isProper(w) {
			s.alive = append(s.alive, w)
		}
	}
}

// reach reaches the workers that may gain some copy from v. origin is the worker that gives
// the copy up in the end. Only the last worker of a path needs room.
func (r *rules) reach(v, origin int32, hops []hop) {
	s := &r.searching
	s.unseen = slices.DeleteFunc(s.unseen, func(u int32) bool { return r.reachOne(u, v, origin, hops) })
	if r.zoned {
		for _, h := range hops {
			r.visitZones(h.task, origin)
		}
	}
}

// visitZones records the zones to which a copy of t may have moved from a worker that gives it up,
// or from nowhere.
func (r *rules) visitZones(t, from int32) {
	s := &r.searching
	row := int(t) * r.zones
	if from != None {
		s.zones.visit(int32(row + int(r.zoneOf(from))))
	}
	if s.tasks.has(t) {
		return
	}
	s.tasks.visit(t)
	for z := range r.zones {
		if r.inZone[row+z] < r.capOf(t, int32(z)) {
			s.zones.visit(int32(row + z))
		}
	}
}

// mayMove reports whether a copy of t that from gives up may go to u, as far as zones go. On a path
// at most one copy of a task changes its zone, since a zone may have room for one only. A search
// need not move copies of t to a zone twice: the workers there that may take one are reached.
func (r *rules) mayMove(t, from, u int32) bool {
	s := &r.searching
	z := r.zoneOf(u)
	if s.zones.has(int32(int(t)*r.zones + int(z))) {
		return false
	}
	return from != None && r.zoneOf(from) == z || !s.tasks.has(t)
}

// reachOne reaches u, if it may gain some copy from v, and reports whether it may.
func (r *rules) reachOne(u, v, origin int32, hops []hop) bool {
	s := &r.searching
	if s.steps <= 0 {
		return false
	}
	s.steps -= len(r.Running[u])
	round, mayGain := uint32(0), r.gain[u] > 0 || r.gains(u)
	for i, h := range hops {
		s.steps--
		var runs bool
		switch {
		case i < fewHops:
			runs = r.runs(h.task, u)
		case i == fewHops:
			round = r.markRunning(u)
			fallthrough
		default:
			runs = r.marks[h.task] == round
		}
		if runs || !r.mayKeep(h.task, u, origin) || r.zoned && !r.mayMove(h.task, origin, u) {
			continue
		}
		if at := r.positionOf(h.task, u); at != None {
			h.returns = r.movedAway(at) != None || h.position != None && r.isStopped(at)
			if !h.returns {
				continue
			}
		} else if !mayGain || slices.Contains(r.forbid.row(u), h.task) {
			continue
		}
		s.from[u], s.by[u] = v, h
		s.reached = append(s.reached, u)
		return true
	}
	return false
}

// direct reaches the least used worker that may gain some copy from v, of those for which isGoal
// is true once they are reached. It is what nearest finds first, but tries only a few workers.
// It returns None if they may gain nothing.
func (r *rules) direct(v, origin int32, hops []hop, mayBeGoal, isGoal func(w int32) bool) int32 {
	s := &r.searching
	var tried [directTries]int32
	for n := range tried {
		best := None
		for _, u := range s.unseen {
			if (best == None || r.use(best, 1).more(r.use(u, 1))) && mayBeGoal(u) && !slices.Contains(tried[:n], u) {
				best = u
			}
		}
		if best == None || r.reachOne(best, v, origin, hops) && isGoal(best) {
			return best
		}
		tried[n] = best
	}
	return None
}

// nearest reaches workers until isGoal is true for one, the least used of those that are
// reached in the same step, or until there are no more.
//
// If none is reached, no later search needs to come by the workers that this one has
// reached: a path from there would have been found, and other paths open none, since what
// they change could have been reached from there too.
func (r *rules) nearest(isGoal func(w int32) bool) int32 {
	s := &r.searching
	for next, opened := 0, 0; ; opened++ {
		best := None
		for ; next < len(s.reached); next++ {
			w := s.reached[next]
			if isGoal(w) && (best == None || r.use(best, 1).more(r.use(w, 1))) {
				best = w
			}
		}
		if best != None {
			return best
		}
		if opened == len(s.reached) || len(s.unseen) == 0 {
			break
		}
		r.expand(s.reached[opened])
	}
	if len(s.reached) > 0 {
		for _, w := range s.reached {
			s.dead.add(w)
		}
		s.alive = slices.DeleteFunc(s.alive, s.dead.has)
	}
	return None
}

// expand reaches the workers that may gain what v runs.
func (r *rules) expand(v int32) { r.reach(v, v, r.hopsOf(v)) }

// hopsOf returns what v may give. Planned copies come first, because to move them costs
// nothing. The slice is valid until the next call.
func (r *rules) hopsOf(v int32) []hop {
	hops := r.searching.hops[:0]
	for i := r.addHead[v]; i > 0; i = r.adds[i-1].next {
		if c := &r.changes[i-1]; c.To == v {
			hops = append(hops, hop{task: c.Task, position: None, change: i - 1})
		}
	}
	if r.isProper(v) && (r.gainsMore(v) || r.searching.by[v].task == None) {
		for k, t := range r.Running[v] {
			if at := r.offset[v] + int32(k); r.flags[at] == kept {
				hops = append(hops, hop{task: t, position: at, change: None})
			}
		}
	}
	r.searching.hops = hops
	return hops
}

// isProper reports whether copies on w may move for others.
func (r *rules) isProper(w int32) bool { return r.States[w] == Open || r.States[w] == Quarantined }

// apply moves copies along the path to w, and returns its first worker.
func (r *rules) apply(w int32) int32 {
	s := &r.searching
	for {
		v, h := s.from[w], s.by[w]
		if v == None {
			return w
		}
		at := r.positionOf(h.task, w)
		switch i := r.movedAway(at); {
		case i != None:
			r.exchange(i, h, v)
		case h.change != None:
			r.redirect(h.change, w)
		case r.isStopped(at): // the surplus copy that stops is another one
			r.flags[at] = kept
			r.load[w]++
			r.loose = true
			r.inItsZone(h.task, w, 1)
			r.stop(h.task, v, h.position)
		default:
			why := Rebalance
			if r.isOverfull(v) {
				why = EvictLimit
			}
			r.put(&item{task: h.task, leaving: r.leave(h.task, v, h.position, why)}, w)
		}
		w = v
	}
}

// positionOf returns where w lists t, or None.
func (r *rules) positionOf(t, w int32) int32 {
	if k := slices.Index(r.Running[w], t); k >= 0 {
		return r.offset[w] + int32(k)
	}
	return None
}

// moved returns the change that moves the copy at a position, or None.
func (r *rules) moved(at int32) int32 {
	if at == None || r.flags[at] != dropped || r.leavingOf[at] == 0 {
		return None
	}
	i := r.leaving[r.leavingOf[at]-1].change
	if i == None || r.changes[i].To == None || r.changes[i].From == None || r.adds[i].position != at {
		return None
	}
	return i
}

// movedAway is moved for copies that may as well stay.
func (r *rules) movedAway(at int32) int32 {
	i := r.moved(at)
	if i == None {
		return None
	}
	switch c := &r.changes[i]; c.Reason {
	case Rebalance, EvictLimit:
		return i
	case EvictZone:
		if r.beyondCaps && r.maxPerZone(c.Task) == 0 {
			return i
		}
	}
	return None
}

// isStopped reports whether the copy at a position stops as surplus.
func (r *rules) isStopped(at int32) bool {
	return at != None && r.flags[at] == dropped && r.moved(at) == None
}

// exchange keeps the copy that change i moves off its worker. The change moves the copy of
// v instead.
func (r *rules) exchange(i int32, h hop, v int32) {
	c, a := &r.changes[i], &r.adds[i]
	r.flags[a.position] = kept
	r.load[c.From]++
	r.inItsZone(c.Task, c.From, 1)
	if h.change == None {
		r.takeFrom(r.leave(h.task, v, h.position, Rebalance), i)
		return
	}
	r.load[v]--
	r.inItsZone(c.Task, v, -1)
	if r.States[v] == Quarantined {
		r.gain[v]++
	}
	planned := &r.changes[h.change]
	c.From, c.Reason, a.position = planned.From, planned.Reason, r.adds[h.change].position
	r.link(i)
	planned.To, r.loose = None, true
}

// link records which change moves the copy of change i.
func (r *rules) link(i int32) {
	if r.changes[i].From != None {
		r.leaving[r.leavingOf[r.adds[i].position]-1].change = i
	}
}

// redirect makes a planned copy start on another worker.
func (r *rules) redirect(i, w int32) {
	c := r.changes[i]
	position := r.adds[i].position
	r.load[c.To]--
	if r.States[c.To] == Quarantined {
		r.gain[c.To]++
	}
	r.inItsZone(c.Task, c.To, -1)
	r.inItsZone(c.Task, w, 1)
	r.changes[i].To = None
	r.loose = true
	c.To = w
	r.changes = append(r.changes, c)
	r.adds = append(r.adds, add{next: r.addHead[w], position: position})
	r.addHead[w] = int32(len(r.adds))
	r.link(int32(len(r.adds)) - 1)
	r.load[w]++
	if r.States[w] == Quarantined {
		r.gain[w]--
	}
}

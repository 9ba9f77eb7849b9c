package rebalance

import (
	"cmp"
	"slices"
)

// The search: how a worker can hand a copy on, from worker to worker, to one that has room for one
// more. Placing and evening use it. For cycles there is the improver.
//
// A copy that moves is an arc between two workers. It costs a start, or nothing if the copy is
// fresh, or if it returns to where it runs. The graph is never built. The search begins at workers
// that can have one more, and finds those that can give a copy to a worker it has found: breadth
// first, by cost. It finds each worker once.

// label is how the search has found a worker.
type label struct {
	cost int32 // starts on the way to the root, plus one; 0 if it is not found
	via  int32 // the next worker on the way, None for a root
	root int32
	copy ref // what it hands on
}

// source is which copies of a worker an arc begins with.
type source int

const (
	freshOnes source = iota // those that cost nothing
	running                 // those that cost a start
)

// search holds the labels.
type search struct {
	s      *state
	roots  []int32
	leaves bool // copies that must leave move as well
	free   bool // only what costs nothing moves
	done   bool // the labels hold for the state as it is

	labels     []label // by worker
	found      []int32 // the workers with a label, in order
	excluded   set     // the workers that the search leaves out
	reachable  int     // how many workers can get a label
	round      int32
	unlabelled [2][]int32 // by source: the workers without a label that have such copies
	seen       [2][]seen  // by source and hub
	runners    []int32    // memory of findGivers

	hops   []hop
	groups []int32 // the workers with a label, by hub and cost
	group  []int32 // by worker: where its group begins
	used   []int32 // by group: how many of its workers no path can use any more
	dead   set     // the workers that have nothing left to hand on
}

// seen is what the search knows of a hub. Rules admit a copy to all its workers or to none, so only
// the workers whose copies were kept out by something else are looked at again.
type seen struct {
	round int32
	again []int32
}

// begin forgets the labels.
func (f *search) begin(s *state) {
	f.s, f.leaves, f.free = s, false, false
	f.labels, f.found = sized(f.labels, len(s.workers)), f.found[:0]
	f.reachable = 0
	f.round++
	for k := range f.unlabelled {
		f.unlabelled[k] = f.unlabelled[k][:0]
		for len(f.seen[k]) < len(s.hubs) {
			f.seen[k] = append(f.seen[k], seen{})
		}
	}
	for w := range s.workers {
		at := &s.workers[w]
		if !at.takesPart() || f.excluded.has(int32(w)) {
			continue
		}
		f.reachable++
		if at.got > 0 {
			f.unlabelled[freshOnes] = append(f.unlabelled[freshOnes], int32(w))
		}
		if at.load > at.got {
			f.unlabelled[running] = append(f.unlabelled[running], int32(w))
		}
	}
}

// add labels w.
func (f *search) add(w, cost, via, root int32, c ref) {
	f.labels[w] = label{cost + 1, via, root, c}
	f.found = append(f.found, w)
}

// explore labels workers until all of a cost are labelled that reaches a goal, or all if goal is nil. It
// reports whether it has reached one.
func (f *search) explore(goal func(w int32) bool) (reached bool) {
	for _, w := range f.roots {
		f.add(w, 0, None, w, noRef)
	}
	for first, cost := 0, int32(0); first < len(f.found) && !reached; cost++ {
		for i := first; i < len(f.found); i++ { // the list grows
			w := f.found[i]
			at := &f.s.workers[w]
			reached = reached || goal != nil && f.labels[w].via != None && goal(w)
			if at.isOver() || len(f.found) == f.reachable {
				continue
			}
			if at.lost > 0 {
				f.findReturns(w, cost)
			}
			if at.state == Open {
				f.findGivers(w, cost, freshOnes)
			}
		}
		last := len(f.found)
		for _, w := range f.found[first:last] {
			if at := &f.s.workers[w]; !reached && at.state == Open && !at.isOver() {
				f.findGivers(w, cost+1, running)
			}
		}
		first = last
	}
	return reached
}

// isNew reports whether w can get a label.
func (f *search) isNew(w int32) bool {
	return f.labels[w].cost == 0 && f.s.workers[w].takesPart() && !f.excluded.has(w)
}

// findReturns labels the workers from which a copy can return to w.
func (f *search) findReturns(w, cost int32) {
	s, root := f.s, f.labels[w].root
	for k, t := range s.Running[w] {
		if s.flags[s.workers[w].offset+int32(k)]&^pinned != gone || s.Want[t] == 0 {
			continue
		}
		for i := s.trails[t].fresh; i > 0; i = s.fresh[i-1].nextOf {
			if v := s.fresh[i-1].worker; f.isNew(v) && s.can(t, w, v) {
				f.add(v, cost, w, root, ^(i - 1))
			}
		}
		for h := range s.holders(t) { // it stops there instead of here
			if f.isNew(h.worker) && s.isThere(h.worker, h.copy) && (f.leaves || s.flags[h.copy]&leaving == 0) && s.can(t, w, h.worker) {
				f.add(h.worker, cost, w, root, h.copy)
			}
		}
	}
}

// findGivers labels the workers that can give a copy to w.
func (f *search) findGivers(w, cost int32, from source) {
	hub := f.s.workers[w].hub
	at := &f.seen[from][hub]
	list, isFirst, few := at.again, at.round != f.round, false
	if isFirst {
		at.round, list = f.round, f.unlabelled[from]
		if f.s.labels {
			if f.runners, few = f.s.runnersFor(hub, len(list)*f.s.words/64, f.runners[:0]); few {
				slices.Sort(f.runners)
				list = slices.Compact(f.runners)
			}
		}
	}
	open, again := list[:0], at.again[:0]
	for _, u := range list {
		if !f.isNew(u) {
			continue
		}
		c, blocked := noRef, false
		if few || f.s.mayGive(u, hub) {
			c, blocked = f.s.arc(u, w, from, f.leaves)
		}
		if c != noRef {
			f.add(u, cost, w, f.labels[w].root, c)
			continue
		}
		if isFirst {
			open = append(open, u)
		}
		if blocked {
			again = append(again, u)
		}
	}
	if isFirst && !few {
		f.unlabelled[from] = open
	}
	at.again = again
}

// arc returns a copy that u can give to w, or noRef. Then blocked reports whether only a copy on w,
// or a forbidden pair, kept some from it. leaves admits copies that must leave u.
func (s *state) arc(u, w int32, from source, leaves bool) (c ref, blocked bool) {
	hub := s.workers[w].hub
	if from == freshOnes {
		for i := s.workers[u].fresh; i > 0; i = s.fresh[i-1].nextOn {
			if t := s.fresh[i-1].task; s.admits(t, hub, u) {
				if s.fits(t, w) {
					return ^(i - 1), false
				}
				blocked = true
			}
		}
		return noRef, blocked
	}
	skipped := ^flag(0)
	if leaves {
		skipped = ^leaving
	}
	list, begin := s.Running[u], s.workers[u].offset
	for k := s.next(u); k < len(list); k++ {
		at := begin + int32(k)
		if s.flags[at]&skipped != 0 {
			continue
		}
		if t := list[k]; s.admits(t, hub, u) {
			if s.fits(t, w) {
				return at, false
			}
			blocked = true
		}
	}
	return noRef, blocked
}

// pick returns a copy that u can give to w, a fresh one if there is one, or noRef. If free is set, the copy must be
// fresh.
func (s *state) pick(u, w int32, free bool) (c ref, blocked bool) {
	if free || s.workers[u].got > 0 {
		if c, blocked = s.arc(u, w, freshOnes, false); free || c != noRef {
			return c, blocked
		}
	}
	return s.arc(u, w, running, false)
}

// path returns the hops from w to its root.
func (f *search) path(w int32) []hop {
	f.hops = f.hops[:0]
	for l := f.labels[w]; l.via != None; l = f.labels[w] {
		f.hops = append(f.hops, hop{from: w, to: l.via, copy: l.copy})
		w = l.via
	}
	return f.hops
}

// divide groups the workers with a label by hub and cost. A copy that can go to one of a group can
// mostly go to another one.
func (f *search) divide() {
	n := len(f.labels)
	f.groups = append(f.groups[:0], f.found...)
	slices.SortStableFunc(f.groups, f.compare)
	f.group, f.used, f.dead = sized(f.group, n), sized(f.used, n), f.dead.emptied(n)
	begin := 0
	for i, w := range f.groups {
		if f.compare(f.groups[begin], w) != 0 {
			begin = i
		}
		f.group[w] = int32(begin)
	}
}

// compare is the order of groups.
func (f *search) compare(a, b int32) int {
	x, y := f.labels[a], f.labels[b]
	return cmp.Or(cmp.Compare(f.s.workers[a].hub, f.s.workers[b].hub), cmp.Compare(x.cost, y.cost), cmp.Compare(min(x.via, 0), min(y.via, 0)))
}

// route returns hops from u to a root where one more costs less than gain. Other paths may have moved
// copies since the search: then a worker of the same group takes the place of one that has nothing
// left to give.
func (f *search) route(u int32, gain cost) []hop {
	s := f.s
	for !f.dead.has(u) {
		f.hops = f.hops[:0]
		for w := u; ; {
			l := f.labels[w]
			h := hop{from: w, to: l.via, copy: l.copy}
			if !f.isAlive(h.to, gain) {
				h.to = f.another(h, gain)
			}
			if h.to != None && (!s.isThere(w, h.copy) || !s.can(s.taskOf(w, h.copy), h.to, w)) {
				h.copy, _ = s.pick(w, h.to, f.free)
			}
			if h.to == None || h.copy == noRef {
				f.dead.add(w)
				break
			}
			f.hops = append(f.hops, h)
			if w = h.to; f.labels[w].via == None {
				return f.hops
			}
			if len(f.hops) > len(f.found) {
				return nil
			}
		}
	}
	return nil
}

// isAlive reports whether a path may lead to w.
func (f *search) isAlive(w int32, gain cost) bool {
	if f.labels[w].via == None {
		return f.s.workers[w].hasRoom() && f.s.adding(w).less(gain)
	}
	return !f.dead.has(w) && !f.s.workers[w].isOver()
}

// another returns a worker to which a hop may lead instead, or None.
func (f *search) another(h hop, gain cost) int32 {
	const tries = 4
	begin := f.group[h.to]
	used := &f.used[begin]
	for i, tried := begin+*used, 0; int(i) < len(f.groups) && f.group[f.groups[i]] == begin && tried < tries; i++ {
		w := f.groups[i]
		if !f.isAlive(w, gain) {
			if i == begin+*used && (f.labels[w].via != None || !f.s.workers[w].hasRoom()) {
				*used++
			}
			continue
		}
		tried++
		if w == h.from {
			continue
		}
		if c, _ := f.s.pick(h.from, w, f.free); c != noRef {
			return w
		}
	}
	return None
}

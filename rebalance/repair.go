package rebalance

import (
	"math"
	"slices"
)

// What constraints leave over: with bounds, forbidden pairs or closed workers
// the steps before may fail, and a general search takes their place.

// repair places what is still pending where it may go, fewest copies first, and
// then makes the spread as even as the constraints allow: the sum of squared
// loads is least when no path leads from a worker to one that has two less.
//
// Without constraints there is nothing to do. With them there is a search for
// each copy that is placed or moved here, and for each worker that is left above
// the lowest. A search ends at a worker with the lowest load that can be reached,
// as far as that is known: usually the first one it looks at, in workers/64. Where
// it is lower than what can be reached, the search goes through all that can,
// O(n + tasks · workers/64), and what it learns limits those after it: see region.
// The last happens once for each set of workers that has to be told apart, as
// where some take nothing of what others can, plus once for each worker that
// comes down to its bound. Forbidden pairs can be made up such that the sets
// change again and again, or that the way to the lowest load is always the last to
// be tried: then it is as much for each copy.
func (p *Planner) repair() {
	if !p.isConstrained() {
		return
	}
	if len(p.pending) == 0 && p.isEven() {
		return
	}
	p.index.begin(len(p.Want))
	for t, need := range p.need {
		if need > 0 {
			p.index.tasks.add(int32(t))
		}
	}
	p.index.build(p)
	g := &p.graph
	g.init(p)
	workers := append(p.scratch[:0], p.open...)
	p.scratch = workers
	for changed := true; changed; {
		// What moves away from a worker beyond its bound may make room for what
		// is pending, so both are tried until neither helps.
		changed = p.placeRest(g)
		p.byLoad(workers)
		for _, w := range workers {
			for p.improve(g, w) {
				changed = true
			}
		}
	}
}

func (p *Planner) isEven() bool {
	for _, w := range p.open {
		if p.room(w) != 0 {
			return false
		}
	}
	return true
}

// placeRest places what is pending, the first copies of all tasks before the
// second ones, and reports whether there was a place for any.
func (p *Planner) placeRest(g *graph) (placed bool) {
	if g.regions[0].lowest == math.MaxInt32 {
		return false
	}
	have := func(x pending) int32 {
		n := p.need[x.task] - x.copies
		if p.has[Frozen] {
			n += p.frozen[x.task]
		}
		if p.has[Closed] {
			n += p.closed[x.task]
		}
		return n
	}
	most := int32(0)
	for _, x := range p.pending {
		most = max(most, have(x)+x.copies)
	}
	for tier := int32(0); tier < most; tier++ {
		for i := range p.pending {
			x := &p.pending[i]
			if x.copies > 0 && have(*x) == tier && p.placeOne(g, x.task) {
				x.copies--
				placed = true
			}
		}
	}
	p.pending = slices.DeleteFunc(p.pending, func(x pending) bool { return x.copies == 0 })
	return placed
}

// placeOne places one copy of t, so that the load that grows is the least that
// can.
func (p *Planner) placeOne(g *graph, t int32) bool {
	p.index.free(t, g.through, g.free)
	if g.aim(g.free) == math.MaxInt32 {
		return false
	}
	g.begin()
	g.task(t, None)
	best := g.find(p, math.MaxInt32)
	if best == None {
		return false
	}
	g.apply(p, best)
	g.changed(p, best)
	return true
}

// improve moves one copy from w along a path to a worker that has two less, or,
// where w is beyond its bound, to any with room.
func (p *Planner) improve(g *graph, w int32) bool {
	most := p.load[w] - 2
	if p.hasBound(w, p.load[w]-1) {
		most = math.MaxInt32 - 1
	}
	clear(g.free)
	g.free.add(w)
	if g.aim(g.free) > most {
		return false
	}
	g.begin()
	g.worker(w, None)
	best := g.find(p, most)
	if best == None {
		return false
	}
	g.apply(p, best)
	g.changed(p, best)
	g.changed(p, w)
	return true
}

// release takes a copy of t from w, be it planned or running.
func (p *Planner) release(t, w int32) {
	for i := p.addHead[w]; i > 0; i = p.adds[i-1].next {
		if c := &p.changes[i-1]; c.To != None && c.Task == t {
			p.undo(i-1, w)
			return
		}
	}
	for k, held := range p.Held[w] {
		if at := p.offset[w] + int32(k); held == t && p.flags[at] == kept {
			p.lose(t, w, at)
			p.index.take(t, w)
			return
		}
	}
	panic("rebalance: a copy is not where it should be") //nolint:forbidigo // an invariant is broken
}

// acquire gives a copy of t to w: where it ran one before it is kept, else one
// is to start.
func (p *Planner) acquire(t, w int32) {
	p.index.put(t, w)
	for k, held := range p.Held[w] {
		if at := p.offset[w] + int32(k); held == t && p.flags[at] == dropped {
			p.flags[at] = kept
			p.load[w]++
			p.loose = true
			return
		}
	}
	p.gain(t, w)
}

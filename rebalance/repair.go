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
// the lowest. A search ends at a worker with the lowest load of all; where that
// cannot be reached it goes through all that can: O(n + tasks · workers/64).
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
		clear(g.dead)
		for _, w := range workers {
			if g.dead[w] {
				continue
			}
			moved := false
			for p.improve(g, w) {
				changed, moved = true, true
			}
			if moved {
				clear(g.dead)
			}
			// What w could reach to no avail leads those with no more than w
			// nowhere either, until something moves.
			if !p.hasBound(w, p.load[w]-1) {
				for _, v := range g.reached {
					if p.load[v] <= p.load[w] && !p.hasBound(v, p.load[v]-1) {
						g.dead[v] = true
					}
				}
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
	if g.lowest == math.MaxInt32 {
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
	if g.lowest > most {
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

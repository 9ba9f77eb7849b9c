package rebalance

import "math"

// What constraints leave over: with forbidden pairs, pinned copies or quarantined
// workers the steps before may fail, and a general search takes their place.

// repair places what is still pending, and then makes the spread as even as the
// constraints allow: the sum of squared loads is least when no path leads from a
// worker to one that has two less.
//
// Without constraints there is nothing to do. With them there is a search for
// each copy that is placed or moved here, and for each worker that is left above
// the lowest. A search ends at a worker with the lowest load that it can reach, as
// far as that is known: usually the first one it looks at, in workers/64. If no
// path leads to that load, the search goes through all that it can reach,
// O(n + tasks · workers/64), and what it learns limits later searches: see region.
// This happens once for each set of workers that differ in what they may take.
// Forbidden pairs can be made up so that these sets change again and again, or so
// that the way to the lowest load always comes last: then it happens for each copy.
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
	p.placeRest(g)
	for changed := true; changed; {
		changed = false
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

// placeRest places what is pending. There is a place for each: a task needs no
// more copies than there are open workers that may have one.
func (p *Planner) placeRest(g *graph) {
	for _, x := range p.pending {
		for range x.copies {
			p.placeOne(g, x.task)
		}
	}
	p.pending = p.pending[:0]
}

// placeOne places one copy of t, so that the load that grows is the least that
// can.
func (p *Planner) placeOne(g *graph, t int32) {
	p.index.free(t, g.through, g.free)
	g.aim(g.free)
	g.begin()
	g.task(t, None)
	best := g.find(p, math.MaxInt32)
	g.apply(p, best)
	g.changed(p, best)
}

// improve moves one copy from w along a path to a worker that has two less.
func (p *Planner) improve(g *graph, w int32) bool {
	most := p.load[w] - 2
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

// acquire gives a copy of t to w: it keeps one that it ran before, otherwise one
// starts.
func (p *Planner) acquire(t, w int32) {
	p.index.put(t, w)
	if !p.keepAgain(t, w) {
		p.gain(t, w)
	}
}

// keepAgain keeps the copy of t that w ran before, and reports whether there was
// one.
func (p *Planner) keepAgain(t, w int32) bool {
	for k, held := range p.Held[w] {
		if at := p.offset[w] + int32(k); held == t && p.flags[at] == dropped {
			p.flags[at] = kept
			p.load[w]++
			p.loose = true
			return true
		}
	}
	return false
}

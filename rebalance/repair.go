package rebalance

import (
	"math"
	"math/bits"
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

// graph is a breadth-first search over tasks and workers: from a task to the
// workers that may gain it, and from a worker to the tasks that it has.
type graph struct {
	round      uint32
	tasks      []uint32 // by task: the round in which it was met
	taskFrom   []int32  // by task: the worker that gives it away, or None
	workerFrom []int32  // by worker: the task that it gains, or None
	reached    []int32  // workers, in order
	queue      []int32  // tasks
	dead       []bool   // by worker: no path leads from it to one that has two less

	// Of the open workers.
	through   set // one that is beyond its bound gains nothing, not even in exchange
	unreached set // those of through
	free      set // of one step, until the next

	// The lowest load of any worker that may have more, and those that have it. It
	// never falls: what moves away leaves a worker with one more than that.
	lowest int32
	low    set
	lows   int
}

func (g *graph) init(p *Planner) {
	if len(g.tasks) < len(p.Want) {
		g.tasks = make([]uint32, len(p.Want))
		g.taskFrom = make([]int32, len(p.Want))
		g.round = 0
	}
	g.reached = g.reached[:0]
	g.workerFrom = sized(g.workerFrom, len(p.States))
	g.dead = sized(g.dead, len(p.States))
	g.through = g.through.emptied(len(p.States))
	g.unreached = g.unreached.emptied(len(p.States))
	g.free = g.free.emptied(len(p.States))
	for _, w := range p.open {
		if !p.hasBound(w, p.load[w]-1) {
			g.through.add(w)
		}
	}
	g.findLowest(p)
}

func (g *graph) findLowest(p *Planner) {
	g.lowest, g.lows = math.MaxInt32, 0
	g.low = g.low.emptied(len(p.States))
	for _, w := range p.open {
		if !p.hasBound(w, p.load[w]) {
			g.lowest = min(g.lowest, p.load[w])
		}
	}
	for _, w := range p.open {
		if p.load[w] == g.lowest && !p.hasBound(w, p.load[w]) {
			g.low.add(w)
			g.lows++
		}
	}
}

// changed notes that the load of w is another.
func (g *graph) changed(p *Planner, w int32) {
	if p.hasBound(w, p.load[w]-1) {
		g.through.remove(w)
	} else {
		g.through.add(w)
	}
	isLow := p.load[w] == g.lowest && !p.hasBound(w, p.load[w])
	switch {
	case isLow == g.low.has(w):
	case isLow:
		g.low.add(w)
		g.lows++
	default:
		g.low.remove(w)
		g.lows--
		if g.lows == 0 {
			g.findLowest(p)
		}
	}
}

func (g *graph) begin() {
	g.round++
	if g.round == 0 { // wrapped around
		clear(g.tasks)
		g.round = 1
	}
	g.reached, g.queue = g.reached[:0], g.queue[:0]
	copy(g.unreached, g.through)
}

func (g *graph) task(t, from int32) {
	if g.tasks[t] != g.round {
		g.tasks[t] = g.round
		g.taskFrom[t] = from
		g.queue = append(g.queue, t)
	}
}

func (g *graph) worker(w, from int32) {
	g.unreached.remove(w)
	g.workerFrom[w] = from
	g.reached = append(g.reached, w)
}

// find reaches workers until it comes to one with the lowest load of all, or has
// reached all that can be. It returns the first with the least load among those
// that may have more, if that is no more than most.
func (g *graph) find(p *Planner, most int32) int32 {
	for next, opened := 0, 0; ; opened++ {
		for ; next < len(g.queue); next++ {
			if w := g.reach(p, g.queue[next]); w != None {
				return w
			}
		}
		if opened == len(g.reached) {
			break
		}
		g.expand(p, g.reached[opened])
	}
	best := None
	for _, w := range g.reached {
		if p.load[w] <= most && !p.hasBound(w, p.load[w]) && (best == None || p.load[w] < p.load[best]) {
			best = w
		}
	}
	return best
}

// reach reaches the workers that may gain t, and returns one with the lowest
// load if there is any.
func (g *graph) reach(p *Planner, t int32) int32 {
	p.index.free(t, g.unreached, g.free)
	for i, word := range g.free {
		if low := word & g.low[i]; low != 0 {
			w := int32(i*64 + bits.TrailingZeros64(low))
			g.worker(w, t)
			return w
		}
	}
	g.free.all(func(w int32) { g.worker(w, t) })
	return None
}

// expand meets the tasks that w has: those that it was to start first, since to
// move them costs nothing.
func (g *graph) expand(p *Planner, w int32) {
	for i := p.addHead[w]; i > 0; i = p.adds[i-1].next {
		if c := &p.changes[i-1]; c.To != None {
			g.task(c.Task, w)
		}
	}
	for k, t := range p.Held[w] {
		if p.flags[p.offset[w]+int32(k)] == kept {
			g.task(t, w)
		}
	}
}

// apply moves a copy along the path that leads to w.
func (g *graph) apply(p *Planner, w int32) {
	for g.workerFrom[w] != None {
		t := g.workerFrom[w]
		from := g.taskFrom[t]
		if from != None {
			p.release(t, from)
		}
		p.acquire(t, w)
		if from == None {
			return
		}
		w = from
	}
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

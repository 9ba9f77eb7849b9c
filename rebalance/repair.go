package rebalance

// The general search. With forbidden pairs, pinned copies or quarantined workers the
// earlier steps may leave copies without a place, or an uneven spread.

import (
	"math"
	"math/bits"
)

// repair places the pending copies, and then makes the spread as even as the constraints
// allow: the sum of squared loads is least when no path leads from a worker to one that
// has two copies less.
//
// Without constraints there is nothing to do. With them there is a search for each copy
// that is placed or moved here, and for each worker that remains above the lowest load. A
// search ends at a worker with the lowest load that is known to be reachable: usually the
// first one that it visits, in workers/64. If no path leads to that load, the search
// visits all that it can reach, O(n + tasks · workers/64), and limits later searches: see
// region. This happens once for each set of workers that may take different tasks.
// Forbidden pairs can be chosen so that these sets change again and again, or so that the
// path to the lowest load is always found last. Then it happens for each copy.
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

// placeRest places the pending copies. Each has a place, because no task needs more
// copies than there are open workers that may have one.
func (p *Planner) placeRest(g *graph) {
	for _, x := range p.pending {
		for range x.copies {
			p.placeOne(g, x.task)
		}
	}
	p.pending = p.pending[:0]
}

// placeOne places one copy of t so that the lowest possible load grows.
func (p *Planner) placeOne(g *graph, t int32) {
	p.index.free(t, g.through, g.free)
	g.aim(g.free)
	g.begin()
	g.task(t, None)
	best := g.find(p, math.MaxInt32)
	g.apply(p, best)
	g.changed(p, best)
}

// improve moves one copy from w along a path to a worker that has two copies less.
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

// release removes a planned or running copy of t from w.
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

// acquire gives w a copy of t: w keeps the one that it ran before, or starts one.
func (p *Planner) acquire(t, w int32) {
	p.index.put(t, w)
	if !p.keepAgain(t, w) {
		p.gain(t, w)
	}
}

// keepAgain keeps the copy of t that w ran before, and reports whether w ran one.
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

// graph is a breadth-first search over tasks and workers: from a task to the
// workers that may gain it, and from a worker to the tasks that it has.
type graph struct {
	round      uint32
	tasks      []uint32 // by task: the round in which it was met
	taskFrom   []int32  // by task: the worker that gives it away, or None
	workerFrom []int32  // by worker: the task that it gains, or None
	reached    []int32  // workers, in order
	queue      []int32  // tasks

	// Of the open workers.
	through   set // all of them
	unreached set
	free      set // of one step, until the next

	regions  []region // the first is of all
	regionOf []int32  // by worker: the region that limits a search from it
	within   set      // no path of this search leaves these
	target   set      // those of within where it may end
}

func (g *graph) init(p *Planner) {
	if len(g.tasks) < len(p.Want) {
		g.tasks = make([]uint32, len(p.Want))
		g.taskFrom = make([]int32, len(p.Want))
		g.round = 0
	}
	g.reached = g.reached[:0]
	g.workerFrom = sized(g.workerFrom, len(p.States))
	g.regionOf = sized(g.regionOf, len(p.States))
	g.through = g.through.emptied(len(p.States))
	g.unreached = g.unreached.emptied(len(p.States))
	g.free = g.free.emptied(len(p.States))
	g.within = g.within.emptied(len(p.States))
	g.target = g.target.emptied(len(p.States))
	for _, w := range p.open {
		g.through.add(w)
	}
	g.forget(p)
}

// changed records that the load of w changed.
func (g *graph) changed(p *Planner, w int32) {
	for i := range g.regions {
		if r := &g.regions[i]; r.members.has(w) {
			r.changed(p, w)
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

// find reaches workers until it reaches one of target, or has reached all that it can. It
// returns the first one with the least load, if that is at most most.
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
	g.learn(p)
	best := None
	for _, w := range g.reached {
		if p.load[w] <= most && (best == None || p.load[w] < p.load[best]) {
			best = w
		}
	}
	return best
}

// reach reaches the workers that may gain t. It returns one of target, or None.
func (g *graph) reach(p *Planner, t int32) int32 {
	p.index.free(t, g.unreached, g.free)
	for i, word := range g.free {
		if target := word & g.target[i]; target != 0 {
			w := int32(i*64 + bits.TrailingZeros64(target))
			g.worker(w, t)
			return w
		}
	}
	g.free.all(func(w int32) { g.worker(w, t) })
	return None
}

// expand visits the tasks of w. Planned starts come first, because moving them costs
// nothing.
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
	g.widen(p, w)
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

// region is a set of workers that no path leaves, and their lowest load. So no path from
// one of them leads to a lower load, and a search may end at a worker with that load.
//
// Regions remain valid when copies move along a path to the lowest reachable load, unless
// the path enters a region: see widen. The lowest load of a region never falls, because a
// copy only moves off a worker that has at least two more.
type region struct {
	members set
	own     set // those of members whose search it limits; if there are none, it is not in use
	lowest  int32
	low     set // the members with the lowest load
	lows    int
}

// forget leaves a single region, of all open workers.
func (g *graph) forget(p *Planner) {
	g.regions = g.regions[:0]
	r := g.newRegion(len(p.States))
	for _, w := range p.open {
		r.members.add(w)
		r.own.add(w)
		g.regionOf[w] = 0
	}
	r.findLowest(p)
}

// newRegion appends an empty region and returns it. It reuses memory.
func (g *graph) newRegion(workers int) *region {
	if n := len(g.regions); n < cap(g.regions) {
		g.regions = g.regions[:n+1]
	} else {
		g.regions = append(g.regions, region{})
	}
	r := &g.regions[len(g.regions)-1]
	r.members, r.own = r.members.emptied(workers), r.own.emptied(workers)
	return r
}

func (r *region) findLowest(p *Planner) {
	r.lowest, r.lows = math.MaxInt32, 0
	r.low = r.low.emptied(len(p.States))
	for _, w := range p.open {
		if !r.members.has(w) || p.load[w] > r.lowest {
			continue
		}
		if p.load[w] < r.lowest {
			r.lowest, r.lows = p.load[w], 0
			clear(r.low)
		}
		r.low.add(w)
		r.lows++
	}
}

// changed records that the load of w, a member, has changed.
func (r *region) changed(p *Planner, w int32) {
	isLow := p.load[w] == r.lowest
	switch {
	case isLow == r.low.has(w):
	case isLow:
		r.low.add(w)
		r.lows++
	default:
		r.low.remove(w)
		r.lows--
		if r.lows == 0 {
			r.findLowest(p)
		}
	}
}

// aim limits a search from the given workers: it sets within, which the search cannot
// leave, and target, at which it ends. It returns the load of target, which is the lowest
// in within. It empties from.
func (g *graph) aim(from set) int32 {
	lowest := int32(math.MaxInt32)
	clear(g.within)
	clear(g.target)
	for i := range from {
		for from[i] != 0 {
			w := int32(i*64 + bits.TrailingZeros64(from[i]))
			r := &g.regions[g.regionOf[w]]
			from.without(r.own)
			g.within.with(r.members)
			if r.lowest < lowest {
				lowest = r.lowest
				clear(g.target)
			}
			if r.lowest == lowest {
				g.target.with(r.low)
			}
		}
	}
	return lowest
}

// learn makes a region of the workers that an exhaustive search has reached. It limits the
// searches of those workers that no other region limits as much.
func (g *graph) learn(p *Planner) {
	at := 1
	for at < len(g.regions) && !g.regions[at].own.isEmpty() {
		at++
	}
	if at == len(g.regions) {
		g.newRegion(len(p.States))
	}
	e := &g.regions[at]
	clear(e.members)
	for _, w := range g.reached {
		e.members.add(w)
	}
	e.findLowest(p)
	for _, w := range g.reached {
		if r := &g.regions[g.regionOf[w]]; r.lowest < e.lowest {
			r.own.remove(w)
			e.own.add(w)
			g.regionOf[w] = int32(at)
		}
	}
	copy(g.within, e.members)
}

// widen extends every region that the path to w enters from outside by all workers that
// the search could reach, because a copy that moved in can move back and further. These
// workers have at least the load of w, so the lowest load of the region stays.
func (g *graph) widen(p *Planner, w int32) {
	for i := range g.regions {
		if r := &g.regions[i]; r.members.has(w) && !r.own.isEmpty() && !r.members.contains(g.within) {
			r.members.with(g.within)
			r.findLowest(p)
		}
	}
}

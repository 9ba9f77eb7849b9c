package rebalance

import "slices"

// What constraints leave over: with bounds, forbidden pairs or closed workers
// the steps before may fail, and a general search takes their place.

// repair places what is still pending where it may go, fewest copies first, and
// then makes the spread as even as the constraints allow: the sum of squared
// loads is least when no path leads from a worker to one that has two less.
//
// Without constraints there is nothing to do. With them, a search costs all
// that there is in the worst case, and there is one for each copy that is
// placed or moved here, and for each worker that is left above the lowest.
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
	var g graph
	g.init(p)
	workers := append([]int32(nil), p.open...)
	for changed := true; changed; {
		// What moves away from a worker beyond its bound may make room for what
		// is pending, so both are tried until neither helps.
		changed = p.placeRest(&g)
		p.byLoad(workers)
		clear(g.dead)
		for _, w := range workers {
			if g.dead[w] {
				continue
			}
			moved := false
			for p.improve(&g, w) {
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
	if !slices.ContainsFunc(p.open, func(w int32) bool { return !p.hasBound(w, p.load[w]) }) {
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
	g.spread(p)
	best := None
	for _, w := range g.reached {
		if !p.hasBound(w, p.load[w]) && (best == None || p.load[w] < p.load[best]) {
			best = w
		}
	}
	if best == None {
		return false
	}
	g.apply(p, best)
	return true
}

// improve moves one copy from w along a path to a worker that has two less, or,
// where w is beyond its bound, to any with room.
func (p *Planner) improve(g *graph, w int32) bool {
	excess := p.hasBound(w, p.load[w]-1)
	if !excess && !p.anyBelow(p.load[w]-1) {
		return false
	}
	g.begin()
	g.worker(w, None)
	g.spread(p)
	best := None
	for _, v := range g.reached {
		if v == w || p.hasBound(v, p.load[v]) || !excess && p.load[v] > p.load[w]-2 {
			continue
		}
		if best == None || p.load[v] < p.load[best] {
			best = v
		}
	}
	if best == None {
		return false
	}
	g.apply(p, best)
	return true
}

func (p *Planner) anyBelow(load int32) bool {
	for _, v := range p.open {
		if p.load[v] < load {
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
	workers    []uint32
	dead       []bool  // by worker: no path leads from it to one that has two less
	taskFrom   []int32 // by task: the worker that gives it away, or None
	workerFrom []int32 // by worker: the task that it gains, or None
	reached    []int32 // workers, in order
	unreached  []int32
	queue      []int32 // tasks
	next       int     // into queue
	opened     int     // into reached
}

func (g *graph) init(p *Planner) {
	g.tasks = make([]uint32, len(p.Want))
	g.taskFrom = make([]int32, len(p.Want))
	g.dead = make([]bool, len(p.States))
	g.workers = make([]uint32, len(p.States))
	g.workerFrom = make([]int32, len(p.States))
}

func (g *graph) begin() {
	g.round++
	g.reached, g.queue = g.reached[:0], g.queue[:0]
	g.next, g.opened = 0, 0
	g.unreached = nil
}

func (g *graph) task(t, from int32) {
	if g.tasks[t] != g.round {
		g.tasks[t] = g.round
		g.taskFrom[t] = from
		g.queue = append(g.queue, t)
	}
}

func (g *graph) worker(w, from int32) {
	g.workers[w] = g.round
	g.workerFrom[w] = from
	g.reached = append(g.reached, w)
}

// spread reaches all that can be.
func (g *graph) spread(p *Planner) {
	for _, w := range p.open {
		// One that is beyond its bound gains nothing, not even in exchange.
		if g.workers[w] != g.round && !p.hasBound(w, p.load[w]-1) {
			g.unreached = append(g.unreached, w)
		}
	}
	for {
		for ; g.next < len(g.queue) && len(g.unreached) > 0; g.next++ {
			t := g.queue[g.next]
			rest := g.unreached[:0]
			for _, w := range g.unreached {
				if p.index.blocks(t, w) {
					rest = append(rest, w)
				} else {
					g.worker(w, t)
				}
			}
			g.unreached = rest
		}
		if g.opened == len(g.reached) || len(g.unreached) == 0 {
			return
		}
		g.expand(p, g.reached[g.opened])
		g.opened++
	}
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

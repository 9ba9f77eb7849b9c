package rebalance

import "math/bits"

// The search of repair.

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

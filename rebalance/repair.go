package rebalance

// The general search. With forbidden pairs, pinned copies or quarantined workers the
// earlier steps may leave copies without a place, or an uneven spread.

import (
	"math"
	"math/bits"
)

// repair is the step that searches breadth-first over tasks and workers: from a task to
// the workers that may gain it, and from a worker to the tasks that it has.
type repair struct {
	*draft
	search *search // for undo and the index

	round      uint32
	met        []uint32 // by task: the round in which it was met
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
	goal     set      // those of within where it may end
}

// run places the pending copies, and then makes the spread as even as the constraints
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
func (r *repair) run() {
	if !r.isConstrained() {
		return
	}
	if len(r.pending) == 0 && r.isEven() {
		return
	}
	r.search.index.begin(len(r.Want))
	for t, need := range r.need {
		if need > 0 {
			r.search.index.tasks.add(int32(t))
		}
	}
	r.search.index.build(r.draft)
	r.init()
	workers := append(r.scratch[:0], r.open...)
	r.scratch = workers
	r.placeRest()
	for changed := true; changed; {
		changed = false
		r.byLoad(workers)
		for _, w := range workers {
			for r.improve(w) {
				changed = true
			}
		}
	}
}

func (r *repair) isEven() bool {
	for _, w := range r.open {
		if r.room(w) != 0 {
			return false
		}
	}
	return true
}

// placeRest places the pending copies. Each has a place, because no task needs more
// copies than there are open workers that may have one.
func (r *repair) placeRest() {
	for _, x := range r.pending {
		for range x.copies {
			r.placeOne(x.task)
		}
	}
	r.pending = r.pending[:0]
}

// placeOne places one copy of t so that the lowest possible load grows.
func (r *repair) placeOne(t int32) {
	r.search.index.free(t, r.through, r.free)
	r.aim(r.free)
	r.begin()
	r.meetTask(t, None)
	best := r.find(math.MaxInt32)
	r.apply(best)
	r.changed(best)
}

// improve moves one copy from w along a path to a worker that has two copies less.
func (r *repair) improve(w int32) bool {
	most := r.load[w] - 2
	clear(r.free)
	r.free.add(w)
	if r.aim(r.free) > most {
		return false
	}
	r.begin()
	r.reachWorker(w, None)
	best := r.find(most)
	if best == None {
		return false
	}
	r.apply(best)
	r.changed(best)
	r.changed(w)
	return true
}

// release removes a planned or running copy of t from w.
func (r *repair) release(t, w int32) {
	for i := r.addHead[w]; i > 0; i = r.adds[i-1].next {
		if c := &r.changes[i-1]; c.To != None && c.Task == t {
			r.search.undo(i-1, w)
			return
		}
	}
	for k, held := range r.Running[w] {
		if at := r.offset[w] + int32(k); held == t && r.flags[at] == kept {
			r.lose(t, w, at)
			r.search.index.take(t, w)
			return
		}
	}
	panic("rebalance: a copy is not where it should be") //nolint:forbidigo // an invariant is broken
}

// acquire gives w a copy of t: w keeps the one that it ran before, or starts one.
func (r *repair) acquire(t, w int32) {
	r.search.index.put(t, w)
	if !r.keepAgain(t, w) {
		r.gain(t, w)
	}
}

func (r *repair) init() {
	if len(r.met) < len(r.Want) {
		r.met = make([]uint32, len(r.Want))
		r.taskFrom = make([]int32, len(r.Want))
		r.round = 0
	}
	r.reached = r.reached[:0]
	r.workerFrom = sized(r.workerFrom, len(r.States))
	r.regionOf = sized(r.regionOf, len(r.States))
	r.through = r.through.emptied(len(r.States))
	r.unreached = r.unreached.emptied(len(r.States))
	r.free = r.free.emptied(len(r.States))
	r.within = r.within.emptied(len(r.States))
	r.goal = r.goal.emptied(len(r.States))
	for _, w := range r.open {
		r.through.add(w)
	}
	r.forget()
}

// changed records that the load of w changed.
func (r *repair) changed(w int32) {
	for i := range r.regions {
		if re := &r.regions[i]; re.members.has(w) {
			re.changed(r.draft, w)
		}
	}
}

func (r *repair) begin() {
	r.round++
	if r.round == 0 { // wrapped around
		clear(r.met)
		r.round = 1
	}
	r.reached, r.queue = r.reached[:0], r.queue[:0]
	copy(r.unreached, r.through)
}

// meetTask queues a task that this round has not met. from gives it away.
func (r *repair) meetTask(t, from int32) {
	if r.met[t] != r.round {
		r.met[t] = r.round
		r.taskFrom[t] = from
		r.queue = append(r.queue, t)
	}
}

// reachWorker records that the search has reached w, which gains the task from.
func (r *repair) reachWorker(w, from int32) {
	r.unreached.remove(w)
	r.workerFrom[w] = from
	r.reached = append(r.reached, w)
}

// find reaches workers until it reaches one of goal, or has reached all that it can. It
// returns the first one with the least load, if that is at most most.
func (r *repair) find(most int32) int32 {
	for next, opened := 0, 0; ; opened++ {
		for ; next < len(r.queue); next++ {
			if w := r.reach(r.queue[next]); w != None {
				return w
			}
		}
		if opened == len(r.reached) {
			break
		}
		r.expand(r.reached[opened])
	}
	r.learn()
	best := None
	for _, w := range r.reached {
		if r.load[w] <= most && (best == None || r.load[w] < r.load[best]) {
			best = w
		}
	}
	return best
}

// reach reaches the workers that may gain t. It returns one of goal, or None.
func (r *repair) reach(t int32) int32 {
	r.search.index.free(t, r.unreached, r.free)
	for i, word := range r.free {
		if target := word & r.goal[i]; target != 0 {
			w := int32(i*64 + bits.TrailingZeros64(target))
			r.reachWorker(w, t)
			return w
		}
	}
	r.free.all(func(w int32) { r.reachWorker(w, t) })
	return None
}

// expand visits the tasks of w. Planned starts come first, because moving them costs
// nothing.
func (r *repair) expand(w int32) {
	for i := r.addHead[w]; i > 0; i = r.adds[i-1].next {
		if c := &r.changes[i-1]; c.To != None {
			r.meetTask(c.Task, w)
		}
	}
	for k, t := range r.Running[w] {
		if r.flags[r.offset[w]+int32(k)] == kept {
			r.meetTask(t, w)
		}
	}
}

// apply moves a copy along the path that leads to w.
func (r *repair) apply(w int32) {
	r.widen(w)
	for r.workerFrom[w] != None {
		t := r.workerFrom[w]
		from := r.taskFrom[t]
		if from != None {
			r.release(t, from)
		}
		r.acquire(t, w)
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
func (r *repair) forget() {
	r.regions = r.regions[:0]
	re := r.newRegion(len(r.States))
	for _, w := range r.open {
		re.members.add(w)
		re.own.add(w)
		r.regionOf[w] = 0
	}
	re.findLowest(r.draft)
}

// newRegion appends an empty region and returns it. It reuses memory.
func (r *repair) newRegion(workers int) *region {
	if n := len(r.regions); n < cap(r.regions) {
		r.regions = r.regions[:n+1]
	} else {
		r.regions = append(r.regions, region{})
	}
	re := &r.regions[len(r.regions)-1]
	re.members, re.own = re.members.emptied(workers), re.own.emptied(workers)
	return re
}

func (re *region) findLowest(d *draft) {
	re.lowest, re.lows = math.MaxInt32, 0
	re.low = re.low.emptied(len(d.States))
	for _, w := range d.open {
		if !re.members.has(w) || d.load[w] > re.lowest {
			continue
		}
		if d.load[w] < re.lowest {
			re.lowest, re.lows = d.load[w], 0
			clear(re.low)
		}
		re.low.add(w)
		re.lows++
	}
}

// changed records that the load of w, a member, has changed.
func (re *region) changed(d *draft, w int32) {
	isLow := d.load[w] == re.lowest
	switch {
	case isLow == re.low.has(w):
	case isLow:
		re.low.add(w)
		re.lows++
	default:
		re.low.remove(w)
		re.lows--
		if re.lows == 0 {
			re.findLowest(d)
		}
	}
}

// aim limits a search from the given workers: it sets within, which the search cannot
// leave, and goal, at which it ends. It returns the load of goal, which is the lowest
// in within. It empties from.
func (r *repair) aim(from set) int32 {
	lowest := int32(math.MaxInt32)
	clear(r.within)
	clear(r.goal)
	for i := range from {
		for from[i] != 0 {
			w := int32(i*64 + bits.TrailingZeros64(from[i]))
			re := &r.regions[r.regionOf[w]]
			from.removeAll(re.own)
			r.within.addAll(re.members)
			if re.lowest < lowest {
				lowest = re.lowest
				clear(r.goal)
			}
			if re.lowest == lowest {
				r.goal.addAll(re.low)
			}
		}
	}
	return lowest
}

// learn makes a region of the workers that an exhaustive search has reached. It limits the
// searches of those workers that no other region limits as much.
func (r *repair) learn() {
	at := 1
	for at < len(r.regions) && !r.regions[at].own.isEmpty() {
		at++
	}
	if at == len(r.regions) {
		r.newRegion(len(r.States))
	}
	e := &r.regions[at]
	clear(e.members)
	for _, w := range r.reached {
		e.members.add(w)
	}
	e.findLowest(r.draft)
	for _, w := range r.reached {
		if re := &r.regions[r.regionOf[w]]; re.lowest < e.lowest {
			re.own.remove(w)
			e.own.add(w)
			r.regionOf[w] = int32(at)
		}
	}
	copy(r.within, e.members)
}

// widen extends every region that the path to w enters from outside by all workers that
// the search could reach, because a copy that moved in can move back and further. These
// workers have at least the load of w, so the lowest load of the region stays.
func (r *repair) widen(w int32) {
	for i := range r.regions {
		if re := &r.regions[i]; re.members.has(w) && !re.own.isEmpty() && !re.members.contains(r.within) {
			re.members.addAll(r.within)
			re.findLowest(r.draft)
		}
	}
}

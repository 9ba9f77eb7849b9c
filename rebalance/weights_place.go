package rebalance

// The items that must be placed: each goes where it adds least, and if no worker has
// room, others make room.

import "slices"

// placeAll places the pending items, the heaviest first, on the worker that is least used
// after it. An item that runs in the part makes room when it leaves, so that another pass
// may place more.
func (g *weighing) placeAll() {
	scarce := g.limit != nil || g.gain != nil
	slices.SortFunc(g.pending, func(i, j int32) int {
		if scarce && g.items[i].tier != g.items[j].tier {
			return int(g.items[i].tier) - int(g.items[j].tier)
		}
		return g.byWeight(i, j)
	})
	for left := g.pending; len(left) > 0; {
		n := 1
		for n < len(left) && (!scarce || g.items[left[n]].tier == g.items[left[0]].tier) {
			n++
		}
		g.placeTier(left[:n])
		left = left[n:]
	}
	if !g.listed {
		g.buildLists()
	}
}

// placeTier places items of the same urgency.
func (g *weighing) placeTier(items []int32) {
	left := append(g.memory.left2[:0], items...)
	g.memory.left2 = left
	left = g.placeEach(left, func(i int32) bool {
		w := g.place(i)
		switch {
		case w == None:
			return false
		case g.listed:
			g.put(i, w)
		default:
			g.shift(i, w)
		}
		return true
	})
	if len(left) > 0 && !g.listed {
		g.buildLists()
	}
	for n := -1; n != len(left); {
		n = len(left)
		g.memory.closed = g.memory.closed.emptied(g.workers)
		left = g.placeEach(left, g.makeRoom)
	}
}

// placeEach calls place with each item, and again with those left if one made room by
// leaving. It returns those that are still left.
func (g *weighing) placeEach(left []int32, place func(i int32) bool) []int32 {
	for again := true; again && len(left) > 0; {
		again = false
		kept := left[:0]
		for _, i := range left {
			if place(i) {
				again = again || g.items[i].from >= 0
			} else {
				kept = append(kept, i)
			}
		}
		left = kept
	}
	return left
}

// place returns the worker for an item: one of the pool of its class, or else any other.
func (g *weighing) place(i int32) int32 {
	it := &g.items[i]
	for _, all := range []bool{false, true} {
		g.walk.least(&g.ranking, g.ranking.spansOf(it.class, all), it.weight)
		for w := g.walk.next(); w != None; w = g.walk.next() {
			if g.mayTake(i, w) {
				return w
			}
		}
		if len(g.levels.level) == 1 {
			break
		}
	}
	return None
}

// step is one worker on a path that makes room: it takes an item from another worker.
type step struct {
	item, from int32
}

// makeRoom places an item along a shortest path of items that move on, and reports
// whether there is one. If there is none, the workers that it met reach no room, now or
// later, so that later searches leave them out.
func (g *weighing) makeRoom(item int32) bool {
	m := &g.memory
	seen := append(m.seen[:0], m.closed...)
	m.seen = seen
	m.steps = sized(m.steps, g.workers)
	m.queue = m.queue[:0]
	m.met = m.met.emptied(max(1, len(g.may)))
	if w := g.reach(item, None, seen); w != None {
		g.walkBack(w)
		return true
	}
	for k := 0; k < len(m.queue); k++ {
		w := m.queue[k]
		taken := m.steps[w].item
		onlyNew := !g.mayGain(w, g.items[taken].from != w)
		of := g.list(w)
		for _, i := range slices.Backward(of) {
			if onlyNew && g.items[i].from == w {
				continue
			}
			if g.tasks == 0 && g.barred == nil && g.gain == nil && !g.loose.has(i) && m.met.has(g.items[i].class) {
				continue // another item of the class has met the same workers
			}
			if v := g.reach(i, w, seen); v != None {
				g.walkBack(v)
				return true
			}
		}
	}
	copy(m.closed, seen)
	return false
}

// reach adds the workers that may run an item and were not met to the queue. It returns
// the first one that has room, or None.
func (g *weighing) reach(i, from int32, seen set) int32 {
	m := &g.memory
	class := g.items[i].class
	m.met.add(class)
	for _, s := range g.ranking.spansOf(class, true) {
		for _, w := range g.ranking.order[s.from:s.to] {
			if seen.has(w) || w == from || !g.mayRun(i, w) {
				continue
			}
			seen.add(w)
			m.steps[w] = step{i, from}
			if g.hasRoom(w, g.items[i].from != w) {
				return w
			}
			m.queue = append(m.queue, w)
		}
	}
	return None
}

// walkBack moves the items of a path that ends at a worker.
func (g *weighing) walkBack(w int32) {
	for w != None {
		s := g.memory.steps[w]
		g.put(s.item, w)
		w = s.from
	}
}

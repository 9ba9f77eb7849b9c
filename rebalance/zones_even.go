package rebalance

// The copies that change zone, so that the zones are even.

// zoneEvening moves copies between zones along cheapest paths. An arc from a zone to
// another is a task with a copy in the first that the second may gain. It costs 1 if the
// copy stays otherwise, or 0, and 1 less if the second gives up a copy otherwise.
//
// Each list of arcs may hold some that are outdated. A task is added again when its copies
// change, and a task in front of a list is used only if its cost is still that of
// the list.
type zoneEvening struct {
	*zoneQuotas
	room bool // only off workers without room, and beyond default caps if need be
	// Copies beyond a default cap and those without a place may make cycles of negative cost,
	// in which there is no cheapest path. Then all arcs cost one more, and starts may exceed
	// the minimum.
	plain bool
	arcs  []arcList // by part, from, to, and kind: see arcKinds
	cost  []int     // by from and to: of the cheapest path
	next  []int32   // by from and to: the next zone of that path
	kind  []int32   // by from and to: the kind of the cheapest arc
	path  []int32
	open  []int32 // the zones that may gain a copy of the task at hand
}

// arcList lists tasks. Those before first are used.
type arcList struct {
	tasks []int32
	first int
}

// arcKinds is the number of kinds of arcs: by cost from -1 to 1, and of these first copies
// of workers that have too many.
const arcKinds = 6

// gain is what a path is for, the most important last. A path between zones on the same side
// of their aims would need others later, which undo a part of it.
type gain uint8

const (
	saves       gain = iota // a start, and leaves the zones as even
	evens                   // the zones
	evensToAims             // the zones, from one above its aim to one below
)

// noPath is above the cost of any path.
const noPath = 1 << 30

// run moves copies until no move makes the zones more even, or saves a start. With room,
// it moves only copies that the limits of workers leave without a place, and it may exceed
// default caps.
func (e *zoneEvening) run(q *zoneQuotas, room bool) {
	e.zoneQuotas, e.room, e.plain = q, room, room
	z := q.zones
	e.cost, e.next, e.kind = sized(e.cost, z*z), sized(e.next, z*z), sized(e.kind, z*z)
	for {
		e.scan()
		moved := false
		for part := range q.levels.parts {
			for e.step(part) {
				moved = true
			}
		}
		if z <= pathZones || !moved {
			break
		}
	}
	e.zoneQuotas = nil
}

// limitOf returns how many copies of t one zone may run.
func (e *zoneEvening) limitOf(t int32) int32 {
	if e.room {
		return e.lastCap(t)
	}
	return e.capOf(t)
}

// scan lists all arcs. One pass over the tasks.
func (e *zoneEvening) scan() {
	n := e.levels.parts * e.zones * e.zones * arcKinds
	if cap(e.arcs) < n {
		e.arcs = append(e.arcs[:cap(e.arcs)], make([]arcList, n-cap(e.arcs))...)
	}
	e.arcs = e.arcs[:n]
	for i := range e.arcs {
		e.arcs[i] = arcList{tasks: e.arcs[i].tasks[:0]}
	}
	for t := range int32(len(e.target)) {
		e.list(t, e.spare(t))
	}
}

// spare returns the zone whose copy of t is on the worker that has the most copies above
// its level, or None.
func (e *zoneEvening) spare(t int32) int32 {
	if len(e.excess) == 0 {
		return None
	}
	best, of := None, None
	most := int32(0)
	for z := range int32(e.zones) {
		at := int(t)*e.zones + int(z)
		if e.quota[at] == 0 || e.quota[at] > e.held[at] {
			continue
		}
		if w := e.holder[at]; e.excess[w] > most {
			best, of, most = z, w, e.excess[w]
		}
	}
	if best != None {
		e.excess[of]--
	}
	return best
}

// list lists the arcs of t. Those out of the zone spare come first.
func (e *zoneEvening) list(t, spare int32) {
	start := int(t) * e.zones
	limit := e.limitOf(t)
	e.open = e.open[:0]
	for z := range int32(e.zones) {
		if e.quota[start+int(z)] < e.top(t, z, limit) {
			e.open = append(e.open, z)
		}
	}
	if len(e.open) == 0 {
		return
	}
	part := e.part(t)
	for from := range int32(e.zones) {
		at := start + int(from)
		if e.quota[at] <= e.pinnedAt(at) {
			continue
		}
		last := int64(0)
		if e.zones > pathZones {
			last = e.levels.markAt(part, from, e.levels.load[part*e.zones+int(from)])
		}
		for _, to := range e.open {
			if to == from || e.zones > pathZones && last <= e.levels.markAt(part, to, e.levels.load[part*e.zones+int(to)]+1) {
				continue
			}
			kind := 2*(e.arcCost(at, start+int(to))+1) + 1
			if from == spare {
				kind--
			}
			a := &e.arcs[e.arc(part, from, to)+kind]
			a.tasks = append(a.tasks, t)
		}
	}
}

// arcCost returns what it costs to move a copy of a task, between two positions of its row.
func (e *zoneEvening) arcCost(from, to int) int {
	cost := 0
	if e.quota[from] > e.held[from] {
		cost--
	}
	if e.quota[to] >= e.held[to] {
		cost++
	}
	return cost
}

// arc returns the first list of the arcs between two zones.
func (e *zoneEvening) arc(part int, from, to int32) int {
	return ((part*e.zones+int(from))*e.zones + int(to)) * arcKinds
}

// front returns the first kind of arcs between two zones of which there is any, after
// removing outdated arcs from the front of the lists; arcKinds if there is none.
func (e *zoneEvening) front(part int, from, to int32) int32 {
	lists := e.arcs[e.arc(part, from, to):][:arcKinds]
	for kind := range lists {
		a := &lists[kind]
		for ; a.first < len(a.tasks); a.first++ {
			t := a.tasks[a.first]
			at, into := int(t)*e.zones+int(from), int(t)*e.zones+int(to)
			if e.quota[at] > e.pinnedAt(at) && e.quota[into] < e.top(t, to, e.limitOf(t)) && e.arcCost(at, into) == kind/2-1 {
				return int32(kind)
			}
		}
	}
	return arcKinds
}

// step moves some copies along the best path, and reports whether there is one.
func (e *zoneEvening) step(part int) bool {
	e.findPaths(part)
	l := &e.levels
	load := l.load[part*e.zones:][:e.zones]
	start, end, cost := None, None, 0
	var best gain
	var last, next int64
	for a := range int32(e.zones) {
		if load[a] == 0 {
			continue
		}
		lastA := l.markAt(part, a, load[a])
		if e.room && lastA != fullMark { // it has room
			continue
		}
		for b := range int32(e.zones) {
			c := e.cost[int(a)*e.zones+int(b)]
			if a == b || c == noPath {
				continue
			}
			nextB := l.markAt(part, b, load[b]+1)
			g := saves
			switch at, into := part*e.zones+int(a), part*e.zones+int(b); {
			case lastA < nextB || lastA == nextB && c >= 0:
				continue
			case lastA == nextB:
			case l.load[at] > l.aim[at] && l.load[into] < l.aim[into]:
				g = evensToAims
			default:
				g = evens
			}
			if start == None || g > best ||
				g == best && (c < cost || c == cost && (lastA > last || lastA == last && nextB < next)) {
				start, end, cost, best, last, next = a, b, c, g, lastA, nextB
			}
		}
	}
	if start == None {
		return false
	}
	if !e.follow(start, end) {
		again := !e.plain
		e.plain = true
		return again
	}
	n := 1
	if best != saves {
		n = e.batch(part, start, end)
	}
	if e.room {
		n = min(n, load[start]-l.room(start))
	}
	for range n {
		if !e.moveAlong(part) {
			break
		}
	}
	return true
}

// findPaths finds the cheapest paths between all zones of a part.
func (e *zoneEvening) findPaths(part int) {
	zones := int32(e.zones)
	cost, next := e.cost, e.next
	for a := range zones {
		for b := range zones {
			at := int(a*zones + b)
			cost[at], next[at] = noPath, None
			if a == b {
				continue
			}
			if e.kind[at] = e.front(part, a, b); e.kind[at] < arcKinds {
				cost[at], next[at] = int(e.kind[at])/2-1, b
				if e.plain {
					cost[at]++
				}
			}
		}
	}
	if zones > pathZones {
		return
	}
	for by := range zones {
		for a := range zones {
			first := cost[a*zones+by]
			if first == noPath || a == by {
				continue
			}
			for b := range zones {
				rest := cost[by*zones+b]
				if b != a && b != by && rest != noPath && first+rest < cost[a*zones+b] {
					cost[a*zones+b], next[a*zones+b] = first+rest, next[a*zones+by]
				}
			}
		}
	}
}

// follow sets path to the zones of the cheapest path, and reports whether there is one.
func (e *zoneEvening) follow(start, end int32) bool {
	e.path = append(e.path[:0], start)
	for at := start; at != end; {
		at = e.next[int(at)*e.zones+int(end)]
		if at == None || len(e.path) > e.zones {
			return false
		}
		e.path = append(e.path, at)
	}
	return true
}

// batch returns how many copies may move from a zone to another: as many as bring one to
// its range of even loads, or else as long as each makes them more even.
func (e *zoneEvening) batch(part int, from, to int32) int {
	l := &e.levels
	a, b := part*e.zones+int(from), part*e.zones+int(to)
	if n := min(l.load[a]-l.high[a], l.low[b]-l.load[b]); n > 0 {
		return n
	}
	low, high := 1, l.load[a]+1
	for high-low > 1 {
		mid := (low + high) / 2
		if l.markAt(part, from, l.load[a]-mid+1) > l.markAt(part, to, l.load[b]+mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// moveAlong moves one copy along each arc of the path. It reports whether there was one for
// each, of the kind of the path.
func (e *zoneEvening) moveAlong(part int) bool {
	for i, from := range e.path[:len(e.path)-1] {
		to := e.path[i+1]
		kind := e.kind[int(from)*e.zones+int(to)]
		if now := e.front(part, from, to); now == arcKinds || now/2 != kind/2 {
			return false
		}
	}
	for i, from := range e.path[:len(e.path)-1] {
		to := e.path[i+1]
		lists := e.arcs[e.arc(part, from, to):][:arcKinds]
		cost := e.kind[int(from)*e.zones+int(to)] / 2
		a := &lists[2*cost]
		if a.first == len(a.tasks) {
			a = &lists[2*cost+1]
		}
		t := a.tasks[a.first]
		a.first++
		e.add(t, from, -1)
		e.add(t, to, 1)
		e.list(t, None)
	}
	return true
}

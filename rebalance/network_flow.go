package rebalance

// A flow of most units and least cost, by phases: all units that cost 0 go first, then
// all that cost 1, and so on. Each phase sends blocking flows along shortest paths.

import "math"

// The first two nodes of a flow.
const (
	source int32 = iota
	sink
	firstNode
)

// unbounded is the capacity of an edge that has none. Sums of a few of these do not
// overflow.
const unbounded = math.MaxInt32 / 4

// edge is an edge of a network while it is built.
type edge struct {
	from, to, capacity int32
	cost               int8
}

// arc is an edge as one of its two nodes sees it.
type arc struct {
	to   int32 // the other node
	twin int32 // the arc there
	room int32 // how many more units can go to the other node
	back int32 // how many can come from it: the room of the twin
	cost int32 // of a unit that goes there
}

// flow is a network of nodes and edges, and what flows in it. Edges cost 0 or 1.
type flow struct {
	edges []edge
	first []int32 // by node: its first arc; one more at the end
	arcs  []arc
	at    []int32 // by edge: its arc at the node where it begins

	level  []int32 // by node: the arcs to the sink along admissible arcs, None if unknown
	next   []int32 // by node: the first arc that may still carry units
	queue  []int32
	price  []int32 // by node: the least cost of a way to the sink
	priced bool    // costs count: units use only arcs on a cheapest way

	distance int // the price of the source
	work     int // arcs looked at
}

// begin removes all edges, and begins to count the work.
func (f *flow) begin() { f.edges, f.work = f.edges[:0], 0 }

// edge adds an edge and returns its number.
func (f *flow) edge(from, to, capacity int32, cost int8) int32 {
	f.edges = append(f.edges, edge{from, to, capacity, cost})
	return int32(len(f.edges) - 1)
}

// link makes the arcs of the edges between so many nodes.
func (f *flow) link(nodes int) {
	f.first = sized(f.first, nodes+1)
	f.next = sized(f.next, nodes)
	f.level = sized(f.level, nodes)
	f.price = sized(f.price, nodes)
	f.queue = sized(f.queue, nodes)
	f.distance = 0
	for i := range f.edges {
		f.first[f.edges[i].from+1]++
		f.first[f.edges[i].to+1]++
	}
	for v := range nodes {
		f.first[v+1] += f.first[v]
	}
	copy(f.next, f.first)
	if n := 2 * len(f.edges); cap(f.arcs) < n {
		f.arcs = make([]arc, n)
	} else {
		f.arcs = f.arcs[:n]
	}
	if n := len(f.edges); cap(f.at) < n {
		f.at = make([]int32, n)
	} else {
		f.at = f.at[:n]
	}
	for i := range f.edges {
		e := &f.edges[i]
		a, b := f.next[e.from], f.next[e.to]
		f.next[e.from]++
		f.next[e.to]++
		f.arcs[a] = arc{e.to, b, e.capacity, 0, int32(e.cost)}
		f.arcs[b] = arc{e.from, a, 0, e.capacity, -int32(e.cost)}
		f.at[i] = a
	}
}

// send sends units along an edge, whatever it costs.
func (f *flow) send(e, units int32) { f.shift(&f.arcs[f.at[e]], units) }

func (f *flow) shift(a *arc, units int32) {
	twin := &f.arcs[a.twin]
	a.room -= units
	a.back += units
	twin.room += units
	twin.back -= units
}

// on returns how many units flow along an edge.
func (f *flow) on(e int32) int32 { return f.arcs[f.at[e]].back }

// room returns how many more units an edge can carry.
func (f *flow) room(e int32) int32 { return f.arcs[f.at[e]].room }

// fill sends as many units as possible from the source to the sink. If costs count, it
// keeps the cost of the units the least for their number, and stops early when it has
// looked at so many arcs since begin. It returns false if it stopped early.
//
// If costs count, no arc with room may have a negative cost at the beginning. This
// then holds for the costs under the prices, always: price[u] <= cost + price[v] for an
// arc from u to v with room. So no cycle in what remains has a negative cost, and no
// other flow of as many units is cheaper.
func (f *flow) fill(priced bool, limit int) bool {
	f.priced = priced
	for !priced || f.work < limit {
		if f.search() {
			copy(f.next, f.first)
			f.push(source, math.MaxInt32)
			continue
		}
		if !priced || !f.hasSupply() || !f.raise() {
			return true
		}
	}
	return false
}

// hasSupply reports whether the source has units left.
func (f *flow) hasSupply() bool {
	for _, a := range f.arcs[f.first[source]:f.first[source+1]] {
		if a.room > 0 {
			return true
		}
	}
	return false
}

// search finds the levels of the nodes up to the source's, and reports whether a way leads
// from the source to the sink. If none does, all nodes with a way to the sink have a
// level.
func (f *flow) search() bool {
	for v := range f.level {
		f.level[v] = None
	}
	f.level[sink] = 0
	f.queue = append(f.queue[:0], sink)
	for head := 0; head < len(f.queue); head++ {
		v := f.queue[head]
		arcs := f.arcs[f.first[v]:f.first[v+1]]
		f.work += len(arcs)
		level, price := f.level[v]+1, f.price[v]
		for i := range arcs {
			a := &arcs[i]
			if a.back == 0 || f.level[a.to] != None {
				continue
			}
			if f.priced && price-a.cost != f.price[a.to] {
				continue
			}
			f.level[a.to] = level
			if a.to == source {
				return true
			}
			f.queue = append(f.queue, a.to)
		}
	}
	return false
}

// raise raises the prices of the nodes without a way to the sink by 1, after search. It
// returns false if no such node has room toward the others, so that nothing more can be
// sent.
func (f *flow) raise() bool {
	open := false
	for v, level := range f.level {
		if level != None {
			continue
		}
		f.price[v]++
		if !open {
			for _, a := range f.arcs[f.first[v]:f.first[v+1]] {
				if a.room > 0 && f.level[a.to] != None {
					open = true
					break
				}
			}
		}
	}
	f.distance = int(f.price[source])
	return open
}

// push sends up to so many units from v to the sink, each step one level down, and
// returns how many it sent.
func (f *flow) push(v, units int32) int32 {
	if v == sink {
		return units
	}
	sent := int32(0)
	for end := f.first[v+1]; f.next[v] < end; f.next[v]++ {
		f.work++
		a := &f.arcs[f.next[v]]
		if a.room == 0 || f.level[a.to] != f.level[v]-1 {
			continue
		}
		if f.priced && f.price[v]-a.cost != f.price[a.to] {
			continue
		}
		n := f.push(a.to, min(a.room, units-sent))
		if n > 0 {
			f.shift(a, n)
			sent += n
		}
		if sent == units {
			break
		}
	}
	return sent
}

// reaches reports whether a way led from v to the sink when fill ended.
func (f *flow) reaches(v int32) bool { return f.level[v] != None }

// addCapacity adds to the capacity of an edge.
func (f *flow) addCapacity(e, more int32) {
	a := &f.arcs[f.at[e]]
	a.room += more
	f.arcs[a.twin].back += more
}

package rebalance

// How many copies each worker runs, without their classes.

import (
	"math"
	"math/bits"
	"slices"
)

// levels holds what each worker runs: low copies beyond its base and its inflow, or one
// more up to high.
//
// Workers of one kind count as one, except special ones: those with a limit for new
// copies, and those that hold copies of a class that they may not gain. They have a
// node of their own.
//
// The classes, kinds and special workers are divided into parts. Begin with one part,
// and with the lowest cost of a copy at which the workers have room for all copies of the
// part. If each worker can fill its room below this cost, and the others go to workers at
// the cost, then the part is settled. Otherwise a cut shows what costs more, and what
// costs less. These become two parts, and the copies of the higher one fill all that it
// has in the lower one.
type levels struct {
	part    []int32 // by class, then by kind, then by special worker; higher parts have higher loads
	settled []bool  // by part
	rest    []int32 // by part: how many of its workers run one more than low
	top     int32   // the part of the copies without a place, or None
	missing []int32 // by tier: how many copies have no place

	low, high []int32 // by worker
	inflow    []int32 // by worker: what a special one gets from higher parts

	special  []int32 // by worker: its number among the special ones, or None
	specials []int32
	byKind   rows // the workers of each kind
	classes  rows // by kind: the classes that list it
	marks    []int32

	demand      []int32 // by class: the copies to run, without those that go to lower parts
	outflow     []int32 // by kind: the copies that go to special workers of lower parts
	byPart      rows    // the workers of each part
	costs       []cost  // of the copies at about the level of a part
	sums        []int64 // by part
	open        []bool  // by part: a cut divides it
	number      []int32 // by part: its new number, or that of its lower half
	nextSettled []bool
	nextRest    []int32
	pairs       []Pair
}

// cost is what the next copy of a worker with this load adds to the sum.
type cost struct{ worker, load int32 }

// findLevels finds the levels of all workers.
func (n *network) findLevels() {
	n.findSpecials()
	nodes := len(n.want) + n.kinds + len(n.specials)
	n.part = sized(n.part, nodes)
	n.settled = append(n.settled[:0], false)
	n.rest = append(n.rest[:0], 0)
	n.top, n.missing = None, n.missing[:0]
	n.low, n.high = sized(n.low, len(n.load)), sized(n.high, len(n.load))
	n.inflow = sized(n.inflow, len(n.load))
	if n.mayLackRoom() {
		n.place()
	}
	for slices.Contains(n.settled, false) {
		n.guess()
		n.build(false)
		n.fill(false, 0)
		n.divide()
	}
}

// findSpecials sorts the workers by kind, and finds the special ones.
func (n *network) findSpecials() {
	workers := int32(len(n.load))
	n.pairs = n.pairs[:0]
	for w := range workers {
		n.pairs = append(n.pairs, Pair{w, n.kindOf(w)})
	}
	n.byKind.reset()
	n.byKind.fill(n.kinds, n.pairs)
	n.pairs = n.pairs[:0]
	for k, kinds := range n.may {
		for _, g := range kinds {
			if int(g) < n.kinds {
				n.pairs = append(n.pairs, Pair{int32(k), g})
			}
		}
	}
	n.classes.reset()
	n.classes.fill(n.kinds, n.pairs)
	n.special, n.specials = sized(n.special, int(workers)), n.specials[:0]
	n.marks = sized(n.marks, len(n.want))
	for g := range int32(n.kinds) {
		for _, k := range n.classes.row(g) {
			n.marks[k] = g + 1
		}
		for _, w := range n.byKind.row(g) {
			n.special[w] = None
			special := n.gainOf(w) != unbounded
			for _, x := range n.held.row(w) {
				special = special || !n.mayAll(x.class) && n.marks[x.class] != g+1
			}
			if special {
				n.special[w] = int32(len(n.specials))
				n.specials = append(n.specials, w)
			}
		}
	}
}

// mayAll reports whether all workers may run class k.
func (n *network) mayAll(k int32) bool { return n.may == nil || n.may[k] == nil }

// mayLackRoom reports whether some copies may have no place.
func (n *network) mayLackRoom() bool {
	if len(n.specials) > 0 || len(n.load) == 0 {
		return true
	}
	for w := range int32(len(n.load)) {
		if n.limitOf(w) != unbounded {
			return true
		}
	}
	for k, c := range n.want {
		if c > 0 && !n.mayAll(int32(k)) && !slices.ContainsFunc(n.may[k], func(g int32) bool {
			return int(g) < n.kinds && len(n.byKind.row(g)) > 0
		}) {
			return true
		}
	}
	return false
}

// place finds out how many copies have no place. If there are any, the classes and
// workers that compete for too little room are the top part.
//
// Ways that begin at a class of a tier never take a place from another class, so the
// tiers can go one after the other.
func (n *network) place() {
	for w := range n.low {
		n.low[w] = n.capacity(int32(w), math.MaxUint64, 0)
		n.high[w] = n.low[w]
	}
	n.connect()
	n.build(false)
	for k, e := range n.supplyArc {
		if e != None {
			n.addCapacity(e, -n.want[k])
		}
	}
	n.missing = n.missing[:0]
	total := int32(0)
	for _, tier := range n.need {
		for k, c := range tier {
			if e := n.supplyArc[k]; e != None {
				n.addCapacity(e, c)
			}
		}
		n.fill(false, 0)
		before := total
		total = 0
		for _, e := range n.supplyArc {
			if e != None {
				total += n.room(e)
			}
		}
		n.missing = append(n.missing, total-before)
	}
	if total == 0 {
		return
	}
	n.top = 1
	for v := range n.part {
		if !n.reaches(firstNode + int32(v)) {
			n.part[v] = 1
		}
	}
	n.settled = append(n.settled, true)
	n.rest = append(n.rest, 0)
	n.connect()
}

// partOf returns the part of worker w.
func (n *network) partOf(w int32) int32 {
	if i := n.special[w]; i != None {
		return n.part[len(n.want)+n.kinds+int(i)]
	}
	return n.part[len(n.want)+int(n.kindOf(w))]
}

// connect computes what flows from higher parts to lower ones.
func (n *network) connect() {
	n.demand = append(n.demand[:0], n.want...)
	n.outflow = sized(n.outflow, n.kinds)
	for _, w := range n.specials {
		p, g := n.partOf(w), n.kindOf(w)
		n.inflow[w] = 0
		if n.part[len(n.want)+int(g)] > p {
			n.inflow[w] = n.gainOf(w)
			n.outflow[g] += n.gainOf(w)
		}
		for _, x := range n.held.row(w) {
			if n.part[x.class] > p && n.want[x.class] > 0 {
				n.inflow[w] += x.copies
				n.demand[x.class] -= x.copies
			}
		}
	}
}

// guess sets the lowest level at which each part that is not settled may have room for
// its copies.
func (n *network) guess() {
	n.connect()
	n.pairs = n.pairs[:0]
	for w := range int32(len(n.load)) {
		n.pairs = append(n.pairs, Pair{w, n.partOf(w)})
	}
	n.byPart.reset()
	n.byPart.fill(len(n.settled), n.pairs)
	n.sums = sized(n.sums, len(n.settled))
	for k, c := range n.demand {
		n.sums[n.part[k]] += int64(c)
	}
	for g, c := range n.outflow {
		n.sums[n.part[len(n.want)+g]] -= int64(c)
	}
	for p := range n.settled {
		if !n.settled[p] {
			n.rest[p] = n.findLevel(n.byPart.row(int32(p)), n.sums[p])
		}
	}
}

// findLevel finds the least cost below which the workers have room for so many copies, and
// sets low to their room below this cost, and high to their room up to it. It returns
// how many copies go beyond low.
func (n *network) findLevel(workers []int32, copies int64) int32 {
	if copies == 0 {
		for _, w := range workers {
			n.low[w], n.high[w] = 0, 0
		}
		return 0
	}
	// Costs are numbers of parts. These are so small that a worker has few copies whose cost
	// is between two numbers.
	most, shares, all := int32(1), uint64(0), uint64(copies)
	for _, w := range workers {
		share := n.shareOf(w)
		most, shares, all = max(most, share), shares+uint64(share), all+uint64(n.baseOf(w)+n.inflow[w])
	}
	scale := uint(bits.Len32(uint32(most)))
	if most == 1 {
		scale = 0
	}
	room := func(limit uint64) (sum int64) {
		for _, w := range workers {
			sum += int64(n.capacity(w, limit, scale))
		}
		return sum
	}
	below, step := uint64(1)<<61, uint64(1)<<scale
	if high, low := bits.Mul64(2*all, step); high < shares {
		mean, _ := bits.Div64(high, low, shares) // the cost of the mean load, which is near
		below = min(below, mean)
	}
	upTo := below + step
	for ; below > 0 && room(below) >= copies; step *= 2 {
		below, upTo = below-min(below, step), below
	}
	for ; upTo < 1<<62 && room(upTo) < copies; step *= 2 {
		below, upTo = upTo, upTo+step
	}
	for upTo-below > 1 {
		if mid := below + (upTo-below)/2; room(mid) < copies {
			below = mid
		} else {
			upTo = mid
		}
	}
	n.costs = n.costs[:0]
	for _, w := range workers {
		low, high := n.capacity(w, below, scale), n.capacity(w, upTo, scale)
		n.low[w], n.high[w] = low, low
		copies -= int64(low)
		for c := low; c < high; c++ {
			n.costs = append(n.costs, cost{w, n.baseOf(w) + n.inflow[w] + c})
		}
	}
	slices.SortFunc(n.costs, func(a, b cost) int {
		if c := n.compareCosts(a.worker, a.load, b.worker, b.load); c != 0 {
			return c
		}
		return int(a.worker - b.worker)
	})
	if copies == 0 || len(n.costs) == 0 {
		return 0
	}
	last := n.costs[min(copies, int64(len(n.costs)))-1]
	for _, x := range n.costs {
		switch c := n.compareCosts(x.worker, x.load, last.worker, last.load); {
		case c < 0:
			n.low[x.worker]++
			n.high[x.worker]++
			copies--
		case c == 0:
			n.high[x.worker]++
		}
	}
	return int32(copies)
}

// capacity returns how many copies beyond its base and inflow w may run such that none
// costs more than limit/2^scale.
func (n *network) capacity(w int32, limit uint64, scale uint) int32 {
	high, low := bits.Mul64(limit, uint64(n.shareOf(w)))
	if high>>scale != 0 {
		low = math.MaxUint64
	} else {
		low = low>>scale | high<<(64-scale)
	}
	most := int32(min(low/2+low%2, unbounded))
	return max(0, min(most, n.limitOf(w))-n.baseOf(w)-n.inflow[w])
}

// divide settles the parts in which all copies went through, and divides the others.
func (n *network) divide() {
	parts := int32(len(n.settled))
	n.open = sized(n.open, int(parts))
	open := n.open
	for k := range n.want {
		if e := n.supplyArc[k]; e != None && n.room(e) > 0 {
			open[n.part[k]] = true
		}
	}
	n.number = sized(n.number, int(parts)+1)
	number := n.number
	for p := range parts {
		number[p+1] = number[p] + 1
		if open[p] {
			number[p+1]++
		}
	}
	for v, p := range n.part {
		n.part[v] = number[p]
		if open[p] && !n.reaches(firstNode+int32(v)) {
			n.part[v]++
		}
	}
	n.nextSettled = sized(n.nextSettled, int(number[parts]))
	n.nextRest = sized(n.nextRest, int(number[parts]))
	for p := range parts {
		n.nextSettled[number[p]], n.nextRest[number[p]] = !open[p], n.rest[p]
	}
	if n.top != None {
		n.top = number[n.top]
	}
	n.settled, n.nextSettled = n.nextSettled, n.settled
	n.rest, n.nextRest = n.nextRest, n.rest
	n.connect()
}

// atLevels reports whether all that is held is at its level, and nothing else is wanted.
func (n *network) atLevels() bool {
	if !n.keepsAll() {
		return false
	}
	n.sums = sized(n.sums, len(n.rest))
	for w, sum := range n.load {
		own := sum - n.baseOf(int32(w)) - n.inflow[w]
		if own < n.low[w] || own > n.high[w] {
			return false
		}
		n.sums[n.partOf(int32(w))] += int64(own - n.low[w])
	}
	for p, c := range n.sums {
		if c != int64(n.rest[p]) {
			return false
		}
	}
	return true
}

package rebalance

// Which worker runs how many copies of which class (P14, P16).

import "slices"

// classCounts holds, by worker, how many copies it has of which classes, in ascending order
// of the class.
type classCounts struct {
	start []int32 // by worker; one more at the end
	items []classCopies
}

// classCopies is a number of copies of a class.
type classCopies struct{ class, copies int32 }

// reset removes all workers.
func (c *classCounts) reset() { c.start, c.items = append(c.start[:0], 0), c.items[:0] }

// add adds copies of a class to the worker that is being added.
func (c *classCounts) add(class, copies int32) {
	c.items = append(c.items, classCopies{class, copies})
}

// take adds the copies of some classes to the worker that is being added, and sets their counts
// to zero. It sorts the classes.
func (c *classCounts) take(counts, classes []int32) {
	slices.Sort(classes)
	for _, class := range classes {
		c.add(class, counts[class])
		counts[class] = 0
	}
}

// endWorker ends the worker that is being added.
func (c *classCounts) endWorker() { c.start = append(c.start, int32(len(c.items))) }

// workers returns the number of workers.
func (c *classCounts) workers() int { return len(c.start) - 1 }

// row returns what worker w has.
func (c *classCounts) row(w int32) []classCopies { return c.items[c.start[w]:c.start[w+1]] }

// copyOf makes c a copy of o.
func (c *classCounts) copyOf(o *classCounts) {
	c.start, c.items = append(c.start[:0], o.start...), append(c.items[:0], o.items...)
}

// network decides how many copies of each class each worker runs. Of all ways it takes
// one that places the most copies, tier by tier; of these one with the least sum of
// load²/share; and of these one with the fewest new copies.
//
// Think of it as a flow. Units go from the classes to the workers. Copies that are held
// cost nothing and go straight to their worker. New copies cost one each. They go to the
// kind first, and from there to a worker of it: which class goes to which worker of a
// kind costs the same. So the flow has an arc for each count that is held, for each kind
// that a class may use, and for each worker, and never one for each class and worker.
//
// The levels come first, without the costs: see levels. They say for each worker what
// it runs at least, and which workers run one more. The flow of least cost for these is
// the result.
type network struct {
	// need is, by tier and class, how many copies to run. Copies of a tier outrank those of
	// later tiers.
	need [][]int32
	// may lists, by class, the kinds of the workers that may gain its copies; a nil list
	// is all kinds, and so is a nil may.
	may [][]int32
	// kind is the kind of each worker; nil means 0 for all.
	kind []int32
	// share is, by worker, its part of the whole; nil means 1 for all.
	share []int32
	// base is, by worker, how many copies count in its load and do not move; nil means
	// none.
	base []int32
	// limit is, by worker, the most copies that it may run, and gain the most new ones.
	// NoLimit is no limit, and nil means NoLimit for all.
	limit, gain []int32
	// held is what may stay at no cost. There is a row for each worker. A worker may hold
	// copies of a class that it may not gain.
	held classCounts

	// count is what each worker runs.
	count classCounts
	// unplaced is, by class, how many copies have no place.
	unplaced []int32
	// starts is the number of new copies. No way to run as many copies with loads as even
	// has fewer than bound. proven says that these are equal.
	starts, bound int
	proven        bool

	// most is how many arcs to look at before the number of starts may be more than the
	// least; 0 means networkWork.
	most int

	flow
	levels
	want  []int32 // by class: the need of all tiers
	left  []int32 // by class
	load  []int32 // by worker, with all that is held
	kinds int
	dealt []span // by worker: its new copies in fresh
	fresh []classCopies
	pool  []classCopies // the new copies of a kind

	nodes      nodes
	supplyArc  []int32 // by class: the edge from the source, or None
	missingArc []int32 // by class of the top part and tier: the edge to what has no place
	heldArc    []int32 // by item of held: its edge, or None
	newArc     []int32 // by worker: the edge from its kind, or None
	lowArc     []int32 // by worker: the edge to the sink, or None
	highArc    []int32 // by worker: the edge to the rest of its part, or None
	restArc    []int32 // by part: the edge from its rest to the sink, or None
	kindLow    []int64 // by kind: the sum of low over its workers without a node
	kindHigh   []int64 // by kind: the same of high
}

// networkWork is how many arcs the search for the fewest starts looks at. This takes
// seconds; a million copies on ten thousand workers need a tenth at worst.
const networkWork = 1 << 30

// solve computes count and what follows.
func (n *network) solve() {
	n.begin()
	if n.isLevel() {
		n.keepAll()
		return
	}
	n.findLevels()
	if n.atLevels() {
		n.keepAll()
		return
	}
	n.chooseStarts()
	n.result()
}

// begin sums up what is wanted and held.
func (n *network) begin() {
	workers := n.held.workers()
	classes := 0
	if len(n.need) > 0 {
		classes = len(n.need[0])
	}
	n.want = sized(n.want, classes)
	for _, tier := range n.need {
		for k, c := range tier {
			n.want[k] += c
		}
	}
	n.unplaced = sized(n.unplaced, classes)
	n.load = sized(n.load, workers)
	n.left = append(n.left[:0], n.want...)
	n.kinds = 1
	for _, g := range n.kind {
		n.kinds = max(n.kinds, int(g)+1)
	}
	for w := range int32(workers) {
		sum := n.baseOf(w)
		for _, x := range n.held.row(w) {
			sum += x.copies
			n.left[x.class] -= x.copies
		}
		n.load[w] = sum
	}
}

// keepsAll reports whether all that is held can stay, and nothing else is wanted.
func (n *network) keepsAll() bool {
	for _, c := range n.left {
		if c != 0 {
			return false
		}
	}
	for w := range n.load {
		if limit := n.limitOf(int32(w)); n.load[w] > max(limit, n.baseOf(int32(w))) {
			return false
		}
	}
	return true
}

// isLevel reports whether all that is held can stay, nothing else is wanted, and no
// copy would add less to the sum on another worker, even if all classes could run there.
// Then there is nothing to decide.
func (n *network) isLevel() bool {
	if !n.keepsAll() {
		return false
	}
	// The last copy of no worker may cost more than the next of any other.
	last, next := None, None
	for w := range int32(len(n.load)) {
		if n.load[w] > n.baseOf(w) && (last == None ||
			n.compareCosts(w, n.load[w]-1, last, n.load[last]-1) > 0) {
			last = w
		}
		if n.load[w] < n.limitOf(w) && n.gainOf(w) > 0 &&
			(next == None || n.compareCosts(w, n.load[w], next, n.load[next]) < 0) {
			next = w
		}
	}
	return last == None || next == None || n.compareCosts(last, n.load[last]-1, next, n.load[next]) <= 0
}

// keepAll makes what is held the result.
func (n *network) keepAll() {
	n.count.copyOf(&n.held)
	n.starts, n.bound, n.proven = 0, 0, true
}

// compareCosts compares by how much the sum of load²/share grows if v, with load a, or w,
// with load b, gets one more copy.
func (n *network) compareCosts(v, a, w, b int32) int {
	x := uint64(2*int64(a)+1) * uint64(n.shareOf(w))
	y := uint64(2*int64(b)+1) * uint64(n.shareOf(v))
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func (n *network) kindOf(w int32) int32 {
	if n.kind == nil {
		return 0
	}
	return n.kind[w]
}

func (n *network) shareOf(w int32) int32 {
	if n.share == nil {
		return 1
	}
	return n.share[w]
}

func (n *network) baseOf(w int32) int32 {
	if n.base == nil {
		return 0
	}
	return n.base[w]
}

// limitOf returns the most copies that w may run.
func (n *network) limitOf(w int32) int32 {
	if n.limit == nil || n.limit[w] == NoLimit {
		return unbounded
	}
	return n.limit[w]
}

// gainOf returns the most new copies that w may get.
func (n *network) gainOf(w int32) int32 {
	if n.gain == nil || n.gain[w] == NoLimit {
		return unbounded
	}
	return n.gain[w]
}

package rebalance

// Placement by weight: which worker takes which copy if weights differ.

import (
	"cmp"
	"math"
	"slices"
)

// elsewhere is the worker of an item that runs on a worker outside the part.
const elsewhere int32 = -2

// weighing places the items of a part by weight (P17 to P19). It knows nothing of the
// draft. The caller fills the input, calls solve, and reads the output; all slices of the
// input stay the caller's. Workers are numbered from 0 within the part.
//
// Placement by weight is no flow, so the result is not always the best one. It is a
// fixpoint: solve on its result changes nothing.
type weighing struct {
	// Input, by worker. A nil slice means that all elements have the value in brackets.
	share []int32 // its part of the whole [1]
	base  []int64 // the weight of the copies that cannot move [0]
	fixed []int32 // the number of these copies [0]
	limit []int32 // the most copies in all [NoLimit]
	gain  []int32 // the most new copies [NoLimit]
	kind  []int32 // its kind [0]

	zones   int                    // how many zones there are, if they bind, else 0
	zone    []int32                // by worker
	running []int32                // by task and zone: the copies of the task that run
	most    func(task int32) int32 // how many copies one zone may have

	may   [][]int32 // by class: the kinds that may run it, ascending; nil means all
	items []weighed // the copies that can move or must be placed
	tasks int       // if several items can be of the same task: the number of tasks, else 0
	band  int32     // in millionths
	// barred reports whether a worker may not gain a copy of a task although its kind may,
	// because the pair is forbidden, or because a copy that is no item runs there. Nil
	// means never.
	barred func(task, worker int32) bool
	// rest and joined are as Problem.Rests and Problem.Joined.
	rest, joined []int32

	budget int // the most items that move although they could stay where they are, or NoLimit

	// Output, with to of each item. An item whose to equals its from does not move.
	spent int // items that get another worker although they could stay where they are

	workers int
	levels  weightLevels
	load    []int64 // by worker
	count   []int32 // by worker: copies
	gained  []int32 // by worker: new copies
	inZone  []int32 // by task and zone: the copies of the task, if zones bind
	high    []int64 // by worker: the highest load in band
	low     []int64 // by worker: the lowest load in band
	lists   [][]int32
	sorted  set // the workers whose list is sorted
	arena   []int32
	loose   set // the items that must be placed: their moves cost nothing
	// stuck holds the items without a place. They do not run, or stay where they must leave. An
	// item that must leave may be placed where it is, if another copy of its task leaves.
	stuck   set
	first   []int32 // by task, if tasks > 0: an item, plus one
	next    []int32 // by item: the next one of the task, plus one
	pending []int32
	listed  bool // lists is in use
	tight   bool // the bands are those of the first evening, of loose items
	ranking ranking
	walk    walk
	memory  memory
}

// weighed is an item: a copy with its weight.
type weighed struct {
	weight      int64
	task, class int32
	from        int32 // the worker that runs it, None, or elsewhere
	to          int32 // output: the worker that is to run it
	zone        int32 // if it runs elsewhere, the zone that runs it, otherwise None
	tier        int8  // the lower, the more urgent; used if workers have limits
	leaves      bool  // it must leave its worker if it has another place
}

// solve places the items.
func (g *weighing) solve() {
	g.begin()
	g.levels.solve(g.workers)
	g.ranking.build(g)
	g.placeAll()
	g.even()
	g.settle()
	g.untangle()
}

// begin counts what stays, and collects what must be placed.
func (g *weighing) begin() {
	g.workers = max(len(g.share), len(g.base), len(g.fixed), len(g.limit), len(g.gain), len(g.kind), g.workers)
	g.load, g.count, g.gained = sized(g.load, g.workers), sized(g.count, g.workers), sized(g.gained, g.workers)
	g.high, g.low = sized(g.high, g.workers), sized(g.low, g.workers)
	g.loose, g.stuck = g.loose.emptied(len(g.items)), g.stuck.emptied(len(g.items))
	g.sorted = g.sorted.emptied(g.workers)
	g.pending, g.spent, g.listed = g.pending[:0], 0, false
	copy(g.load, g.base)
	copy(g.count, g.fixed)
	if g.zones > 0 {
		g.inZone = append(g.inZone[:0], g.running...)
	}
	classes := max(1, len(g.may))
	l := &g.levels
	l.share, l.kind, l.may, l.base, l.each = g.share, g.kind, g.may, g.base, g.eachWeight
	l.demand, l.top = sized(l.demand, classes), sized(l.top, classes)
	if g.tasks > 0 {
		g.first, g.next = sized(g.first, g.tasks), sized(g.next, len(g.items))
	}
	for i := range g.items {
		it := &g.items[i]
		it.to = it.from
		l.demand[it.class] += it.weight
		l.top[it.class] = max(l.top[it.class], it.weight)
		if it.from >= 0 {
			g.load[it.from] += it.weight
			g.count[it.from]++
		}
		if it.leaves || it.from < 0 {
			g.pending = append(g.pending, int32(i))
			g.loose.add(int32(i))
			g.stuck.add(int32(i))
		}
		if g.tasks > 0 {
			g.next[i], g.first[it.task] = g.first[it.task], int32(i)+1
		}
	}
	l.most = nil
	for w, n := range g.gain {
		if n == 0 && l.most == nil {
			l.most = slices.Repeat([]int64{math.MaxInt64}, g.workers)
		}
		if n == 0 {
			l.most[w] = g.load[w]
		}
	}
	if l.most == nil {
		return
	}
	for i := range g.items { // what leaves a worker that gains nothing does not come back
		if it := &g.items[i]; it.leaves && it.from >= 0 && g.gain[it.from] == 0 {
			l.most[it.from] -= it.weight
		}
	}
}

func (g *weighing) eachWeight(visit func(class int32, weight int64)) {
	for i := range g.items {
		visit(g.items[i].class, g.items[i].weight)
	}
}

// setBands sets the highest and the lowest loads for a band in millionths.
func (g *weighing) setBands(band int64) {
	for w := range int32(g.workers) {
		g.high[w], g.low[w] = g.levels.band(w, band)
	}
}

func (g *weighing) shareOf(w int32) int64 { return g.levels.shareOf(w) }

// hasRoom reports whether a worker may take one more copy; isNew: one that it did not run.
func (g *weighing) hasRoom(w int32, isNew bool) bool {
	return (g.limit == nil || g.limit[w] < 0 || g.count[w] < g.limit[w]) && g.mayGain(w, isNew)
}

func (g *weighing) mayGain(w int32, isNew bool) bool {
	return !isNew || g.gain == nil || g.gain[w] < 0 || g.gained[w] < g.gain[w]
}

// mayRun reports whether a worker may run an item, its limits aside.
func (g *weighing) mayRun(i, w int32) bool {
	it := &g.items[i]
	if it.to == w || !admits(g.may, it.class, g.levels.kindOf(w)) {
		return false
	}
	if g.barred != nil && g.barred(it.task, w) {
		return false
	}
	return g.tasks == 0 || !g.runs(it.task, w) && g.hasZoneRoom(it, w)
}

// hasZoneRoom reports whether an item may be in the zone of a worker.
func (g *weighing) hasZoneRoom(it *weighed, w int32) bool {
	if g.zones == 0 {
		return true
	}
	n := g.inZone[int(it.task)*g.zones+int(g.zone[w])]
	if g.zoneOf(it) == g.zone[w] {
		n--
	}
	return n < g.most(it.task)
}

// zoneOf returns the zone that an item is in, or None.
func (g *weighing) zoneOf(it *weighed) int32 {
	if it.to >= 0 {
		return g.zone[it.to]
	}
	return it.zone
}

// mayTake reports whether a worker may take an item.
func (g *weighing) mayTake(i, w int32) bool {
	return g.hasRoom(w, g.items[i].from != w) && g.mayRun(i, w)
}

// rests reports whether an item that need not move does not move to a worker.
func (g *weighing) rests(i, w int32) bool {
	it := &g.items[i]
	return g.rest != nil && !g.loose.has(i) && it.from != w && g.joined[w] < g.rest[it.task]
}

// runs reports whether a worker has an item of a task.
func (g *weighing) runs(task, w int32) bool {
	for i := g.first[task]; i > 0; i = g.next[i-1] {
		if g.items[i-1].to == w {
			return true
		}
	}
	return false
}

// byWeight orders items: the heaviest first.
func (g *weighing) byWeight(i, j int32) int {
	a, b := &g.items[i], &g.items[j]
	if a.weight != b.weight {
		return cmp.Compare(b.weight, a.weight)
	}
	return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(i, j))
}

// list returns the items of a worker that can move, the heaviest first. It is valid until
// the next change of the worker.
func (g *weighing) list(w int32) []int32 {
	if !g.sorted.has(w) {
		g.sorted.add(w)
		slices.SortFunc(g.lists[w], g.byWeight)
	}
	return g.lists[w]
}

// buildLists lists the items of each worker, except those without a place.
func (g *weighing) buildLists() {
	g.listed = true
	starts := sized(g.memory.starts, g.workers+1)
	g.memory.starts = starts
	for i := range g.items {
		if w := g.items[i].to; w >= 0 && !g.stuck.has(int32(i)) {
			starts[w+1]++
		}
	}
	for w := range g.workers {
		starts[w+1] += starts[w]
	}
	g.arena = slices.Grow(g.arena[:0], int(starts[g.workers]))[:starts[g.workers]]
	g.lists = slices.Grow(g.lists[:0], g.workers)[:g.workers]
	for w := range g.workers {
		g.lists[w] = g.arena[starts[w]:starts[w]:starts[w+1]]
	}
	for i := range g.items {
		if w := g.items[i].to; w >= 0 && !g.stuck.has(int32(i)) {
			g.lists[w] = append(g.lists[w], int32(i))
		}
	}
}

// put moves an item in the lists and the loads.
func (g *weighing) put(i, to int32) {
	from, isListed := g.items[i].to, !g.stuck.has(i)
	g.shift(i, to)
	if from >= 0 && isListed {
		at, _ := slices.BinarySearchFunc(g.list(from), i, g.byWeight)
		g.lists[from] = slices.Delete(g.lists[from], at, at+1)
	}
	at, _ := slices.BinarySearchFunc(g.list(to), i, g.byWeight)
	g.lists[to] = slices.Insert(g.lists[to], at, i)
}

// shift moves an item in the loads.
func (g *weighing) shift(i, to int32) {
	it := &g.items[i]
	g.stuck.remove(i)
	g.spent += g.cost(i, to)
	if from := it.to; from >= 0 {
		g.load[from] -= it.weight
		g.count[from]--
		if from != it.from {
			g.gained[from]--
		}
		g.ranking.update(from)
	}
	if g.zones > 0 {
		row := g.inZone[int(it.task)*g.zones:]
		if z := g.zoneOf(it); z != None {
			row[z]--
		}
		row[g.zone[to]]++
	}
	it.to = to
	g.load[to] += it.weight
	g.count[to]++
	if to != it.from {
		g.gained[to]++
	}
	g.ranking.update(to)
}

// cost returns how many moves it adds to move an item, which could stay where it runs.
func (g *weighing) cost(i, to int32) int {
	it := &g.items[i]
	if g.loose.has(i) {
		return 0
	}
	return b2i(to != it.from) - b2i(it.to != it.from)
}

// affords reports whether the budget allows moves that cost so many.
func (g *weighing) affords(cost int) bool {
	return g.budget < 0 || cost <= 0 || g.spent+cost <= g.budget
}

// out returns how much of a load is out of a worker's band (P17).
func (g *weighing) out(w int32, load int64, count int32) int64 {
	switch {
	case load > g.high[w]:
		if count == 1 && !g.tight {
			return 0 // one task
		}
		return load - g.high[w]
	case load < g.low[w]:
		if g.limit != nil && g.limit[w] >= 0 && count >= g.limit[w] || g.gain != nil && g.gain[w] == 0 {
			return 0
		}
		return g.low[w] - load
	}
	return 0
}

// outNow returns how much of the load of a worker is out of band.
func (g *weighing) outNow(w int32) int64 { return g.out(w, g.load[w], g.count[w]) }

// untangle exchanges the workers of items of the same task, so that none moves to a
// worker that another one leaves.
func (g *weighing) untangle() {
	if g.tasks == 0 {
		return
	}
	for i := range g.items {
		a := &g.items[i]
		if a.to == a.from || a.to < 0 {
			continue
		}
		for again := true; again; {
			again = false
			for j := g.first[a.task]; j > 0; j = g.next[j-1] {
				b := &g.items[j-1]
				if b.from == a.to && b.to != b.from && a.to != a.from {
					a.to, b.to = b.to, a.to
					again = true
				}
			}
		}
	}
}

// memory is reused by the steps.
type memory struct {
	starts, left2, over, under, queue, partners, best []int32
	closed, seen, met, mine, aimed                    set
	steps                                             []step
	left, right                                       []choice
	range1                                            [1]stretch
}

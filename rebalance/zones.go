package rebalance

// Rules: how many copies of each task each zone ends with.

import (
	"math"
	"slices"
)

// zoneQuotas decides how many copies of each task each zone runs (P13, P15). It knows
// counts only: no draft, and of the workers only zones, shares and limits. Its order
// of aims: every copy has a zone; caps; zones as even as their workers allow; few copies
// that change zone; low numbers.
//
// The caller sets the input, calls solve, and reads quota, unplaced and evicted. The
// input must stay as it is until the caller has read the output. A row is the zones' part of
// one task or class: the number of zone z in the row of task t is at t*zones+z.
//
// First every task keeps what it holds, up to its caps. Surplus copies leave the zone that
// is the furthest above its goal, and missing ones go to the zone that is the furthest
// below. If the zones are even then, that was all, in one pass over the tasks. Otherwise
// copies change zones along the cheapest paths in the graph of zones, until no path makes
// the zones more even, or saves a start and leaves them as even. Such a result is exact: no
// quotas within the caps are more even, and of those as even none moves fewer copies.
// There are three exceptions: copies beyond a default cap, copies that limits leave
// without a place, and more than pathZones zones, between which copies only move directly.
//
// O(tasks · zones), and if the zones are not even O(copies · zones) for the arcs of the
// graph, O(zones³) a batch of moves, and O(copies moved · zones). The memory is 4 bytes
// for each task and zone and array, and for each arc.
type zoneQuotas struct {
	zones int

	// Input by task. Nil class and rule mean 0 for all.
	wanted []int32 // instances wanted, for the default cap
	target []int32 // copies to place on workers that are not frozen
	class  []int32
	rule   []int32 // Problem.MaxPerZone

	// Input in rows of tasks. Nil fixed and pinned mean 0 for all.
	held   []int32 // copies that may stay on their worker, in the target if it wants them
	fixed  []int32 // other copies that count for the cap, such as those on frozen workers
	pinned []int32 // of the held ones, those that do not leave their zone
	extra  []int32 // of the held ones, those on workers that width does not count; nil: none
	holder []int32 // a worker with one of the held copies, if there are any; nil: unknown

	// Input in rows of classes.
	able  []int32 // workers that may run the class, not draining: also frozen ones
	width []int32 // workers that may gain or keep a copy of the class: not frozen ones
	goal  []int32 // copies that the zone should end with; nil: even by zone and share
	ends  []int32 // by worker, if there are goals: copies that it should end with

	// Input by worker. A nil share is 1 for all, a nil limit is NoLimit for all.
	zone  []int32 // None: the worker takes no part
	share []int32
	limit []int32 // the most copies in all
	load  []int32 // held copies

	// Output.
	quota    []int32 // in rows of tasks: copies on workers that are not frozen
	unplaced []zoneUnplaced

	left   []zoneUnplaced // the tasks with copies to place, before they are placed
	levels zoneLevels
	even   zoneEvening
	caps   [][]int32 // by class and instances: the default cap, 0: not computed
	excess []int32   // by worker: copies that should leave it
}

// zoneUnplaced is a number of copies of a task that no zone takes. As many of the task's
// copies that run where a cap forbids it stay there.
type zoneUnplaced struct {
	task, copies int32
	why          zoneWhy
}

// zoneWhy is why no zone takes a copy.
type zoneWhy uint8

const (
	tooFewWorkers zoneWhy = iota // every worker that may run the task has a copy
	zoneCap                      // every zone with such workers has as many copies as the cap allows
	zoneRoom                     // the limits of the workers leave no room
)

// pathZones is the highest number of zones between which copies move along paths.
const pathZones = 16

// noCap is the cap of tasks without one.
const noCap = math.MaxInt32

// solve decides the quotas.
func (q *zoneQuotas) solve() {
	q.begin()
	q.keep()
	q.levels.setGoals(q.goal, q.targets())
	q.trimAndPlace()
	if !q.levels.isEven() {
		q.levels.setGoals(q.goal, q.placed()) // some copies may have no place
		q.setExcess()
		q.even.run(q, false)
	}
	if q.isBeyondRoom() {
		q.even.run(q, true)
		q.dropBeyondRoom()
		q.even.run(q, false)
	}
}

// evicted returns how many of the held copies of t must leave z because of the cap.
func (q *zoneQuotas) evicted(t, z int32) int32 {
	at := int(t)*q.zones + int(z)
	return max(0, q.held[at]-max(q.quota[at], q.capOf(t)-q.fixedAt(at), q.pinnedAt(at)))
}

func (q *zoneQuotas) begin() {
	q.quota = slices.Grow(q.quota[:0], len(q.held))[:len(q.held)]
	q.left, q.unplaced, q.excess = q.left[:0], q.unplaced[:0], q.excess[:0]
	q.beginCaps()
	q.levels.begin(q)
}

// beginCaps forgets the default caps of earlier calls. They depend on wanted, class, rule and
// able.
func (q *zoneQuotas) beginCaps() {
	classes := len(q.able) / q.zones
	q.caps = slices.Grow(q.caps[:0], classes)[:classes]
	for c := range q.caps {
		q.caps[c] = q.caps[c][:0]
	}
}

// targets returns the number of copies to place.
func (q *zoneQuotas) targets() int {
	n := 0
	for _, target := range q.target {
		n += int(target)
	}
	return n
}

// placed returns the number of copies that have a zone.
func (q *zoneQuotas) placed() int {
	n := 0
	for _, load := range q.levels.load {
		n += load
	}
	return n
}

func (q *zoneQuotas) classOf(t int32) int {
	if q.class == nil {
		return 0
	}
	return int(q.class[t])
}

// part returns the number of the part that t belongs to: with goals by class the zones are
// even for each class, otherwise in all.
func (q *zoneQuotas) part(t int32) int {
	if q.goal == nil {
		return 0
	}
	return q.classOf(t)
}

func (q *zoneQuotas) fixedAt(at int) int32 {
	if q.fixed == nil {
		return 0
	}
	return q.fixed[at]
}

func (q *zoneQuotas) pinnedAt(at int) int32 {
	if q.pinned == nil {
		return 0
	}
	return q.pinned[at]
}

func (q *zoneQuotas) ruleOf(t int32) int32 {
	if q.rule == nil {
		return 0
	}
	return q.rule[t]
}

// top returns how many copies of t fit on workers of z that are not frozen, if limit is the
// cap.
func (q *zoneQuotas) top(t, z, limit int32) int32 {
	width := q.width[q.classOf(t)*q.zones+int(z)]
	if q.extra != nil {
		width += q.extra[int(t)*q.zones+int(z)]
	}
	if limit == noCap {
		return width
	}
	return max(0, min(width, limit-q.fixedAt(int(t)*q.zones+int(z))))
}

// capOf returns how many copies of t one zone may run.
func (q *zoneQuotas) capOf(t int32) int32 {
	rule, wanted := q.ruleOf(t), q.wanted[t]
	switch {
	case rule > 0:
		return rule
	case rule < 0 || wanted < 2:
		return noCap
	}
	class := q.classOf(t)
	if wanted > math.MaxUint8 {
		return q.defaultCap(class, wanted)
	}
	caps := &q.caps[class]
	for len(*caps) <= int(wanted) {
		*caps = append(*caps, 0)
	}
	c := &(*caps)[wanted]
	if *c == 0 {
		*c = q.defaultCap(class, wanted)
	}
	return *c
}

// defaultCap returns how many of a number of copies one zone may run by P13.
func (q *zoneQuotas) defaultCap(class int, wanted int32) int32 {
	able := q.able[class*q.zones:][:q.zones]
	counting, sum := q.counting(class)
	if counting < 2 {
		return noCap
	}
	c := (int(wanted) + counting - 1) / counting
	for {
		fit := 0
		for _, n := range able {
			fit += min(int(n), c)
		}
		if fit >= min(int(wanted), sum) {
			return int32(c)
		}
		c++
	}
}

// counting returns the number of zones that count for a class (P13), and the number of
// workers that may run it.
func (q *zoneQuotas) counting(class int) (zones, workers int) {
	some := 0
	able := q.able[class*q.zones:][:q.zones]
	for _, n := range able {
		workers += int(n)
		if n > 0 {
			some++
		}
	}
	for _, n := range able {
		if n > 0 && 2*some*int(n) >= workers {
			zones++
		}
	}
	return max(zones, min(some, 2)), workers // the largest is at least the mean
}

// keep makes every task keep what it holds, as far as its caps allow, and lists the
// tasks that have too many copies then, or too few.
func (q *zoneQuotas) keep() {
	zones := q.zones
	row := q.levels.load
	for t := range q.target {
		limit := q.capOf(int32(t))
		left := q.target[t]
		if q.goal != nil {
			row = q.levels.load[q.part(int32(t))*zones:]
		}
		for z := range zones {
			at := t*zones + z
			n := q.held[at]
			if n > 0 {
				n = min(n, max(q.top(int32(t), int32(z), limit), q.pinnedAt(at)))
				left -= n
				row[z] += int(n)
			}
			q.quota[at] = n
		}
		if left != 0 {
			q.left = append(q.left, zoneUnplaced{task: int32(t), copies: left})
		}
	}
}

// trimAndPlace removes surplus copies from the zones that are the furthest above their
// goals, and places missing ones in those that are the furthest below.
func (q *zoneQuotas) trimAndPlace() {
	for _, x := range q.left {
		for n := x.copies; n < 0; n++ {
			if z := q.fullest(x.task); z >= 0 {
				q.add(x.task, z, -1)
			}
		}
	}
	for _, x := range q.left {
		if x.copies <= 0 {
			continue
		}
		limit := q.capOf(x.task)
		for ; x.copies > 0; x.copies-- {
			z := q.emptiest(x.task, limit)
			if z < 0 {
				break
			}
			q.add(x.task, z, 1)
		}
		for ; x.copies > 0 && q.ruleOf(x.task) == 0; x.copies-- {
			z := q.beyondCap(x.task)
			if z < 0 {
				break
			}
			q.add(x.task, z, 1)
		}
		if x.copies > 0 {
			x.why = tooFewWorkers
			for z := range int32(q.zones) {
				if q.quota[int(x.task)*q.zones+int(z)] < q.top(x.task, z, noCap) {
					x.why = zoneCap
				}
			}
			q.unplaced = append(q.unplaced, x)
		}
	}
}

// add changes the quota of t in z.
func (q *zoneQuotas) add(t, z, n int32) {
	q.quota[int(t)*q.zones+int(z)] += n
	q.levels.load[q.part(t)*q.zones+int(z)] += int(n)
}

// fullest returns the zone that a surplus copy of t leaves, or None.
func (q *zoneQuotas) fullest(t int32) int32 {
	best, most := None, 0
	for z := range int32(q.zones) {
		at := int(t)*q.zones + int(z)
		if q.quota[at] <= q.pinnedAt(at) {
			continue
		}
		if above := -q.levels.below(q.part(t), z); best == None || above > most {
			best, most = z, above
		}
	}
	return best
}

// emptiest returns the zone that takes a missing copy of t, or None.
func (q *zoneQuotas) emptiest(t, limit int32) int32 {
	best, most := None, 0
	for z := range int32(q.zones) {
		if q.quota[int(t)*q.zones+int(z)] >= q.top(t, z, limit) {
			continue
		}
		if below := q.levels.below(q.part(t), z); best == None || below > most {
			best, most = z, below
		}
	}
	return best
}

// beyondCap returns the zone that takes a copy of t beyond the default cap, or None. This
// happens if workers are silent, full, or may not gain copies: a default cap leaves no copy
// without a place.
func (q *zoneQuotas) beyondCap(t int32) int32 {
	limit := q.lastCap(t)
	best, has, below, isHeld := None, int32(0), 0, false
	for z := range int32(q.zones) {
		at := int(t)*q.zones + int(z)
		if q.quota[at] >= q.top(t, z, limit) {
			continue
		}
		n, b, h := q.quota[at]+q.fixedAt(at), q.levels.below(q.part(t), z), q.quota[at] < q.held[at]
		if best == None || n < has || n == has && (h && !isHeld || h == isHeld && b > below) {
			best, has, below, isHeld = z, n, b, h
		}
	}
	return best
}

// lastCap returns how many copies of t one zone may run if the copies have no place
// otherwise.
func (q *zoneQuotas) lastCap(t int32) int32 {
	if q.ruleOf(t) == 0 {
		return noCap
	}
	return q.capOf(t)
}

// setExcess computes how many copies should leave each worker, so that those that change
// zone come from many workers. A choice by the number of the task could empty a few of
// them, and the zone would have to be evened.
func (q *zoneQuotas) setExcess() {
	q.excess = q.excess[:0]
	if q.holder == nil || q.goal != nil && q.ends == nil {
		return
	}
	q.excess = append(q.excess, q.load...)
	for w, z := range q.zone {
		switch {
		case z == None:
		case q.goal != nil:
			q.excess[w] -= q.ends[w]
		default:
			q.excess[w] -= int32(q.levels.upTo(q.shareOf(w), q.limitOf(w), q.levels.mark))
		}
	}
}

func (q *zoneQuotas) shareOf(w int) int32 {
	if q.share == nil {
		return 1
	}
	return q.share[w]
}

func (q *zoneQuotas) limitOf(w int) int32 {
	if q.limit == nil || q.limit[w] == NoLimit {
		return math.MaxInt32
	}
	return q.limit[w]
}

// isBeyondRoom reports whether a zone has more copies than its workers have room for. Goals
// by class keep to the limits.
func (q *zoneQuotas) isBeyondRoom() bool {
	if q.goal != nil || q.limit == nil {
		return false
	}
	for z := range int32(q.zones) {
		if q.levels.load[z] > q.levels.room(z) {
			return true
		}
	}
	return false
}

// dropBeyondRoom takes copies from zones whose workers have no room for them: copies of
// tasks with several first, and copies that do not run yet before those that do.
func (q *zoneQuotas) dropBeyondRoom() {
	dropped := false
	for z := range int32(q.zones) {
		beyond := q.levels.load[z] - q.levels.room(z)
		for pass := 0; pass < 4 && beyond > 0; pass++ {
			several, isNew := pass < 2, pass%2 == 0
			for t := int32(len(q.target)) - 1; t >= 0 && beyond > 0; t-- {
				at := int(t)*q.zones + int(z)
				for beyond > 0 && q.quota[at] > q.pinnedAt(at) && (!isNew || q.quota[at] > q.held[at]) && (!several || q.copies(t) > 1) {
					q.add(t, z, -1)
					beyond--
					q.unplaced = append(q.unplaced, zoneUnplaced{task: t, copies: 1, why: zoneRoom})
					dropped = true
				}
			}
		}
	}
	if dropped {
		q.mergeUnplaced()
	}
}

// copies returns how many copies of t have a place or are fixed.
func (q *zoneQuotas) copies(t int32) int32 {
	n := int32(0)
	for at := int(t) * q.zones; at < int(t+1)*q.zones; at++ {
		n += q.quota[at] + q.fixedAt(at)
	}
	return n
}

// mergeUnplaced makes one element of those with the same task and reason, in order of
// tasks.
func (q *zoneQuotas) mergeUnplaced() {
	slices.SortFunc(q.unplaced, func(a, b zoneUnplaced) int {
		if a.task != b.task {
			return int(a.task) - int(b.task)
		}
		return int(a.why) - int(b.why)
	})
	out := q.unplaced[:1]
	for _, x := range q.unplaced[1:] {
		if last := &out[len(out)-1]; last.task == x.task && last.why == x.why {
			last.copies += x.copies
		} else {
			out = append(out, x)
		}
	}
	q.unplaced = out
}

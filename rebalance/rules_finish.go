package rebalance

// Rules: which of the changes are made, and which copies stay.

import (
	"cmp"
	"math/big"
	"slices"
)

// run plans a problem in which a rule binds. The scan, the targets and the pins are done.
func (r *rules) run() {
	r.rest, r.staysAt, r.inexact = r.rest[:0], r.staysAt[:0], false
	r.searching.steps = searchSteps
	if r.zoned {
		r.searching.zones.begin(len(r.Want) * r.zones)
		r.searching.tasks.begin(len(r.Want))
	}
	r.beyondCaps = false
	r.loads = append(r.loads[:0], r.load...)
	if r.weights.weighted {
		r.limitWeights()
	}
	r.classify()
	r.trim()
	bound, exact := 0, true
	switch {
	case r.byZone:
		r.spread()
	case r.zoned:
		r.leaveZones()
		if r.isUnchanged() && r.isInBand() {
			return
		}
	}
	for part := range r.parts() {
		r.planPart(int32(part))
		bound += r.network.bound
		exact = exact && r.network.proven
	}
	if !r.byZone {
		r.stopSurplus()
	}
	// Then the network has shown that what is left has no place, and that no load is more even.
	exact = exact && !r.inexact && !r.weights.weighted && !r.zoned
	exact = exact && !slices.ContainsFunc(r.rest, func(x item) bool { return x.leaving != None })
	if !exact {
		r.reserve()
		r.placeRest()
		r.stayInstead()
	}
	if !exact && r.isIdle() {
		r.cancelAll()
		if len(r.rest) > 0 { // the moves may have taken what quarantined workers may gain
			r.placeAll()
		}
	}
	r.settleLeaving()
	r.listMissing()
	r.assembly.pair()
	r.nameLimits()
	r.plan.Moves = 0
	for i := range r.plan.Changes {
		if c := &r.plan.Changes[i]; c.From != None && c.To != None {
			r.plan.Moves++
		}
	}
	r.plan.LowerBound = max(r.needed(), r.grown())
	if exact {
		r.plan.LowerBound = max(r.plan.LowerBound, min(bound, r.plan.Adds))
	}
	r.postpone()
	if r.Still {
		r.plan.Held += r.weights.deferred
	} else {
		r.plan.Deferred += r.weights.deferred
	}
	if r.weights.weighted {
		r.setLoads()
	}
}

// reserve counts the copies that have no other place where they are. It takes planned copies
// back where that leaves too little room.
func (r *rules) reserve() {
	for i := 0; i < len(r.rest); i++ {
		x := r.rest[i]
		if x.leaving == None || r.leaving[x.leaving].stuck {
			continue
		}
		l := &r.leaving[x.leaving]
		w := l.worker
		r.load[w]++
		if l.stuck = l.why != Rebalance && l.why != EvictLimit; !l.stuck {
			l.placed = true
			r.flags[l.position] = kept
		}
		if r.load[w] <= r.most(w) {
			continue
		}
		for at := r.addHead[w]; at > 0; at = r.adds[at-1].next {
			if c := &r.changes[at-1]; c.To == w {
				r.rest = append(r.rest, r.takeBack(at-1))
				break
			}
		}
	}
	r.rest = slices.DeleteFunc(r.rest, func(x item) bool { return x.leaving != None && r.leaving[x.leaving].placed })
}

// stayInstead starts missing copies that have no place where a copy of the same task would
// move off its worker. That copy stays: running copies outrank those that should leave (P9).
func (r *rules) stayInstead() {
	lacking := make(map[int32][]int32) // by task: its missing copies in rest
	for k := range r.rest {
		if x := &r.rest[k]; x.leaving == None {
			lacking[x.task] = append(lacking[x.task], int32(k))
		}
	}
	if len(lacking) == 0 {
		return
	}
	for i := range r.changes {
		c := &r.changes[i]
		if c.From == None || c.To == None || c.Reason != Drain && c.Reason != EvictLabel || len(lacking[c.Task]) == 0 || !r.hasRoomToStay(c) {
			continue
		}
		x := &r.rest[lacking[c.Task][0]]
		lacking[c.Task] = lacking[c.Task][1:]
		x.leaving = r.leavingOf[r.adds[i].position] - 1
		l := &r.leaving[x.leaving]
		l.placed, l.stuck = false, true
		r.flags[l.position] = leaves
		r.load[l.worker]++
		r.inItsZone(c.Task, l.worker, 1)
		c.From, c.Reason = None, Missing
	}
}

// hasRoomToStay reports whether no planned copy has taken the room of one that moves.
func (r *rules) hasRoomToStay(c *Change) bool {
	z := r.zoneOf(c.From)
	full := r.zoned && r.inZone[int(c.Task)*r.zones+int(z)] >= r.capOf(c.Task, z)
	return !full && (r.States[c.From] == Draining || r.load[c.From] < r.most(c.From))
}

// takeBack cancels a start or move. Its copy needs a place again.
func (r *rules) takeBack(i int32) item {
	c := &r.changes[i]
	x := item{task: c.Task, class: r.classIn(c.Task), leaving: None}
	r.shift(c, -1)
	if c.From != None {
		r.load[c.From]-- // counted when its room is reserved
		position := r.adds[i].position
		x.leaving = r.leavingOf[position] - 1
		r.leaving[x.leaving].placed = false
		r.flags[position] = leaves
	}
	c.To, r.loose = None, true
	return x
}

// nameLimits gives moves for an even spread the reason EvictLimit, as many as their workers run
// too many otherwise.
func (r *rules) nameLimits() {
	if !r.limits {
		return
	}
	over := make(map[int32]int32)
	for w, n := range r.loads {
		if w := int32(w); r.isProper(w) && n > r.most(w) {
			over[w] = n - r.most(w)
		}
	}
	if len(over) == 0 {
		return
	}
	for i := range r.plan.Changes {
		if c := &r.plan.Changes[i]; c.From != None && c.Reason != Rebalance {
			over[c.From]--
		}
	}
	for i := range r.plan.Changes {
		if c := &r.plan.Changes[i]; c.From != None && c.Reason == Rebalance && over[c.From] > 0 {
			c.Reason = EvictLimit
			over[c.From]--
		}
	}
}

// parts returns how many parts are planned one by one.
func (r *rules) parts() int {
	if r.byZone {
		return r.zones
	}
	return 1
}

// judgement says how well a rule is kept that may have no better solution, and how even the
// loads are.
type judgement struct {
	overfull int      // copies beyond the limits of workers
	excess   int      // copies beyond the default caps of zones
	squares  *big.Int // the sum of load² by share, in units of 2⁻³², rounded down
	rounding int64    // by how many units at most
}

func (j judgement) isBetter(k judgement) bool {
	if c := cmp.Or(cmp.Compare(k.overfull, j.overfull), cmp.Compare(k.excess, j.excess)); c != 0 {
		return c > 0
	}
	most := new(big.Int).Add(j.squares, big.NewInt(j.rounding))
	return most.Cmp(k.squares) < 0
}

// addSquare adds a sum of load² by share. With exact fractions, whose denominators multiply,
// thousands of different shares would take minutes.
func (j *judgement) addSquare(sum *big.Int, share int32) {
	sum.Lsh(sum, 32)
	j.squares.Add(j.squares, sum.Quo(sum, big.NewInt(int64(share))))
	j.rounding++
}

// addSquares adds what the workers that may gain or lose run.
func (r *rules) addSquares(j *judgement) {
	byShare := make(map[int32]int64) // below the square of all copies, so it fits
	for w, s := range r.States {
		if s == Open || s == Quarantined {
			byShare[r.shareOf(int32(w))] += int64(r.load[w]) * int64(r.load[w])
		}
	}
	for share, sum := range byShare { // in any order: the sum is the same
		j.addSquare(big.NewInt(sum), share)
	}
}

// judge judges the plan so far, or without its starts and moves if these are taken back.
// Copies that move for the spread, and have no place yet, count where they are.
func (r *rules) judge(planned bool) judgement {
	r.countMoving(1)
	defer r.countMoving(-1)
	j := judgement{excess: r.excess(), squares: new(big.Int)}
	if r.weights.weighted {
		r.addWeightSquares(&j, planned)
	} else {
		r.addSquares(&j)
	}
	for w := range r.States {
		if r.isOverfull(int32(w)) {
			j.overfull += int(r.load[w] - r.most(int32(w)))
		}
	}
	return j
}

func (r *rules) countMoving(n int32) {
	for i := range r.leaving {
		if l := &r.leaving[i]; !l.placed && !l.stuck && l.why != Drain && l.why != EvictLabel {
			r.load[l.worker] += n
		}
	}
}

// excess returns how many copies the zones run beyond the default caps. Limits may leave
// them no other zone.
func (r *rules) excess() (n int) {
	if !r.zoned {
		return 0
	}
	for t, want := range r.Want {
		if want < 2 || r.maxPerZone(int32(t)) != 0 {
			continue
		}
		most := r.quotas.capOf(int32(t))
		for _, copies := range r.inZone[t*r.zones:][:r.zones] {
			n += int(max(0, copies-most))
		}
	}
	return n
}

// isIdle reports whether the plan only moves copies for an even spread, over zones or workers,
// and the spread is no better for it.
func (r *rules) isIdle() bool {
	some := false
	for i := range r.changes {
		c := &r.changes[i]
		if c.To == None {
			continue
		}
		// P19 answers for moves by weight, if all copies have a place.
		some = some || !r.weights.weighted || len(r.rest) > 0
		if c.Reason != Rebalance && (c.Reason != EvictZone || r.maxPerZone(c.Task) != 0) {
			return false
		}
	}
	if !some {
		return false
	}
	after := r.judge(true)
	r.shiftAll(-1) // copies that stay without a place count too
	before := r.judge(false)
	r.shiftAll(1)
	return !after.isBetter(before)
}

// shiftAll makes all starts and moves, or takes them back.
func (r *rules) shiftAll(n int32) {
	for i := range r.changes {
		if c := &r.changes[i]; c.To != None {
			r.shift(c, n)
		}
	}
}

// cancelAll cancels all moves.
func (r *rules) cancelAll() {
	for i := range r.changes {
		c := &r.changes[i]
		if c.To == None {
			continue
		}
		position := r.adds[i].position
		r.flags[position] = kept
		r.shift(c, -1)
		c.To, r.loose = None, true
	}
}

// listOverfull lists the copies that workers run beyond their limits.
func (r *rules) listOverfull() {
	if !r.limits {
		return
	}
	listed := make(map[int32]int32)
	isListed := make(map[Pair]bool, len(r.staysAt))
	for _, u := range r.staysAt {
		listed[u.Worker]++
		isListed[Pair{u.Task, u.Worker}] = true
	}
	for w, s := range r.States {
		w := int32(w)
		if s != Open && s != Quarantined {
			continue
		}
		over := r.load[w] - r.most(w) - listed[w]
		for k, t := range r.Running[w] {
			if over <= 0 {
				break
			}
			if r.flags[r.offset[w]+int32(k)] == kept && !isListed[Pair{t, w}] {
				r.staysAt = append(r.staysAt, Unplaced{Task: t, Copies: 1, Worker: w, Reason: r.why()})
				over--
			}
		}
	}
}

// settleLeaving lets the copies stay that should leave and have no place.
func (r *rules) settleLeaving() {
	for i := range r.leaving {
		l := &r.leaving[i]
		if l.placed {
			continue
		}
		r.flags[l.position] = kept
		if !l.stuck {
			r.load[l.worker]++
		}
		if l.why != Rebalance && (l.why != EvictZone || r.isZoneOver(l.task, r.zoneOf(l.worker))) {
			r.staysAt = append(r.staysAt, Unplaced{Task: l.task, Copies: 1, Worker: l.worker, Reason: r.why()})
		}
	}
	r.listOverfull()
	r.plan.Unplaced = append(r.plan.Unplaced, r.staysAt...)
	for w, n := range r.fixed {
		if n == 0 || r.Pinned == nil || r.States[w] != Draining {
			continue
		}
		for k, t := range r.Running[w] {
			if r.flags[r.offset[w]+int32(k)] == pinned {
				r.plan.Unplaced = append(r.plan.Unplaced, Unplaced{Task: t, Copies: 1, Worker: int32(w), Reason: CopyPinned})
			}
		}
	}
}

// isZoneOver reports whether a zone runs more copies of t than the cap, as planned.
func (r *rules) isZoneOver(t, z int32) bool {
	return r.inZone[int(t)*r.zones+int(z)] > r.quotas.capOf(t)
}

func (r *rules) why() UnplacedReason {
	if len(r.open) == 0 {
		return NoOpenWorker
	}
	return NoPlaceByRules
}

// listMissing lists the missing copies without a place, by task.
func (r *rules) listMissing() {
	missing := slices.Clone(r.hopeless)
	for _, x := range r.rest {
		if x.leaving == None {
			missing = append(missing, pending{x.task, 1})
		}
	}
	slices.SortFunc(missing, func(a, b pending) int { return int(a.task - b.task) })
	staying := r.plan.Unplaced
	r.plan.Unplaced = nil
	for _, x := range missing {
		if n := len(r.plan.Unplaced); n > 0 && r.plan.Unplaced[n-1].Task == x.task {
			r.plan.Unplaced[n-1].Copies += x.copies
			continue
		}
		r.plan.Unplaced = append(r.plan.Unplaced, Unplaced{Task: x.task, Copies: x.copies, Worker: None, Reason: r.why()})
	}
	r.plan.Unplaced = append(r.plan.Unplaced, staying...)
}

// needed returns how many starts are not for an even spread.
func (r *rules) needed() (n int) {
	for i := range r.plan.Changes {
		if c := &r.plan.Changes[i]; c.To != None && c.Reason != Rebalance {
			n++
		}
	}
	return n
}

// grown returns by how much loads grow. Each such copy is a start, in any plan to the same
// loads.
func (r *rules) grown() (n int) {
	for w, before := range r.loads {
		n += int(max(0, r.load[w]-before))
	}
	return n
}

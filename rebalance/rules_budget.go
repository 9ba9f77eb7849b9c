package rebalance

// Rules: which moves MaxMoves, Still and Trial leave to later calls.

import "slices"

// directSteps bounds the search for moves that need no others.
const directSteps = 1_000_000

// moveBudget chooses the moves to make now. A start or move takes only room that is there
// when the chosen moves are made. A start without room takes another place, or waits.
type moveBudget struct {
	left    int               // how many moves may still be chosen
	chosen  []int32           // by change: 1 if it is made now
	needed  []bool            // by change: see findNeeded
	waiting []int32           // by worker: needed starts and moves to it that are not chosen yet
	out     []int32           // by worker: needed moves off it
	unmade  []Change          // moves that are not chosen
	stops   rows              // by worker: the tasks that stop there
	roomy   []int32           // workers with room, once all changes are chosen
	startOn map[int32][]int32 // by task that needs another place: where copies of it start
	zones   map[Pair]bool     // the tasks and zones of needed starts and moves into a zone
	full    set               // classes that no worker with room may run
}

// postpone leaves all but MaxMoves of the moves to later calls, in the order of P9. Of the
// moves for evenness it chooses first those that make the spread better: a move that leaves
// it as it is could displace them, now and in the next call.
func (r *rules) postpone() {
	left, held := r.allowance(r.plan.Changes)
	if held == 0 && r.plan.Moves <= left {
		return
	}
	b := &r.budget
	b.left = left
	b.chosen, b.needed = sized(b.chosen, len(r.plan.Changes)), sized(b.needed, len(r.plan.Changes))
	b.waiting = sized(b.waiting, len(r.States))
	r.shiftPlan(-1) // back to the loads without starts and moves
	isStart := func(c *Change) bool { return c.From == None }
	r.chooseNeeded(isStart)
	chooseAll := func(passes ...func(c *Change) bool) (first bool) { // the first of passes chose some
		for again := true; again; {
			again = false
			for k := 0; k < len(passes) && !again && b.left > 0; k++ {
				again = r.choose(func(c *Change) bool { return c.From != None && passes[k](c) })
				first = first || again && k == 0
			}
		}
		return first
	}
	chooseAll(func(c *Change) bool { return c.Reason == Drain })
	chooseAll(func(c *Change) bool { return c.Reason > Drain && c.Reason != Room })
	r.chooseNeeded(func(c *Change) bool { return isAim(c) && c.From != None })
	evens := func(least int) func(c *Change) bool {
		return func(c *Change) bool {
			return !isAim(c) && (r.weights.weighted || r.States[c.From] == Quarantined || r.compareAdded(c.From, 0, c.To, 1) >= least)
		}
	}
	before := slices.Clone(b.chosen)
	if !r.Still && !chooseAll(evens(1), evens(0)) {
		r.dropSince(before)
	}
	r.choose(isStart)
	r.carryOutChosen()
	r.plan.LowerBound = max(r.plan.Adds-r.plan.Moves, r.plan.LowerBound-r.plan.Deferred-r.plan.Held)
	r.plan.LowerBound = min(r.plan.LowerBound, r.plan.Adds)
}

// isAim reports whether a start or move is for more than an even spread, and not for room.
func isAim(c *Change) bool { return c.To != None && c.Reason != Rebalance && c.Reason != Room }

// shiftPlan makes all starts and moves of the plan, or takes them back.
func (r *rules) shiftPlan(n int32) {
	for i := range r.plan.Changes {
		if c := &r.plan.Changes[i]; c.To != None {
			r.shift(c, n)
		}
	}
}

// chooseNeeded chooses the changes for which isAim is true, and moves that make room for them.
func (r *rules) chooseNeeded(isAim func(c *Change) bool) {
	b := &r.budget
	r.findNeeded(isAim)
	makesRoom := func(c *Change) bool {
		return c.From != None && (b.waiting[c.From] > 0 && r.load[c.From] >= r.most(c.From) || r.leavesFor(c))
	}
	for again := true; again; {
		again = r.choose(isAim) || r.choose(makesRoom)
		if !again { // no default cap leaves a copy without a place (P13)
			r.beyondCaps = true
			again = r.choose(makesRoom)
			r.beyondCaps = false
		}
	}
}

// findNeeded finds the changes for which isAim is true, and the moves without which these have no
// room, or other such moves.
func (r *rules) findNeeded(isAim func(c *Change) bool) {
	b := &r.budget
	need := func(i int) {
		b.needed[i] = true
		b.waiting[r.plan.Changes[i].To]++
	}
	for i := range r.plan.Changes {
		if c := &r.plan.Changes[i]; c.To != None && b.chosen[i] == 0 && !b.needed[i] && isAim(c) {
			need(i)
		}
	}
	b.out = sized(b.out, len(r.States))
	b.zones = make(map[Pair]bool)
	for i := range r.plan.Changes {
		if c := &r.plan.Changes[i]; r.zoned && b.needed[i] && (c.From == None || r.zoneOf(c.From) != r.zoneOf(c.To)) {
			b.zones[Pair{c.Task, r.zoneOf(c.To)}] = true
		}
	}
	for again := r.limits || r.zoned; again; {
		again = false
		for i := range r.plan.Changes {
			c := &r.plan.Changes[i]
			if c.From == None || c.To == None || b.chosen[i] != 0 || b.needed[i] || !r.leavesFor(c) && (b.waiting[c.From] == 0 ||
				int(r.load[c.From])+int(b.waiting[c.From]-b.out[c.From]) <= int(r.most(c.From))) {
				continue
			}
			need(i)
			b.out[c.From]++
			again = true
		}
	}
}

// leavesFor reports whether a move takes a copy out of a full zone to which another copy of its task
// comes that is needed there.
func (r *rules) leavesFor(c *Change) bool {
	if len(r.budget.zones) == 0 {
		return false
	}
	z := r.zoneOf(c.From)
	return r.budget.zones[Pair{c.Task, z}] && z != r.zoneOf(c.To) && r.inZone[int(c.Task)*r.zones+int(z)] >= r.capOf(c.Task, z)
}

// dropSince drops the moves for an even spread that were chosen since, because none makes it
// better. They would be the beginning of a path that the budget is too small for, the next
// plan could take another one, and calls would never converge.
func (r *rules) dropSince(before []int32) {
	for i, was := range before {
		if r.budget.chosen[i] != was {
			r.budget.chosen[i] = was
			r.budget.left++
			r.shift(&r.plan.Changes[i], -1)
		}
	}
}

// choose chooses the starts and moves for which passes is true and which have room, and
// reports whether there are any.
func (r *rules) choose(passes func(c *Change) bool) (some bool) {
	b := &r.budget
	for i := range r.plan.Changes {
		c := &r.plan.Changes[i]
		if b.chosen[i] != 0 || c.To == None || c.From != None && b.left == 0 || !passes(c) || !r.canGain(c.Task, c.To, c.From) {
			continue
		}
		b.chosen[i], some = 1, true
		if c.From != None {
			b.left--
		}
		if b.needed[i] {
			b.waiting[c.To]--
		}
		r.shift(c, 1)
	}
	return some
}

// carryOutChosen drops the changes that are not chosen. Their starts, and the copies without
// a place, take what room is left.
func (r *rules) carryOutChosen() {
	b := &r.budget
	p := &r.plan
	lacking := make(map[int32]int32)
	var tasks []int32
	lack := func(t, copies int32) {
		if lacking[t] == 0 {
			tasks = append(tasks, t)
		}
		lacking[t] += copies
	}
	starts, stops := p.Changes[:0], r.stopping[:0]
	b.unmade = b.unmade[:0]
	for i, c := range p.Changes {
		switch {
		case c.To == None:
			stops = append(stops, c)
		case b.chosen[i] != 0:
			starts = append(starts, c)
		case c.From != None:
			b.unmade = append(b.unmade, c)
			r.leaveOut(&c)
		default:
			p.Adds--
			lack(c.Task, 1)
		}
	}
	r.stopping = stops
	p.Unplaced = slices.DeleteFunc(p.Unplaced, func(u Unplaced) bool {
		if u.Worker == None {
			lack(u.Task, u.Copies)
		}
		return u.Worker == None
	})
	staying := p.Unplaced
	p.Unplaced = nil
	slices.Sort(tasks)
	r.findRoomy(starts, lacking)
	for _, t := range tasks {
		for lacking[t] > 0 {
			w := r.anotherOrBeyond(t, None)
			if w == None {
				break
			}
			c := Change{Task: t, From: None, To: w, Reason: Missing}
			r.shift(&c, 1)
			starts = append(starts, c)
			b.startOn[t] = append(b.startOn[t], w)
			p.Adds++
			lacking[t]--
		}
		if lacking[t] > 0 {
			p.Unplaced = append(p.Unplaced, Unplaced{Task: t, Copies: lacking[t], Worker: None, Reason: r.why()})
		}
	}
	p.Unplaced = append(p.Unplaced, staying...)
	if len(starts) == 0 && b.left > 0 && !r.weights.weighted {
		starts = r.moveDirectly(starts)
	}
	p.Changes = append(starts, stops...)
}

// moveDirectly makes moves that need no others. It is used if the budget is too small for any
// planned one, which could wait for ever. First copies leave workers where they should not run,
// and then workers that are fuller than others. Each such move is better by P9, so repeated
// calls converge.
func (r *rules) moveDirectly(moves []Change) []Change {
	b := &r.budget
	var stops []Pair
	for _, c := range r.stopping {
		stops = append(stops, Pair{c.Task, c.From})
	}
	b.stops.fill(len(r.States), stops)
	steps := directSteps
	move := func(t, from int32, why Reason, evens bool) bool {
		if steps -= len(b.roomy); steps < 0 || b.left == 0 {
			return false
		}
		find := r.another
		if why == Drain || why == EvictLabel {
			find = r.anotherOrBeyond
		}
		to := find(t, from)
		if to == None || evens && r.compareAdded(from, 0, to, 1) <= 0 {
			return false
		}
		c := Change{Task: t, From: from, To: to, Reason: why}
		r.shift(&c, 1)
		moves = append(moves, c)
		b.startOn[t] = append(b.startOn[t], to)
		b.left--
		r.plan.Adds++
		r.plan.Moves++
		return true
	}
	for _, c := range b.unmade {
		if !isAim(&c) {
			continue
		}
		done := move(c.Task, c.From, c.Reason, false)
		for k := 0; c.Reason == EvictLimit && !done && k < len(r.Running[c.From]); k++ { // or another copy
			done = r.isFree(c.From, k) && move(r.Running[c.From][k], c.From, EvictLimit, false)
		}
		switch {
		case !done:
		case r.Still && r.MaxMoves < 0:
			r.plan.Held--
		default:
			r.plan.Deferred--
		}
	}
	if len(moves) > 0 || r.Still {
		return moves
	}
	for _, w := range r.byUse() {
		if !slices.ContainsFunc(b.roomy, func(u int32) bool { return r.compareAdded(w, 0, u, 1) > 0 }) {
			break // later ones have less to give
		}
		for k, t := range r.Running[w] {
			if r.isFree(w, k) {
				move(t, w, Rebalance, true)
			}
		}
	}
	return moves
}

// isFree reports whether a copy of the list of w is wanted and may move, and does not stop.
func (r *rules) isFree(w int32, k int) bool {
	t := r.Running[w][k]
	flag := r.flags[r.offset[w]+int32(k)]
	return flag != pinned && flag != repeated && r.Want[t] > 0 && (flag == kept || !slices.Contains(r.budget.stops.row(w), t))
}

// findRoomy finds the workers with room, and where copies of the tasks that lack some start.
func (r *rules) findRoomy(starts []Change, lacking map[int32]int32) {
	b := &r.budget
	b.startOn, b.full = make(map[int32][]int32), b.full.emptied(max(1, len(r.May)))
	for i := range starts {
		if c := &starts[i]; lacking[c.Task] > 0 {
			b.startOn[c.Task] = append(b.startOn[c.Task], c.To)
		}
	}
	b.roomy = b.roomy[:0]
	for w := range int32(len(r.States)) {
		if r.gain[w] > 0 && r.load[w] < r.most(w) {
			b.roomy = append(b.roomy, w)
		}
	}
}

// anotherOrBeyond is another, if need be beyond the default cap, which leaves no copy without a
// place (P13).
func (r *rules) anotherOrBeyond(t, from int32) int32 {
	w := r.another(t, from)
	if w == None {
		r.beyondCaps = true
		w = r.another(t, from)
		r.beyondCaps = false
	}
	return w
}

// another returns the least used worker that may start t, of those that do not run it and are
// not to start it. from is the worker that gives a copy up, or None.
func (r *rules) another(t, from int32) int32 {
	b := &r.budget
	class := r.classOf(t)
	if b.full.has(class) {
		return None
	}
	best, some := None, false
	for _, w := range b.roomy {
		if r.gain[w] <= 0 || r.load[w] >= r.most(w) || !r.mayRun(t, r.kindOf(w)) {
			continue
		}
		some = true
		if best != None && !r.use(best, 1).more(r.use(w, 1)) || !r.canGain(t, w, from) ||
			slices.Contains(r.Running[w], t) || slices.Contains(b.startOn[t], w) {
			continue
		}
		best = w
	}
	if !some {
		b.full.add(class)
	}
	return best
}

// shift makes a start or move, or takes it back.
func (r *rules) shift(c *Change, n int32) {
	r.load[c.To] += n
	if r.States[c.To] == Quarantined {
		r.gain[c.To] -= n
	}
	r.inItsZone(c.Task, c.To, n)
	if c.From == None {
		return
	}
	r.load[c.From] -= n
	r.inItsZone(c.Task, c.From, -n)
}

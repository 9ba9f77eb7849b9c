package rebalance

// The draft of a plan, which all steps share, and the changes that they make to it.

import (
	"math"
	"slices"
)

// draft is a plan in the making: the problem, what the steps have found and decided, and
// the changes so far.
type draft struct {
	problem // of the call under way
	fleet
	counts
	needs
	edits

	ruled   bool      // a rule binds: see rules
	pending []pending // copies without a place

	// Tasks are marked in rounds: see mark.
	marks     []uint32
	lastRound uint32

	// Memory of one step, until the next.
	scratch, order, floors, ceilings []int32
}

// problem keeps the embedded Problem out of the way of its fields.
type problem = Problem

// fleet holds what the draft reads of the workers again and again.
type fleet struct {
	open   []int32 // the open workers
	has    [4]bool // which states there are
	offset []int32 // by worker: the first position of its list
	forbid rows    // the tasks forbidden on each
}

// edits are the changes of a draft.
type edits struct {
	flags   []flag   // by position
	load    []int32  // by worker: copies of expected tasks, as planned so far
	drops   []drop   // every copy that was ever flagged dropped, except those of moves
	changes []Change // starts and moves; To is None in a cancelled one
	adds    []add    // parallel to changes, as long as there are no stops
	addHead []int32  // by worker: the latest change to it, plus one

	loose bool // some change was cancelled, or the copy that it moves was kept

	plan Plan
}

// flag is the state of a copy.
type flag uint8

const (
	kept     flag = iota
	pinned        // kept, and does not move
	dropped       // to be stopped here
	repeated      // named before in the same list: not a copy
	inChange      // dropped, and part of a change
	leaves        // rules: kept until it has another place
)

// runs reports whether the copy continues to run.
func (f flag) runs() bool { return f <= pinned }

// drop is a copy that was flagged dropped. It may have been kept again.
type drop struct {
	task, worker, position int32
	next                   int32 // pair: the previous drop of the same task, plus one
}

// add holds the rest of a start or move.
type add struct {
	next     int32 // the previous add to the same worker, plus one
	position int32 // of a move: the position of the dropped copy, which is not among the drops
}

// start starts the draft of a problem.
func (d *draft) start(pr *Problem) {
	d.problem = *pr
	workers := len(d.States)
	d.load = sized(d.load, workers)
	d.offset = sized(d.offset, workers)
	d.limit = sized(d.limit, workers)
	d.base = sized(d.base, workers)
	d.addHead = sized(d.addHead, workers)
	d.plan = Plan{Unplaced: d.plan.Unplaced[:0]}
	d.drops, d.changes, d.adds, d.open = d.drops[:0], d.changes[:0], d.adds[:0], d.open[:0]
	d.has, d.waiting, d.loose = [4]bool{}, 0, false
	positions, isPinned := int32(0), false
	open, offset, running, pinned := d.open, d.offset, d.Running, d.Pinned
	for w, s := range d.States {
		d.has[s] = true
		if s == Open {
			open = append(open, int32(w))
		}
		offset[w] = positions
		positions += int32(len(running[w]))
		isPinned = isPinned || pinned != nil && pinned[w] > 0 && s != Frozen
	}
	d.open = open
	if !isPinned {
		d.Pinned = nil
	}
	d.flags = sized(d.flags, int(positions))
}

// end drops all references to the caller's slices.
func (d *draft) end() { d.problem, d.need, d.target = problem{}, nil, nil }

// isExpected reports whether any copy of the task is wanted.
func (d *draft) isExpected(t int32) bool { return d.Want[t] > 0 }

// mark starts a round of marks on tasks.
func (d *draft) mark() uint32 {
	if len(d.marks) < len(d.Want) {
		d.marks = make([]uint32, len(d.Want))
		d.lastRound = 0
	}
	d.lastRound++
	if d.lastRound == 0 { // wrapped around
		clear(d.marks)
		d.lastRound = 1
	}
	return d.lastRound
}

// block marks the tasks that worker w cannot gain: those that it has, and those forbidden
// to it. A quarantined worker, and an open one that hands copies to quarantined ones,
// cannot gain the tasks that they lose either.
func (d *draft) block(w int32) uint32 {
	round, marks, list := d.mark(), d.marks, d.Running[w]
	flags, last := d.flags[d.offset[w]:][:len(list)], pinned
	switch {
	case d.ruled:
		last = leaves
	case d.States[w] == Quarantined:
		last = inChange
	}
	for k, t := range list {
		if flags[k] <= last {
			marks[t] = round
		}
	}
	for i := d.addHead[w]; i > 0; i = d.adds[i-1].next {
		if c := &d.changes[i-1]; c.To != None {
			d.marks[c.Task] = round
		}
	}
	for _, t := range d.forbid.row(w) {
		d.marks[t] = round
	}
	return round
}

// gain adds a copy of t to w. A copy that w handed to a quarantined worker is kept
// instead.
func (d *draft) gain(t, w int32) {
	d.changes = append(d.changes, Change{Task: t, From: None, To: w, Reason: Missing})
	d.adds = append(d.adds, add{next: d.addHead[w]})
	d.addHead[w] = int32(len(d.adds))
	d.load[w]++
}

// gainAll adds one copy of each task to w.
func (d *draft) gainAll(tasks []pending, w int32) {
	n, more := len(d.changes), len(tasks)
	d.changes = slices.Grow(d.changes, more)[:n+more]
	d.adds = slices.Grow(d.adds, more)[:n+more]
	changes, adds := d.changes[n:], d.adds[n:]
	head := d.addHead[w]
	for i, x := range tasks {
		changes[i] = Change{Task: x.task, From: None, To: w, Reason: Missing}
		adds[i] = add{next: head}
		head = int32(n + i + 1)
	}
	d.addHead[w] = head
	d.load[w] += int32(more)
}

// move moves the copies at some positions of from's list.
func (d *draft) move(places []int32, from, to int32) {
	n, more := len(d.changes), len(places)
	d.changes = slices.Grow(d.changes, more)[:n+more]
	d.adds = slices.Grow(d.adds, more)[:n+more]
	changes, adds := d.changes[n:], d.adds[n:]
	list, start := d.Running[from], d.offset[from]
	flags := d.flags[start:]
	head := d.addHead[to]
	for i, k := range places {
		flags[k] = dropped
		changes[i] = Change{Task: list[k], From: from, To: to, Reason: Rebalance}
		adds[i] = add{next: head, position: start + k}
		head = int32(n + i + 1)
	}
	d.addHead[to] = head
	d.load[from] -= int32(more)
	d.load[to] += int32(more)
	d.plan.Moves += more
}

// cancel cancels a start or move. The copy dropped for it stays dropped.
func (d *draft) cancel(i int32) {
	c := &d.changes[i]
	d.load[c.To]--
	d.loose = true
	c.To = None
	if c.From != None {
		d.plan.Moves--
		d.drops = append(d.drops, drop{task: c.Task, worker: c.From, position: d.adds[i].position})
		c.From = None
	}
}

// lose drops the copy of t at a position of w.
func (d *draft) lose(t, w, position int32) {
	d.flags[position] = dropped
	d.drops = append(d.drops, drop{task: t, worker: w, position: position})
	d.load[w]--
}

// room returns how many more copies w takes; it is negative if w has too many.
func (d *draft) room(w int32) int32 { return d.limit[w] - d.load[w] }

// countOf returns the number of copies by task on the workers of w's state, nil if w is
// open.
func (d *draft) countOf(w int32) []int32 {
	switch d.States[w] {
	case Frozen:
		return d.frozen
	case Draining:
		return d.drained
	case Quarantined:
		return d.stays
	default:
		return nil
	}
}

// running returns how many copies the open workers run.
func (d *draft) running() int {
	n, load := 0, d.load
	for _, w := range d.open {
		n += int(load[w])
	}
	return n
}

// places returns how many open workers can hold a copy of t.
func (d *draft) places(t int32) int32 {
	n := int32(len(d.open))
	if len(d.Forbidden) > 0 {
		n -= d.barred[t]
	}
	return n
}

// answering returns how many copies of t run on workers that are not frozen, before
// demand.
func (d *draft) answering(t int32) int32 {
	a := d.Want[t] - d.tasks[t].lack
	if d.has[Draining] {
		a += d.drained[t]
	}
	if d.staying {
		a += d.stays[t]
	}
	return a
}

// pinnedOn returns how many pinned copies w has.
func (d *draft) pinnedOn(w int32) int32 {
	if d.Pinned == nil {
		return 0
	}
	return d.fixed[w]
}

// pinnedOf returns how many pinned copies of t the open workers have.
func (d *draft) pinnedOf(t int32) int32 {
	if d.Pinned == nil {
		return 0
	}
	return d.pinned[t]
}

// levelOf returns the level of the open workers with n copies, and how many of them
// get one more.
func (d *draft) levelOf(n int) (level, extra int32) {
	workers := len(d.open)
	switch {
	case workers == 0:
		return 0, 0
	case d.Pinned == nil:
		return int32(n / workers), int32(n % workers)
	}
	d.floors, d.ceilings = d.floors[:0], d.ceilings[:0]
	for _, w := range d.open {
		d.floors, d.ceilings = append(d.floors, d.fixed[w]), append(d.ceilings, math.MaxInt32)
	}
	return fill(d.floors, d.ceilings, n)
}

// takesExtra reports whether w may have an extra unit and has none.
func (d *draft) takesExtra(w int32) bool { return d.limit[w] == d.level }

// isConstrained reports whether some worker may be unable to take copies that it lacks,
// or to give copies that it has. Then the exchange may fail, and the bound may be too
// high.
//
// Pinned copies alone are not a constraint if no task wants more than one copy: a worker
// with too many copies has some that are not pinned, and any other worker may take any of
// them.
func (d *draft) isConstrained() bool {
	return d.has[Quarantined] || d.Pinned != nil && d.most > 1 || len(d.Forbidden) > 0
}

// byLoad sorts workers by load, the highest first, equals by number.
func (d *draft) byLoad(workers []int32) {
	slices.SortFunc(workers, func(v, w int32) int {
		if d.load[v] != d.load[w] {
			return int(d.load[w] - d.load[v])
		}
		return int(v - w)
	})
}

// choosy returns the open workers. Those with the most forbidden tasks come first, so that
// they get tasks that they may take.
func (d *draft) choosy() []int32 {
	if len(d.Forbidden) == 0 {
		return d.open
	}
	d.order = append(d.order[:0], d.open...)
	slices.SortStableFunc(d.order, func(v, w int32) int { return len(d.forbid.row(w)) - len(d.forbid.row(v)) })
	return d.order
}

// keepAgain keeps the copy of t that w ran before, and reports whether w ran one.
func (d *draft) keepAgain(t, w int32) bool {
	for k, held := range d.Running[w] {
		if at := d.offset[w] + int32(k); held == t && d.flags[at] == dropped {
			d.flags[at] = kept
			d.load[w]++
			d.loose = true
			return true
		}
	}
	return false
}

// onOpen returns how many copies of t the open workers run, before demand.
func (d *draft) onOpen(t int32) int32 { return d.Want[t] - d.tasks[t].lack }

// sized returns s with length n and every element zero.
func sized[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	s = s[:n]
	clear(s)
	return s
}

package rebalance

// The planner: its memory, and the order of its steps.

import (
	"math"
	"slices"
)

// Planner makes plans. It reuses its memory, so that a call on a problem of the same size
// allocates very little, and nothing if there is nothing to change. The zero value is
// ready to use. It is not safe for concurrent use.
type Planner struct {
	problem // of the call under way

	// By task.
	single  bool    // no task is wanted more than once, and more: see beginSingle
	met     set     // single: the tasks of which a copy was met, or none is wanted
	tasks   []task  // otherwise
	need    []int32 // copies that the open workers end with: Want, or needed
	needed  []int32
	target  []int32 // copies that the workers that are not frozen end with: Want, or aimed
	aimed   []int32
	frozen  []int32 // copies on frozen workers; valid if there are any
	drained []int32 // copies on draining workers that are not pinned; valid if there are any
	stays   []int32 // copies on quarantined workers, later those that they end with; pinned on draining ones
	pinned  []int32 // pinned on open workers
	barred  []int32 // open workers without a copy that may not gain one
	marks   []uint32
	round   uint32

	// By worker. The positions of worker w's list start at offset[w].
	offset  []int32
	load    []int32 // copies, of expected tasks, as planned so far
	before  []int32 // the initial load, if it is needed
	limit   []int32 // copies to end with
	base    []int32 // limit without the extra unit that some have
	fixed   []int32 // pinned copies
	addHead []int32 // the latest change to it, plus one
	open    []int32 // the open workers
	forbid  rows    // the tasks forbidden on each
	late    rows    // the tasks whose moves off each come last

	flags []flag // by position

	drops   []drop   // every copy that was ever flagged dropped, except those of moves
	changes []Change // starts and moves; To is None in a cancelled one
	adds    []add    // parallel to changes, as long as there are no stops

	// Of the steps.
	wanted      int   // the sum of need
	least       int32 // the lowest of Want
	most        int32 // the highest
	missing     int   // how many copies the open workers lack initially
	grown       int   // how many copies the quarantined workers gain
	waiting     int   // pinned copies on draining workers
	staying     bool  // stays is in use
	isShort     bool  // some task has fewer places than copies to run
	hasSurplus  bool  // some task has surplus copies on open workers
	level       int32 // the load that every open worker ends with, or one more
	extra       int32 // how many end with one more
	surplus     surplus
	index       index
	search      search
	graph       graph
	pending     []pending // copies without a place
	dealt       []pending // place: the same, in this turn
	left        []pending // those of dealt without a place
	again       []pending // further copies, for the next turn
	spare       []pending
	turn        int
	takers      []int32 // workers with room
	others      []int32
	order       []int32
	scratch     []int32   // of one step, until the next
	starts      numbering // makeChanges: the tasks of which a copy starts that is not moved
	latest      []int32   // makeChanges: by number in starts, the latest drop that is not part of a change yet, plus one
	quarantined []int32   // quarantined workers
	grabbed     set       // tasks of which an open worker hands a copy to a quarantined one
	keeps       []int32   // by worker: the least that a quarantined one ends with, as far as known
	floors      []int32   // levels: the least that each ends with
	ceilings    []int32   // levels: the most that each ends with
	passed      []int32   // handOff: positions in the giver's list that were passed over
	taken       []pending // place: the copies for one worker
	handed      []int32   // handOff: positions of the copies for the taker
	cursors     []cursor  // exchange: by worker
	exchanged   int       // units that cost two adds
	grabs       bool      // grabbed is not empty
	loose       bool      // some change was cancelled, or the copy that it moves was kept

	has  [4]bool // which states there are
	plan Plan
}

// problem keeps the embedded Problem out of the Planner's documentation.
type problem = Problem

// task holds what every step reads of a task, in one word.
type task struct {
	seen int32 // the last worker whose list named it, plus one
	// How many copies the open workers lack: of Want, and from demand on of need. It is
	// negative for a surplus, which trim removes.
	lack int32
}

// flag is the state of a copy.
type flag uint8

const (
	kept     flag = iota
	pinned        // kept, and does not move
	dropped       // to be stopped here
	repeated      // named before in the same list: not a copy
	inChange      // dropped, and part of a change
)

// runs reports whether the copy continues to run.
func (f flag) runs() bool { return f <= pinned }

// cursor is the progress through a list, for the worker of a round of marks.
type cursor struct {
	round uint32
	next  int32
	add   int32 // the progress through the worker's starts: the next of adds, plus one
	first int32 // all copies before it were dropped, for any worker
}

// drop is a copy that was flagged dropped. It may have been kept again.
type drop struct {
	task, worker, position int32
	next                   int32 // makeChanges: the previous drop of the same task, plus one
}

// add holds the rest of a start or move.
type add struct {
	next     int32 // the previous add to the same worker, plus one
	position int32 // of a move: the position of the dropped copy, which is not among the drops
}

// Plan plans one problem. The plan's slices are valid until the next call. If the problem
// is inconsistent, Plan returns an error that wraps ErrInvalid.
func (p *Planner) Plan(pr *Problem) (Plan, error) {
	if err := pr.check(); err != nil {
		return Plan{}, err
	}
	p.problem = *pr
	defer func() { p.problem, p.need, p.target = problem{}, nil, nil }() // keep no reference to the caller's slices
	if err := p.reset(); err != nil {
		return Plan{}, err
	}
	if err := p.scan(); err != nil {
		return Plan{}, err
	}
	if p.isSettled() {
		return p.plan, nil
	}
	p.stopUnexpected()
	if p.isConstrained() {
		p.before = append(p.before[:0], p.load...)
	}
	p.forbidden()
	p.targets()
	p.pin()
	p.quarantine()
	p.demand()
	p.levels()
	p.gaps()
	p.trim()
	p.relieve()
	p.bound()
	p.changes = slices.Grow(p.changes, p.plan.LowerBound) // appending alone would copy the slice several times
	p.adds = slices.Grow(p.adds, p.plan.LowerBound)
	p.place()
	p.handOff()
	p.exchange()
	p.repair()
	p.leftover()
	p.makeChanges()
	p.postpone()
	return p.plan, nil
}

func (p *Planner) reset() error {
	tasks, workers := len(p.Want), len(p.States)
	p.load = sized(p.load, workers)
	p.offset = sized(p.offset, workers)
	p.plan = Plan{Unplaced: p.plan.Unplaced[:0]}
	p.drops, p.changes, p.adds, p.open = p.drops[:0], p.changes[:0], p.adds[:0], p.open[:0]
	p.has, p.exchanged, p.waiting, p.loose, p.grabs = [4]bool{}, 0, 0, false, false
	p.limit = sized(p.limit, workers)
	p.base = sized(p.base, workers)
	p.addHead = sized(p.addHead, workers)
	positions, isPinned := int32(0), false
	for w, s := range p.States {
		p.has[s] = true
		if s == Open {
			p.open = append(p.open, int32(w))
		}
		p.offset[w] = positions
		positions += int32(len(p.Held[w]))
		isPinned = isPinned || p.Pinned != nil && p.Pinned[w] > 0 && s != Frozen
	}
	if !isPinned {
		p.Pinned = nil
	}
	p.flags = sized(p.flags, int(positions))
	p.staying = p.has[Quarantined] || p.has[Draining] && p.Pinned != nil
	if p.single = p.beginSingle(); p.single {
		return nil
	}
	for _, of := range []struct {
		isUsed bool
		count  *[]int32
	}{{p.has[Frozen], &p.frozen}, {p.has[Draining], &p.drained}, {p.staying, &p.stays}} {
		if of.isUsed {
			*of.count = sized(*of.count, tasks)
		}
	}
	return p.wants()
}

// wants makes every task lack all of its wanted copies.
func (p *Planner) wants() error {
	p.tasks = slices.Grow(p.tasks[:0], len(p.Want))[:len(p.Want)]
	tasks := p.tasks
	sum, least, most := 0, int32(math.MaxInt32), int32(0)
	for t, want := range p.Want {
		tasks[t] = task{lack: want}
		sum += int(want)
		least, most = min(least, want), max(most, want)
	}
	if least < 0 {
		t := slices.Index(p.Want, least)
		return invalid("Want[%d] is %d", t, least)
	}
	p.wanted, p.least, p.most = sum, least, most
	return nil
}

// sized returns s with length n and every element zero.
func sized[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// isExpected reports whether any copy of the task is wanted.
func (p *Planner) isExpected(t int32) bool { return p.Want[t] > 0 }

// mark starts a round of marks on tasks.
func (p *Planner) mark() uint32 {
	if len(p.marks) < len(p.Want) {
		p.marks = make([]uint32, len(p.Want))
		p.round = 0
	}
	p.round++
	if p.round == 0 { // wrapped around
		clear(p.marks)
		p.round = 1
	}
	return p.round
}

// block marks the tasks that worker w cannot gain: those that it has, and those forbidden
// to it. A quarantined worker, and an open one that hands copies to quarantined ones,
// cannot gain the tasks that they lose either.
func (p *Planner) block(w int32) uint32 {
	round, marks, list := p.mark(), p.marks, p.Held[w]
	flags, last := p.flags[p.offset[w]:][:len(list)], pinned
	if p.States[w] == Quarantined || p.grabs {
		last = inChange
	}
	for k, t := range list {
		if flags[k] <= last {
			marks[t] = round
		}
	}
	for i := p.addHead[w]; i > 0; i = p.adds[i-1].next {
		if c := &p.changes[i-1]; c.To != None {
			p.marks[c.Task] = round
		}
	}
	for _, t := range p.forbid.row(w) {
		p.marks[t] = round
	}
	return round
}

// gain adds a copy of t to w. A copy that w handed to a quarantined worker is kept
// instead.
func (p *Planner) gain(t, w int32) {
	if p.grabs && p.grabbed.has(t) && p.keepAgain(t, w) {
		return
	}
	p.changes = append(p.changes, Change{Task: t, From: None, To: w, Reason: Missing})
	p.adds = append(p.adds, add{next: p.addHead[w]})
	p.addHead[w] = int32(len(p.adds))
	p.load[w]++
}

// gainAll adds one copy of each task to w.
func (p *Planner) gainAll(tasks []pending, w int32) {
	n, more := len(p.changes), len(tasks)
	p.changes = slices.Grow(p.changes, more)[:n+more]
	p.adds = slices.Grow(p.adds, more)[:n+more]
	changes, adds := p.changes[n:], p.adds[n:]
	head := p.addHead[w]
	for i, x := range tasks {
		changes[i] = Change{Task: x.task, From: None, To: w, Reason: Missing}
		adds[i] = add{next: head}
		head = int32(n + i + 1)
	}
	p.addHead[w] = head
	p.load[w] += int32(more)
}

// move moves the copies at some positions of from's list.
func (p *Planner) move(places []int32, from, to int32) {
	n, more := len(p.changes), len(places)
	p.changes = slices.Grow(p.changes, more)[:n+more]
	p.adds = slices.Grow(p.adds, more)[:n+more]
	changes, adds := p.changes[n:], p.adds[n:]
	list, start := p.Held[from], p.offset[from]
	flags := p.flags[start:]
	head := p.addHead[to]
	for i, k := range places {
		flags[k] = dropped
		changes[i] = Change{Task: list[k], From: from, To: to, Reason: Rebalance}
		adds[i] = add{next: head, position: start + k}
		head = int32(n + i + 1)
	}
	p.addHead[to] = head
	p.load[from] -= int32(more)
	p.load[to] += int32(more)
	p.plan.Moves += more
}

// cancel cancels a start or move. The copy dropped for it stays dropped.
func (p *Planner) cancel(i int32) {
	c := &p.changes[i]
	p.load[c.To]--
	p.loose = true
	c.To = None
	if c.From != None {
		p.plan.Moves--
		p.drops = append(p.drops, drop{task: c.Task, worker: c.From, position: p.adds[i].position})
		c.From = None
	}
}

// lose drops the copy of t at a position of w.
func (p *Planner) lose(t, w, position int32) {
	p.flags[position] = dropped
	p.drops = append(p.drops, drop{task: t, worker: w, position: position})
	p.load[w]--
}

// room returns how many more copies w takes; it is negative if w has too many.
func (p *Planner) room(w int32) int32 { return p.limit[w] - p.load[w] }

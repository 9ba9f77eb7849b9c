package rebalance

import "slices"

// The planner: its memory, and the order of its steps.

// Planner makes plans. It keeps its memory from call to call, so that a call
// on a problem of the same size allocates next to nothing, and one that finds
// nothing to change nothing at all. The zero value is ready. It is not for
// concurrent use.
type Planner struct {
	problem // of the call under way

	// By task.
	tasks   []task
	need    []int32 // how many copies the open workers shall run: Want, or needed
	needed  []int32
	target  []int32 // how many copies the open, draining and closed ones shall run: Want, or aimed
	aimed   []int32
	frozen  []int32 // copies on frozen workers; valid where there are any
	drained []int32 // on draining workers; likewise
	closed  []int32 // on closed workers; likewise, later only those that are kept
	barred  []int32 // open workers without a copy that may not gain one
	marks   []uint32
	round   uint32

	// By worker. The positions of worker w's list start at offset[w].
	offset  []int32
	load    []int32 // copies, of expected tasks, as planned so far
	limit   []int32 // copies to end with
	base    []int32 // limit without the extra unit that some have
	addHead []int32 // the latest of adds, plus one
	open    []int32 // the open workers
	forbid  rows    // the tasks forbidden on each

	flags []flag // by position

	drops []drop // every copy that was ever flagged dropped
	adds  []add

	// Of the steps.
	wanted    int   // the sum of need
	most      int32 // the highest of Want
	isOver    bool  // some task has more copies on open workers than they shall run
	level     int32 // the load that every open worker ends with, or one more
	extra     int32 // how many end with one more
	overs     overs
	index     index
	search    search
	pending   []pending // what has no place yet
	units     []int32   // the same, copy by copy
	left      []int32   // those of units without a place
	tier      []pending
	scratch   []int32 // of one step, until the next
	chosen    []bool
	levelled  []int32 // closed workers
	rooms     []int32
	passed    []int32 // shed: places in the giver's list that were passed over
	cursor    []int32 // exchange: by worker, how far its list has been gone through
	exchanged int     // units that cost two adds

	has  [4]bool // which states there are
	plan Plan
}

// problem keeps the embedded Problem out of the Planner's documentation.
type problem = Problem

// task is what every step needs of a task, in one word.
type task struct {
	// The last worker whose list named it, plus one; in emit, where it is below
	// zero, the latest of its drops that is not yet part of a change: ^ its index.
	seen int32
	// How many more copies open workers shall run than they do: of Want, and
	// from demand on of need. What is too much is taken off by trim.
	lack int32
}

// flag says what became of a copy.
type flag uint8

const (
	kept     flag = iota
	dropped       // to be stopped here
	repeated      // named before in the same list: no copy at all
	emitted       // dropped, and part of a change already
)

// drop is a copy that was flagged dropped; it may have been kept again.
type drop struct {
	task, worker, position int32
	next                   int32 // emit: the one before of the same task, or none: ^ its index, else 0
}

// add is a copy to be started. An undone one has worker None.
type add struct {
	task, worker int32
	next         int32 // the one before on the same worker, plus one
	// Where a copy was handed over, the worker that dropped it, and the position:
	// that is not among the drops. Else from is None.
	from, position int32
}

// Plan plans one problem. The plan's slices are valid until the next call. It
// returns an error that wraps ErrInvalid where the problem contradicts itself.
func (p *Planner) Plan(pr *Problem) (Plan, error) {
	if err := pr.check(); err != nil {
		return Plan{}, err
	}
	p.problem = *pr
	defer func() { p.problem, p.need, p.target = problem{}, nil, nil }() // keep nothing of the caller's
	if err := p.reset(); err != nil {
		return Plan{}, err
	}
	if !slices.ContainsFunc(p.open, func(w int32) bool { return p.boundOf(w) >= 0 }) {
		p.Bounds = nil
	}
	if err := p.scan(); err != nil {
		return Plan{}, err
	}
	if p.isSettled() {
		return p.plan, nil
	}
	p.stopUnexpected()
	p.forbidden()
	p.targets()
	p.keepClosed()
	p.demand()
	p.levels()
	p.gaps()
	p.trim()
	p.relieve()
	p.bound()
	if p.Bounds == nil {
		p.place()
		p.shed()
		p.exchange()
	}
	p.repair()
	p.leftover()
	p.emit()
	p.postpone()
	return p.plan, nil
}

func (p *Planner) reset() error {
	tasks, workers := len(p.Want), len(p.States)
	p.tasks = slices.Grow(p.tasks[:0], tasks)[:tasks]
	p.wanted, p.most, p.isOver = 0, 0, false
	for t, want := range p.Want {
		if want < 0 {
			return invalid("Want[%d] is %d", t, want)
		}
		p.tasks[t] = task{lack: want}
		p.wanted += int(want)
		p.most = max(p.most, want)
	}
	p.load = sized(p.load, workers)
	p.offset = sized(p.offset, workers)
	p.plan = Plan{Changes: p.plan.Changes[:0], Unplaced: p.plan.Unplaced[:0]}
	p.drops, p.adds, p.open = p.drops[:0], p.adds[:0], p.open[:0]
	p.has, p.exchanged = [4]bool{}, 0
	p.limit = sized(p.limit, workers)
	p.base = sized(p.base, workers)
	p.addHead = sized(p.addHead, workers)
	positions := int32(0)
	for w, s := range p.States {
		p.has[s] = true
		if s == Open {
			p.open = append(p.open, int32(w))
		}
		p.offset[w] = positions
		positions += int32(len(p.Held[w]))
	}
	p.flags = sized(p.flags, int(positions))
	for _, of := range []struct {
		s     State
		count *[]int32
	}{{Frozen, &p.frozen}, {Draining, &p.drained}, {Closed, &p.closed}} {
		if p.has[of.s] {
			*of.count = sized(*of.count, tasks)
		}
	}
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

// isExpected says whether any copy of the task is wanted.
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

// block marks the tasks that worker w cannot gain: those that it has, and those
// forbidden to it.
func (p *Planner) block(w int32) uint32 {
	round := p.mark()
	at := p.offset[w]
	for k, t := range p.Held[w] {
		if p.flags[at+int32(k)] == kept {
			p.marks[t] = round
		}
	}
	for i := p.addHead[w]; i > 0; i = p.adds[i-1].next {
		if p.adds[i-1].worker == w {
			p.marks[p.adds[i-1].task] = round
		}
	}
	for _, t := range p.forbid.row(w) {
		p.marks[t] = round
	}
	return round
}

// gain adds a copy of t to w.
func (p *Planner) gain(t, w int32) {
	p.gainFrom(t, w, None, 0)
}

func (p *Planner) gainFrom(t, w, from, position int32) {
	p.adds = append(p.adds, add{task: t, worker: w, next: p.addHead[w], from: from, position: position})
	p.addHead[w] = int32(len(p.adds))
	p.load[w]++
}

// lose drops the copy of t at a position of w.
func (p *Planner) lose(t, w, position int32) {
	p.flags[position] = dropped
	p.drops = append(p.drops, drop{task: t, worker: w, position: position})
	p.load[w]--
}

// move moves the copy of t at a position of w to another worker.
func (p *Planner) move(t, w, position, to int32) {
	p.flags[position] = dropped
	p.load[w]--
	p.gainFrom(t, to, w, position)
}

// cancel takes back an add. What was dropped for it stays so.
func (p *Planner) cancel(a *add) {
	a.worker = None
	if a.from != None {
		p.drops = append(p.drops, drop{task: a.task, worker: a.from, position: a.position})
		a.from = None
	}
}

// room is how many more copies w shall take.
func (p *Planner) room(w int32) int32 { return p.limit[w] - p.load[w] }

package orchestrator

import (
	"fmt"
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/internal/standing"
	"github.com/f8949c05/orchestrator/rebalance"
)

// The second phase of a term: from what the leader knows to what it does next.
// Everything here is a function of values.

// expectation is what was expected when the term began, by task number.
type expectation struct {
	instances []int32
	handoffs  []Handoff
	wanted    int
	loaded    bool
	version   uint64
}

// snapshot brings e up to date. The table's lock is held.
func (t *taskTable[T]) snapshot(e *expectation) {
	e.loaded = t.loaded
	if e.version == t.version {
		return
	}
	e.version, e.wanted = t.version, t.wanted
	e.instances = slices.Grow(e.instances[:0], len(t.defs))
	e.handoffs = slices.Grow(e.handoffs[:0], len(t.defs))
	for i := range t.defs {
		e.instances = append(e.instances, t.defs[i].instances)
		e.handoffs = append(e.handoffs, t.defs[i].handoff)
	}
}

// expected says whether any instance of a task is wanted.
func (e *expectation) expected(task int32) bool {
	return int(task) < len(e.instances) && e.instances[task] > 0
}

// grow makes room for n tasks. What was given a number since the term began is
// not expected in this term.
func (e *expectation) grow(n int) {
	for len(e.instances) < n {
		e.instances = append(e.instances, 0)
		e.handoffs = append(e.handoffs, HandoffDefault)
	}
}

// decision is what a term is going to do.
type decision struct {
	changes    []change
	waiting    []waiting
	deferred   int
	adds       int
	lowerBound int
	missing    int // instances that nobody runs or holds
	unplaced   int // those of them without a place
	held       int // instances on silent workers
}

// mark calls f with the number of every task that the decision refers to.
func (d *decision) mark(mark func(task int32)) {
	for i := range d.changes {
		mark(d.changes[i].Task)
	}
	for i := range d.waiting {
		mark(d.waiting[i].task)
	}
}

// change is a change of the plan; workers are indices into the fleet.
type change struct {
	handover.Change
	reason Reason
}

func (c *change) kind() ChangeKind {
	switch {
	case c.From == handover.None:
		return ChangeKind{Start, c.reason}
	case c.To == handover.None:
		return ChangeKind{Stop, c.reason}
	}
	return ChangeKind{Move, c.reason}
}

// waiting is an instance that has to wait; worker is an index into the fleet
// or None.
type waiting struct {
	task      int32
	instances int
	reason    Reason
	worker    int32
}

// decider turns what is known into a decision. It keeps its memory from term
// to term.
type decider[W, T comparable] struct {
	planner rebalance.Planner
	problem rebalance.Problem
	index   []int32 // planner's worker → fleet's
	frozen  bool    // some worker is silent
	capped  []int32 // the instances wanted, where not all are for the planner to start
	// suspects is what is tried on top of the plan, by task, and suspected who
	// has a copy of one, or gets it by the plan.
	suspects  []suspect
	suspected map[standing.Pair]bool

	fleet  *fleet[W, T]
	book   *standing.Book
	expect *expectation
	term   uint64
	out    decision
}

// decide plans a term. Beside the planner's time, which package rebalance states,
// it takes O(workers + changes), O(pairs · log(pairs)) for the failures in the
// book, and O(instances) for what silent workers hold and while a founder is
// unheard.
func (d *decider[W, T]) decide(f *fleet[W, T], book *standing.Book, e *expectation, term uint64, maxMoves int, handoff Handoff) decision {
	d.fleet, d.book, d.expect, d.term = f, book, e, term
	d.out = decision{}
	if !e.loaded {
		// Nobody said yet what is expected: whatever runs may be.
		return d.out
	}
	d.pose(maxMoves)
	if d.frozen {
		d.holding()
	}
	plan, err := d.planner.Plan(&d.problem)
	if err != nil {
		panic(fmt.Sprintf("orchestrator: the planner was given a bad problem: %v", err)) //nolint:forbidigo // an invariant is broken
	}
	d.take(&plan)
	d.tryOut()
	d.probe(maxMoves)
	d.order(handoff)
	return d.out
}

// pose states the planner's problem: the workers that are not lost, what each
// holds, and what may go where.
func (d *decider[W, T]) pose(maxMoves int) {
	p := &d.problem
	p.Want, p.MaxMoves = d.expect.instances, maxMoves
	p.States, p.Held, p.Forbidden, d.index = p.States[:0], p.Held[:0], p.Forbidden[:0], d.index[:0]
	d.frozen = false
	for i, w := range d.fleet.workers {
		if w.state == Lost {
			continue
		}
		d.index = append(d.index, int32(i))
		role := d.role(w)
		d.frozen = d.frozen || role == rebalance.Frozen
		p.States = append(p.States, role)
		p.Held = append(p.Held, w.holds())
	}
	for pair := range d.book.Pairs(d.term) {
		at, ok := slices.BinarySearchFunc(d.index, pair.Worker, func(i int32, serial uint64) int {
			return compareSerial(d.fleet.workers[i].serial, serial)
		})
		if ok && int(pair.Task) < len(p.Want) {
			p.Forbidden = append(p.Forbidden, rebalance.Pair{Task: pair.Task, Worker: int32(at)})
		}
	}
	if d.frozen {
		if w := d.fleet.unheard(); w != nil {
			d.cap(w)
		}
	}
	d.setAside()
}

func (d *decider[W, T]) role(w *worker[W, T]) rebalance.State {
	switch {
	case w.state != Answering:
		return rebalance.Frozen // silence outranks draining
	case w.draining:
		return rebalance.Draining
	}
	if closed, _ := d.book.Closed(w.serial, d.term); closed {
		return rebalance.Closed
	}
	return rebalance.Open
}

// cap wants no more of any task than is reported: the rest may run on a worker
// that was never heard.
func (d *decider[W, T]) cap(unheard *worker[W, T]) {
	p := &d.problem
	d.capped = slices.Grow(d.capped[:0], len(p.Want))[:len(p.Want)]
	clear(d.capped)
	for _, held := range p.Held {
		round := d.fleet.nextRound()
		for _, task := range held {
			if d.fleet.stamps[task] != round {
				d.fleet.stamps[task] = round
				d.capped[task]++
			}
		}
	}
	at := int32(slices.Index(d.fleet.workers, unheard))
	for task, want := range p.Want {
		if lack := want - d.capped[task]; lack > 0 {
			d.out.missing += int(lack)
			d.out.waiting = append(d.out.waiting, waiting{int32(task), int(lack), ReasonUnheard, at})
		} else {
			d.capped[task] = want
		}
	}
	p.Want = d.capped
}

// holding lists what silent workers hold of what is expected.
func (d *decider[W, T]) holding() {
	held := 0
	for _, w := range d.fleet.workers {
		if w.state == Silent {
			held += len(w.runs) + len(w.maybe)
		}
	}
	d.out.waiting = slices.Grow(d.out.waiting, held)
	for i, w := range d.fleet.workers {
		if w.state != Silent {
			continue
		}
		round := d.fleet.nextRound()
		for _, task := range w.holds() {
			if d.expect.instances[task] > 0 && d.fleet.stamps[task] != round {
				d.fleet.stamps[task] = round
				d.out.held++
				d.out.waiting = append(d.out.waiting, waiting{task, 1, ReasonHeld, int32(i)})
			}
		}
	}
}

// take translates the planner's plan.
func (d *decider[W, T]) take(plan *rebalance.Plan) {
	d.out.deferred, d.out.adds, d.out.lowerBound = plan.Deferred, plan.Adds, plan.LowerBound
	d.out.changes = make([]change, 0, len(plan.Changes))
	for _, c := range plan.Changes {
		out := change{Change: handover.Change{Task: c.Task, From: d.at(c.From), To: d.at(c.To)}}
		switch c.Reason {
		case rebalance.Missing:
			d.out.missing++
			out.reason = d.missing(c.Task)
		case rebalance.Unexpected:
			out.reason = ReasonUnexpected
		case rebalance.Surplus:
			out.reason = ReasonSurplus
		case rebalance.Rebalance:
			out.reason = ReasonRebalance
		case rebalance.Drain:
			out.reason = ReasonDrain
		default:
			panic(fmt.Sprintf("orchestrator: the planner gave reason %v", c.Reason)) //nolint:forbidigo // an invariant is broken
		}
		d.out.changes = append(d.out.changes, out)
	}
	for _, u := range plan.Unplaced {
		w := waiting{task: u.Task, instances: int(u.Copies), worker: d.at(u.Worker)}
		switch u.Why {
		case rebalance.NoOpenWorker:
			w.reason = ReasonNoWorker
		case rebalance.WhyForbidden:
			w.reason = ReasonAvoided
		default:
			w.reason = ReasonNoOtherWorker
		}
		if u.Worker == rebalance.None {
			d.out.missing += w.instances
			d.out.unplaced += w.instances
		}
		d.out.waiting = append(d.out.waiting, w)
	}
}

// missing says why an instance that nobody runs is to be started.
func (d *decider[W, T]) missing(task int32) Reason {
	if d.fleet.flags[task]&taskLost != 0 {
		return ReasonLost
	}
	return ReasonMissing
}

// at translates the planner's number of a worker.
func (d *decider[W, T]) at(w int32) int32 {
	if w == rebalance.None {
		return handover.None
	}
	return d.index[w]
}

// order decides the order of the two halves of each move, and has what timed
// out when it was last tried come last.
func (d *decider[W, T]) order(handoff Handoff) {
	planned := make(map[*worker[W, T]]map[pendingWrite]bool)
	slow := func(worker int32, task int32, start bool) bool {
		if worker == handover.None {
			return false
		}
		w, write := d.fleet.workers[worker], pendingWrite{task, start}
		if !w.timedOut[write] {
			return false
		}
		if planned[w] == nil {
			planned[w] = make(map[pendingWrite]bool)
		}
		planned[w][write] = true
		return true
	}
	for i := range d.out.changes {
		c := &d.out.changes[i]
		h := d.expect.handoffs[c.Task]
		if h == HandoffDefault {
			h = handoff
		}
		c.StartFirst = h == StartThenStop
		stop, start := slow(c.From, c.Task, false), slow(c.To, c.Task, true)
		c.Last = stop || start
	}
	// What is not to be made any more is forgotten.
	for _, w := range d.fleet.workers {
		if w.timedOut != nil {
			w.timedOut = planned[w]
		}
	}
}

func compareSerial(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

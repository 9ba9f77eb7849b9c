package orchestrator

import (
	"fmt"
	"slices"

	"github.com/f8949c05/orchestrator/internal/breaker"
	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/rebalance"
)

// The second phase of a term: the decision. Everything here is pure.

// expectation holds the expected tasks as of the begin of the term, by number.
type expectation struct {
	instances []int32
	handoffs  []Handoff
	wanted    int
	loaded    bool
	version   uint64
}

// snapshot brings e up to date. The caller holds the table's lock.
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

// expected reports whether any instance of a task is wanted.
func (e *expectation) expected(task int32) bool {
	return int(task) < len(e.instances) && e.instances[task] > 0
}

// grow makes room for n tasks. Tasks numbered since the term began are not expected in
// this term.
func (e *expectation) grow(n int) {
	for len(e.instances) < n {
		e.instances = append(e.instances, 0)
		e.handoffs = append(e.handoffs, HandoffDefault)
	}
}

// decision is what a term will do.
type decision struct {
	changes    []change
	waiting    []waiting
	deferred   int
	adds       int
	lowerBound int
	missing    int // instances that no worker runs or holds
	unplaced   int // missing instances without a place
	held       int // instances on silent and late workers
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

// waiting is one or more instances of a task without a place. worker is an index into
// the fleet, or None.
type waiting struct {
	task      int32
	instances int
	reason    Reason
	worker    int32
}

// decider makes decisions. It reuses its memory from term to term.
type decider[W, T comparable] struct {
	planner  rebalance.Planner
	problem  rebalance.Problem
	index    []int32 // planner's worker → fleet's
	frozen   bool    // some worker is silent or late
	capped   []int32 // the wanted instances, less those that the planner must not start
	isCapped bool    // problem.Want is capped
	suspects suspects
	leaving  []leaving        // surplus copies whose stop failed
	again    []rebalance.Pair // those of leaving that are outside the plan and stopped again
	retries  []*worker[W, T]  // workers on which a failed stop may be tried again
	stuck    []int32          // tasks that some worker failed to stop

	fleet    *fleet[W, T]
	breakers *breaker.Breakers
	expect   *expectation
	now      breaker.Moment
	cfg      *config
	out      decision
}

// leaving is a surplus copy whose stop failed. pinned: it is among the pinned tasks of
// its worker. retry: its stop may be tried again.
type leaving struct {
	rebalance.Pair
	pinned, retry bool
}

// decide plans a term. Beside the planner's time, which package rebalance states, it
// takes O(workers + changes) and O(failed starts · log(failed starts)). It takes
// O(instances) for the tasks of silent workers, and while an initial worker has not
// answered, a suspect runs, or a failed stop is remembered.
func (d *decider[W, T]) decide(f *fleet[W, T], b *breaker.Breakers, e *expectation, now breaker.Moment, cfg *config) decision {
	d.fleet, d.breakers, d.expect, d.now, d.cfg = f, b, e, now, cfg
	d.out = decision{}
	if !e.loaded {
		// Until tasks are loaded, any running task may be expected.
		return d.out
	}
	d.pose()
	if d.frozen {
		d.holding()
	}
	plan, err := d.planner.Plan(&d.problem)
	if err != nil {
		panic(fmt.Sprintf("orchestrator: the planner was given a bad problem: %v", err)) //nolint:forbidigo // an invariant is broken
	}
	d.take(&plan)
	d.waitForLate()
	d.trySuspects()
	d.order()
	return d.out
}

// holding lists the expected instances that silent and late workers hold.
func (d *decider[W, T]) holding() {
	held := 0
	for _, w := range d.fleet.workers {
		if w.isFrozen() {
			held += len(w.runs) + len(w.maybe)
		}
	}
	d.out.waiting = slices.Grow(d.out.waiting, held)
	for i, w := range d.fleet.workers {
		if !w.isFrozen() {
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
	for _, pair := range d.again {
		d.out.changes = append(d.out.changes, change{
			Change: handover.Change{Task: pair.Task, From: d.at(pair.Worker), To: handover.None}, reason: ReasonSurplus,
		})
	}
	for _, u := range plan.Unplaced {
		w := waiting{task: u.Task, instances: int(u.Copies), worker: d.at(u.Worker)}
		switch u.Why {
		case rebalance.NoOpenWorker:
			w.reason = ReasonNoWorker
		case rebalance.WhyForbidden:
			w.reason = ReasonPaused
		case rebalance.WhyPinned:
			w.reason = d.pinnedBy(u.Task, w.worker)
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

// pinnedBy returns why a copy stays on a draining worker.
func (d *decider[W, T]) pinnedBy(task, worker int32) Reason {
	s := d.fleet.workers[worker].stops[task]
	if _, suspect := d.suspects.of[task]; suspect || s != nil && s.failures > 0 {
		return ReasonPaused
	}
	return ReasonPinned
}

// missing returns why an instance that no worker runs starts.
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

// waitForLate makes starts of missing instances wait for one term if they are the
// share of a worker that is late for the first time. Otherwise they would fill the
// other workers, and move when the late one answers.
func (d *decider[W, T]) waitForLate() {
	var late []int32
	open, total := 0, 0
	for i, w := range d.fleet.workers {
		if w.late && w.lateFor == 1 && !w.draining {
			late = append(late, int32(i))
		}
	}
	if len(late) == 0 {
		return
	}
	after := d.after()
	for i, w := range d.fleet.workers {
		if w.isOpen() {
			open++
			total += after[i]
		}
	}
	for _, i := range late {
		total += after[i]
	}
	share := (total + open + len(late) - 1) / (open + len(late))
	d.out.changes = slices.DeleteFunc(d.out.changes, func(c change) bool {
		if len(late) == 0 || c.From != handover.None || after[c.To] <= share {
			return false
		}
		for len(late) > 0 && after[late[0]] >= share {
			late = late[1:]
		}
		if len(late) == 0 {
			return false
		}
		after[c.To]--
		after[late[0]]++
		d.out.adds--
		d.out.lowerBound--
		d.out.waiting = append(d.out.waiting, waiting{c.Task, 1, ReasonLate, late[0]})
		return true
	})
}

// after returns how many tasks each worker has when the plan so far is carried
// out.
func (d *decider[W, T]) after() []int {
	after := make([]int, len(d.fleet.workers))
	for i, w := range d.fleet.workers {
		after[i] = len(w.runs)
	}
	for i := range d.out.changes {
		c := &d.out.changes[i]
		if c.From != handover.None {
			after[c.From]--
		}
		if c.To != handover.None {
			after[c.To]++
		}
	}
	return after
}

// order decides the order of the two halves of each move, and which changes come last or
// pause. Changes that failed before come last, and a stop that failed is not sent while
// it pauses.
func (d *decider[W, T]) order() {
	d.stopThoseUnderWay()
	alone := d.overlapping()
	for i := range d.out.changes {
		c := &d.out.changes[i]
		c.StartFirst = d.startsFirst(c) && !alone[c.Task]
		if c.To != handover.None {
			c.Last = d.breakers.Failed(c.Task)
		}
		if c.From == handover.None {
			continue
		}
		if w := d.fleet.workers[c.From]; w.stops[c.Task] != nil && w.stops[c.Task].failures > 0 {
			c.Last = true
			c.Paused = c.Task != w.retry(d.now)
		}
	}
	for _, w := range d.retries {
		// The task had its turn, even if the plan does not retry its stop.
		w.stops[w.retry(d.now)].turn = d.now.Term
	}
}

// stopThoseUnderWay directs a surplus stop to the copy whose stop is under way, if there
// is one. Otherwise both copies would end.
func (d *decider[W, T]) stopThoseUnderWay() {
	for at, w := range d.fleet.workers {
		if len(w.stops) == 0 || w.isFrozen() {
			continue
		}
		for _, task := range w.runs {
			if s := w.stops[task]; s == nil || !s.surplus || !s.stopping || d.stops(task, int32(at)) {
				continue
			}
			for i := range d.out.changes {
				c := &d.out.changes[i]
				if c.Task != task || c.reason != ReasonSurplus {
					continue
				}
				from := d.fleet.workers[c.From]
				if other := from.stops[task]; other != nil && other.stopping {
					continue
				}
				if from.draining {
					d.out.waiting = append(d.out.waiting, waiting{task, 1, ReasonNoOtherWorker, c.From})
				}
				c.From = int32(at)
				break
			}
		}
	}
}

// startsFirst reports whether the handoff of a change's task is StartThenStop.
func (d *decider[W, T]) startsFirst(c *change) bool {
	h := d.expect.handoffs[c.Task]
	if h == HandoffDefault {
		h = d.cfg.handoff
	}
	return h == StartThenStop
}

// overlapping returns the moving tasks that may already run on more workers than wanted:
// a silent worker holds a copy, or may hold any task, or a surplus copy stops in this
// term. Starting such a task first could make it run on three workers.
func (d *decider[W, T]) overlapping() map[int32]bool {
	var moving map[int32]bool
	for i := range d.out.changes {
		if c := &d.out.changes[i]; c.kind().Op == Move && d.startsFirst(c) {
			if moving == nil {
				moving = make(map[int32]bool)
			}
			moving[c.Task] = true
		}
	}
	if moving == nil {
		return nil
	}
	tasks := make(map[int32]bool)
	for i := range d.out.changes {
		if c := &d.out.changes[i]; c.kind().Op == Stop && moving[c.Task] {
			tasks[c.Task] = true
		}
	}
	if !d.frozen {
		return tasks
	}
	if d.fleet.neverAnswered() != nil {
		return moving
	}
	for _, w := range d.fleet.workers {
		if !w.isFrozen() {
			continue
		}
		for _, task := range w.holds() {
			if moving[task] {
				tasks[task] = true
			}
		}
	}
	return tasks
}

package term

import (
	"fmt"
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/rebalance"
)

// Tasks holds the expected tasks, by number.
type Tasks struct {
	// Loaded: the expected tasks are known. Until then no task is started or stopped.
	Loaded bool
	// Instances is the number of instances wanted, 0 for a task that is not expected.
	Instances []int32
	// StartFirst: in a move, the task starts on its new worker before it stops on its
	// old one.
	StartFirst []bool
	Wanted     int // the sum of Instances

	// Class is, by task, its class, and Requires, by class, the labels that a worker must have
	// or, after a "!", must not have; nil means none. MaxPerZone is, by task, as in package
	// rebalance. A nil slice means that no task has the rule.
	Class      []int32
	Requires   [][]string
	MaxPerZone []int32
	weight     []rebalance.Weight // nil: all are the same
	// Still: no task moves for an even spread.
	Still bool
}

// Expects reports whether any instance of a task is wanted.
func (t *Tasks) Expects(task int32) bool {
	return int(task) < len(t.Instances) && t.Instances[task] > 0
}

// grow makes room for n tasks. Tasks numbered since the term began are not expected in
// this term.
func (t *Tasks) grow(n int) {
	for len(t.Instances) < n {
		t.Instances = append(t.Instances, 0)
		t.StartFirst = append(t.StartFirst, false)
		if t.Class != nil {
			t.Class = append(t.Class, 0)
		}
		if t.MaxPerZone != nil {
			t.MaxPerZone = append(t.MaxPerZone, 0)
		}
		if t.weight != nil {
			t.weight = append(t.weight, rebalance.Weight{})
		}
	}
}

// Decision is what a term will do.
type Decision struct {
	Changes    []Change
	Waiting    []Waiting
	Deferred   int // moves left to later terms
	Adds       int // starts, including those of moves
	LowerBound int // the fewest starts with which any plan could reach the same spread
	Missing    int // instances that no worker runs or holds
	Unplaced   int // missing instances without a place
	Held       int // instances on silent and late workers
	// EvictionsHeld counts the copies that stay although labels forbid it, because too many
	// do.
	EvictionsHeld int
	// Loads holds, by worker, what it runs by weight after the plan, and its level; nil unless
	// weights differ.
	Loads []rebalance.Load
}

// Mark calls f with the number of every task that the decision refers to.
func (d *Decision) Mark(mark func(task int32)) {
	for i := range d.Changes {
		mark(d.Changes[i].Task)
	}
	for i := range d.Waiting {
		mark(d.Waiting[i].Task)
	}
}

// Change is a change of the plan. Its workers are indices into the fleet.
type Change struct {
	handover.Change
	Reason Reason
	Loser  uint64 // the serial of the worker that had the task; 0 if no reason names one
}

func (c *Change) isMove() bool { return c.From != handover.None && c.To != handover.None }

// Waiting is one or more instances of a task without a place. Worker is an index into
// the fleet, or None.
type Waiting struct {
	Task      int32
	Instances int
	Reason    Reason
	Worker    int32
	Causes    *Causes // nil if no rule is set, or the instance has a place
}

// Reason is why a change is made or an instance waits.
type Reason uint8

// The reasons of changes, and then those of waiting.
const (
	ReasonMissing Reason = iota
	ReasonLost
	ReasonVanished
	ReasonUnexpected
	ReasonSurplus
	ReasonRebalance
	ReasonDrain
	ReasonRequires
	ReasonZone
	ReasonLimit

	ReasonHeld
	ReasonNeverAnswered
	ReasonNoWorker
	ReasonNoOtherWorker
	ReasonPaused
	ReasonPinned
	ReasonLate
	ReasonNoPlace
	ReasonEvictionHeld
)

// decider makes decisions. It reuses its memory from term to term.
type decider struct {
	planner   rebalance.Planner
	problem   rebalance.Problem
	index     []int32 // planner's worker → fleet's
	frozen    bool    // some worker is silent or late
	capped    []int32 // the wanted instances, less those that the planner must not start
	isCapped  bool    // problem.Want is capped
	suspects  suspects
	leaving   []leaving        // surplus copies whose stop failed
	stopAgain []rebalance.Pair // those of leaving that are outside the plan and stopped again
	retries   []*Worker        // workers on which a failed stop may be tried again
	stuck     []int32          // tasks that some worker failed to stop
	losses    map[int32][]loss // of fleet, by task; nil until a task needs it

	fleet    *Fleet
	breakers *breakers
	expect   *Tasks
	now      Moment
	cfg      *Config
	out      Decision
}

// leaving is a surplus copy whose stop failed. retry: its stop may be tried again. gone: it
// is outside the plan.
type leaving struct {
	rebalance.Pair
	retry, gone bool
}

// Decide plans a term. Beside the planner's time, which package rebalance states, it
// takes O(workers + changes) and O(failed starts · log(failed starts)). It takes
// O(instances) for the tasks of silent workers, and while an initial worker has not
// answered, a suspect runs, or a failed stop is remembered.
func (f *Fleet) Decide(t *Tasks, now Moment) Decision {
	f.grow(len(t.Instances))
	t.grow(len(f.flags))
	changed := f.refresh(t)
	d := &f.decider
	d.fleet, d.breakers, d.expect, d.now, d.cfg = f, f.breakers, t, now, &f.cfg
	d.out, d.losses = Decision{}, nil
	if t.Loaded {
		d.watchStorm(changed)
		d.decide()
	}
	return d.out
}

func (d *decider) decide() {
	d.makeProblem()
	if d.frozen {
		d.listHeld()
	}
	plan := d.plan()
	if d.expect.Still {
		d.holdStill(&plan)
	}
	d.translate(&plan)
	d.waitForLate()
	d.trySuspects()
	d.order()
	d.dropWithoutRoom()
	d.findCauses()
	d.dropReplaced()
}

// plan calls the planner.
func (d *decider) plan() rebalance.Plan {
	plan, err := d.planner.Plan(&d.problem)
	if err != nil {
		panic(fmt.Sprintf("orchestrator: the planner was given a bad problem: %v", err)) //nolint:forbidigo // an invariant is broken
	}
	return plan
}

// holdStill plans again if some task moves for an even spread, with as many moves as the
// others are, because these come first.
func (d *decider) holdStill(plan *rebalance.Plan) {
	moves, even := 0, 0
	for _, c := range plan.Changes {
		switch {
		case c.Reason == rebalance.Rebalance:
			even++
		case c.From != rebalance.None && c.To != rebalance.None:
			moves++
		}
	}
	if even > 0 {
		d.problem.MaxMoves = moves
		*plan = d.plan()
	}
}

// dropReplaced drops the losses of tasks that miss no instance, such as those of a start
// whose answer was lost. Otherwise they would count when an instance is missing next.
func (d *decider) dropReplaced() {
	f := d.fleet
	if len(f.losses) == 0 {
		return
	}
	round := f.nextRound()
	for i := range d.out.Changes {
		if c := &d.out.Changes[i]; c.From == handover.None {
			f.stamps[c.Task] = round
		}
	}
	for _, w := range d.out.Waiting {
		if w.Reason != ReasonHeld {
			f.stamps[w.Task] = round
		}
	}
	f.keepLosses(func(_ int, l loss) bool { return f.stamps[l.task] == round })
}

// listHeld lists the expected instances that silent and late workers hold.
func (d *decider) listHeld() {
	held := 0
	for _, w := range d.fleet.Workers {
		if w.isFrozen() {
			held += len(w.runs) + len(w.unsure)
		}
	}
	d.out.Waiting = slices.Grow(d.out.Waiting, held)
	for i, w := range d.fleet.Workers {
		if !w.isFrozen() {
			continue
		}
		round := d.fleet.nextRound()
		for _, task := range w.holds() {
			if d.expect.Instances[task] > 0 && d.fleet.stamps[task] != round {
				d.fleet.stamps[task] = round
				d.out.Held++
				d.out.Waiting = append(d.out.Waiting, Waiting{Task: task, Instances: 1, Reason: ReasonHeld, Worker: int32(i)})
			}
		}
	}
}

// changeReasons are the reasons of changes, by the planner's. That of a missing instance depends
// on what is known of it.
var changeReasons = [...]Reason{
	rebalance.Unexpected: ReasonUnexpected, rebalance.Surplus: ReasonSurplus, rebalance.Rebalance: ReasonRebalance,
	rebalance.Drain:      ReasonDrain,
	rebalance.EvictLabel: ReasonRequires, rebalance.EvictZone: ReasonZone, rebalance.EvictLimit: ReasonLimit,
}

// translate turns the planner's plan into changes and waiting instances.
func (d *decider) translate(plan *rebalance.Plan) {
	d.out.Deferred, d.out.Adds, d.out.LowerBound = plan.Deferred, plan.Adds, plan.LowerBound
	if plan.Loads != nil {
		d.out.Loads = make([]rebalance.Load, len(d.fleet.Workers))
		for at, load := range plan.Loads {
			d.out.Loads[d.index[at]] = load
		}
	}
	d.out.Changes = make([]Change, 0, len(plan.Changes))
	for _, c := range plan.Changes {
		out := Change{Change: handover.Change{Task: c.Task, From: d.at(c.From), To: d.at(c.To)}, Reason: changeReasons[c.Reason]}
		if c.Reason == rebalance.Missing {
			d.out.Missing++
			out.Reason, out.Loser = d.startReason(c.Task)
		}
		d.out.Changes = append(d.out.Changes, out)
	}
	for _, pair := range d.stopAgain {
		d.out.Changes = append(d.out.Changes, Change{
			Change: handover.Change{Task: pair.Task, From: d.at(pair.Worker), To: handover.None}, Reason: ReasonSurplus,
		})
	}
	for _, u := range plan.Unplaced {
		w := Waiting{Task: u.Task, Instances: int(u.Copies), Worker: d.at(u.Worker)}
		switch u.Reason {
		case rebalance.NoOpenWorker:
			w.Reason = ReasonNoWorker
		case rebalance.NoAllowedWorker:
			w.Reason = ReasonPaused
		case rebalance.CopyPinned:
			w.Reason = d.stayReason(u.Task, w.Worker)
		case rebalance.NoPlaceByRules:
			w.Reason = ReasonNoPlace
			if u.Worker != rebalance.None && !d.fleet.Workers[w.Worker].Draining {
				w.Reason = d.brokenRule(u.Task, w.Worker)
			}
		default:
			w.Reason = ReasonNoOtherWorker
		}
		if u.Worker == rebalance.None {
			d.out.Missing += w.Instances
			d.out.Unplaced += w.Instances
		}
		if last := len(d.out.Waiting) - 1; u.Worker == rebalance.None && last >= 0 && d.fleet.rules.ruled &&
			d.out.Waiting[last].Task == w.Task && d.out.Waiting[last].Worker == handover.None {
			d.out.Waiting[last].Instances += w.Instances // one row for each task
			continue
		}
		d.out.Waiting = append(d.out.Waiting, w)
	}
}

// stayReason returns why a copy stays on a draining worker.
func (d *decider) stayReason(task, worker int32) Reason {
	if _, suspect := d.suspects.of[task]; suspect || d.fleet.Workers[worker].stopFails(task) {
		return ReasonPaused
	}
	return ReasonPinned
}

// startReason returns why an instance that no worker runs starts, and the worker that had
// it. If several instances start, the one that was lost last comes first.
func (d *decider) startReason(task int32) (why Reason, loser uint64) {
	if d.fleet.flags[task]&taskGone == 0 {
		return ReasonMissing, 0
	}
	if d.losses == nil {
		d.losses = make(map[int32][]loss)
		for _, l := range d.fleet.losses {
			d.losses[l.task] = append(d.losses[l.task], l)
		}
	}
	all := d.losses[task]
	last := all[len(all)-1]
	if len(all) > 1 {
		d.losses[task] = all[:len(all)-1]
	}
	if last.vanished {
		return ReasonVanished, last.worker
	}
	return ReasonLost, last.worker
}

// at translates the planner's number of a worker.
func (d *decider) at(w int32) int32 {
	if w == rebalance.None {
		return handover.None
	}
	return d.index[w]
}

// waitForLate makes starts of missing instances wait for one term if they are the
// share of a worker that is late for the first time. Otherwise they would fill the
// other workers, and move when the late one answers. Quarantined workers have no share.
func (d *decider) waitForLate() {
	var late []int32
	total, shares := int64(0), int64(0)
	shareOf := func(i int32) int64 { return int64(max(1, rulesOf(d.fleet.Workers[i]).Share)) }
	quarantined := func(w *Worker) bool { _, ok := d.breakers.quarantined(w.Serial); return ok }
	for i, w := range d.fleet.Workers {
		if w.Late && w.lateFor == 1 && !w.Draining && !quarantined(w) {
			late = append(late, int32(i))
		}
	}
	if len(late) == 0 {
		return
	}
	after := d.loadsAfter()
	for i, w := range d.fleet.Workers {
		if w.isOpen() && !quarantined(w) {
			total, shares = total+int64(after[i]), shares+shareOf(int32(i))
		}
	}
	for _, i := range late {
		total, shares = total+int64(after[i]), shares+shareOf(i)
	}
	part := func(i int32) int { return int((total*shareOf(i) + shares - 1) / shares) }
	d.out.Changes = slices.DeleteFunc(d.out.Changes, func(c Change) bool {
		if len(late) == 0 || c.From != handover.None || after[c.To] <= part(c.To) {
			return false
		}
		for len(late) > 0 && after[late[0]] >= part(late[0]) {
			late = late[1:]
		}
		if len(late) == 0 || !d.lateAdmits(c.Task, late[0], after) {
			return false
		}
		after[c.To]--
		after[late[0]]++
		d.out.Adds--
		d.out.LowerBound--
		d.out.Waiting = append(d.out.Waiting, Waiting{Task: c.Task, Instances: 1, Reason: ReasonLate, Worker: late[0]})
		return true
	})
}

// lateAdmits reports whether the labels and the limit of a worker, by index, let it take a
// task. after is by worker.
func (d *decider) lateAdmits(task, worker int32, after []int) bool {
	limit := rulesOf(d.fleet.Workers[worker]).MaxTasks
	return (limit == 0 || after[worker] < int(limit)) && d.fleet.rules.mayRun(d.expect.classOf(task), int(worker))
}

// loadsAfter returns how many tasks each worker has when the plan so far is carried out. A
// stop that has failed before does not count: its task may stay.
func (d *decider) loadsAfter() []int {
	after := make([]int, len(d.fleet.Workers))
	for i, w := range d.fleet.Workers {
		after[i] = len(w.runs)
	}
	for i := range d.out.Changes {
		c := &d.out.Changes[i]
		if c.From != handover.None && !d.fleet.Workers[c.From].stopFails(c.Task) {
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
func (d *decider) order() {
	d.stopThoseUnderWay()
	stopFirst := d.overlapping()
	for i := range d.out.Changes {
		c := &d.out.Changes[i]
		c.StartFirst = d.expect.StartFirst[c.Task] && !stopFirst[c.Task]
		if c.To != handover.None {
			c.Last = d.breakers.failing(c.Task)
		}
		if c.From == handover.None {
			continue
		}
		if w := d.fleet.Workers[c.From]; w.stopFails(c.Task) {
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
func (d *decider) stopThoseUnderWay() {
	for at, w := range d.fleet.Workers {
		if len(w.stops) == 0 || w.isFrozen() {
			continue
		}
		for _, task := range w.runs {
			if s := w.stops[task]; s == nil || !s.surplus || !s.stopping || d.stops(task, int32(at)) {
				continue
			}
			for i := range d.out.Changes {
				c := &d.out.Changes[i]
				if c.Task != task || c.Reason != ReasonSurplus {
					continue
				}
				from := d.fleet.Workers[c.From]
				if other := from.stops[task]; other != nil && other.stopping {
					continue
				}
				if from.Draining {
					d.out.Waiting = append(d.out.Waiting, Waiting{Task: task, Instances: 1, Reason: ReasonNoOtherWorker, Worker: c.From})
				}
				c.From = int32(at)
				break
			}
		}
	}
}

// overlapping returns the moving tasks that may already run on more workers than wanted:
// a silent worker holds a copy, or may hold any task, or a surplus copy stops in this
// term. Starting such a task first could make it run on three workers.
func (d *decider) overlapping() map[int32]bool {
	moving := make(map[int32]bool)
	for i := range d.out.Changes {
		if c := &d.out.Changes[i]; c.isMove() && d.expect.StartFirst[c.Task] {
			moving[c.Task] = true
		}
	}
	if len(moving) == 0 {
		return nil
	}
	tasks := make(map[int32]bool)
	for i := range d.out.Changes {
		if c := &d.out.Changes[i]; c.To == handover.None && moving[c.Task] {
			tasks[c.Task] = true
		}
	}
	if !d.frozen {
		return tasks
	}
	if d.fleet.neverAnswered() != nil {
		return moving
	}
	for _, w := range d.fleet.Workers {
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

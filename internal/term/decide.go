package term

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

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
	// Holds are why moves for an even spread wait, beside silent workers.
	Holds []Hold
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
	MovesHeld  int // moves for an even spread that wait because of Holds
	Holds      []Hold
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
	// HighestLoad is the highest weight of Loads by its level. OutOfBand counts those out of
	// their band.
	HighestLoad float64
	OutOfBand   int
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
	Hangs  bool   // the task is a suspect whose starts use up their time; the term does not wait for it
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
type Reason string

// The reasons of changes, and then those of waiting.
const (
	ReasonMissing    Reason = "missing"
	ReasonLost       Reason = "lost"
	ReasonVanished   Reason = "vanished"
	ReasonUnexpected Reason = "unexpected"
	ReasonSurplus    Reason = "surplus"
	ReasonRebalance  Reason = "rebalance"
	ReasonDrain      Reason = "drain"
	ReasonRequires   Reason = "requires"
	ReasonZone       Reason = "zone"
	ReasonLimit      Reason = "limit"
	ReasonRoom       Reason = "room"

	ReasonHeld          Reason = "held"
	ReasonNeverAnswered Reason = "never answered"
	ReasonInitialWait   Reason = "initial wait"
	ReasonNoWorker      Reason = "no open worker"
	ReasonNoOtherWorker Reason = "no other worker"
	ReasonPaused        Reason = "paused"
	ReasonPinned        Reason = "pinned"
	ReasonNoPlace       Reason = "no place"
	ReasonEvictionHeld  Reason = "eviction held"
)

// decider makes decisions. It reuses its memory from term to term.
type decider struct {
	planner   rebalance.Planner
	problem   rebalance.Problem
	index     []int32                 // planner's worker → fleet's
	place     []int32                 // fleet's worker → planner's; of a lost one, any
	forbidden map[rebalance.Pair]bool // problem.Forbidden
	capped    []int32                 // the wanted instances, less those that the planner must not start
	isCapped  bool                    // problem.Want is capped
	makesRoom bool                    // healthy tasks make room for some suspect
	suspects  suspects
	leaving   []leaving         // surplus copies whose stop failed
	stopAgain []rebalance.Pair  // those of leaving that are outside the plan and stopped again
	fallen    map[int]time.Time // the workers that gain nothing for an even spread, by index in the fleet
	retries   []int32           // workers on which a failed stop may be tried again, by index in the fleet
	due       []int32           // quarantined workers that may be tried, by index in the fleet
	late      []int32           // tasks that some worker failed to stop, and those that failed to start last
	restarts  map[int32]int     // by task: how many of its losses have started again
	on        map[int32][]int   // what copies returns; nil until a task needs it

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
// O(instances) for the tasks of silent workers, and in the initial wait, while an initial worker has
// not answered, a suspect runs, or a failed stop is remembered.
func (f *Fleet) Decide(t *Tasks, now Moment) Decision {
	f.grow(len(t.Instances))
	t.grow(len(f.flags))
	changed := f.refresh(t)
	d := &f.decider
	d.fleet, d.breakers, d.expect, d.now, d.cfg = f, f.breakers, t, now, &f.cfg
	d.out, d.restarts, d.on = Decision{}, nil, nil
	if t.Loaded {
		d.watchStorm(changed)
		d.decide()
	}
	return d.out
}

func (d *decider) decide() {
	d.makeProblem()
	d.listHeld()
	d.out.Holds = d.holds()
	d.problem.Still = len(d.out.Holds) > 0
	plan := d.plan()
	d.translate(&plan)
	if f := d.fleet; !f.silentSince.IsZero() && len(d.out.Holds) == 0 && d.out.Deferred == 0 {
		f.silentSince = d.now.Time // all moves are made: the next calm begins
	}
	d.placeOnFallen()
	d.tryWorkers()
	d.trySuspects()
	d.moveStuck()
	d.out.Waiting = slices.DeleteFunc(d.out.Waiting, func(w Waiting) bool { return w.Instances == 0 })
	d.order()
	d.waitForRoom()
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
	maps.DeleteFunc(f.losses, func(task int32, _ []loss) bool { return f.stamps[task] != round })
}

// listHeld lists the expected instances that silent and late workers hold.
func (d *decider) listHeld() {
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

// translate turns the planner's plan into changes and waiting instances.
func (d *decider) translate(plan *rebalance.Plan) {
	d.out.Deferred, d.out.MovesHeld, d.out.Adds, d.out.LowerBound = plan.Deferred, plan.Held, plan.Adds, plan.LowerBound
	d.weigh(plan.Loads)
	d.out.Changes = make([]Change, 0, len(plan.Changes))
	for _, c := range plan.Changes {
		out := Change{Change: handover.Change{Task: c.Task, From: d.at(c.From), To: d.at(c.To)}, Reason: Reason(c.Reason.String())}
		if c.Reason == rebalance.Missing {
			d.out.Missing++
			out.Reason, out.Loser = d.startReason(c.Task)
		}
		d.out.Changes = append(d.out.Changes, out)
	}
	if d.makesRoom {
		d.nameRoom()
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

// weigh compares what the workers of the problem run after the plan with their levels; nil: weights do not
// differ.
func (d *decider) weigh(loads []rebalance.Load) {
	workers := d.fleet.Workers
	if loads != nil {
		d.out.Loads = make([]rebalance.Load, len(workers))
	}
	for at, load := range loads {
		d.out.Loads[d.index[at]] = load
	}
	for i, w := range workers {
		out := false
		if loads != nil && d.out.Loads[i].Level > 0 {
			weight, level := float64(d.out.Loads[i].Weight), float64(d.out.Loads[i].Level)
			d.out.HighestLoad = max(d.out.HighestLoad, weight/level)
			out = math.Abs(weight-level) > level*float64(d.fleet.cfg.Band)/1e6
		}
		switch {
		case !out:
			w.OutOfBand = time.Time{}
		case w.OutOfBand.IsZero():
			w.OutOfBand = d.now.Time
		}
		if out {
			d.out.OutOfBand++
		}
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
	all := d.fleet.losses[task]
	if len(all) == 0 {
		return ReasonMissing, 0
	}
	if d.restarts == nil {
		d.restarts = make(map[int32]int)
	}
	last := all[max(0, len(all)-1-d.restarts[task])]
	d.restarts[task]++
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
	stopFirst, anyTask := d.overlap(), d.fleet.waits || d.fleet.neverAnswered() != nil
	for i := range d.out.Changes {
		c := &d.out.Changes[i]
		c.StartFirst = d.expect.StartFirst[c.Task] && !anyTask && d.fleet.stamps[c.Task] != stopFirst
		if c.To != handover.None {
			c.Last = d.breakers.failing(c.Task)
			if c.Hangs = d.breakers.hangs(c.Task); c.Hangs {
				d.fleet.Workers[c.To].hangs = d.now.Time
			}
		}
		if c.From == handover.None {
			continue
		}
		if w := d.fleet.Workers[c.From]; w.stopFails(c.Task) {
			c.Last = true
			if c.Task != w.retry(d.now) {
				c.Skip = handover.Paused
			}
		}
	}
	for _, i := range d.retries {
		w := d.fleet.Workers[i]
		// The task had its turn, even if the plan does not retry its stop.
		w.stops[w.retry(d.now)].turn = d.now.Term
	}
}

// overlap returns the stamp of the tasks that may already run on more workers than wanted: a silent
// worker holds a copy, or a surplus copy stops in this term. Starting such a task first could make
// it run on three workers.
func (d *decider) overlap() uint32 {
	round := d.fleet.nextRound()
	for i := range d.out.Changes {
		if c := &d.out.Changes[i]; c.To == handover.None {
			d.fleet.stamps[c.Task] = round
		}
	}
	for _, w := range d.fleet.Workers {
		if w.isFrozen() {
			for _, task := range w.holds() {
				d.fleet.stamps[task] = round
			}
		}
	}
	return round
}

package term

// Suspects: tasks that failed to start on more than one worker (T9).
//
// Each try of a suspect goes to another worker. If the plan counted suspects, it would
// make room for them, and move a healthy task away for each try. So the plan leaves out
// the missing instances of suspects; they are started in addition, and the running ones
// stay. Once a suspect runs, the next term makes the spread even.

import (
	"cmp"
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/rebalance"
)

// suspects holds the suspects of a term.
type suspects struct {
	all []suspect
	of  map[int32]int // by task, into all
	// on holds where suspects run or may run; holders holds these workers.
	on      map[taskOn]bool
	holders map[uint64]bool
	tried   map[int32]bool // places that are taken in this term
	after   []int          // by worker, by index in the fleet: its tasks as decided so far
}

// suspect is a task that fails to start on more than one worker.
type suspect struct {
	Task      int32
	Last      uint64 // the worker that failed last
	Pause     Pause
	copies    int32 // on workers that are not lost
	missing   int32
	drainFrom []int32 // draining workers that run it, by index in the fleet
}

// findSuspects collects the suspects that miss an instance or run on a draining worker. A
// suspect that misses none is outside the plan until its pause ends. If there are
// suspects, findSuspects takes a pass over all instances.
func (d *decider) findSuspects() {
	s := &d.suspects
	s.all, s.of, s.on, s.holders = s.all[:0], nil, nil, nil
	if d.breakers.empty() {
		return
	}
	s.of, s.on, s.holders = make(map[int32]int), make(map[taskOn]bool), make(map[uint64]bool)
	for _, x := range d.breakers.suspects() {
		if d.expect.Expects(x.Task) {
			s.of[x.Task] = len(s.all)
			s.all = append(s.all, x)
			d.fleet.flags[x.Task] |= taskSuspect
		}
	}
	for _, task := range d.breakers.leftTwo() { // no healthy task makes room for it either
		if _, known := s.of[task]; !known && d.expect.Expects(task) {
			s.of[task] = len(s.all)
			s.all = append(s.all, suspect{Task: task})
			d.fleet.flags[task] |= taskSuspect
		}
	}
	d.findUnproven()
	if len(s.all) == 0 {
		return
	}
	for i, w := range d.fleet.Workers {
		if w.State == Lost {
			continue
		}
		for _, task := range w.holds() {
			pair := taskOn{Task: task, Worker: w.Serial}
			if d.fleet.flags[task]&taskSuspect == 0 || s.on[pair] {
				continue
			}
			s.on[pair], s.holders[w.Serial] = true, true
			x := &s.all[s.of[task]]
			x.copies++
			if w.Draining && !w.isFrozen() && !slices.Contains(w.ids[len(w.ids)-w.pins:], task) {
				x.drainFrom = append(x.drainFrom, int32(i))
			}
		}
	}
	kept := s.all[:0]
	for _, x := range s.all {
		if x.copies >= d.expect.Instances[x.Task] && len(x.drainFrom) == 0 && !x.Pause.active(d.now) {
			d.fleet.flags[x.Task] &^= taskSuspect
			delete(s.of, x.Task)
			continue
		}
		s.of[x.Task] = len(kept)
		kept = append(kept, x)
	}
	s.all = kept
}

// findUnproven adds the tasks that never ran to the suspects, if at least half as many
// tasks failed to start in the last term, because then they probably fail too. Otherwise
// the plan would give a joining worker new tasks that fail, term after term, in place of
// its share of the others. If starts failed, findUnproven takes a pass over all tasks.
func (d *decider) findUnproven() {
	failed := d.breakers.failedIn(d.now.Term - 1)
	if failed == 0 {
		return
	}
	s := &d.suspects
	first := len(s.all)
	for task, want := range d.expect.Instances {
		if want > 0 && d.fleet.flags[task]&(taskSeen|taskSuspect) == 0 {
			s.all = append(s.all, suspect{Task: int32(task)})
		}
	}
	if len(s.all)-first > 2*failed {
		s.all = s.all[:first]
	}
	for i, x := range s.all[first:] {
		s.of[x.Task] = first + i
		d.fleet.flags[x.Task] |= taskSuspect
	}
}

// setAside limits the wanted instances of each suspect to its copies.
func (d *decider) setAside() {
	s, p := &d.suspects, &d.problem
	if len(s.all) == 0 {
		return
	}
	if !d.isCapped {
		d.capped = append(d.capped[:0], p.Want...)
		p.Want = d.capped
	}
	for i := range s.all {
		x := &s.all[i]
		x.missing = max(0, p.Want[x.Task]-x.copies)
		p.Want[x.Task] -= x.missing
		d.fleet.flags[x.Task] &^= taskSuspect
	}
}

// trySuspects starts the missing instances of suspects whose pause is over, and
// moves those on draining workers. It takes O(workers · log(workers)), and
// O(workers) for each suspect at worst.
func (d *decider) trySuspects() {
	if len(d.suspects.all) == 0 {
		return
	}
	places := d.places()
	d.suspects.tried = make(map[int32]bool)
	next := 0
	for i := range d.suspects.all {
		x := &d.suspects.all[i]
		missing := x.missing
		d.startSuspect(x, places, &next)
		if x.missing < missing {
			// While an instance is missing, its tries show when the task starts again.
			// A running one is not risked, unless the missing one has no place.
			continue
		}
		for _, from := range x.drainFrom {
			if x.Pause.active(d.now) || d.problem.MaxMoves == 0 || d.stops(x.Task, from) {
				break
			}
			w := d.placeFor(x, from, places, &next)
			if w == handover.None {
				break
			}
			d.out.Waiting = slices.DeleteFunc(d.out.Waiting, func(y Waiting) bool {
				return y.Task == x.Task && y.Worker == from
			})
			d.try(x, from, w, ReasonDrain, 0)
		}
	}
}

// stops reports whether the plan stops a task on a worker.
func (d *decider) stops(task, worker int32) bool {
	return slices.ContainsFunc(d.out.Changes, func(c Change) bool { return c.Task == task && c.From == worker })
}

// startSuspect starts the missing instances of a suspect if its pause is over.
func (d *decider) startSuspect(x *suspect, places []int32, next *int) {
	why := ReasonPaused
	if len(places) == 0 {
		why = ReasonNoWorker
	}
	for !x.Pause.active(d.now) && x.missing > 0 {
		w := d.placeFor(x, handover.None, places, next)
		if w == handover.None {
			if len(places) > 0 && !d.breakers.failing(x.Task) {
				why = ReasonNoOtherWorker
			}
			break
		}
		x.missing--
		d.out.Missing++
		reason, loser := d.startReason(x.Task)
		d.try(x, handover.None, w, reason, loser)
	}
	if x.missing > 0 {
		d.out.Missing += int(x.missing)
		d.out.Unplaced += int(x.missing)
		d.out.Waiting = append(d.out.Waiting, Waiting{Task: x.Task, Instances: int(x.missing), Reason: why, Worker: handover.None})
	}
}

// try plans one start of a suspect.
func (d *decider) try(x *suspect, from, to int32, reason Reason, loser uint64) {
	d.out.Adds++
	d.out.LowerBound++
	d.suspects.after[d.index[to]]++
	d.out.Changes = append(d.out.Changes, Change{
		Change: handover.Change{Task: x.Task, From: from, To: d.index[to]},
		Reason: reason, Loser: loser,
	})
}

// placeFor returns the worker, by the planner's number, for the next try of a suspect,
// and marks it as taken. The worker has no copy of the suspect. from is the worker that the
// suspect leaves, by index in the fleet, or None. placeFor prefers workers that are not
// quarantined, then those other than the one that failed last, then those on which the suspect
// failed least.
func (d *decider) placeFor(x *suspect, from int32, places []int32, next *int) int32 {
	found, at := handover.None, 0
	var best, failures int
	for k := 0; k < len(places) && (found == handover.None || best > 0); k++ {
		w := places[(*next+k)%len(places)]
		pair := taskOn{Task: x.Task, Worker: d.fleet.Workers[d.index[w]].Serial}
		pause, trial, rank := d.breakers.pauseOn(pair), d.problem.States[w] == rebalance.Quarantined, 0
		switch {
		case d.suspects.on[pair], d.breakers.left[pair].Failures > 0, x.Pause.Failures == 0 && pause.active(d.now),
			trial && d.suspects.tried[w], !d.admits(x.Task, from, d.index[w]):
			continue
		case trial:
			rank = 3
		case pair.Worker == x.Last:
			rank = 2
		case d.breakers.failedOn(pair):
			rank = 1
		}
		if found == handover.None || cmp.Or(cmp.Compare(rank, best), cmp.Compare(pause.Failures, failures)) < 0 {
			found, at, best, failures = w, k, rank, pause.Failures
		}
	}
	if found != handover.None {
		*next = (*next + at + 1) % len(places)
		d.suspects.tried[found] = true
		d.suspects.on[taskOn{Task: x.Task, Worker: d.fleet.Workers[d.index[found]].Serial}] = true
	}
	return found
}

// admits reports whether the rules let a suspect start on a worker, or move there from another
// one, by index in the fleet.
func (d *decider) admits(task, from, worker int32) bool {
	r := &d.fleet.rules
	if !r.ruled {
		return true
	}
	if limit := rulesOf(d.fleet.Workers[worker]).MaxTasks; limit > 0 && d.suspects.after[worker] >= int(limit) {
		return false
	}
	if limit, limited := d.expect.zoneCap(task); limited {
		for i, w := range d.fleet.Workers {
			if int32(i) != from && r.zoneOf(i) == r.zoneOf(int(worker)) && d.suspects.on[taskOn{Task: task, Worker: w.Serial}] {
				limit--
			}
		}
		if limit <= 0 {
			return false
		}
	}
	return r.mayRun(d.expect.classOf(task), int(worker))
}

// places returns the workers for suspects, by the planner's numbers: first the open ones,
// in ascending order of their tasks after the plan, then the quarantined ones that may
// gain a task and get none by the plan.
func (d *decider) places() (places []int32) {
	after := d.loadsAfter()
	d.suspects.after = after
	gains := make(map[int32]bool)
	for i := range d.out.Changes {
		gains[d.out.Changes[i].To] = true
	}
	var trials []int32
	for w, state := range d.problem.States {
		switch {
		case state == rebalance.Open:
			places = append(places, int32(w))
		case state == rebalance.Quarantined && d.problem.MaxGain[w] > 0 && !gains[d.index[w]]:
			trials = append(trials, int32(w))
		}
	}
	slices.SortStableFunc(places, func(v, w int32) int { return cmp.Compare(after[d.index[v]], after[d.index[w]]) })
	return append(places, trials...)
}

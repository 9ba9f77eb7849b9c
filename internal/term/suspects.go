package term

// Suspects: tasks that failed to start on more than one worker (T9).
//
// Each try of a suspect goes to another worker. If the plan counted suspects, it would
// make room for them, and move a healthy task away for each try. So the plan leaves out
// the missing instances of suspects; they are started in addition, and the running ones
// stay. Once a suspect runs, the next term makes the spread even.

import (
	"cmp"
	"maps"
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/rebalance"
)

// suspects holds the suspects of a term.
type suspects struct {
	all []suspect
	of  map[int32]int // by task, into all
	// holders holds the workers on which suspects run or may run.
	holders map[uint64]bool
	// hang holds the workers on which those that hang are tried in this term, by index in the
	// fleet, with the worker that they leave, or None. spare is how many more there may be.
	hang  map[int]int32
	spare int
}

// suspect is a task that fails to start on more than one worker.
type suspect struct {
	Task      int32
	Last      uint64 // the worker that failed last
	Pause     Pause
	on        []int // the workers that run it or may, by index in the fleet; not the lost ones
	missing   int32
	drainFrom []int32 // draining workers that run it, by index in the fleet
}

// findSuspects collects the suspects that miss an instance or run on a draining worker. A
// suspect that misses none is outside the plan until its pause ends. If there are
// suspects, findSuspects takes a pass over all instances.
func (d *decider) findSuspects() {
	s := &d.suspects
	s.all, s.of, s.holders = s.all[:0], nil, nil
	if d.breakers.empty() {
		return
	}
	s.of, s.holders = make(map[int32]int), make(map[uint64]bool)
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
			if d.fleet.flags[task]&taskSuspect == 0 {
				continue
			}
			x := &s.all[s.of[task]]
			if len(x.on) > 0 && x.on[len(x.on)-1] == i {
				continue
			}
			x.on, s.holders[w.Serial] = append(x.on, i), true
			if w.Draining && !w.isFrozen() && !slices.Contains(w.ids[len(w.ids)-w.pins:], task) {
				x.drainFrom = append(x.drainFrom, int32(i))
			}
		}
	}
	kept := s.all[:0]
	for _, x := range s.all {
		if len(x.on) >= int(d.expect.Instances[x.Task]) && len(x.drainFrom) == 0 && !x.Pause.active(d.now) {
			d.fleet.flags[x.Task] &^= taskSuspect
			delete(s.of, x.Task)
			continue
		}
		if d.needsRoom(&x) {
			d.fleet.flags[x.Task] &^= taskSuspect
			delete(s.of, x.Task)
			d.breakers.tasks[x.Task].roomIn, d.makesRoom = d.now.Term, true
			continue
		}
		s.of[x.Task] = len(kept)
		kept = append(kept, x)
	}
	s.all = kept
}

// needsRoom reports whether healthy tasks make room for a suspect: every open worker that has not
// rejected it has as many tasks as it may, its pause is the longest or the others are full too, and
// no start with such room has failed. Then the suspect is part of the plan, which uses no worker for
// a task that it has rejected (T9). If the room does not come, its next try is as usual, or with room
// again after the longest pause.
func (d *decider) needsRoom(x *suspect) bool {
	t := d.breakers.tasks[x.Task]
	if d.fleet.rules.maxTasks == nil || t == nil || t.roomless || t.tried <= t.roomIn && d.now.Term < t.roomIn+maxPauseTerms ||
		x.Pause.active(d.now) || len(x.on) >= int(d.expect.Instances[x.Task]) {
		return false
	}
	full, longest := false, pauseTerms(d.breakers.step(t)) >= maxPauseTerms
	for i, w := range d.fleet.Workers {
		if !w.isOpen() || slices.Contains(x.on, i) || !d.fleet.rules.mayRun(d.expect.classOf(x.Task), i) {
			continue
		}
		rejects, limit := d.rejects(int32(i), x.Task), rulesOf(w).MaxTasks
		if (!rejects || !longest) && (limit == 0 || w.Holds() < int(limit)) {
			return false // it can be tried there
		}
		full = full || !rejects
	}
	return full
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
		x.missing = max(0, p.Want[x.Task]-int32(len(x.on)))
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
	after := d.loadsAfter()
	places := d.openWorkers(after)
	for _, w := range d.due {
		places = append(places, int(w))
	}
	places = append(places, slices.Sorted(maps.Keys(d.fallen))...)
	d.suspects.hang, d.suspects.spare = make(map[int]int32), max(len(places)/3, 1)
	for _, w := range d.fleet.Workers {
		if w.Late && d.now.Time.Sub(w.hangs) < d.cfg.Timeout {
			d.suspects.spare--
		}
	}
	next := 0
	for i := range d.suspects.all {
		x := &d.suspects.all[i]
		missing := x.missing
		d.startSuspect(x, places, after, &next)
		if x.missing < missing {
			// While an instance is missing, its tries show when the task starts again.
			// A running one is not risked, unless the missing one has no place.
			continue
		}
		for _, from := range x.drainFrom {
			if w := d.fleet.Workers[from]; x.Pause.active(d.now) || d.budget() <= 0 || d.stops(x.Task, from) || w.stopFails(x.Task) && w.retry(d.now) != x.Task {
				break
			}
			if to := d.placeFor(x, from, places, after, &next); to != handover.None {
				d.add(x.Task, from, to, ReasonDrain, 0)
			}
		}
	}
}

// stops reports whether the plan stops a task on a worker.
func (d *decider) stops(task, worker int32) bool {
	return slices.ContainsFunc(d.out.Changes, func(c Change) bool { return c.Task == task && c.From == worker })
}

// startSuspect starts the missing instances of a suspect if its pause is over.
func (d *decider) startSuspect(x *suspect, places, after []int, next *int) {
	why := ReasonPaused
	d.out.Missing += int(x.missing)
	if len(places) == 0 {
		why = ReasonNoWorker
	}
	for !x.Pause.active(d.now) && x.missing > 0 {
		to := d.placeFor(x, handover.None, places, after, next)
		if to == handover.None {
			if len(places) > 0 && !d.breakers.failing(x.Task) {
				why = ReasonNoOtherWorker
			}
			break
		}
		x.missing--
		reason, loser := d.startReason(x.Task)
		d.add(x.Task, handover.None, to, reason, loser)
	}
	if x.missing > 0 {
		d.out.Unplaced += int(x.missing)
		d.out.Waiting = append(d.out.Waiting, Waiting{Task: x.Task, Instances: int(x.missing), Reason: why, Worker: handover.None})
	}
}

// placeFor returns the worker for the next try of a suspect, and counts the copy there. The worker
// has no copy of the suspect. from is the worker that the suspect leaves, or None. placeFor
// prefers workers other than the one that failed last, and then those on which the suspect failed
// least. Quarantined ones that are due for a trial come last, before those that fell.
func (d *decider) placeFor(x *suspect, from int32, places, after []int, next *int) int32 {
	found, at := -1, 0
	var best, failures int
	hangs := d.breakers.hangs(x.Task)
	on := slices.DeleteFunc(slices.Clone(x.on), func(w int) bool { return w == int(from) })
	for k := 0; k < len(places) && (found < 0 || best > 0); k++ {
		w := places[(*next+k)%len(places)]
		pair := taskOn{Task: x.Task, Worker: d.fleet.Workers[w].Serial}
		pause, rank := d.breakers.pauseOn(pair), 0
		switch {
		case w == int(from), hangs && !d.mayHang(x, w, from), d.breakers.left[pair].Failures > 0, x.Pause.Failures == 0 && pause.active(d.now),
			!d.mayStart(x.Task, w, on, after):
			continue
		case !d.fallen[w].IsZero():
			rank = 4
		case d.problem.States[d.place[w]] == rebalance.Quarantined:
			if !slices.Contains(d.due, int32(w)) {
				continue // it has been tried
			}
			rank = 3
		case pair.Worker == x.Last:
			rank = 2
		case d.breakers.failedOn(pair):
			rank = 1
		}
		if found < 0 || cmp.Or(cmp.Compare(rank, best), cmp.Compare(pause.Failures, failures)) < 0 {
			found, at, best, failures = w, k, rank, pause.Failures
		}
	}
	if found < 0 {
		return handover.None
	}
	if _, tried := d.suspects.hang[found]; hangs && !tried {
		d.suspects.hang[found] = from
		d.suspects.spare--
	}
	if best == 3 { // one trial in a term
		d.due = slices.DeleteFunc(d.due, func(w int32) bool { return w == int32(found) })
	}
	*next = (*next + at + 1) % len(places)
	x.on = append(x.on, found)
	after[found]++
	return int32(found)
}

// mayHang reports whether a suspect that hangs may be tried on a worker, by index, in this term. No term
// waits for these calls, and they keep few workers busy: one in three, and each for two thirds of
// the time. from is the worker that the suspect leaves, or None. Others do not share the worker: a
// term sends its starts before its moves, and sends nothing after a start that hangs.
func (d *decider) mayHang(x *suspect, w int, from int32) bool {
	other, tried := d.suspects.hang[w]
	return tried && other == from && (from == handover.None || x.missing == 0) ||
		!tried && d.suspects.spare > 0 && d.now.Time.Sub(d.fleet.Workers[w].hangs) >= d.cfg.Timeout*3/2
}

// nameRoom names the moves that make room for others on full workers, while suspects need it.
func (d *decider) nameRoom() {
	comes := make(map[int32]bool)
	for i := range d.out.Changes {
		comes[d.out.Changes[i].To] = true
	}
	for i := range d.out.Changes {
		if c := &d.out.Changes[i]; c.Reason == ReasonRebalance && comes[c.From] {
			c.Reason = ReasonRoom
		}
	}
}

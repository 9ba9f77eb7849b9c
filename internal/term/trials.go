package term

// What a term tries and cannot count on: retried stops, and trials of quarantined workers (T9). It
// is decided after the plan, so that no healthy copy moves to make room for it (T10).

import (
	"cmp"
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/rebalance"
)

// add adds a start or a move to the plan.
func (d *decider) add(task, from, to int32, reason Reason, loser uint64) {
	d.out.Adds++
	d.out.LowerBound++
	d.out.Changes = append(d.out.Changes, Change{
		Change: handover.Change{Task: task, From: from, To: to}, Reason: reason, Loser: loser,
	})
	if d.on != nil {
		d.on[task] = replaced(d.on[task], from, to)
	}
	for i := range d.out.Waiting { // the copy does not wait any more
		if w := &d.out.Waiting[i]; from != handover.None && w.Task == task && w.Worker == from {
			w.Instances = 0
		}
	}
}

// copies returns the workers of each task, by index, as the plan leaves them. The first call in a term
// takes a pass over all instances.
func (d *decider) copies() map[int32][]int {
	if d.on == nil {
		d.on = d.copiesOf(nil)
	}
	return d.on
}

// without returns the workers of a task but one, by index, as the plan leaves them.
func (d *decider) without(task, worker int32) []int {
	return replaced(slices.Clone(d.copies()[task]), worker, handover.None)
}

// mayStart reports whether the rules and pauses let a task, which runs on some workers, start on
// another one, by index. after holds the loads, by worker.
func (d *decider) mayStart(task int32, at int, on, after []int) bool {
	r, w := &d.fleet.rules, d.fleet.Workers[at]
	limit, capped := d.expect.zoneCap(task)
	for _, i := range on {
		if i == at {
			return false
		}
		if r.zoneOf(i) == r.zoneOf(at) {
			limit--
		}
	}
	if slices.Contains(w.runs, task) { // it may leave in this term
		return false
	}
	most := rulesOf(w).MaxTasks
	return (!capped || limit > 0) && (most == 0 || after[at] < int(most)) && r.mayRun(d.expect.classOf(task), at) &&
		!d.forbidden[rebalance.Pair{Task: task, Worker: d.place[at]}]
}

// openWorkers returns the workers that the plan may let gain tasks, by index, the least loaded first.
func (d *decider) openWorkers(after []int) (open []int) {
	for at, state := range d.problem.States {
		if state == rebalance.Open {
			open = append(open, int(d.index[at]))
		}
	}
	slices.SortStableFunc(open, func(v, w int) int { return cmp.Compare(after[v], after[w]) })
	return open
}

// budget returns how many more copies may move in the term.
func (d *decider) budget() int {
	most := len(d.expect.Instances)
	if d.problem.MaxMoves >= 0 {
		most = d.problem.MaxMoves
	}
	if d.problem.Trial {
		most = min(most, 1)
	}
	for i := range d.out.Changes {
		if d.out.Changes[i].isMove() {
			most--
		}
	}
	return most
}

// moveStuck moves the copies whose failed stop is tried again, off draining workers, off those where
// a rule forbids them, and for an even spread. They use the moves that the others leave.
func (d *decider) moveStuck() {
	if len(d.retries) == 0 {
		return
	}
	left, after := d.budget(), d.loadsAfter()
	for _, from := range d.retries {
		w := d.fleet.Workers[from]
		task := w.retry(d.now)
		if left <= 0 || !d.expect.Expects(task) || d.stops(task, from) || d.isSuspect(task) || slices.Contains(w.ids[len(w.ids)-w.pins:], task) {
			continue
		}
		reason := ReasonRebalance
		for _, x := range d.out.Waiting {
			if x.Task == task && x.Worker == from && x.Reason != ReasonHeld {
				reason = x.Reason
			}
		}
		if why := d.brokenRule(task, from); reason == ReasonRebalance && why != ReasonZone {
			reason = why // the plan does not list a copy that is pinned
		}
		if w.Draining {
			reason = ReasonDrain
		} else if reason == ReasonRebalance && d.problem.Still {
			continue
		}
		on, best := d.without(task, from), handover.None
		for _, to := range d.openWorkers(after) {
			if best == handover.None && to != int(from) && d.mayStart(task, to, on, after) {
				best = int32(to)
			}
		}
		if best == handover.None || reason == ReasonRebalance && (!d.isMoreEven(task, from, best, after) || !d.mayMove(task, from, best, after)) {
			continue
		}
		d.add(task, from, best, reason, 0)
		after[best]++
		left--
	}
}

// isSuspect reports whether a task is outside the plan.
func (d *decider) isSuspect(task int32) bool {
	_, suspect := d.suspects.of[task]
	return suspect
}

// isMoreEven reports whether a move makes the spread of the plan more even.
func (d *decider) isMoreEven(task, from, to int32, after []int) bool {
	if loads := d.out.Loads; loads != nil {
		weight := d.expect.weight[task].Int64()
		return loads[from].Weight > loads[from].Level && loads[to].Weight+weight <= loads[to].Level
	}
	return int64(after[from]-1)*int64(rulesOf(d.fleet.Workers[to]).Share) >= int64(after[to]+1)*int64(rulesOf(d.fleet.Workers[from]).Share)
}

// tryWorkers tries each quarantined worker whose pause is over with one task: one that starts or
// moves anyway; one that has no other place; or one that moves there for an even spread. It prefers
// those that have run and have not failed since, and then those that the worker has not rejected.
// The others stay due: a suspect without any other place may be tried there.
func (d *decider) tryWorkers() {
	if len(d.due) == 0 {
		return
	}
	after := d.loadsAfter()
	d.due = slices.DeleteFunc(d.due, func(to int32) bool {
		for _, suits := range []func(task int32) bool{
			func(task int32) bool { return d.isHealthy(task) && !d.rejects(to, task) },
			func(task int32) bool { return !d.rejects(to, task) },
			func(int32) bool { return true },
		} {
			if d.redirect(to, after, suits) || d.placeWaiting([]int{int(to)}, after, 1, suits) > 0 ||
				d.moveOne(to, after, suits) {
				return true
			}
		}
		return false
	})
}

// isHealthy reports whether a task has run and has not failed to start since.
func (d *decider) isHealthy(task int32) bool {
	return d.fleet.flags[task]&taskSeen != 0 && !d.breakers.failing(task)
}

// rejects reports whether a worker has rejected a task.
func (d *decider) rejects(worker, task int32) bool {
	_, ok := d.breakers.rejected[taskOn{Task: task, Worker: d.fleet.Workers[worker].Serial}]
	return ok
}

// redirect sends one planned start or move to a worker that is due, from one that has more tasks.
func (d *decider) redirect(to int32, after []int, suits func(task int32) bool) bool {
	for i := range d.out.Changes {
		c := &d.out.Changes[i]
		if c.To == handover.None || c.From == to || c.Reason == ReasonRoom || after[c.To] <= after[to] || !suits(c.Task) ||
			c.From != handover.None && d.fleet.Workers[c.From].stops[c.Task] != nil {
			continue
		}
		if d.mayMove(c.Task, c.To, to, after) {
			d.on[c.Task] = replaced(d.on[c.Task], c.To, to)
			after[c.To]--
			after[to]++
			c.To = to
			return true
		}
	}
	return false
}

// moveOne moves one task from an open worker, the fullest one first, to one that is due.
func (d *decider) moveOne(to int32, after []int, suits func(task int32) bool) bool {
	if d.problem.Still || d.budget() <= 0 {
		return false
	}
	for _, i := range slices.Backward(d.openWorkers(after)) {
		if after[i] <= after[to] {
			break
		}
		w, from := d.fleet.Workers[i], int32(i)
		for _, task := range d.movable(d.place[i]) {
			if !d.expect.Expects(task) || w.stops[task] != nil || !suits(task) || d.isSuspect(task) ||
				d.stops(task, from) || !d.isMoreEven(task, from, to, after) || !d.mayMove(task, from, to, after) {
				continue
			}
			d.add(task, from, to, ReasonRebalance, 0)
			after[from]--
			after[to]++
			return true
		}
	}
	return false
}

// movable returns the tasks of a worker that the planner may move, by place in the problem.
func (d *decider) movable(at int32) []int32 {
	tasks := d.problem.Running[at]
	if d.problem.Pinned == nil {
		return tasks
	}
	return tasks[:len(tasks)-int(d.problem.Pinned[at])]
}

// mayMove reports whether a copy that the plan leaves on a worker may be on another one instead, also
// by the default spread over the zones (P13).
func (d *decider) mayMove(task, from, to int32, after []int) bool {
	r, on := &d.fleet.rules, d.without(task, from)
	if !d.mayStart(task, int(to), on, after) {
		return false
	}
	if d.expect.MaxPerZone != nil && d.expect.MaxPerZone[task] != 0 || r.zoneOf(int(from)) == r.zoneOf(int(to)) {
		return true
	}
	spare := (d.expect.Instances[task] + r.zones - 1) / r.zones
	for _, i := range on {
		if r.zoneOf(i) == r.zoneOf(int(to)) {
			spare--
		}
	}
	return spare > 0
}

package simulator

// The review of writes: each that is sent is held against the plan, and against
// what others may run.

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/f8949c05/orchestrator"
)

// checkSent checks that a write was not sent too late.
func (r *review) checkSent(c *call) {
	if d := r.deposed; d != nil && (d.op == orchestrator.OpList || d.returned.Before(c.sent)) {
		r.fail(Deposed, "%v %s %s was sent after %s had told of a higher epoch", c.op, c.task, c.worker, d.worker)
	}
	ended := r.l.cause != nil && r.began.Before(r.l.ended) && r.l.ended.Before(c.sent)
	switch begun := r.moving[c.task]; {
	case !ended:
		if r.moving == nil {
			r.moving = make(map[string]bool)
		}
		r.moving[c.task] = true
	case errors.Is(r.l.cause, orchestrator.ErrDeposed), !begun:
		r.fail(Cancelled, "%v %s %s was sent %v after its context had ended: %v", c.op, c.task, c.worker, c.sent.Sub(r.l.ended), r.l.cause)
	}
}

// checkStart holds a start that is sent against what others may run.
func (r *review) checkStart(c *call, s *seat) {
	mind := &r.l.mind
	task := r.view.tasks[c.task]
	change, back := r.planned(c)
	if change == nil {
		r.fail(Planned, "%s was started on %s, and the plan has no such change", c.task, c.worker)
		return
	}
	if back && !r.stopped[writeKey{c.task, c.worker}] {
		r.fail(Planned, "%s was given back to %s, where it had not been stopped", c.task, c.worker)
	}
	if s.may[c.task] {
		return // it may be there anyway
	}
	silent := mind.holding(c.task, orchestrator.Silent, c.worker)
	answering := mind.holding(c.task, orchestrator.Answering, c.worker)
	limit, why := task.Instances, "wanted"
	if r.unheard != nil && r.reported[c.task] < limit {
		limit, why = r.reported[c.task], "reported, and "+r.unheard.name+" was never heard"
	}
	by := start{want: task.Instances, sent: c.sent}
	if change.Kind.Op == orchestrator.Move {
		// Where there are too many, or one more on a silent worker, those that
		// answer may move all the same: that makes them no more.
		by.moved, by.from = r.reported[c.task], change.From
		by.asked = mind.seats[change.From].asked
		limit = max(limit, by.moved)
	} else {
		by.bereft = r.l.bereft[c.task]
	}
	if r.first(task) {
		moving := r.yetToStop(c.task)
		by.first = moving > 0
		answering = max(answering-moving, 0)
	}
	r.l.starts[c.start()] = by
	if silent+answering+1 > limit {
		r.fail(Held, "%s was started on %s by %v, while %d silent and %d answering workers may run it; %d are %s",
			c.task, c.worker, change.Kind, silent, answering, limit, why)
	}
}

// first says whether a task is started at its new place before it is stopped at
// its old one.
func (r *review) first(task orchestrator.Task[string]) bool {
	return cmp.Or(task.Handoff, r.w.Handoff) == orchestrator.StartThenStop
}

// yetToStop counts the copies of a task that are to be stopped once they have
// been started elsewhere.
func (r *review) yetToStop(task string) int {
	n := 0
	for i := range r.plan.Changes {
		p := &r.plan.Changes[i]
		if p.Task == task && p.Kind.Op == orchestrator.Move && r.l.mind.seats[p.From].may[task] {
			n++
		}
	}
	return n
}

// planned returns the change that a start belongs to, and whether it gives back
// what was stopped for it.
func (r *review) planned(c *call) (change *orchestrator.Change[string, string], back bool) {
	for i := range r.plan.Changes {
		p := &r.plan.Changes[i]
		if p.Task != c.task || p.Kind.Op == orchestrator.Stop {
			continue
		}
		if p.To == c.worker {
			return p, false
		}
		if p.Kind.Op == orchestrator.Move && p.From == c.worker {
			change, back = p, true
		}
	}
	return change, back
}

// checkStop holds a stop that is sent against the plan.
func (r *review) checkStop(c *call) {
	if r.stops(c) != nil {
		return
	}
	r.fail(Planned, "%s was stopped on %s, and the plan has no such change", c.task, c.worker)
}

// checkWaiting holds what the plan says of silent workers against what they may
// run: each of them that is expected has to be named.
func (r *review) checkWaiting() {
	if r.cut() {
		return
	}
	held := make(map[writeKey]bool)
	for _, w := range r.plan.Waiting {
		if w.Reason == orchestrator.ReasonHeld {
			held[writeKey{w.Task, w.Worker}] = true
		}
	}
	for _, name := range r.l.mind.names() {
		s := r.l.mind.seats[name]
		if s.state != orchestrator.Silent {
			continue
		}
		for _, task := range slices.Sorted(maps.Keys(r.view.tasks)) {
			if key := (writeKey{task, name}); held[key] != s.may[task] {
				r.fail(Held, "%s is silent, and may run %s: %v; the plan has it as held: %v", name, task, s.may[task], held[key])
			}
		}
	}
}

// checkStops counts the stops that are no part of a move: those must leave
// enough that answer.
func (r *review) checkStops() {
	stops := make(map[string]int)
	for i := range r.plan.Changes {
		if p := &r.plan.Changes[i]; p.Kind.Op == orchestrator.Stop {
			stops[p.Task]++
		}
	}
	for _, task := range slices.Sorted(maps.Keys(stops)) {
		answering, want := r.answering[task], r.view.tasks[task].Instances
		if left := answering - stops[task]; left < min(want, answering) {
			r.fail(Trimmed, "%s was answered by %d, of which %d were stopped; wanted: %d", task, answering, stops[task], want)
		}
	}
}

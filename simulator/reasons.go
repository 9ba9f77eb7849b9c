package simulator

// The review of a plan: what it says of itself, and that it leaves nothing
// unsaid (P1, P7).

import (
	"maps"
	"slices"

	"github.com/f8949c05/orchestrator"
)

// checkPlan holds the plan against what the leader knew when it was made.
func (r *review) checkPlan() {
	if r.cut() {
		return
	}
	after := maps.Clone(r.running)
	for i := range r.plan.Changes {
		c := &r.plan.Changes[i]
		if why := r.unreasonable(c); why != "" {
			r.fail(Reasoned, "%v %s, from %q to %q, but %s", c.Kind, c.Task, c.From, c.To, why)
		}
		switch c.Kind.Op {
		case orchestrator.Start:
			after[c.Task]++
		case orchestrator.Stop:
			after[c.Task]--
		}
	}
	waiting := make(map[string]int) // without a place on an answering worker
	kept := make(map[writeKey]bool) // on a draining one
	for _, w := range r.plan.Waiting {
		if s := r.l.mind.seats[w.Worker]; w.Named && s != nil && s.state == orchestrator.Answering {
			kept[writeKey{w.Task, w.Worker}] = true
			continue
		}
		waiting[w.Task] += w.Instances
	}
	for _, task := range slices.Sorted(maps.Keys(r.view.tasks)) {
		want := r.view.tasks[task].Instances
		if after[task]+waiting[task] < want {
			r.fail(Reasoned, "%s is wanted %d times; %d are to answer, %d are said to wait, and of the others nothing is said",
				task, want, after[task], waiting[task])
		}
		if most := max(want-r.held[task], min(want, r.running[task])); after[task] > most {
			r.fail(Planned, "%s is wanted %d times, silent workers may run %d, and %d are to answer", task, want, r.held[task], after[task])
		}
	}
	r.checkDrains(kept)
}

// unreasonable says what is wrong with the reason of a change, or nothing.
func (r *review) unreasonable(c *orchestrator.Change[string, string]) string {
	_, expected := r.view.tasks[c.Task]
	from := r.l.mind.seats[c.From]
	switch c.Kind {
	case orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}:
		if r.given[c.Task] {
			return "a worker was lost in this term that ran it"
		}
		return ""
	case orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonLost}:
		if !r.l.orphans[c.Task] {
			return "no worker was lost or removed that may have run it"
		}
		return ""
	case orchestrator.ChangeKind{Op: orchestrator.Stop, Reason: orchestrator.ReasonUnexpected}:
		if expected {
			return "it is expected"
		}
		return ""
	case orchestrator.ChangeKind{Op: orchestrator.Stop, Reason: orchestrator.ReasonSurplus}:
		if !expected {
			return "it is not expected at all"
		}
		return ""
	case orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonDrain}:
		if from == nil || !from.draining {
			return c.From + " does not drain"
		}
		return ""
	case orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance},
		orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonProbe}:
		if from == nil || from.draining {
			return c.From + " drains"
		}
		return ""
	}
	return "that is no reason for it"
}

// checkDrains checks that of each copy on a draining worker something becomes,
// or that the plan says why not.
func (r *review) checkDrains(kept map[writeKey]bool) {
	for i := range r.plan.Changes {
		c := &r.plan.Changes[i]
		kept[writeKey{c.Task, c.From}] = true
	}
	for _, name := range r.l.mind.names() {
		s := r.l.mind.seats[name]
		if !s.draining || s.state != orchestrator.Answering || r.plan.Stats.Deferred > 0 {
			continue
		}
		for _, task := range slices.Sorted(maps.Keys(r.listing[name])) {
			if !kept[writeKey{task, name}] {
				r.fail(Reasoned, "%s drains, and of %s, which it runs, the plan says nothing", name, task)
			}
		}
	}
}

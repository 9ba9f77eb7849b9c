package simulator

// The end of a listing: how long it took, and what it says of the workers' states.

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// applyListing runs when the answers are in, before the first write.
func (r *review) applyListing() {
	if r.listingApplied {
		return
	}
	r.listingApplied = true
	b := &r.l.belief
	if !r.incomplete() {
		r.checkListing()
		r.checkStates(r.missing())
	}
	for _, wb := range b.workers {
		wb.usesLateAnswer = false
	}
	for _, wb := range b.workers {
		r.endUnknowns(wb)
	}
	r.learnListed()
	r.recordCopies()
	r.recordHealth()
	r.neverAnswered = b.neverAnswered()
	r.checkWaiting()
}

// missing returns the workers that have not answered this term. A call misses the
// term if it fails or has used 15/16 of its timeout.
func (r *review) missing() []*workerBelief {
	for _, c := range r.l.calls {
		wb := r.workerBelief(c)
		waited := r.listed.Sub(c.sent)
		own, stuck := c.term.Number == r.stats.Term.Number, c.underWay(r.began) && !r.began.Before(c.deadline)
		if wb == nil && stuck { // it blocks calls to the successor of its worker
			wb = r.l.belief.workers[c.worker]
		}
		switch {
		case wb == nil:
		case own && c.op == orchestrator.OpList && (c.returned.IsZero() || c.returned.After(r.listed)):
			wb.awaited = false
			if waited >= r.w.Timeout*15/16 {
				wb.lastMissed = r.listed
			}
			wb.certainlyMissed = wb.certainlyMissed || waited >= r.w.Timeout
			wb.failed = wb.failed || waited >= r.w.Timeout
			c.limit = r.limit
		case !own && stuck:
			wb.lastMissed, wb.certainlyMissed = r.listed, true
		case !own && c.underWay(r.began) && c.deadline.Sub(wb.lastMissed) <= 2*r.w.Timeout:
			wb.lastMissed = r.listed
		}
	}
	var missing []*workerBelief
	for _, wb := range r.l.belief.workers {
		if !wb.usesLateAnswer && (!wb.hasAnswered || wb.answered != r.stats.Term.Number) {
			missing = append(missing, wb)
		}
	}
	return missing
}

// recordCopies keeps the beliefs on which the plan is based.
func (r *review) recordCopies() {
	for name, wb := range r.l.belief.workers {
		wb.planned, wb.held = maps.Clone(wb.reported), maps.Clone(wb.mayRun)
		for task := range wb.mayRun {
			switch {
			case wb.frozen():
				r.frozenCopies[task]++
			case wb.answers():
				r.answeringCopies[task]++
			}
			if wb.state != orchestrator.Lost {
				r.reportedCopies[task]++
			}
		}
		if wb.answers() {
			r.listedOn[name] = maps.Clone(wb.reported)
			for task := range wb.reported {
				r.listedCopies[task]++
			}
		}
	}
}

// endUnknowns ends the periods in which the leader did not know what a worker runs.
func (r *review) endUnknowns(wb *workerBelief) {
	if wb.state == orchestrator.Lost || !wb.hasAnswered {
		return
	}
	r.l.lost[wb.name].end(r.listed, func(since span) bool { return since.serial != wb.serial })
	for task := range wb.reported {
		r.l.omitted[writeKey{task, wb.name}].end(r.listed, func(h span) bool { return h.since.Before(wb.lastAnswer) })
		for _, run := range r.w.running[task] {
			m := run.worker
			again := m.registered && m.joined.Before(wb.lastAnswer) && r.l.epoch == r.w.epoch
			if m.name == wb.name && run.unknown.covers(r.listed) && again {
				run.unknown.until = r.listed
			}
		}
	}
}

// checkListing checks when the listing ended (T3). It must end when all awaited
// workers have answered. Let half be the time until half of them have answered: the
// listing ends at the latest after four times half, but not before a tenth of the
// timeout. checkListing records that limit.
func (r *review) checkListing() {
	const never = time.Duration(math.MaxInt64)
	took := make([]time.Duration, 0, len(r.awaited))
	for _, wb := range r.awaited {
		took = append(took, never)
		if c := r.lists(wb); c != nil && !c.returned.IsZero() {
			took[len(took)-1] = c.returned.Sub(r.began)
		}
	}
	slices.Sort(took)
	due := time.Duration(0)
	if n := len(took); n > 0 {
		due = min(took[n-1], r.w.Timeout)
		if half := took[n-n/2-1]; half <= due {
			r.limit = max(4*half, r.w.Timeout/10)
			due = min(due, r.limit)
		}
	}
	if listed := r.listed.Sub(r.began); listed != due {
		r.fail(ListingBounded, "the listing took %v, want %v; the %d workers that it awaits took %v", listed, due, len(took), took)
	}
}

// lists returns this term's call of List to a worker, or nil.
func (r *review) lists(wb *workerBelief) *call {
	for _, c := range r.own() {
		if c.op == orchestrator.OpList && r.workerBelief(c) == wb {
			return c
		}
	}
	return nil
}

// await determines the workers for which this term waits: those that answered in
// time last, new ones, and silent ones that may be declared lost. Without any of
// these, the term waits for the others.
func (r *review) await() {
	var others []*workerBelief
	served := false
	for _, wb := range r.l.belief.workers {
		switch {
		case wb.usesLateAnswer:
			served = true
		case r.busy(wb.name):
		case wb.awaited || r.l.belief.isDue(wb, r.began, &r.w.setup):
			r.awaited = append(r.awaited, wb)
		default:
			others = append(others, wb)
		}
	}
	if len(r.awaited) == 0 && !served {
		r.awaited = others
	}
}

// checkStates adopts the workers' states from LastActual, and checks that each state
// is allowed. missing holds the workers that have not answered.
func (r *review) checkStates(missing []*workerBelief) {
	b := &r.l.belief
	states := make(map[string]orchestrator.State)
	for _, state := range r.l.o.LastActual() {
		states[state.Name] = state.State
		if b.workers[state.Name] == nil {
			r.fail(Recorded, "LastActual names %s, which is not a member", state.Name)
		}
	}
	for _, wb := range missing {
		answering, before := states[wb.name] == orchestrator.Answering, wb.state
		switch grace := r.listed.Sub(wb.lastAnswer) >= r.w.Grace; {
		case answering && (wb.certainlyMissed && !r.l.hasLeft(wb) || before != orchestrator.Answering):
			r.fail(Recorded, "%s has not answered, was %v before, and LastActual says answering", wb.name, before)
		case !answering && before == orchestrator.Answering && wb.lastMissed.IsZero() && !grace:
			r.fail(Recorded, "%s is %v, and no call to it failed or had its whole timeout", wb.name, states[wb.name])
		}
		if wb.late = answering; !answering && before != orchestrator.Lost {
			wb.state = orchestrator.Silent
		}
	}
	for _, wb := range b.workers {
		wb.certainlyMissed = !wb.lastMissed.IsZero() && !wb.cancelled
	}
	mass := b.massLoss(r.listed, &r.w.setup)
	for name, state := range states {
		wb := b.workers[name]
		switch {
		case wb == nil:
		case wb.state == state:
			if b.mustLose(wb, r.listed, &r.w.setup) && !r.l.hasLeft(wb) {
				r.fail(LossAccurate, "%s answered %v ago, and is not lost", wb.name, r.listed.Sub(wb.lastAnswer))
			}
		case state == orchestrator.Lost && wb.state == orchestrator.Silent:
			if why := b.mayLose(wb, r.listed, &r.w.setup, mass); why != "" {
				r.fail(LossAccurate, "%s is lost, though %s", wb.name, why)
			}
			for task := range wb.reported {
				r.lostTasks[task] = r.lostTasks[task] || wb.mayRun[task]
			}
			r.l.recordLost(wb)
			wb.state, wb.mayRun = orchestrator.Lost, make(map[string]bool)
			r.l.lost[wb.name] = append(r.l.lost[wb.name], span{since: r.listed})
		default:
			r.fail(Recorded, "%s is %v, and LastActual says %v", wb.name, wb.state, state)
		}
	}
}

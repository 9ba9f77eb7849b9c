package orchestrator

import (
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/rebalance"
)

// From what the leader knows to the planner's problem.

// isFrozen reports whether a worker keeps exactly what it holds, because it has
// not answered this term.
func (w *worker[W, T]) isFrozen() bool { return w.state == Silent || w.late }

// isOpen reports whether a worker may gain and lose tasks, quarantine aside.
func (d *decider[W, T]) isOpen(w *worker[W, T]) bool {
	return w.state == Answering && !w.late && !w.draining
}

// pose states the planner's problem: the workers that are not lost, what each
// holds, and what may go where.
func (d *decider[W, T]) pose() {
	p := &d.problem
	p.Want, p.MaxMoves = d.expect.instances, d.cfg.maxMoves
	p.States, p.Held, p.Gain, p.Pinned = p.States[:0], p.Held[:0], nil, nil
	p.Forbidden, p.Late, d.index = p.Forbidden[:0], p.Late[:0], d.index[:0]
	d.leaving, d.retries = d.leaving[:0], d.retries[:0]
	d.frozen, d.isCapped = false, false
	d.limitMoves()
	d.findSuspects()
	limits := d.limits()
	// Ties between workers go to the first. Which one that is was drawn by New, so
	// that many small groups over the same workers do not all sit on the same ones.
	n := len(d.fleet.workers)
	for k := range n {
		i := (k + int(d.cfg.seed%uint64(n))) % n
		w := d.fleet.workers[i]
		if w.state == Lost {
			continue
		}
		at := int32(len(p.States))
		d.index = append(d.index, int32(i))
		state := rebalance.Open
		switch {
		case w.isFrozen():
			state, d.frozen = rebalance.Frozen, true // silence outranks draining
		case w.draining:
			state = rebalance.Draining
		case limits != nil && limits[i] != noLimit:
			state = rebalance.Quarantined
			p.Gain = append(p.Gain, make([]int32, int(at)+1-len(p.Gain))...)
			p.Gain[at] = limits[i]
		}
		p.States = append(p.States, state)
		held, pinned := d.held(w, at, state)
		p.Held = append(p.Held, held)
		if pinned > 0 {
			p.Pinned = append(p.Pinned, make([]int32, int(at)+1-len(p.Pinned))...)
			p.Pinned[at] = pinned
		}
	}
	if p.Gain != nil {
		p.Gain = append(p.Gain, make([]int32, len(p.States)-len(p.Gain))...)
	}
	if p.Pinned != nil {
		p.Pinned = append(p.Pinned, make([]int32, len(p.States)-len(p.Pinned))...)
	}
	d.forbid()
	d.leave()
	if d.frozen {
		if w := d.fleet.neverAnswered(); w != nil {
			d.cap(w)
		}
	}
	d.setAside()
}

// limitMoves lets no healthy copy move after a move that left its task stopped,
// and then one at a time (T9).
func (d *decider[W, T]) limitMoves() {
	moves := d.breakers.Moves()
	switch {
	case moves.Failures == 0:
	case moves.Active(d.now):
		d.problem.MaxMoves = 0
	case d.problem.MaxMoves != 0:
		d.problem.MaxMoves = 1
	}
}

// limits returns how many tasks each worker may gain, by its index in the fleet:
// none while it is quarantined, one after that, and few if it could not begin all
// that it was given in the last term. It returns nil if no worker is limited.
//
// If all open workers are quarantined, none is, and nothing healthy moves. If the
// pauses of some of them are over, these alone are open, and one task moves. If all
// that are not quarantined are slow, none is limited for that.
func (d *decider[W, T]) limits() []int32 {
	open, quarantined, slow, tries := 0, 0, 0, 0 // workers; tries: whose pause is over
	var limits []int32
	for i, w := range d.fleet.workers {
		if !d.isOpen(w) {
			continue
		}
		open++
		pause, ok := d.breakers.Quarantined(w.serial)
		if !ok && w.limited != d.now.Term {
			continue
		}
		if limits == nil {
			limits = make([]int32, len(d.fleet.workers))
			for j := range limits {
				limits[j] = noLimit
			}
		}
		switch {
		case !ok:
			limits[i] = w.gain
			slow++
		case pause.Active(d.now):
			limits[i] = 0
			quarantined++
		default:
			limits[i] = 1
			quarantined++
			tries++
		}
	}
	switch {
	case limits == nil:
		return nil
	case quarantined == open && tries == 0:
		d.problem.MaxMoves = 0
		return nil
	case quarantined == open:
		if d.problem.MaxMoves != 0 {
			d.problem.MaxMoves = 1
		}
	case quarantined+slow < open:
		return limits
	}
	for i, w := range d.fleet.workers {
		if _, ok := d.breakers.Quarantined(w.serial); !ok || quarantined == open && limits[i] > 0 {
			limits[i] = noLimit
		}
	}
	return limits
}

// held returns what a worker holds, for the planner, which moves what comes first
// and leaves the last pinned tasks where they are. The task whose failed stop is
// tried again comes after the others. Pinned are those that the worker reports so,
// those whose stop pauses, and the suspects that it runs.
func (d *decider[W, T]) held(w *worker[W, T], at int32, state rebalance.State) (held []int32, pinned int32) {
	if state == rebalance.Frozen {
		return w.holds(), 0
	}
	suspected := d.suspects.holders[w.serial]
	if len(w.stops) == 0 && !suspected && (w.pins == 0 || w.duplicates == 0) {
		return w.runs, int32(w.pins)
	}
	var late, pins []int32
	retry := w.retry(d.now)
	if retry != handover.None {
		d.retries = append(d.retries, w)
	}
	round := d.fleet.stamp(w.ids[len(w.ids)-w.pins:])
	for _, task := range w.runs {
		s := w.stops[task]
		paused := s != nil && s.failures > 0 && task != retry
		switch {
		case d.fleet.stamps[task] == round, paused,
			suspected && d.fleet.flags[task]&taskSuspect != 0:
			pins = append(pins, task)
			if paused && s.leaves() {
				d.leaving = append(d.leaving, rebalance.Pair{Task: task, Worker: at})
			}
		case task == retry:
			late = append(late, task)
			d.problem.Late = append(d.problem.Late, rebalance.Pair{Task: task, Worker: at})
		default:
			held = append(held, task)
		}
	}
	return slices.Concat(held, late, pins), int32(len(pins))
}

// leave takes surplus copies whose stop pauses, and may still happen, out of what
// their workers hold: otherwise another copy would stop in their place, and then
// they. It takes a pass over all instances if there are any.
func (d *decider[W, T]) leave() {
	if len(d.leaving) == 0 {
		return
	}
	p := &d.problem
	copies := make(map[int32]int32, len(d.leaving))
	for _, pair := range d.leaving {
		copies[pair.Task] = 0
	}
	for at, held := range p.Held {
		if p.States[at] == rebalance.Frozen {
			continue
		}
		for _, task := range held {
			if n, ok := copies[task]; ok {
				copies[task] = n + 1
			}
		}
	}
	for _, pair := range d.leaving {
		if copies[pair.Task] <= p.Want[pair.Task] || p.Want[pair.Task] == 0 {
			continue // an unexpected one is listed as paused
		}
		copies[pair.Task]--
		p.Held[pair.Worker] = slices.DeleteFunc(p.Held[pair.Worker], func(task int32) bool { return task == pair.Task })
		p.Pinned[pair.Worker]--
		p.Forbidden = append(p.Forbidden, pair)
	}
}

// forbid lists the tasks that pause on a worker. In the first term after its pause a
// quarantined worker is not tried with a task that failed on it: otherwise it could be
// that same task each time.
func (d *decider[W, T]) forbid() {
	if d.breakers.Empty() {
		return
	}
	p := &d.problem
	places := make(map[uint64]int32, len(d.index))
	for at, i := range d.index {
		places[d.fleet.workers[i].serial] = int32(at)
	}
	for failed, pause := range d.breakers.Pairs() {
		at, ok := places[failed.Worker]
		if !ok || !d.expect.expected(failed.Task) {
			continue
		}
		q, quarantined := d.breakers.Quarantined(failed.Worker)
		if pause.Active(d.now) || quarantined && d.now.Term <= q.Until {
			p.Forbidden = append(p.Forbidden, rebalance.Pair{Task: failed.Task, Worker: at})
		}
	}
}

// cap wants no more of any task than is reported, because a worker that has not
// answered yet may run the rest.
func (d *decider[W, T]) cap(silent *worker[W, T]) {
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
	at := int32(slices.Index(d.fleet.workers, silent))
	for task, want := range p.Want {
		if lack := want - d.capped[task]; lack > 0 {
			d.out.missing += int(lack)
			d.out.waiting = append(d.out.waiting, waiting{int32(task), int(lack), ReasonUnheard, at})
		} else {
			d.capped[task] = want
		}
	}
	p.Want, d.isCapped = d.capped, true
}

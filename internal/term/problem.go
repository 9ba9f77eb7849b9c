package term

import (
	"maps"
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/rebalance"
)

// makeProblem makes the planner's problem: the workers that are not lost, the tasks of each,
// and where tasks may go.
func (d *decider) makeProblem() {
	p := &d.problem
	p.Want, p.MaxMoves, p.Trial = d.expect.Instances, d.cfg.MaxMoves, d.fleet.singleIn == d.now.Term
	p.States, p.Running, p.Pinned = p.States[:0], p.Running[:0], nil
	p.Forbidden, d.index = p.Forbidden[:0], d.index[:0]
	d.leaving, d.stopAgain, d.retries = d.leaving[:0], d.stopAgain[:0], d.retries[:0]
	d.isCapped, d.makesRoom = false, false
	d.limitMoves()
	d.findSuspects()
	d.markLate()
	closed := d.closed()
	// Ties go to the first worker, which the seed decides, so that many small groups
	// over the same workers do not all run on the same ones.
	n := len(d.fleet.Workers)
	d.place = slices.Grow(d.place[:0], n)[:n]
	for k := range n {
		i := (k + int(d.cfg.Seed%uint64(n))) % n
		w := d.fleet.Workers[i]
		if w.State == Lost {
			continue
		}
		at := int32(len(p.States))
		d.index, d.place[i] = append(d.index, int32(i)), at
		state := rebalance.Open
		switch {
		case w.isFrozen():
			state = rebalance.Frozen // silence outranks draining
		case w.Draining:
			state = rebalance.Draining
		case closed[i]:
			state = rebalance.Quarantined
		}
		p.States = append(p.States, state)
		held, pinned := d.held(w, at, state)
		if d.fleet.storm.holds() && state != rebalance.Frozen && state != rebalance.Draining {
			held, pinned = d.holdEvictions(i, held, pinned)
		}
		p.Running = append(p.Running, held)
		if pinned > 0 {
			p.Pinned = append(padded(p.Pinned, at), pinned)
		}
	}
	if p.Pinned != nil {
		p.Pinned = padded(p.Pinned, int32(len(p.States)))
	}
	for _, task := range d.late {
		d.fleet.flags[task] &^= taskLate
	}
	d.forbid()
	d.removeLeaving()
	if w := d.fleet.neverAnswered(); w != nil {
		d.capWant(ReasonNeverAnswered, int32(slices.Index(d.fleet.Workers, w)))
	} else if d.fleet.waits {
		d.capWant(ReasonInitialWait, handover.None)
	}
	d.setAside()
	d.addRules()
	d.forbidden = make(map[rebalance.Pair]bool, len(p.Forbidden))
	for _, pair := range p.Forbidden {
		d.forbidden[pair] = true
	}
}

// padded appends zeros to s up to a length.
func padded(s []int32, length int32) []int32 {
	return append(s, make([]int32, int(length)-len(s))...)
}

// markLate marks the tasks that some worker failed to stop, and those that failed to start last. The
// one move after a pause must not be theirs again and again.
func (d *decider) markLate() {
	d.late = slices.AppendSeq(d.late[:0], maps.Keys(d.breakers.tasks))
	for _, w := range d.fleet.Workers {
		for task, s := range w.stops {
			if s.failures > 0 {
				d.late = append(d.late, task)
			}
		}
	}
	for _, task := range d.late {
		d.fleet.flags[task] |= taskLate
	}
}

// limitMoves lets no healthy copy move during the pause that follows a move that left its
// task stopped, and one at a time after that (T9).
func (d *decider) limitMoves() {
	moves := d.breakers.moves
	switch {
	case moves.Failures == 0:
	case moves.active(d.now):
		d.problem.MaxMoves = 0
	default:
		d.problem.Trial = true
	}
}

// closed returns the workers that gain nothing by the plan, by index in the fleet: those that are
// quarantined, rest, or fell. The quarantined ones whose pause is over are due for a trial.
//
// If all open workers are quarantined and pause, none is closed, and no healthy task
// moves. If the pauses of some have ended, only these are open, and one task moves. If
// all workers that are not quarantined rest, they are open.
func (d *decider) closed() map[int]bool {
	open, sick, closed := 0, 0, make(map[int]bool)
	var rest []int
	d.due, d.fallen = d.due[:0], d.fleet.fallen(d.now.Time)
	for i, w := range d.fleet.Workers {
		if !w.isOpen() {
			continue
		}
		open++
		pause, quarantined := d.breakers.quarantined(w.Serial)
		switch {
		case quarantined:
			sick++
			if !pause.active(d.now) {
				d.due = append(d.due, int32(i))
			}
		case w.restsIn == d.now.Term:
			rest = append(rest, i)
		default:
			continue
		}
		closed[i] = true
	}
	switch {
	case open == 0:
	case sick == open && len(d.due) == 0:
		d.problem.MaxMoves = 0
		clear(closed)
	case sick == open:
		d.problem.Trial = true
		for _, i := range d.due {
			delete(closed, int(i))
		}
		d.due = d.due[:0]
	case sick+len(rest) == open:
		for _, i := range rest {
			delete(closed, i)
		}
	}
	for i := range d.fallen {
		if closed[i] {
			delete(d.fallen, i) // a quarantine goes further
		}
		closed[i] = true
	}
	return closed
}

// held returns the tasks of a worker for the planner, which moves the first ones and does not
// move the last pinned ones. The late ones come after the others. Pinned are the tasks that the
// worker reports as pinned, those whose stop failed, and the suspects.
func (d *decider) held(w *Worker, at int32, state rebalance.State) (held []int32, pinned int32) {
	if state == rebalance.Frozen {
		return w.holds(), 0
	}
	suspected := d.suspects.holders[w.Serial]
	isLate := len(d.late) > 0 && slices.ContainsFunc(w.runs, func(task int32) bool { return d.fleet.flags[task]&taskLate != 0 })
	if len(w.stops) == 0 && !suspected && !isLate && (w.pins == 0 || w.Duplicates == 0) {
		return w.runs, int32(w.pins)
	}
	var late, pins []int32
	retry := w.retry(d.now)
	if retry != handover.None {
		d.retries = append(d.retries, d.index[at])
	}
	round := d.fleet.stamp(w.ids[len(w.ids)-w.pins:])
	for _, task := range w.runs {
		s := w.stops[task]
		failed, pinned := s != nil && s.failures > 0, d.fleet.stamps[task] == round
		if s != nil && s.leaves() && (task != retry || !pinned) {
			d.leaving = append(d.leaving, leaving{Pair: rebalance.Pair{Task: task, Worker: at}, retry: task == retry || !failed})
		}
		// Once it could be tried without the plan, the plan may count on it.
		failed = failed && (task != retry || d.now.Term <= w.stopPause.Until)
		switch {
		case failed, pinned, suspected && d.fleet.flags[task]&taskSuspect != 0:
			pins = append(pins, task)
		case d.fleet.flags[task]&taskLate != 0:
			late = append(late, task)
		default:
			held = append(held, task)
		}
	}
	return slices.Concat(held, late, pins), int32(len(pins))
}

// removeLeaving removes surplus copies whose stop failed, and may still happen, from the
// tasks of their workers. Otherwise another copy would stop in their place, and then they
// would stop too. They are also removed in the terms in which their stop is tried again;
// otherwise a healthy task would move there and back. If there are any, removeLeaving
// takes a pass over all instances.
func (d *decider) removeLeaving() {
	if len(d.leaving) == 0 {
		return
	}
	p := &d.problem
	copies := make(map[int32]int32, len(d.leaving))
	for _, x := range d.leaving {
		copies[x.Task] = 0
	}
	for at, held := range p.Running {
		if p.States[at] == rebalance.Frozen {
			continue
		}
		for _, task := range held {
			if n, ok := copies[task]; ok {
				copies[task] = n + 1
			}
		}
	}
	for i, x := range d.leaving {
		pair := x.Pair
		if copies[pair.Task] <= p.Want[pair.Task] || p.Want[pair.Task] == 0 {
			continue // an unexpected task is listed as paused
		}
		copies[pair.Task]--
		d.leaving[i].gone = true
		held := p.Running[pair.Worker]
		if p.Pinned != nil && slices.Contains(held[len(held)-int(p.Pinned[pair.Worker]):], pair.Task) {
			p.Pinned[pair.Worker]--
		}
		p.Running[pair.Worker] = slices.DeleteFunc(held, func(task int32) bool { return task == pair.Task })
		p.Forbidden = append(p.Forbidden, pair)
		if x.retry {
			d.stopAgain = append(d.stopAgain, pair)
		}
	}
}

// forbid lists the tasks that pause on a worker. A suspect whose own pause is over pauses only on
// the worker where it failed last.
func (d *decider) forbid() {
	if d.breakers.empty() {
		return
	}
	d.forgetLeft()
	places := make(map[uint64]int32, len(d.index))
	for at, i := range d.index {
		places[d.fleet.Workers[i].Serial] = int32(at)
	}
	for failed, pause := range d.breakers.pairs() {
		place, known := places[failed.Worker]
		if !known || !d.expect.Expects(failed.Task) {
			continue
		}
		t := d.breakers.tasks[failed.Task] // nil only if left
		_, left := d.breakers.left[failed]
		if left || pause.active(d.now) && (!t.suspect || t.last == failed.Worker) {
			d.problem.Forbidden = append(d.problem.Forbidden, rebalance.Pair{Task: failed.Task, Worker: place})
		}
	}
	for p := range d.breakers.rejected {
		if place, known := places[p.Worker]; known && d.makesRoom && d.expect.Expects(p.Task) {
			d.problem.Forbidden = append(d.problem.Forbidden, rebalance.Pair{Task: p.Task, Worker: place})
		}
	}
}

// forgetLeft drops the tasks that have asked to leave a worker and whose pause is over. But a
// healthy copy is not moved there for sixteen times as long: it would stop in vain. If there
// are any, forgetLeft takes a pass over all instances.
func (d *decider) forgetLeft() {
	left, copies := d.breakers.left, make(map[int32]int32)
	if len(left) == 0 {
		return
	}
	for p := range left {
		copies[p.Task] = 0
	}
	for at, held := range d.problem.Running {
		for _, task := range held {
			if n, ok := copies[task]; ok && d.problem.States[at] != rebalance.Draining {
				copies[task] = n + 1
			}
		}
	}
	maps.DeleteFunc(left, func(p taskOn, pause Pause) bool {
		healthy := d.expect.Expects(p.Task) && copies[p.Task] >= d.expect.Instances[p.Task]
		return !pause.active(d.now) && (!healthy || d.now.Time.Sub(pause.by) >= 15*d.breakers.longest)
	})
}

// capWant limits the wanted instances of each task to the reported ones, because a worker may run
// the rest that has not answered yet, or is not known yet. The rest waits, with a reason and its worker.
func (d *decider) capWant(why Reason, worker int32) {
	p := &d.problem
	d.capped = slices.Grow(d.capped[:0], len(p.Want))[:len(p.Want)]
	clear(d.capped)
	for _, held := range p.Running {
		round := d.fleet.nextRound()
		for _, task := range held {
			if d.fleet.stamps[task] != round {
				d.fleet.stamps[task] = round
				d.capped[task]++
			}
		}
	}
	for task, want := range p.Want {
		if lack := want - d.capped[task]; lack > 0 {
			d.out.Missing += int(lack)
			d.out.Waiting = append(d.out.Waiting, Waiting{Task: int32(task), Instances: int(lack), Reason: why, Worker: worker})
		} else {
			d.capped[task] = want
		}
	}
	p.Want, d.isCapped = d.capped, true
}

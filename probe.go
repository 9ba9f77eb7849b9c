package orchestrator

import (
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/internal/standing"
	"github.com/f8949c05/orchestrator/rebalance"
)

// Probes: how a worker that failed gets back to work (T9).

// probe gives each worker on probation one task. At worst, where everybody has
// failed and with everything, that takes a step for each change, each instance
// that waits, each task that a worker runs and each failure in the book: not for
// each worker times each of those.
func (d *decider[W, T]) probe(maxMoves int) {
	if d.book.Empty() {
		return
	}
	p := prober[W, T]{decider: d, planned: len(d.out.changes)}
	if p.movesLeft = maxMoves; maxMoves >= 0 {
		for i := range d.out.changes {
			if d.out.changes[i].kind().Op == Move {
				p.movesLeft--
			}
		}
		p.movesLeft = max(p.movesLeft, 0)
	}
	least := d.leastTrust()
	for i, w := range d.fleet.workers {
		_, probation := d.book.Closed(w.serial, d.term)
		if !probation || w.state != Answering || w.draining {
			continue
		}
		p.of(int32(i))
		for trust := failedNowhereElse; trust <= least; trust++ {
			if p.find(trust) {
				break
			}
		}
	}
	d.out.waiting = slices.DeleteFunc(d.out.waiting, func(w waiting) bool { return w.instances == 0 })
}

// trust is how sure it has to be that a probe's failure would be the worker's.
type trust int

const (
	failedNowhereElse trust = iota
	hasRun                  // it did once, so it can
	anything
)

// leastTrust is what a probe may come down to. Where no worker is open everybody
// has failed, and so, perhaps, has every task: whoever is to blame, somebody has
// to begin.
func (d *decider[W, T]) leastTrust() trust {
	if slices.Contains(d.problem.States, rebalance.Open) {
		return hasRun
	}
	return anything
}

// prober finds the probes of one term. What it needs for that it makes when it
// is first needed, for all workers on probation.
type prober[W, T comparable] struct {
	*decider[W, T]
	planned   int // changes of the plan; those beyond are probes
	movesLeft int // negative: no limit

	// Of the plan: what it starts and moves elsewhere, and what waits without a
	// place or on a draining worker.
	starts, moves, homeless, draining *candidates

	sources sources

	// Of the worker in question:
	worker int32
	own    []int32 // the tasks that failed on it
	round  uint32  // stamped on those that it runs
}

// of turns to a worker.
func (p *prober[W, T]) of(i int32) {
	w := p.fleet.workers[i]
	p.worker, p.own, p.round = i, p.book.TasksOf(w.serial), p.fleet.nextRound()
	for _, task := range w.runs {
		p.fleet.stamps[task] = p.round
	}
}

// find finds the worker's probe. It is, in this order, one that the plan starts
// elsewhere, since that puts nothing at risk; one for which the plan found no
// place; one that the plan moves elsewhere; one that waits on a draining worker;
// and else one from the worker that has the most. The last two are moves beyond
// those of the plan, while there may be more.
func (p *prober[W, T]) find(least trust) bool {
	may := p.mayTake(least)
	mayMove := p.movesLeft != 0
	return p.redirect(p.changing(&p.starts, Start), least, may) ||
		p.place(p.waitingFor(&p.homeless, false), least, may) ||
		p.redirect(p.changing(&p.moves, Move), least, may) ||
		mayMove && p.place(p.waitingFor(&p.draining, true), least, may) ||
		mayMove && p.spare(least, may)
}

// mayTake returns a function that says which tasks may be the worker's probe:
// none that it runs or that is avoided there.
func (p *prober[W, T]) mayTake(least trust) func(task int32) bool {
	serial := p.fleet.workers[p.worker].serial
	return func(task int32) bool {
		// The plan adds nothing to a closed worker, so what it does not run yet is
		// not on its way there either.
		pair := standing.Pair{Task: task, Worker: serial}
		switch {
		case p.fleet.stamps[task] == p.round || p.book.Avoided(pair, p.term):
			return false
		case least == failedNowhereElse:
			return !p.book.FailedElsewhere(pair)
		case least == hasRun:
			return p.seen(task)
		}
		return true
	}
}

func (p *prober[W, T]) seen(task int32) bool { return p.fleet.flags[task]&taskSeen != 0 }

// changing returns the changes of one kind that are in the plan.
func (p *prober[W, T]) changing(c **candidates, op ChangeOp) *candidates {
	if *c == nil {
		*c = newCandidates(p.planned, func(k int) (int32, bool) {
			return p.out.changes[k].Task, p.out.changes[k].kind().Op == op
		})
		(*c).rank(p.book, p.seen)
	}
	return *c
}

// waitingFor returns what waits without a place, or with a draining worker for
// one.
func (p *prober[W, T]) waitingFor(c **candidates, draining bool) *candidates {
	if *c == nil {
		*c = newCandidates(len(p.out.waiting), func(k int) (int32, bool) {
			w := &p.out.waiting[k]
			without := w.reason == ReasonNoWorker || w.reason == ReasonNoOtherWorker || w.reason == ReasonAvoided
			return w.task, without && (w.worker != handover.None) == draining
		})
		(*c).rank(p.book, p.seen)
	}
	return *c
}

// redirect has a change of the plan go to the worker instead.
func (p *prober[W, T]) redirect(c *candidates, least trust, may func(int32) bool) bool {
	at, ok := c.find(least, p.own, may)
	if !ok {
		return false
	}
	change := &p.out.changes[c.entry(at)]
	c.use(at)
	p.sources.shift(change.Task, change.To, p.worker)
	change.To = p.worker
	return true
}

// place starts on the worker an instance that has no place, or moves one there
// that waits on a draining worker.
func (p *prober[W, T]) place(c *candidates, least trust, may func(int32) bool) bool {
	at, ok := c.find(least, p.own, may)
	if !ok {
		return false
	}
	w := &p.out.waiting[c.entry(at)]
	if w.instances--; w.instances == 0 {
		c.use(at)
	}
	if w.worker == handover.None {
		p.out.unplaced--
		p.add(w.task, handover.None, p.missing(w.task))
	} else {
		p.add(w.task, w.worker, ReasonDrain)
	}
	return true
}

// add has the worker take a task beyond the plan.
func (p *prober[W, T]) add(task, from int32, reason Reason) {
	p.out.adds++
	p.out.changes = append(p.out.changes, change{
		Change: handover.Change{Task: task, From: from, To: p.worker},
		reason: reason,
	})
	p.sources.shift(task, from, p.worker)
	if from != handover.None && p.movesLeft > 0 {
		p.movesLeft--
	}
}

// spare moves a task to the worker from the one that has the most, where that
// has at least two more, so that the move makes the spread better.
func (p *prober[W, T]) spare(least trust, may func(int32) bool) bool {
	if !p.sources.isReady() {
		workers := p.fleet.workers
		runs := make([]int, len(workers))
		for i, w := range workers {
			runs[i] = len(w.runs)
		}
		mayGive := func(i int) bool { return workers[i].state == Answering && !workers[i].draining }
		p.sources.start(runs, mayGive, p.out.changes)
	}
	from, ok := p.sources.most(p.worker)
	if !ok {
		return false
	}
	c := p.sources.of(from, func() *candidates {
		runs := p.fleet.workers[from].runs
		c := newCandidates(len(runs), func(k int) (int32, bool) { return runs[k], true })
		c.rank(p.book, p.seen)
		return c
	})
	at, ok := c.find(least, p.own, may)
	if ok {
		p.add(c.tasks[at].task, from, ReasonProbe)
	}
	return ok
}

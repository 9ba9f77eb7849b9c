package simulator

// Checks of failures (T9): what is left alone after a failed start, and that a
// worker is quarantined only for its own failures.

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// pauseKey identifies the subject of a pause.
type pauseKey struct {
	kind         orchestrator.PauseKind
	worker, task string
}

// pause is a pause named by a plan.
type pause struct {
	until uint64
	since time.Time
	void  bool // ignored until the next plan names it again
}

// checkPauses checks that the plan starts and moves nothing that pauses. It records
// how the term's starts ended, and checks which workers are quarantined for it.
func (r *review) checkPauses() {
	if _, deposed := r.deposedAt(); r.incomplete() || deposed != "" {
		return // the leader cancels the calls in flight, and runs no further term
	}
	for i := range r.plan.Changes {
		c := &r.plan.Changes[i]
		if c.Kind.Op == orchestrator.Move && r.healthy[c.Task] {
			r.checkMove(c)
		}
		if c.Kind.Op != orchestrator.Stop {
			r.checkTry(c)
		}
	}
	r.learnStarts()
	r.checkQuarantine()
	r.learnPauses()
}

// active reports whether a pause named by an earlier plan still holds, and until
// which term. A pause ends after its terms or after WithMaxPause.
func (r *review) active(kind orchestrator.PauseKind, worker, task string) (until uint64, ok bool) {
	p, ok := r.l.pauses[pauseKey{kind, worker, task}]
	return p.until, ok && !p.void && r.stats.Term.Number < p.until && r.listed.Before(p.since.Add(r.w.maxPause))
}

// isQuarantined reports whether a worker is still quarantined. A quarantine ends if no
// start is tried for 64 terms after its pause.
func (r *review) isQuarantined(worker string) bool {
	p, ok := r.l.pauses[pauseKey{orchestrator.PauseWorker, worker, ""}]
	return ok && r.stats.Term.Number <= p.until+64
}

// checkTry checks that a start does not pause. Quarantines do not count if all open
// workers are quarantined.
func (r *review) checkTry(c *orchestrator.Change[string, string]) {
	wb := r.l.belief.workers[c.To]
	f, failed := wb.failures[c.Task]
	_, suspect := r.l.pauses[pauseKey{orchestrator.PauseTask, "", c.Task}]
	if failed && !suspect && f.term+1 == r.stats.Term.Number && r.listed.Before(f.at.Add(r.w.maxPause)) {
		r.fail(Paused, "%s was to start on %s, where it failed in the term before", c.Task, c.To)
	}
	if r.isQuarantined(c.To) && r.someOpen {
		for i := range r.plan.Changes {
			if other := &r.plan.Changes[i]; other.Kind.Op != orchestrator.Stop && other.To == c.To && other.Task != c.Task {
				r.fail(Paused, "%s and %s were to start on %s, which is quarantined", c.Task, other.Task, c.To)
			}
		}
	}
	for _, key := range []pauseKey{
		{orchestrator.PauseWorker, c.To, ""}, {orchestrator.PauseTask, "", c.Task}, {orchestrator.PauseStart, c.To, c.Task},
	} {
		until, ok := r.active(key.kind, key.worker, key.task)
		if ok && (key.kind != orchestrator.PauseWorker || r.someOpen) {
			r.fail(Paused, "%s was to start on %s, and this %s pauses until term %d", c.Task, c.To, key.kind, until)
		}
	}
}

// checkMove checks moves after a term in which a task could be started neither at
// its new place nor at its old one. No healthy task moves in the next term. After
// that, one moves per term, until some start succeeds.
func (r *review) checkMove(c *orchestrator.Change[string, string]) {
	at := r.l.lostInMove
	if at.term == 0 {
		return
	}
	r.moved++
	if r.moved > 1 || r.stats.Term.Number == at.term+1 && r.listed.Before(at.at.Add(r.w.maxPause)) {
		r.fail(Paused, "%s was to move (number %d in this term), though in term %d a task could not be given back and no start has succeeded since",
			c.Task, r.moved, at.term)
	}
}

// recordHealth determines at the time of the plan which tasks are healthy: no start of
// theirs has failed since the last that succeeded. It also records whether some open
// worker is not quarantined.
func (r *review) recordHealth() {
	r.healthy = make(map[string]bool)
	for task := range r.view.tasks {
		r.healthy[task] = true
	}
	for name, wb := range r.l.belief.workers {
		for task := range wb.failures {
			r.healthy[task] = false
		}
		suspicious := len(wb.countedFailures) > 0 // it may have been quarantined since the answers came in
		r.someOpen = r.someOpen || wb.answers() && !wb.draining && !r.isQuarantined(name) && !suspicious
	}
}

// learnStarts records how the starts of this term ended, in that order.
func (r *review) learnStarts() {
	var adds []*call
	for _, c := range r.own() {
		if c.op == orchestrator.OpAdd && r.workerBelief(c) != nil {
			adds = append(adds, c)
		}
	}
	slices.SortStableFunc(adds, func(a, b *call) int { return a.settled().Compare(b.settled()) })
	stranded, started := failure{}, false
	for _, c := range adds {
		at, wb := c.settled(), r.workerBelief(c)
		_, role := r.roleOf(c)
		switch {
		case !c.fails(at):
			started = started || role != giveBack
			r.l.succeeded(c.task, wb)
		case c.returned.Equal(at) && (errors.Is(c.err, orchestrator.ErrStopping) || errors.Is(c.err, orchestrator.ErrStale)):
		case errors.Is(c.err, orchestrator.ErrRejected) && r.l.viewAt(at).tasks[c.task].Instances == 0:
			// The task is no longer expected, and the worker may have refused it for
			// that reason.
		case role == giveBack:
			stranded = failure{r.stats.Term.Number, at}
		default:
			if role == firstHalf { // it runs at its place before the move
				wb.countedFailures[c.task] = true
			}
			wb.failures[c.task] = failure{r.stats.Term.Number, at}
			r.l.discountTask(c.task)
		}
	}
	switch {
	case started:
		r.l.lostInMove = failure{}
	case stranded.term > 0:
		r.l.lostInMove = stranded
	}
}

// succeeded records an acknowledged start. It clears the failures of the worker and
// of the task.
func (l *leader) succeeded(task string, wb *workerBelief) {
	l.clearWorker(wb)
	l.recordRunning(task, wb)
}

// discountTask ignores a task's failures for quarantine if it has failed on more than half
// of the open workers, or on eight.
func (l *leader) discountTask(task string) {
	failed, open := 0, 0
	for _, wb := range l.belief.workers {
		if _, ok := wb.failures[task]; ok {
			failed++
		}
		if wb.answers() && !wb.draining {
			open++
		}
	}
	if failed <= max(1, min(open/2, 7)) {
		return
	}
	for _, wb := range l.belief.workers {
		delete(wb.countedFailures, task)
	}
}

// clearWorker drops all failures counted against a worker.
func (l *leader) clearWorker(wb *workerBelief) {
	clear(wb.countedFailures)
	delete(l.pauses, pauseKey{orchestrator.PauseWorker, wb.name, ""})
}

// recordRunning records that a worker runs a task. The task's failures on other
// workers then count against those workers, and its pauses end.
func (l *leader) recordRunning(task string, wb *workerBelief) {
	for name, other := range l.belief.workers {
		if _, failed := other.failures[task]; failed && other != wb {
			other.countedFailures[task] = true
		}
		delete(other.failures, task)
		delete(l.pauses, pauseKey{orchestrator.PauseStart, name, task})
	}
	delete(l.pauses, pauseKey{orchestrator.PauseTask, "", task})
}

// learnListed records that workers list tasks that they had failed to start.
func (r *review) learnListed() {
	started := make(map[*workerBelief][]string)
	for _, wb := range r.l.belief.workers {
		if !wb.answers() {
			continue
		}
		for task := range wb.reported {
			if _, failed := wb.failures[task]; failed || wb.countedFailures[task] {
				started[wb] = append(started[wb], task)
			}
		}
	}
	for wb, tasks := range started {
		r.l.clearWorker(wb)
		r.l.lostInMove = failure{}
		for _, task := range tasks { // it does not count against wb, even if another worker runs it too
			delete(wb.failures, task)
		}
	}
	for wb, tasks := range started {
		for _, task := range tasks {
			r.l.recordRunning(task, wb)
		}
	}
}

// checkQuarantine checks that a worker is newly quarantined only if it failed to
// start two tasks that run elsewhere or have started there since, or one if it runs
// nothing.
func (r *review) checkQuarantine() {
	before := make(map[*workerBelief]bool)
	for _, wb := range r.l.belief.workers {
		before[wb], wb.quarantined = wb.quarantined, false
	}
	for _, p := range r.plan.Paused {
		wb := r.l.belief.workers[p.Worker]
		if p.Kind != orchestrator.PauseWorker || wb == nil {
			continue
		}
		if wb.quarantined = true; before[wb] {
			continue
		}
		least := 2
		if wb.state == orchestrator.Lost || len(wb.reported) == 0 || len(r.listedOn[wb.name]) == 0 {
			least = 1
		}
		if len(wb.countedFailures) < least {
			r.fail(Paused, "%s, which is %v and runs %d tasks, is quarantined; of the tasks that it failed to start these started elsewhere since: %v",
				p.Worker, wb.state, len(wb.reported), slices.Sorted(maps.Keys(wb.countedFailures)))
		}
	}
}

// learnPauses records the pauses that the plan names. A pause begins with its latest
// failure.
func (r *review) learnPauses() {
	pauses, named := make(map[pauseKey]pause), make(map[pauseKey]uint64)
	for _, p := range r.plan.Paused {
		key := pauseKey{p.Kind, p.Worker, p.Task}
		if p.Kind == orchestrator.PauseTask {
			key.worker = "" // p.Worker is the worker that failed last
		}
		named[key], pauses[key] = p.Until, pause{until: p.Until, since: r.began}
		if old, ok := r.l.pauses[key]; ok && old.until == p.Until {
			pauses[key] = pause{until: old.until, since: old.since}
		}
		now, least := r.stats.Term.Number, uint64(0)
		if r.l.namedPauses[key] != p.Until && (p.Kind == orchestrator.PauseWorker || p.Kind == orchestrator.PauseStart) {
			least = now + min(1<<min(p.Failures-1, 10), uint64(longestPause))
		}
		most := now + 2*longestPause
		if p.Kind == orchestrator.PauseMoves {
			most = now + longestMovesPause
		}
		if p.Until < least || p.Until > most {
			r.fail(Paused, "after %d failures the %s of %q, %q pauses until term %d, want %d to %d", p.Failures, p.Kind, p.Worker, p.Task, p.Until, least, most)
		}
	}
	r.l.pauses, r.l.namedPauses = pauses, named
}

// forgetPauses drops the pauses and failures of a worker that was removed, and of
// tasks that are no longer expected.
func (l *leader) forgetPauses(worker string, expected map[string]orchestrator.Task[string]) {
	maps.DeleteFunc(l.pauses, func(key pauseKey, _ pause) bool {
		_, ok := expected[key.task]
		return key.worker == worker && worker != "" || key.task != "" && key.kind != orchestrator.PauseStop && !ok
	})
	if wb := l.belief.workers[worker]; wb != nil {
		for task := range wb.failures { // the task may no longer be suspect
			if p, ok := l.pauses[pauseKey{orchestrator.PauseTask, "", task}]; ok {
				p.void = true
				l.pauses[pauseKey{orchestrator.PauseTask, "", task}] = p
			}
		}
	}
	for _, wb := range l.belief.workers {
		maps.DeleteFunc(wb.failures, func(task string, _ failure) bool {
			_, ok := expected[task]
			return !ok
		})
	}
}

package simulator

// The end of a run: the faults end, and the cluster must converge.

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Bounds at the end of a run.
const (
	longestPause      = 16 // terms
	longestMovesPause = 65
	retriedElsewhere  = 8 // terms after a worker's pause in which a task that failed there is not tried
	settleTerms       = 4 // terms after all consequences of faults
)

// settleDown ends the faults, the lasting ones last, waits until their consequences
// have ended, and checks that the cluster converges.
func (w *world) settleDown() {
	last := w.stopFaults()
	if last == nil || w.violated() {
		return
	}
	w.advance(nil, w.aftermath())
	if len(w.lasting) > 0 {
		if w.checkLasting(last); w.violated() {
			return
		}
		w.mu.Lock()
		w.healed = true
		w.note(worldLane, "the lasting faults have ended")
		w.mu.Unlock()
		w.advance(nil, w.aftermath())
	}
	ft := finalTerms{w: w, l: last, tick: w.Timeout / 2, slack: 2}
	ft.next() // it may use earlier answers
	for idle, most := 0, settleTerms+ft.budgetTerms(); ft.spent < most && idle <= ft.stopsToRetry(); {
		if ft.next(); w.violated() {
			return
		}
		switch {
		case ft.waits():
		case len(last.o.LastPlan().Changes) == 0:
			idle++
		default:
			idle = 0
			ft.spent++
		}
	}
	w.mu.Lock()
	w.report.TermsToSettle = max(w.report.TermsToSettle, ft.spent)
	w.mu.Unlock()
	ft.check()
	for ft.next(); ft.waitsForWorkers(); {
		ft.next()
	}
	if changes := last.o.LastPlan().Changes; len(changes) > 0 {
		ft.fail("the cluster had converged, and the next term planned %v %s from %q to %q",
			changes[0].Kind, changes[0].Task, changes[0].From, changes[0].To)
	}
	if err := last.o.LastPlan().Stats.Err; err != nil && !ft.silent() {
		ft.fail("the cluster had converged, and the next term failed: %v", err)
	}
}

// stopFaults ends all but the lasting faults, and returns the last leader. From now
// on the simulator runs each of its terms.
func (w *world) stopFaults() *leader {
	w.mu.Lock()
	w.settling = true
	for _, m := range w.workers {
		m.network, m.latency = connected, 0
	}
	w.note(worldLane, "the faults that do not last have ended")
	w.mu.Unlock()
	rnd := newRandom(w.seed, "calm")
	for _, name := range w.names {
		m := w.workers[name]
		m.pathEnds++
		m.slowEnds++
		if m.coordinator != connected {
			w.reconnect(m)
		}
		if !m.alive && m.registered && rnd.chance(0.7) {
			w.restart(m, &rnd)
		}
	}
	last := w.leader()
	w.mu.Lock()
	last.isolated = false
	fresh := last.retiring
	w.mu.Unlock()
	for _, l := range w.leaders {
		if l == last && !fresh {
			l.pause()
		} else {
			l.end(orchestrator.ErrDeposed)
		}
	}
	for _, l := range w.leaders {
		w.advance(l.done, time.Hour)
	}
	if !fresh {
		return last
	}
	next := w.elect()
	if next != nil {
		next.paused = true
	}
	return next
}

// aftermath returns how long consequences may last: calls, stops, changes on their
// way to a leader, and leases.
func (w *world) aftermath() time.Duration {
	most := (longestLate+longestStop+1)*w.Timeout + w.delay
	if w.hasLeases() {
		most += w.lease + w.margin + w.delay
	}
	return most
}

// finalTerms are the last terms of a run.
type finalTerms struct {
	w *world
	l *leader
	// spent counts the terms that changed something when there was nothing to wait
	// for. waitedForLoss counts the terms with a worker still to be declared lost, and
	// waitedForPause those with a pause.
	spent, waitedForLoss, waitedForPause int
	// waitedForEvictions counts the terms that held evictions.
	waitedForEvictions int
	// unheard counts, by worker, the consecutive terms in which it could answer but was
	// not heard.
	unheard map[string]int
	paused  bool // something paused after the last term
	tick    time.Duration
	slack   int // extra terms that a worker may take to answer
}

// next runs a term, tick after the previous one.
func (ft *finalTerms) next() {
	w := ft.w
	if w.violated() {
		return
	}
	w.advance(nil, ft.tick)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer ft.l.recoverPanic()
		loopLane(ft.l.number).await()
		ft.l.predict()
		_ = ft.l.o.NextTerm(w.context())
	}()
	w.advance(ended, time.Hour)
	if w.violated() {
		<-ended
		return
	}
	if w.census != nil {
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.countGoroutines(ft.l, ft.l.o.LastPlan().Stats.Term, 0)
	}
}

// waits reports whether the last term had to wait for a worker or for the end of a
// pause.
func (ft *finalTerms) waits() bool {
	return ft.waitsForWorkers() || ft.waitsForPauses() || ft.waitsForEvictions()
}

// waitsForWorkers reports whether some worker is still to be listed or to be
// declared lost. It waits as long as the latter takes, and fails the run if either
// takes too long.
func (ft *finalTerms) waitsForWorkers() bool {
	w := ft.w
	inTurn := ft.slack*w.rounds() + 2 + len(w.members)/w.Concurrency // a term lists Concurrency silent workers
	late := make(map[string]bool)
	for _, row := range ft.l.o.LastPlan().Workers {
		late[row.Name] = row.Late && (w.healed || len(w.lasting) == 0) // otherwise some are often late
	}
	unheard, silent := make(map[string]int), ""
	for _, state := range ft.l.o.LastActual() {
		alive := w.workers[state.Name].alive
		if alive && (late[state.Name] || state.State != orchestrator.Answering) {
			unheard[state.Name] = ft.unheard[state.Name] + 1
			if n := unheard[state.Name]; n > inTurn {
				ft.fail("%s could answer for %d terms, and was not heard", state.Name, n)
			}
		}
		if !alive && state.State == orchestrator.Silent {
			silent = state.Name
		}
	}
	ft.unheard = unheard
	if len(unheard) > 0 && (w.slowLists == 0 || w.healed) { // in a slow fleet some worker is often late
		return true
	}
	if silent != "" {
		if ft.waitedForLoss++; ft.waitedForLoss > inTurn+2 {
			ft.fail("%s has ended, and is still not declared lost", silent)
		}
		w.advance(nil, ft.untilLost())
		return true
	}
	return false
}

// untilLost returns the time until the workers that have ended may be declared lost:
// until their grace periods and any mass loss have ended.
func (ft *finalTerms) untilLost() time.Duration {
	w := ft.w
	w.mu.Lock()
	defer w.mu.Unlock()
	belief := &ft.l.belief
	until := time.Now()
	for _, wb := range belief.workers {
		if wb.state != orchestrator.Silent {
			continue
		}
		for _, end := range []time.Time{wb.lastAnswer.Add(w.Grace), belief.holdEnds(&w.setup)} {
			if end.After(until) {
				until = end
			}
		}
	}
	return time.Until(until)
}

// waitsForPauses reports whether something pauses or did so in the previous term. All pauses
// must end, because nothing fails any more. One more term may be needed after a
// pause, because a paused task may wait for a term whose number is a multiple of its
// pause. A quarantined worker also needs one: it gains one task in one term and its
// share in the next.
func (ft *finalTerms) waitsForPauses() bool {
	plan := ft.l.o.LastPlan()
	over := func(p orchestrator.Pause[string, string]) bool {
		if p.Kind == orchestrator.PauseWorker {
			return p.Until+retriedElsewhere <= plan.Stats.Term.Number
		}
		return p.Until <= plan.Stats.Term.Number && !ft.isWantedStop(p)
	}
	paused := slices.DeleteFunc(slices.Clone(plan.Paused), over)
	before := ft.paused
	ft.paused = len(paused) > 0
	if !ft.paused {
		return before
	}
	if ft.waitedForPause++; ft.waitedForPause > 4*longestPause {
		p := paused[0]
		ft.fail("nothing fails, and something has paused for %d terms: %s of %q, %q until term %d", ft.waitedForPause, p.Kind, p.Worker, p.Task, p.Until)
	}
	return true
}

// stopsToRetry returns the maximum number of terms until each failed stop is tried again.
// Of several on one worker, one is tried per term.
func (ft *finalTerms) stopsToRetry() int {
	stops := 0
	for _, p := range ft.l.o.LastPlan().Paused {
		if p.Kind == orchestrator.PauseStop {
			stops++
		}
	}
	return stops
}

// isWantedStop reports whether a pause is that of a stop that is still wanted. Of several
// on one worker, one is tried per term.
func (ft *finalTerms) isWantedStop(p orchestrator.Pause[string, string]) bool {
	runs := ft.w.cluster.Running(p.Task)
	return p.Kind == orchestrator.PauseStop && slices.Contains(runs, p.Worker) && len(runs) > ft.w.tasks[p.Task].Instances
}

// budgetTerms returns how many more terms it takes if moves are limited.
func (ft *finalTerms) budgetTerms() int {
	if ft.w.maxMoves < 0 {
		return 0
	}
	instances := 0
	for _, task := range ft.w.tasks {
		instances += task.Instances
	}
	return 2 * instances / max(ft.w.maxMoves, 1)
}

func (ft *finalTerms) fail(format string, args ...any) {
	ft.w.mu.Lock()
	defer ft.w.mu.Unlock()
	ft.w.fail(ft.l, ft.l.o.LastPlan().Stats.Term, Converged, format, args...)
}

// silent reports whether a member is silent or lost, because its process has ended.
func (ft *finalTerms) silent() bool {
	return slices.ContainsFunc(ft.w.members, func(name string) bool { return !ft.w.workers[name].alive })
}

// check compares what runs with what is wanted.
func (ft *finalTerms) check() {
	w := ft.w
	if w.violated() {
		return
	}
	if w.rules.some() {
		ft.checkPlaced()
		return
	}
	open, least, most := 0, 0, 0
	for _, name := range w.members {
		m := w.workers[name]
		if !m.alive || m.draining {
			continue
		}
		load := len(w.cluster.RunsOn(name))
		if open == 0 || load < least {
			least = load
		}
		most = max(most, load)
		open++
	}
	for _, name := range w.taskNames() {
		want, runs := w.tasks[name].Instances, w.cluster.Running(name)
		if len(runs) > want || len(runs) < min(want, open) {
			ft.fail("%s runs on %v; wanted: %d, on %d open workers", name, runs, want, open)
		}
	}
	if w.maxMoves != 0 && most-least > 1 {
		ft.fail("open workers run from %d to %d tasks", least, most)
	}
	for _, name := range w.members {
		m := w.workers[name]
		for _, task := range w.cluster.RunsOn(name) {
			def, expected := w.tasks[task]
			if !expected {
				ft.fail("%s runs %s, which is not expected", name, task)
			}
			if m.alive && m.draining && def.Instances <= open && w.maxMoves != 0 {
				ft.fail("%s drains, and still runs %s, of which %d are wanted on %d open workers", name, task, def.Instances, open)
			}
		}
	}
}

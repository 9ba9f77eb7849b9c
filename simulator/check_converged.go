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
	longestPause        = 16 // terms
	longestPauseOfMoves = 65
	othersFirst         = 8 // terms after a worker's pause in which a task that failed there is not tried
	settled             = 4 // terms after all consequences of faults
)

// settleDown ends the faults, the lasting ones last, waits until their consequences
// have ended, and checks that the cluster converges.
func (w *world) settleDown() {
	last := w.stopFaults()
	if last == nil || w.violated() {
		return
	}
	w.live(nil, w.aftermath())
	if len(w.lasting) > 0 {
		if w.endure(last); w.violated() {
			return
		}
		w.mu.Lock()
		w.mended = true
		w.note(worldLane, "the lasting faults have ended")
		w.mu.Unlock()
		w.live(nil, w.aftermath())
	}
	t := calmTerms{w: w, l: last, tick: w.Timeout / 2, slack: 2}
	t.next() // it may use earlier answers
	for idle, most := 0, settled+t.extra(); t.spent < most && idle <= t.turns(); {
		if t.next(); w.violated() {
			return
		}
		switch {
		case t.waits():
		case len(last.o.LastPlan().Changes) == 0:
			idle++
		default:
			idle = 0
			t.spent++
		}
	}
	w.mu.Lock()
	w.report.Settling = max(w.report.Settling, t.spent)
	w.mu.Unlock()
	t.check()
	for t.next(); t.waitsForWorkers(); {
		t.next()
	}
	if changes := last.o.LastPlan().Changes; len(changes) > 0 {
		t.fail("the cluster had converged, and the next term planned %v %s from %q to %q",
			changes[0].Kind, changes[0].Task, changes[0].From, changes[0].To)
	}
	if err := last.o.LastPlan().Stats.Err; err != nil && !t.silent() {
		t.fail("the cluster had converged, and the next term failed: %v", err)
	}
}

// stopFaults ends all but the lasting faults, and returns the last leader. From now
// on the simulator runs each of its terms.
func (w *world) stopFaults() *leader {
	w.mu.Lock()
	w.calm = true
	for _, m := range w.workers {
		m.path, m.slow = up, 0
	}
	w.note(worldLane, "the faults that do not last have ended")
	w.mu.Unlock()
	d := throw(w.seed, "calm")
	for _, name := range w.names {
		m := w.workers[name]
		m.pathEnds++
		m.slowEnds++
		if m.coordinator != up {
			w.mend(m)
		}
		if !m.alive && m.registered && d.chance(0.7) {
			w.comeback(m, &d)
		}
	}
	last := w.leader()
	w.mu.Lock()
	last.isolated = false
	fresh := last.retired
	w.mu.Unlock()
	for _, l := range w.leaders {
		if l == last && !fresh {
			l.pause()
		} else {
			l.end(orchestrator.ErrDeposed)
		}
	}
	for _, l := range w.leaders {
		w.live(l.done, time.Hour)
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
	most := (longestLate+longestStop+1)*w.Timeout + w.lag
	if w.leases() {
		most += w.lease + w.margin + w.lag
	}
	return most
}

// calmTerms are the last terms of a run.
type calmTerms struct {
	w *world
	l *leader
	// spent counts the terms that changed something when there was nothing to wait
	// for. held counts the terms with a worker still to be declared lost, and waited
	// those with a pause. unheard counts, by worker, consecutive terms in which it
	// could answer but was not heard.
	spent, held, waited int
	unheard             map[string]int
	paused              bool // something paused after the last term
	tick                time.Duration
	slack               int // extra terms that a worker may take to answer
}

// next runs a term, tick after the previous one.
func (t *calmTerms) next() {
	w := t.w
	if w.violated() {
		return
	}
	w.live(nil, t.tick)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer t.l.caught()
		loopLane(t.l.number).await()
		t.l.foresee()
		_ = t.l.o.NextTerm(w.context())
	}()
	w.live(ended, time.Hour)
	if w.violated() {
		<-ended
		return
	}
	if w.census != nil {
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.countGoroutines(t.l, t.l.o.LastPlan().Stats.Term, 0)
	}
}

// waits reports whether the last term had to wait for a worker or for the end of a
// pause.
func (t *calmTerms) waits() bool { return t.waitsForWorkers() || t.pauses() }

// waitsForWorkers reports whether some worker is still to be listed or to be
// declared lost. It waits as long as the latter takes, and fails the run if either
// takes too long.
func (t *calmTerms) waitsForWorkers() bool {
	w := t.w
	inTurn := t.slack*w.rounds() + 2 + len(w.members)/w.Concurrency // a term lists Concurrency silent workers
	late := make(map[string]bool)
	for _, row := range t.l.o.LastPlan().Workers {
		late[row.Name] = row.Late && (w.mended || len(w.lasting) == 0) // otherwise some are often late
	}
	unheard, silent := make(map[string]int), ""
	for _, state := range t.l.o.LastActual() {
		alive := w.workers[state.Name].alive
		if alive && (late[state.Name] || state.State != orchestrator.Answering) {
			unheard[state.Name] = t.unheard[state.Name] + 1
			if n := unheard[state.Name]; n > inTurn {
				t.fail("%s could answer for %d terms, and was not heard", state.Name, n)
			}
		}
		if !alive && state.State == orchestrator.Silent {
			silent = state.Name
		}
	}
	t.unheard = unheard
	if len(unheard) > 0 && (w.slow == 0 || w.mended) { // in a slow fleet some worker is often late
		return true
	}
	if silent != "" {
		if t.held++; t.held > inTurn+2 {
			t.fail("%s has ended, and is still not declared lost", silent)
		}
		w.live(nil, t.untilLost())
		return true
	}
	return false
}

// untilLost returns the time until the workers that have ended may be declared lost:
// until their grace periods and any mass loss have ended.
func (t *calmTerms) untilLost() time.Duration {
	w := t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	belief := &t.l.belief
	until := time.Now()
	for _, s := range belief.workers {
		if s.state != orchestrator.Silent {
			continue
		}
		for _, end := range []time.Time{s.since.Add(w.Grace), belief.holdEnds(&w.setup)} {
			if end.After(until) {
				until = end
			}
		}
	}
	return time.Until(until)
}

// pauses reports whether something pauses or did so in the previous term. All pauses
// must end, because nothing fails any more. One more term may be needed after a
// pause, because a paused task may wait for a term whose number is a multiple of its
// pause. A quarantined worker also needs one: it gains one task in one term and its
// share in the next.
func (t *calmTerms) pauses() bool {
	plan := t.l.o.LastPlan()
	over := func(p orchestrator.Pause[string, string]) bool {
		if p.Kind == orchestrator.PauseWorker {
			return p.Until+othersFirst <= plan.Stats.Term.Number
		}
		return p.Until <= plan.Stats.Term.Number && !t.toStop(p)
	}
	paused := slices.DeleteFunc(slices.Clone(plan.Paused), over)
	before := t.paused
	t.paused = len(paused) > 0
	if !t.paused {
		return before
	}
	if t.waited++; t.waited > 4*longestPause {
		p := paused[0]
		t.fail("nothing fails, and something has paused for %d terms: %s of %q, %q until term %d", t.waited, p.Kind, p.Worker, p.Task, p.Until)
	}
	return true
}

// turns returns the maximum number of terms until each failed stop is tried again.
// Of several on one worker, one is tried per term.
func (t *calmTerms) turns() int {
	stops := 0
	for _, p := range t.l.o.LastPlan().Paused {
		if p.Kind == orchestrator.PauseStop {
			stops++
		}
	}
	return stops
}

// toStop reports whether a pause is that of a stop that is still wanted. Of several
// on one worker, one is tried per term.
func (t *calmTerms) toStop(p orchestrator.Pause[string, string]) bool {
	runs := t.w.cluster.Running(p.Task)
	return p.Kind == orchestrator.PauseStop && slices.Contains(runs, p.Worker) && len(runs) > t.w.tasks[p.Task].Instances
}

// extra returns how many more terms it takes if moves are limited.
func (t *calmTerms) extra() int {
	if t.w.maxMoves < 0 {
		return 0
	}
	instances := 0
	for _, task := range t.w.tasks {
		instances += task.Instances
	}
	return 2 * instances / max(t.w.maxMoves, 1)
}

func (t *calmTerms) fail(format string, args ...any) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	t.w.fail(t.l, t.l.o.LastPlan().Stats.Term, Converged, format, args...)
}

// silent reports whether a member is silent or lost, because its process has ended.
func (t *calmTerms) silent() bool {
	return slices.ContainsFunc(t.w.members, func(name string) bool { return !t.w.workers[name].alive })
}

// check compares what runs with what is wanted.
func (t *calmTerms) check() {
	w := t.w
	if w.violated() {
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
			t.fail("%s runs on %v; wanted: %d, on %d open workers", name, runs, want, open)
		}
	}
	if w.maxMoves != 0 && most-least > 1 {
		t.fail("open workers run from %d to %d tasks", least, most)
	}
	for _, name := range w.members {
		m := w.workers[name]
		for _, task := range w.cluster.RunsOn(name) {
			def, expected := w.tasks[task]
			if !expected {
				t.fail("%s runs %s, which is not expected", name, task)
			}
			if m.alive && m.draining && def.Instances <= open && w.maxMoves != 0 {
				t.fail("%s drains, and still runs %s, of which %d are wanted on %d open workers", name, task, def.Instances, open)
			}
		}
	}
}

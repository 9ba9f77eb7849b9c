package simulator

// The end of a run: the faults end, and after a while everything must be as it
// should.

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
)

// The end of a run is held to these.
const (
	longestPause        = 16 // terms
	longestPauseOfMoves = 65
	othersFirst         = 8 // terms after a worker's pause in which a task that failed there is not tried
	settled             = 4 // terms after everything is over
)

// settleDown ends the faults, those that do not end by themselves last, waits out
// what they have caused, and checks that everything is restored.
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
		w.note(worldLane, "what lasted has ended")
		w.mu.Unlock()
		w.live(nil, w.aftermath())
	}
	t := calmTerms{w: w, l: last, tick: w.Timeout / 2, slack: 2}
	t.next() // it may go by answers from before
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
		t.fail("everything was settled, and the next term planned %v %s from %q to %q",
			changes[0].Kind, changes[0].Task, changes[0].From, changes[0].To)
	}
	if err := last.o.LastPlan().Stats.Err; err != nil && !t.silent() {
		t.fail("everything was settled, and the next term failed: %v", err)
	}
}

// stopFaults makes the world calm, and returns the last leader, which from now
// on runs a term whenever it is told to.
func (w *world) stopFaults() *leader {
	w.mu.Lock()
	w.calm = true
	for _, m := range w.workers {
		m.path, m.slow = up, 0
	}
	w.note(worldLane, "nothing goes wrong any more")
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

// aftermath returns how long what is under way may last: calls, stops, news, and
// leases.
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
	// spent counts those that changed something when nothing had to be waited
	// for any more, and held and waited those before. unheard counts, by worker, those in
	// a row in which it could answer and was not heard.
	spent, held, waited int
	unheard             map[string]int
	paused              bool // something paused when the last term was over
	tick                time.Duration
	slack               int // terms more that a worker may take to answer
}

// next runs a term, some time after the one before.
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

// waits reports whether the term that has ended had something to wait for: a
// worker, or the end of a pause.
func (t *calmTerms) waits() bool { return t.waitsForWorkers() || t.pauses() }

// waitsForWorkers reports whether some worker is to be asked first, or to be lost,
// and waits for that, as far as it takes time. It may take no longer than it must.
func (t *calmTerms) waitsForWorkers() bool {
	w := t.w
	inTurn := t.slack*w.rounds() + 2 + len(w.members)/w.Concurrency // as many silent ones are asked in a term
	late := make(map[string]bool)
	for _, row := range t.l.o.LastPlan().Workers {
		late[row.Name] = row.Late && (w.mended || len(w.lasting) == 0) // while faults last, some are often late
	}
	unheard, silent := make(map[string]int), ""
	for _, state := range t.l.o.LastActual() {
		alive := w.workers[state.Name].alive
		if alive && (late[state.Name] || state.State != orchestrator.Answering) {
			unheard[state.Name] = t.unheard[state.Name] + 1
			if n := unheard[state.Name]; n > inTurn {
				t.fail("%s could answer for %d terms, and is not heard", state.Name, n)
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
			t.fail("%s is gone, and still not lost", silent)
		}
		w.live(nil, t.untilLost())
		return true
	}
	return false
}

// untilLost returns how long it takes until the workers that are gone may be lost: until
// the grace period of each is over, and a mass loss.
func (t *calmTerms) untilLost() time.Duration {
	w := t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	belief := &t.l.belief
	until := time.Now()
	for _, s := range belief.seats {
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

// pauses reports whether anything pauses still, which ends after the longest pause,
// since nothing fails; or did until now: what pauses may wait for a term
// that has a multiple of its pause as its number, and a worker that was quarantined
// gains one task in this term and its share in the next one.
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
		t.fail("nothing fails, and for %d terms something pauses: %s of %q, %q until term %d", t.waited, p.Kind, p.Worker, p.Task, p.Until)
	}
	return true
}

// turns returns in how many terms, at most, each stop that has failed is tried again: of
// several on one worker, one in a term.
func (t *calmTerms) turns() int {
	stops := 0
	for _, p := range t.l.o.LastPlan().Paused {
		if p.Kind == orchestrator.PauseStop {
			stops++
		}
	}
	return stops
}

// toStop reports whether a pause is that of a stop that is still wanted: of several
// on one worker, one is tried in a term.
func (t *calmTerms) toStop(p orchestrator.Pause[string, string]) bool {
	runs := t.w.cluster.Running(p.Task)
	return p.Kind == orchestrator.PauseStop && slices.Contains(runs, p.Worker) && len(runs) > t.w.tasks[p.Task].Instances
}

// extra returns how many terms more it takes where moves are limited.
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

// silent reports whether a member is silent, or lost, because it is gone.
func (t *calmTerms) silent() bool {
	return slices.ContainsFunc(t.w.members, func(name string) bool { return !t.w.workers[name].alive })
}

// check holds what really runs against what is wanted.
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
				t.fail("%s runs %s, which nobody expects", name, task)
			}
			if m.alive && m.draining && def.Instances <= open && w.maxMoves != 0 {
				t.fail("%s drains, and still runs %s, of which there are to be %d on %d open workers", name, task, def.Instances, open)
			}
		}
	}
}

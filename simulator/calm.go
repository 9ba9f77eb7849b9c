package simulator

// The end of a run: nothing goes wrong any more, and after a while everything
// must be as it should.

import (
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// longestBackoff and settled are what a run is held to in the end.
const (
	longestBackoff = 64 // terms
	settled        = 4  // terms after everything is over
)

// settleDown ends all faults, waits out what they have caused, and checks that
// everything comes right.
func (w *world) settleDown() {
	last := w.stopFaults()
	if last == nil || w.violated() {
		return
	}
	w.live(nil, w.aftermath()/2) // what is on its way, and leases
	t := calmTerms{w: w, l: last}
	t.next()
	w.live(nil, w.aftermath())                   // the grace period, a mass loss, stuck calls
	for range 2 + len(w.members)/w.Concurrency { // silent workers are asked in turn
		t.next()
	}
	t.backoff()
	for range settled + t.extra() {
		if t.next(); w.violated() {
			return
		}
		if len(last.o.LastPlan().Changes) == 0 {
			break
		}
		t.spent++
	}
	w.mu.Lock()
	w.report.Settling = max(w.report.Settling, t.spent)
	w.mu.Unlock()
	t.check()
	t.next()
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
	return w.elect()
}

// aftermath returns how long what has happened may last.
func (w *world) aftermath() time.Duration {
	most := (longestLate + longestStop + 4) * w.Timeout
	if w.leases() {
		most += w.lease + w.margin + w.lag
	} else {
		most += w.Grace + massLossHold + 2*w.Timeout
	}
	return 2 * most
}

// calmTerms are the last terms of a run.
type calmTerms struct {
	w     *world
	l     *leader
	spent int
}

// next runs a term, some time after the one before.
func (t *calmTerms) next() {
	w := t.w
	if w.violated() {
		return
	}
	w.live(nil, w.Timeout/2)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		loopLane(t.l.number).await()
		_ = t.l.o.NextTerm(w.context())
	}()
	w.live(ended, time.Hour)
	if w.violated() {
		<-ended
	}
}

// backoff runs terms until nothing is avoided any more, and no longer than the
// longest backoff.
func (t *calmTerms) backoff() {
	now := t.l.o.LastPlan().Stats.Term.Number
	until := now
	for _, a := range t.l.o.LastPlan().Avoided {
		until = max(until, a.Until)
	}
	if until > now+longestBackoff+1 {
		t.fail("in term %d something is avoided until term %d", now, until)
	}
	for range until - now {
		if t.next(); t.w.violated() {
			return
		}
	}
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

// silent says whether a member is silent, or lost, because it is gone.
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
		for _, task := range w.cluster.RunsOn(name) {
			if _, expected := w.tasks[task]; !expected {
				t.fail("%s runs %s, which nobody expects", name, task)
			}
		}
	}
}

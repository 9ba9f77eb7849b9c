package simulator

// Liveness while faults last: some workers and tasks stay sick, and the healthy ones
// must not suffer.

import (
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Bounds for healthy workers and tasks while faults last.
const (
	startsWithin    = 30 // terms until a missing healthy task runs
	convergesWithin = 60 // terms until drains have ended and the spread is even
	warmUp          = 20 // terms before the steady ones
	steadyFor       = 30 // steady terms
	longAtMost      = 20 // long terms among the steady ones
	movesAtMost     = 20 // moves of healthy tasks in the steady terms
	outageFor       = 40 // terms in which no start succeeds
)

// afflictForGood begins the lasting faults, once. At most five workers are sick, and
// at most a third of the workers and of the tasks.
func (w *world) afflictForGood() {
	if w.afflicted || len(w.lasting) == 0 {
		return
	}
	w.afflicted = true
	d := throw(w.seed, "for good")
	tasks := w.taskNames()
	w.mu.Lock()
	defer w.mu.Unlock()
	kinds := 0
	for _, kind := range w.lasting {
		if kind == PoisonTask || kind == HangingTask || kind == StuckTask {
			kinds++
		}
	}
	for _, kind := range w.lasting {
		w.report.Faults["lasting "+kind.String()]++
		switch kind {
		case Outage:
			w.note(worldLane, "from now on all starts are refused")
			w.outage = w.forever
		case PoisonTask, HangingTask, StuckTask:
			for range min(len(tasks)/max(6, 3*kinds), 10) {
				task := among(&d, tasks...)
				w.note(worldLane, "from now on: %v %s", kind, task)
				w.afflict(kind, task, w.forever, &d)
			}
		default:
			for i := range w.sick() {
				m := w.workers[w.names[i]]
				if w.slow == 0 && d.chance(0.4) {
					continue
				}
				w.note(worldLane, "from now on: %v %s", kind, m.name)
				w.sicken(kind, m, w.forever, &d)
				if w.slow > 0 {
					m.listing = w.slow
				}
			}
		}
	}
}

// sick returns the maximum number of sick workers. In a slow fleet all workers are
// slow.
func (w *world) sick() int {
	if w.slow > 0 {
		return len(w.names)
	}
	return min(w.Workers/3, 5)
}

// rounds returns how many terms it takes to list all workers of a slow fleet, or 1
// for other fleets.
func (w *world) rounds() int {
	if w.slow > 0 {
		return 2 + w.Workers/w.Concurrency
	}
	return 1
}

// sicken makes a worker fail until then. The caller holds mu.
func (w *world) sicken(kind Trouble, m *member, until time.Time, d *random) {
	switch kind {
	case BrokenWorker:
		m.broken = until
	case HangingWorker:
		m.hanging = until
	case SlowLists:
		m.slowLists, m.listing = until, d.between(w.Timeout/10, w.Timeout*9/10)
	default:
		m.lying = until
	}
}

// endurance is the part of a run in which only lasting faults remain.
type endurance struct {
	calmTerms
	terms   int
	missing map[string]int // for how many terms in a row each healthy task has been missing
}

// endure runs terms while faults last. The healthy part must converge within a
// number of terms, and must then be left alone.
func (w *world) endure(l *leader) {
	w.afflictForGood()
	e := endurance{calmTerms: calmTerms{w: w, l: l, tick: w.Timeout / 10, slack: 10}, missing: make(map[string]int)}
	e.change()
	switch {
	case slices.Contains(w.lasting, Outage):
		e.outage()
		return
	case len(e.opens()) < 2:
		return // a call that hangs on the only worker blocks all others
	}
	why := "there was no term"
	for most := convergesWithin*w.rounds() + e.extra() + e.stops(); e.terms < most && why != ""; {
		if !e.term() {
			return
		}
		why = e.unsettled()
	}
	if why != "" {
		e.fail("after %d terms in which faults last: %s", e.terms, why)
		return
	}
	w.mu.Lock()
	w.report.Enduring = max(w.report.Enduring, e.terms)
	w.mu.Unlock()
	e.steady()
}

// term runs terms until one counts. It returns false if the run has ended.
func (e *endurance) term() bool {
	for {
		if e.next(); e.w.violated() {
			return false
		}
		if !e.waitsForWorkers() {
			break
		}
	}
	e.terms++
	e.checkMissing()
	return !e.w.violated()
}

// change adds tasks, drains a healthy worker and lets a worker join. If sick kinds
// of tasks last, it adds sick tasks of each kind, at most a sixth of all.
func (e *endurance) change() {
	w := e.w
	d := throw(w.seed, "changes while faults last")
	tasks := len(w.tasks)
	for i := range d.oneTo(5) {
		e.add(fmt.Sprint("n", i+1))
	}
	for _, kind := range w.lasting {
		if kind == PoisonTask || kind == HangingTask {
			for i := range d.oneTo(max(1, min(tasks/6, 10))) {
				name := fmt.Sprint(kind, i+1)
				w.mu.Lock()
				w.afflict(kind, name, w.forever, &d)
				w.mu.Unlock()
				e.add(name)
			}
		}
	}
	var healthy []*member
	var newcomer *member
	for _, name := range w.names {
		m := w.workers[name]
		switch {
		case e.open(m):
			healthy = append(healthy, m)
		case !m.registered && !m.alive && m.coordinator == up:
			newcomer = m
		}
	}
	if len(healthy) > 2 && d.chance(0.7) {
		w.drain(among(&d, healthy...), true)
	}
	if newcomer != nil && d.chance(0.7) {
		w.join(newcomer)
	}
	w.live(nil, w.lag+period)
}

func (e *endurance) add(task string) {
	e.w.mu.Lock()
	e.w.note(worldLane, "while faults last: %s is new", task)
	e.w.mu.Unlock()
	e.w.define(orchestrator.Task[string]{Name: task, Instances: 1})
}

// stops returns how many more terms it takes if stops do not end. Such a stop
// represents a move for three timeouts, or 30 terms, and only then may the next one
// begin.
func (e *endurance) stops() int {
	stuck := 0
	for task := range e.w.tasks {
		if e.w.resists(task) != 0 {
			stuck++
		}
	}
	return 30 * max(0, stuck-1)
}

// open reports whether a worker is healthy and may take tasks.
func (e *endurance) open(m *member) bool {
	w := e.w
	sick := w.lasts(m.broken) || w.lasts(m.hanging) || w.slow == 0 && w.lasts(m.slowLists)
	return m.alive && m.registered && !m.draining && !sick
}

// healthy reports whether a task can be started and stopped.
func (e *endurance) healthy(task string) bool {
	w := e.w
	return !w.lasts(w.poison[task]) && !w.lasts(w.hanging[task]) && w.resists(task) == 0
}

// opens returns the open workers.
func (e *endurance) opens() []*member {
	var open []*member
	for _, name := range e.w.members {
		if m := e.w.workers[name]; e.open(m) {
			open = append(open, m)
		}
	}
	return open
}

// lacks reports whether a task is healthy and runs on fewer workers than it could.
func (e *endurance) lacks(task string, open int) bool {
	return e.healthy(task) && len(e.w.cluster.Running(task)) < min(e.w.tasks[task].Instances, open)
}

// checkMissing checks that no healthy task is missing for long.
func (e *endurance) checkMissing() {
	w := e.w
	w.mu.Lock()
	defer w.mu.Unlock()
	open := len(e.opens())
	for _, task := range w.taskNames() {
		if !e.lacks(task, open) {
			e.missing[task] = 0
			continue
		}
		e.missing[task]++
		w.report.Starting = max(w.report.Starting, e.missing[task])
		if e.missing[task] > startsWithin*w.rounds() {
			w.fail(e.l, e.l.o.LastPlan().Stats.Term, Live, "%s is healthy, and missing for %d terms: it runs on %v, wanted: %d, on %d healthy workers",
				task, e.missing[task], w.cluster.Running(task), w.tasks[task].Instances, open)
		}
	}
}

// unsettled describes a healthy drain or spread that has not converged yet, or
// returns "". checkMissing runs after each term, so missing tasks are not checked
// here.
func (e *endurance) unsettled() string {
	w := e.w
	w.mu.Lock()
	defer w.mu.Unlock()
	open := e.opens()
	if w.maxMoves == 0 {
		return ""
	}
	for _, name := range w.members {
		m := w.workers[name]
		if !m.alive || !m.draining {
			continue
		}
		for _, task := range w.cluster.RunsOn(name) {
			if e.healthy(task) && w.tasks[task].Instances <= len(open) {
				return fmt.Sprintf("%s drains, and still runs %s, which could run on %d healthy workers", name, task, len(open))
			}
		}
	}
	if len(open) == 2 && (slices.Contains(w.lasting, PoisonTask) || slices.Contains(w.lasting, HangingTask)) {
		return "" // a sick task cannot be told from a sick worker: it runs on the other one
	}
	return e.uneven(open)
}

// uneven describes a healthy task that could move from one open worker to another
// that runs two tasks fewer, or returns "". A surplus copy that cannot be stopped
// does not count as running.
func (e *endurance) uneven(open []*member) string {
	runs := make(map[*member][]string)
	leave := make(map[*member]int)
	for _, m := range open {
		runs[m] = e.w.cluster.RunsOn(m.name)
		for _, task := range runs[m] {
			if len(e.w.cluster.Running(task)) > e.w.tasks[task].Instances {
				leave[m]++
			}
		}
	}
	for _, from := range open {
		for _, to := range open {
			if len(runs[from])-leave[from] < len(runs[to])+2 {
				continue
			}
			for _, task := range runs[from] {
				if e.healthy(task) && !slices.Contains(runs[to], task) {
					return fmt.Sprintf("%s runs %d tasks, and %s runs %d, though %s could move", from.name, len(runs[from]), to.name, len(runs[to]), task)
				}
			}
		}
	}
	return ""
}

// steady runs terms in which only new tasks change anything. Few of the terms may be
// long, and few healthy tasks may move. Sick workers and tasks are tried again, less
// and less often.
func (e *endurance) steady() {
	w := e.w
	for e.terms < warmUp {
		if !e.term() {
			return
		}
	}
	long, moves := 0, 0
	for i := range steadyFor {
		if i%10 == 5 {
			e.add(fmt.Sprint("s", i))
			w.live(nil, w.lag+period)
		}
		if !e.term() {
			return
		}
		plan := e.l.o.LastPlan()
		if plan.Stats.Total > w.Timeout/2 {
			long++
		}
		for _, c := range plan.Changes {
			if c.Kind.Op == orchestrator.Move && e.healthy(c.Task) {
				moves++
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(e.opens()) < 3 || w.Concurrency < len(w.members) || w.maxPause < steadyFor*w.Timeout {
		return // a hanging call blocks all others, or is soon tried again
	}
	w.report.Long, w.report.Churn = max(w.report.Long, long), max(w.report.Churn, moves)
	if long > longAtMost || moves > movesAtMost {
		w.fail(e.l, e.l.o.LastPlan().Stats.Term, Live, "of %d terms while faults last, %d were long, and %d healthy tasks moved", steadyFor, long, moves)
	}
}

// outage runs terms in which no start succeeds. Almost no running task may stop.
func (e *endurance) outage() {
	w := e.w
	running := func() (n int) {
		for _, task := range w.taskNames() {
			n += min(len(w.cluster.Running(task)), w.tasks[task].Instances)
		}
		return n
	}
	before := running()
	for e.terms < outageFor {
		if e.next(); w.violated() {
			return
		}
		if !e.waitsForWorkers() {
			e.terms++
		}
	}
	lost := before - running()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Outage = max(w.report.Outage, lost)
	if most := len(w.members) + 8; lost > most {
		w.fail(e.l, e.l.o.LastPlan().Stats.Term, Live, "no start succeeded for %d terms, and %d of %d instances stopped", e.terms, lost, before)
	}
}

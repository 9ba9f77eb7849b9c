package simulator

// Liveness while faults last: some workers and tasks stay faulty, and the healthy ones
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

// beginLastingFaults begins the lasting faults, once. At most five workers are faulty, and
// at most a third of the workers and of the tasks.
func (w *world) beginLastingFaults() {
	if w.lastingBegan || len(w.lasting) == 0 {
		return
	}
	w.lastingBegan = true
	rnd := newRandom(w.seed, "for good")
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
				task := choose(&rnd, tasks...)
				w.note(worldLane, "from now on: %v %s", kind, task)
				w.breakTask(kind, task, w.forever, &rnd)
			}
		default:
			for i := range w.maxFaulty() {
				m := w.workers[w.names[i]]
				if w.slowLists == 0 && rnd.chance(0.4) {
					continue
				}
				w.note(worldLane, "from now on: %v %s", kind, m.name)
				w.breakWorker(kind, m, w.forever, &rnd)
				if w.slowLists > 0 {
					m.listDelay = w.slowLists
				}
			}
		}
	}
}

// maxFaulty returns the maximum number of faulty workers. In a slow fleet all workers are
// slow.
func (w *world) maxFaulty() int {
	if w.slowLists > 0 {
		return len(w.names)
	}
	return min(w.Workers/3, 5)
}

// rounds returns how many terms it takes to list all workers of a slow fleet, or 1
// for other fleets.
func (w *world) rounds() int {
	if w.slowLists > 0 {
		return 2 + w.Workers/w.Concurrency
	}
	return 1
}

// breakWorker makes a worker fail until then. The caller holds mu.
func (w *world) breakWorker(kind Event, m *member, until time.Time, rnd *random) {
	switch kind {
	case BrokenWorker:
		m.brokenUntil = until
	case HangingWorker:
		m.hangingUntil = until
	case SlowLists:
		m.slowListsUntil, m.listDelay = until, rnd.between(w.Timeout/10, w.Timeout*9/10)
	default:
		m.falseListsUntil = until
	}
}

// lastingTerms is the part of a run in which only lasting faults remain.
type lastingTerms struct {
	finalTerms
	terms   int
	missing map[string]int // for how many terms in a row each healthy task has been missing
}

// checkLasting runs terms while faults last. The healthy part must converge within a
// number of terms, and must then be left alone.
func (w *world) checkLasting(l *leader) {
	w.beginLastingFaults()
	lt := lastingTerms{finalTerms: finalTerms{w: w, l: l, tick: w.Timeout / 10, slack: 10}, missing: make(map[string]int)}
	lt.addChanges()
	switch {
	case slices.Contains(w.lasting, Outage):
		lt.checkOutage()
		return
	case len(lt.openWorkers()) < 2:
		return // a call that hangs on the only worker blocks all others
	}
	why := "there was no term"
	for most := convergesWithin*w.rounds() + lt.budgetTerms() + lt.stopTerms(); lt.terms < most && why != ""; {
		if !lt.runTerm() {
			return
		}
		why = lt.notConverged()
	}
	if why != "" {
		lt.fail("after %d terms in which faults last: %s", lt.terms, why)
		return
	}
	w.mu.Lock()
	w.report.TermsToConverge = max(w.report.TermsToConverge, lt.terms)
	w.mu.Unlock()
	lt.checkSteady()
}

// runTerm runs terms until one counts. It returns false if the run has ended.
func (lt *lastingTerms) runTerm() bool {
	for {
		if lt.next(); lt.w.violated() {
			return false
		}
		if !lt.waitsForWorkers() {
			break
		}
	}
	lt.terms++
	lt.checkMissing()
	return !lt.w.violated()
}

// addChanges adds tasks, drains a healthy worker and lets a worker join. If faulty kinds
// of tasks last, it adds faulty tasks of each kind, at most a sixth of all.
func (lt *lastingTerms) addChanges() {
	w := lt.w
	rnd := newRandom(w.seed, "changes while faults last")
	tasks := len(w.tasks)
	for i := range rnd.oneTo(5) {
		lt.add(fmt.Sprint("n", i+1))
	}
	for _, kind := range w.lasting {
		if kind == PoisonTask || kind == HangingTask {
			for i := range rnd.oneTo(max(1, min(tasks/6, 10))) {
				name := fmt.Sprint(kind, i+1)
				w.mu.Lock()
				w.breakTask(kind, name, w.forever, &rnd)
				w.mu.Unlock()
				lt.add(name)
			}
		}
	}
	var healthy []*member
	var newcomer *member
	for _, name := range w.names {
		m := w.workers[name]
		switch {
		case lt.isOpen(m):
			healthy = append(healthy, m)
		case !m.registered && !m.alive && m.coordinator == connected:
			newcomer = m
		}
	}
	if len(healthy) > 2 && rnd.chance(0.7) {
		w.drain(choose(&rnd, healthy...), true)
	}
	if newcomer != nil && rnd.chance(0.7) {
		w.join(newcomer)
	}
	w.advance(nil, w.delay+period)
}

func (lt *lastingTerms) add(task string) {
	lt.w.mu.Lock()
	lt.w.note(worldLane, "while faults last: %s is new", task)
	lt.w.mu.Unlock()
	lt.w.define(orchestrator.Task[string]{Name: task, Instances: 1})
}

// stopTerms returns how many more terms it takes if stops do not end. Such a stop
// represents a move for three timeouts, or 30 terms, and only then may the next one
// begin.
func (lt *lastingTerms) stopTerms() int {
	stuck := 0
	for task := range lt.w.tasks {
		if lt.w.resistanceOf(task) != 0 {
			stuck++
		}
	}
	return 30 * max(0, stuck-1)
}

// isOpen reports whether a worker is healthy and may take tasks.
func (lt *lastingTerms) isOpen(m *member) bool {
	w := lt.w
	faulty := w.isActive(m.brokenUntil) || w.isActive(m.hangingUntil) || w.slowLists == 0 && w.isActive(m.slowListsUntil)
	return m.alive && m.registered && !m.draining && !faulty
}

// isHealthy reports whether a task can be started and stopped.
func (lt *lastingTerms) isHealthy(task string) bool {
	w := lt.w
	return !w.isActive(w.poisonTasks[task]) && !w.isActive(w.hangingTasks[task]) && w.resistanceOf(task) == 0
}

// openWorkers returns the open workers.
func (lt *lastingTerms) openWorkers() []*member {
	var open []*member
	for _, name := range lt.w.members {
		if m := lt.w.workers[name]; lt.isOpen(m) {
			open = append(open, m)
		}
	}
	return open
}

// lacks reports whether a task is healthy and runs on fewer workers than it could.
func (lt *lastingTerms) lacks(task string, open int) bool {
	if lt.w.rules.some() {
		want := lt.w.tasks[task].Instances
		return lt.isHealthy(task) && len(lt.w.cluster.Running(task)) < want && lt.hasPlace(task, "")
	}
	return lt.isHealthy(task) && len(lt.w.cluster.Running(task)) < min(lt.w.tasks[task].Instances, open)
}

// hasPlace reports whether a healthy worker without a limit could take a task that another
// one gives up, or that is missing if from is "".
func (lt *lastingTerms) hasPlace(task, from string) bool {
	return slices.ContainsFunc(lt.openWorkers(), func(m *member) bool {
		return m.settings.MaxTasks == 0 && lt.admits(m, task, from)
	})
}

// checkMissing checks that no healthy task is missing for long.
func (lt *lastingTerms) checkMissing() {
	w := lt.w
	w.mu.Lock()
	defer w.mu.Unlock()
	open := len(lt.openWorkers())
	for _, task := range w.taskNames() {
		if !lt.lacks(task, open) {
			lt.missing[task] = 0
			continue
		}
		lt.missing[task]++
		w.report.TermsMissing = max(w.report.TermsMissing, lt.missing[task])
		if lt.missing[task] > startsWithin*w.rounds() {
			w.fail(lt.l, lt.l.o.LastPlan().Stats.Term, Live, "%s is healthy, and missing for %d terms: it runs on %v, wanted: %d, on %d healthy workers",
				task, lt.missing[task], w.cluster.Running(task), w.tasks[task].Instances, open)
		}
	}
}

// notConverged describes a healthy drain or spread that has not converged yet, or
// returns "". checkMissing runs after each term, so missing tasks are not checked
// here.
func (lt *lastingTerms) notConverged() string {
	w := lt.w
	w.mu.Lock()
	defer w.mu.Unlock()
	open := lt.openWorkers()
	if w.maxMoves == 0 {
		return ""
	}
	for _, name := range w.members {
		m := w.workers[name]
		if !m.alive || !m.draining {
			continue
		}
		for _, task := range w.cluster.RunsOn(name) {
			if lt.isHealthy(task) && w.tasks[task].Instances <= len(open) && (!w.rules.some() || lt.hasPlace(task, name)) {
				return fmt.Sprintf("%s drains, and still runs %s, which could run on %d healthy workers", name, task, len(open))
			}
		}
	}
	if len(open) == 2 && (slices.Contains(w.lasting, PoisonTask) || slices.Contains(w.lasting, HangingTask)) {
		return "" // a faulty task cannot be told from a faulty worker: it runs on the other one
	}
	if w.rules.some() {
		return "" // a task that cannot be started may have the room of another one
	}
	return lt.uneven(open)
}

// uneven describes a healthy task that could move from one open worker to another
// that runs two tasks fewer, or returns "". A surplus copy that cannot be stopped
// does not count as running.
func (lt *lastingTerms) uneven(open []*member) string {
	runs := make(map[*member][]string)
	leave := make(map[*member]int)
	for _, m := range open {
		runs[m] = lt.w.cluster.RunsOn(m.name)
		for _, task := range runs[m] {
			if len(lt.w.cluster.Running(task)) > lt.w.tasks[task].Instances {
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
				if lt.isHealthy(task) && !slices.Contains(runs[to], task) {
					return fmt.Sprintf("%s runs %d tasks, and %s runs %d, though %s could move", from.name, len(runs[from]), to.name, len(runs[to]), task)
				}
			}
		}
	}
	return ""
}

// checkSteady runs terms in which only new tasks change anything. Few of the terms may be
// long, and few moves of healthy tasks may begin. Faulty workers and tasks are tried again, less
// and less often.
func (lt *lastingTerms) checkSteady() {
	w := lt.w
	for lt.terms < warmUp {
		if !lt.runTerm() {
			return
		}
	}
	long, moves := 0, 0
	for i := range steadyFor {
		if i%10 == 5 {
			lt.add(fmt.Sprint("s", i))
			w.advance(nil, w.delay+period)
		}
		if !lt.runTerm() {
			return
		}
		plan := lt.l.o.LastPlan()
		if plan.Stats.Total > w.Timeout/2 {
			long++
		}
		for _, c := range plan.Changes {
			if c.Kind.Op == orchestrator.Move && c.Outcome != orchestrator.OutcomeSkipped && lt.isHealthy(c.Task) {
				moves++
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(lt.openWorkers()) < 3 || w.Concurrency < len(w.members) || w.maxPause < steadyFor*w.Timeout || w.rules.some() {
		return // a hanging call blocks all others, or is soon tried again; rules leave a task few workers
	}
	w.report.LongTerms, w.report.Churn = max(w.report.LongTerms, long), max(w.report.Churn, moves)
	if long > longAtMost || moves > movesAtMost {
		w.fail(lt.l, lt.l.o.LastPlan().Stats.Term, Live, "of %d terms while faults last, %d were long, and %d healthy tasks moved", steadyFor, long, moves)
	}
}

// checkOutage runs terms in which no start succeeds. Almost no running task may stop.
func (lt *lastingTerms) checkOutage() {
	w := lt.w
	running := func() (n int) {
		for _, task := range w.taskNames() {
			n += min(len(w.cluster.Running(task)), w.tasks[task].Instances)
		}
		return n
	}
	before := running()
	for lt.terms < outageFor {
		if lt.next(); w.violated() {
			return
		}
		if !lt.waitsForWorkers() {
			lt.terms++
		}
	}
	lost := before - running()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.OutageStops = max(w.report.OutageStops, lost)
	if most := len(w.members) + 8; lost > most {
		w.fail(lt.l, lt.l.o.LastPlan().Stats.Term, Live, "no start succeeded for %d terms, and %d of %d instances stopped", lt.terms, lost, before)
	}
}

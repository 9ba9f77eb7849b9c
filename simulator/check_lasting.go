package simulator

// Liveness while faults last: some workers and tasks stay faulty, and the healthy ones
// must not suffer (T9).

import (
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/rebalance"
)

// Bounds for healthy workers and tasks while faults last.
const (
	startsWithin    = 30 // terms until a missing healthy task runs
	convergesWithin = 60 // terms until drains have ended and the spread is even
	warmUp          = 20 // terms before the steady ones, beside the turns of stops
	turnFor         = 6  // terms in which a stop fails three times: after the last one, another copy has its turn (T10)
	steadyFor       = 30 // steady terms
	longAtMost      = 20 // long terms among the steady ones
	movesAtMost     = 20 // moves of healthy tasks in the steady terms
	outageFor       = 40 // terms in which no start succeeds
)

// checkLasting runs terms while faults last. The healthy part must converge within a
// number of terms, and must then be left alone.
func (w *world) checkLasting(l *leader) {
	w.beginLastingFaults()
	ft := &finalTerms{w: w, l: l, tick: w.Timeout / 10}
	ft.addChanges()
	if slices.Contains(w.lasting, Outage) {
		ft.checkOutage()
		return
	}
	if ft.openWorkers() < 2 || w.maxPause < 4*w.Timeout && slices.ContainsFunc(w.lasting, Event.hangs) {
		return // calls that hang on the only worker, or are soon tried again, block all others
	}
	why := "there was no term"
	for most := convergesWithin*w.shortTerms() + ft.moreTerms(); ft.terms < most && why != ""; {
		if !ft.runTerm() {
			return
		}
		if why = ft.notConverged(); why != "" && ft.terms%20 == 0 {
			w.advance(nil, time.Minute) // moves for an even spread may wait so long
		}
	}
	if why != "" {
		ft.fail(Converged, "after %d terms in which faults last: %s", ft.terms, why)
		return
	}
	ft.checkSteady()
}

// shortTerms is how many more terms there are while starts hang, because no term waits for these; see
// internal/term, mayHang.
func (w *world) shortTerms() int {
	if slices.Contains(w.lasting, HangingTask) || slices.Contains(w.lasting, HangingWorker) {
		return 4
	}
	return 1
}

// addChanges adds tasks, drains a healthy worker and lets a worker join. If faulty kinds
// of tasks last, it adds faulty tasks of each kind, at most a sixth of all.
func (ft *finalTerms) addChanges() {
	w := ft.w
	rnd := newRandom(w.seed, "changes while faults last")
	tasks := len(w.tasks)
	for i := range rnd.oneTo(5) {
		ft.add(fmt.Sprint("n", i+1))
	}
	for _, kind := range w.lasting {
		if kind != PoisonTask && kind != HangingTask {
			continue
		}
		for i := range rnd.oneTo(max(1, min(tasks/6, 10))) {
			name := fmt.Sprint(kind, i+1)
			w.beginUntil(kind, name, w.forever, &rnd)
			ft.add(name)
		}
	}
	var healthy []*member
	var newcomer *member
	for _, name := range w.names {
		m := w.workers[name]
		switch {
		case ft.isOpen(m):
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

func (ft *finalTerms) add(task string) {
	ft.w.note(worldLane, "while faults last: %s is new", task)
	ft.w.define(orchestrator.Task[string]{Name: task, Instances: 1})
}

// checkMissing checks that no healthy task is missing for long.
func (ft *finalTerms) checkMissing() {
	w, before, most := ft.w, ft.missing, startsWithin*ft.w.shortTerms()
	ft.missing = make(map[string]int)
	switch {
	case ft.isCalm():
		return // converge waits for these
	case w.shortTerms() > 1:
	case countIf(w.names, func(name string) bool { return w.isActive(HangingWorker, name) }) > 1, slices.Contains(w.lasting, SlowLists):
		most *= 2 // those draw the missing copies, and each must have failed there; a list that shows whether one has may take ten terms
	}
	for _, d := range ft.due(0, false) {
		if d.reason != rebalance.Missing {
			continue
		}
		n := before[d.task] + 1
		ft.missing[d.task] = n
		if n > most {
			ft.fail(Live, "%s is healthy and wanted %d times, runs on %v, and has been missing for %d terms",
				d.task, w.tasks[d.task].Instances, w.cluster.Running(d.task), n)
		}
	}
}

// notConverged describes a move off a draining worker or for an even spread that is still due,
// or returns "". Among rules, and if a task that fails on one of two workers cannot be told
// from a faulty worker, the spread is not checked. Nor are drains if stops fail and starts hang:
// a failed stop may be tried only in the terms in which its receivers hang. A surplus copy that
// cannot be stopped may count or not, so the loads must differ by two without the ones where
// the task runs.
func (ft *finalTerms) notConverged() string {
	w := ft.w
	faultyTasks := slices.Contains(w.lasting, PoisonTask) || slices.Contains(w.lasting, HangingTask)
	drains := !slices.Contains(w.lasting, StuckTask) || !slices.Contains(w.lasting, HangingTask)
	for _, d := range ft.due(w.maxMoves, false) {
		evens := d.reason == rebalance.Rebalance && !w.rules.some() && (ft.openWorkers() > 2 || !faultyTasks)
		if drains && d.reason == rebalance.Drain || evens && ft.load(d.from, true) >= ft.load(d.to, false)+2 {
			return d.String()
		}
	}
	return ""
}

// load counts the tasks that a worker runs, with or without the surplus copies.
func (ft *finalTerms) load(m *member, wanted bool) int {
	return countIf(ft.w.runsOn(m.name), func(task string) bool {
		return !wanted || len(ft.w.cluster.Running(task)) <= ft.w.tasks[task].Instances
	})
}

// checkSteady runs terms in which only new tasks change anything. Few of the terms may be
// long, and few moves of healthy tasks may begin. Faulty workers and tasks are tried again, less
// and less often. So are the copies of a surplus task that cannot be stopped, once each of them has
// had its turn: the pauses of each worker begin with one term.
func (ft *finalTerms) checkSteady() {
	w := ft.w
	for ft.terms < warmUp+turnFor*ft.stuckCopies() {
		if !ft.runTerm() {
			return
		}
	}
	long, moves := 0, 0
	for i := range steadyFor {
		if i%10 == 5 {
			ft.add(fmt.Sprint("s", i))
			w.advance(nil, w.delay+period)
		}
		if !ft.runTerm() {
			return
		}
		plan := ft.l.o.LastPlan()
		if plan.Stats.Total > w.Timeout/2 {
			long++
		}
		for _, c := range plan.Changes {
			if c.Kind.Op == orchestrator.Move && wasTried(c) && ft.isHealthy(c.Task) {
				moves++
			}
		}
	}
	if ft.openWorkers() < 3 || w.Concurrency < len(w.members) || w.maxPause < steadyFor*w.Timeout || w.rules.some() {
		return // a hanging call blocks all others, or is soon tried again; rules leave a task few workers
	}
	if long > longAtMost || moves > movesAtMost {
		ft.fail(Live, "of %d terms while faults last, %d were long, and %d healthy tasks moved", steadyFor, long, moves)
	}
}

// stuckCopies returns the most copies of a task that cannot be stopped and runs more often than wanted.
func (ft *finalTerms) stuckCopies() (most int) {
	for name, task := range ft.w.tasks {
		if n := len(ft.w.cluster.Running(name)); n > task.Instances && ft.w.resistanceOf(name) != 0 {
			most = max(most, n)
		}
	}
	return most
}

// checkOutage runs terms in which no start succeeds. Almost no running task may stop.
func (ft *finalTerms) checkOutage() {
	w := ft.w
	running := func() (n int) {
		for _, task := range w.taskNames() {
			n += min(len(w.cluster.Running(task)), w.tasks[task].Instances)
		}
		return n
	}
	before := running()
	for ft.terms < outageFor && !w.violated() {
		if ft.next(); !ft.waits() {
			ft.terms++
		}
	}
	lost := before - running()
	if most := len(w.members) + max(8, 2+triesIn(ft.terms, ft.tick, w.maxPause)); lost > most {
		ft.fail(Live, "no start succeeded for %d terms, and %d of %d instances stopped", ft.terms, lost, before)
	}
}

// triesIn returns how many moves are tried, one after each pause of all moves (T9), while none succeeds. The
// longest pause may be shorter than the terms that double it.
func triesIn(terms int, tick, longest time.Duration) (tries int) {
	for at, pause := 0, 1; at < terms; pause *= 2 {
		tries++
		at += min(1+pause, max(2, int((longest+tick-1)/tick)))
	}
	return tries
}

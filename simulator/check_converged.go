package simulator

// The end of a run: the faults end, and the cluster must converge. Then package rebalance must
// have nothing to do for what really runs, whatever the leader has seen and remembers.

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/rebalance"
)

// Bounds at the end of a run.
const (
	settleTerms = 4  // terms that change something, apart from those that pauses and a budget of moves need
	ruledTerms  = 8  // more of them among rules: a task may wait until another one has left its place
	waitsMost   = 20 // terms in a row that wait for workers to answer or to be lost
	idleTerms   = 7  // terms a minute apart that change nothing although something is to be done
	pauseTerms  = 32 // terms a minute apart in which something pauses: 16, 8 until it is tried, and some until a failure is known
)

// settleDown ends the faults, the lasting ones last, waits until their consequences
// have ended, and checks that the cluster converges.
func (w *world) settleDown() {
	last := w.stopFaults()
	if w.violated() {
		return
	}
	w.advance(nil, w.aftermath())
	if len(w.lasting) > 0 {
		if w.checkLasting(last); w.violated() {
			return
		}
		w.healed = true
		w.note(worldLane, "the lasting faults have ended")
		w.advance(nil, w.aftermath())
	}
	ft := finalTerms{w: w, l: last, tick: w.Timeout / 2}
	ft.next() // it may use earlier answers
	for mayMove := w.rules.some(); ft.converge(); mayMove = false {
		missing := ft.missingSuspects()
		if !ft.runTerm() || !ft.checkQuiet(mayMove, missing) {
			return
		}
	}
}

// stopFaults ends all but the lasting faults, and returns the last leader. From now
// on the simulator runs each of its terms.
func (w *world) stopFaults() *leader {
	w.settling = true
	w.note(worldLane, "the faults that do not last have ended")
	rnd := newRandom(w.seed, "calm")
	for _, name := range w.names {
		m := w.workers[name]
		if m.coordinator != connected {
			w.reconnect(m)
		}
		if !m.alive && m.registered && rnd.chance(0.7) {
			w.restart(m, &rnd)
		}
	}
	last := w.leader()
	for _, l := range w.leaders {
		if l == last && !l.retiring {
			l.end(errPaused)
		} else {
			l.end(orchestrator.ErrDeposed)
		}
	}
	for _, l := range w.leaders {
		w.advance(l.done, time.Hour)
	}
	if last.paused {
		return last
	}
	next := w.elect()
	next.paused = true
	return next
}

// aftermath returns how long consequences may last: calls, stops, changes on their
// way to a leader, and leases.
func (w *world) aftermath() time.Duration {
	most := (longestLate+longestStop+1)*w.Timeout + w.delay
	if w.hold {
		most += w.lease + w.margin + w.delay
	}
	return most
}

// finalTerms are the last terms of a run, in which no fault begins.
type finalTerms struct {
	w      *world
	l      *leader
	tick   time.Duration
	waited int // terms in a row that did not count
	terms  int // those that did
	// missing is for how many terms in a row each healthy task has been missing.
	missing map[string]int
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
		loopLane(ft.l.number).wait()
		ft.l.predict()
		_ = ft.l.o.NextTerm(context.Background())
	}()
	w.advance(ended, time.Hour)
	if w.violated() {
		w.unlocked(func() { <-ended })
	}
}

// waits reports whether the last term is one that does not count: the initial wait was not over, some
// worker could answer and was not heard, or has ended and is not lost yet. It waits for the first and the
// last. It fails the run if that takes too long.
func (ft *finalTerms) waits() bool {
	w, unheard, dead := ft.w, "", ""
	if until := ft.l.o.LastPlan().Stats.InitialWait; !until.IsZero() {
		w.advance(nil, time.Until(until))
		return true
	}
	for _, state := range ft.l.o.LastActual() {
		switch alive := w.workers[state.Name].alive; {
		case alive && state.State != orchestrator.Answering:
			unheard = state.Name
		case !alive && state.State == orchestrator.Silent:
			dead = state.Name
		}
	}
	if unheard+dead == "" || w.violated() {
		ft.waited = 0
		return false
	}
	if ft.waited++; ft.waited > waitsMost+len(w.members)/w.Concurrency { // a term lists Concurrency silent workers
		ft.fail(Converged, "for %d terms %q could answer and was not heard, or %q had ended and was not lost", ft.waited, unheard, dead)
	}
	if dead != "" {
		w.advance(nil, w.Grace+time.Minute)
	}
	return true
}

// runTerm runs terms until one counts. It returns false if the run has ended.
func (ft *finalTerms) runTerm() bool {
	for ft.next(); ft.waits(); {
		ft.next()
	}
	ft.terms++
	ft.checkMissing()
	return !ft.w.violated()
}

// isCalm reports whether no fault lasts.
func (ft *finalTerms) isCalm() bool { return ft.w.healed || len(ft.w.lasting) == 0 }

// converge runs terms until nothing is left to do. Terms that change something are few. A
// term that changes nothing although something is left to do or pauses is followed by the next
// one a minute later: moves for an even spread may wait so long. converge returns false if the
// run has ended.
func (ft *finalTerms) converge() bool {
	most := settleTerms + ft.moreTerms() + 2*len(ft.l.o.LastPlan().Paused)
	for spent, idle := 0, 0; ft.runTerm(); {
		why, mayStay := ft.toDo()
		switch {
		case slices.ContainsFunc(ft.l.o.LastPlan().Changes, wasTried):
			idle = 0
			if spent++; spent > most {
				ft.fail(Converged, "%d terms have changed something since the faults ended: %s", spent, why)
			}
		case !ft.pauses() && (why == "" || mayStay && idle >= idleTerms):
			ft.w.report.TermsToSettle = max(ft.w.report.TermsToSettle, spent)
			return true
		default:
			if idle++; idle > pauseTerms || idle > idleTerms && !ft.pauses() {
				ft.fail(Converged, "nothing fails any more, and %d terms have changed nothing: %s", idle, why)
			}
			ft.w.advance(nil, time.Minute)
		}
	}
	return false
}

// pauses reports whether something pauses, or did less than eight terms ago: a quarantined worker
// is then tried, but not with every task.
func (ft *finalTerms) pauses() bool {
	plan := ft.l.o.LastPlan()
	return slices.ContainsFunc(plan.Paused, func(p orchestrator.Pause[string, string]) bool { return p.Until+8 > plan.Stats.Term.Number })
}

// wasTried reports whether a change was begun: a stop that pauses is skipped.
func wasTried(c orchestrator.Change[string, string]) bool {
	return c.Outcome != orchestrator.OutcomeSkipped
}

// moreTerms returns how many more terms it takes if moves are limited, or if stops do not end: such
// a stop represents a move for three timeouts, or 30 terms, and only then may the next one begin.
func (ft *finalTerms) moreTerms() int {
	w, instances, stuck := ft.w, 0, 0
	for name, task := range w.tasks {
		if instances += task.Instances; w.resistanceOf(name) != 0 {
			stuck++
		}
	}
	more := 30 * max(0, stuck-1)
	if w.maxMoves >= 0 {
		more += 2 * instances / max(w.maxMoves, 1)
	}
	if w.rules.some() {
		more += ruledTerms
	}
	return more
}

func (ft *finalTerms) fail(broken Invariant, format string, args ...any) {
	ft.w.fail(ft.l, ft.l.o.LastPlan().Stats.Term, broken, format, args...)
}

// checkQuiet checks that a term after convergence changed nothing, failed only for workers
// that have ended, and that LastActual says what runs (P6, T11, T12).
// If it may have moved something for an even spread, see toDo, and has, checkQuiet returns true:
// the cluster is to converge again. So it is if the term has made room for one of the tasks that were missing:
// if the room did not come the first time, that is tried again after the longest pause (T9). A term that looks
// for such room uses no worker for a task that it has rejected, so another one may find a better zone.
func (ft *finalTerms) checkQuiet(mayMove bool, missing []string) (moved bool) {
	w, plan := ft.w, ft.l.o.LastPlan()
	for _, c := range plan.Changes {
		switch c.Kind.Reason {
		case orchestrator.ReasonRebalance:
			moved = mayMove
		case orchestrator.ReasonRoom, orchestrator.ReasonZone:
			moved = mayMove && len(missing) > 0
		default:
			moved = mayMove && slices.Contains(missing, c.Task)
		}
		if !moved {
			ft.fail(Converged, "the cluster had converged, and the next term planned %v %s from %q to %q", c.Kind, c.Task, c.From, c.To)
		}
	}
	if moved {
		return true
	}
	allAlive := true
	for _, state := range ft.l.o.LastActual() {
		runs := w.runsOn(state.Name)
		if listed := slices.Sorted(slices.Values(state.Tasks)); !slices.Equal(runs, listed) {
			ft.fail(Converged, "%s runs %v, and LastActual has %v", state.Name, runs, listed)
		}
		allAlive = allAlive && w.workers[state.Name].alive
	}
	if err := plan.Stats.Err; err != nil && allAlive {
		ft.fail(Converged, "the cluster had converged, and the next term failed: %v", err)
	}
	return false
}

// toDo describes something that is left to do at the end of a run, or returns "". Room for a
// task that has failed on several workers need not be made, so such a task may be missing.
// mayStay: it is a move for an even spread among rules, for which the planner may find another
// spread if the same tasks come in another order, or something failed last where it was not tried
// since: that is tried again for what has no other place (T9). Or it is a circle, see isCircle.
func (ft *finalTerms) toDo() (why string, mayStay bool) {
	w, least, most := ft.w, 1000, 0
	for _, name := range w.members {
		runs := w.runsOn(name)
		for _, task := range runs {
			if _, expected := w.tasks[task]; !expected {
				return fmt.Sprintf("%s runs %s, which is not expected", name, task), false
			}
		}
		if ft.isOpen(w.workers[name]) {
			least, most = min(least, len(runs)), max(most, len(runs))
		}
	}
	if most > least+1 && !w.rules.some() && w.maxMoves != 0 {
		return fmt.Sprintf("open workers run from %d to %d tasks", least, most), false
	}
	moves := w.maxMoves
	if len(ft.missingSuspects()) > 0 {
		moves = 0
	}
	for _, d := range ft.due(moves, false) {
		mayStay = w.rules.some() && (d.reason == rebalance.Rebalance || d.reason == rebalance.Room) ||
			d.from != nil && (len(ft.l.o.LastPlan().Paused) > 0 || ft.isCircle(moves))
		return d.String(), mayStay
	}
	return "", false
}

// missingSuspects returns the tasks that have failed and are missing.
func (ft *finalTerms) missingSuspects() (tasks []string) {
	for _, p := range ft.l.o.LastPlan().Paused {
		if p.Kind == orchestrator.PauseTask && len(ft.w.cluster.Running(p.Task)) < ft.w.tasks[p.Task].Instances {
			tasks = append(tasks, p.Task)
		}
	}
	return tasks
}

// isCircle reports whether the moves that are due all start first, and none can be made alone: they wait for each
// other's room, and such moves are not made (P10).
func (ft *finalTerms) isCircle(moves int) bool {
	w := ft.w
	stopsFirst := func(d due) bool {
		return d.from == nil || d.to == nil || cmp.Or(w.tasks[d.task].Handoff, w.Handoff) != orchestrator.StartThenStop
	}
	return w.rules.some() && !slices.ContainsFunc(ft.due(moves, false), stopsFirst) && len(ft.due(moves, true)) == 0
}

// isOpen reports whether a worker is healthy and may take tasks.
func (ft *finalTerms) isOpen(m *member) bool {
	w := ft.w
	faulty := w.isActive(BrokenWorker, m.name) || w.isActive(HangingWorker, m.name) || w.isActive(SlowLists, m.name)
	return m.alive && m.registered && !m.draining && !faulty
}

// openWorkers returns how many workers are open.
func (ft *finalTerms) openWorkers() int {
	return countIf(slices.Collect(maps.Values(ft.w.workers)), ft.isOpen)
}

// isHealthy reports whether a task can be started and stopped.
func (ft *finalTerms) isHealthy(task string) bool {
	w := ft.w
	return !w.isActive(PoisonTask, task) && !w.isActive(HangingTask, task) && w.resistanceOf(task) == 0
}

// due is a change that package rebalance would make for what really runs. from and to are nil
// if there is no such worker.
type due struct {
	reason   rebalance.Reason
	task     string
	from, to *member
}

// String describes the change.
func (d due) String() string {
	text := fmt.Sprintf("%s is %v", d.task, d.reason)
	if d.from != nil {
		text += ", on " + d.from.name
	}
	if d.to != nil {
		text += ", and should run on " + d.to.name
	}
	return text
}

// due returns the changes of healthy tasks that are due on healthy workers, if so many moves
// are allowed. single: one move that helps alone.
func (ft *finalTerms) due(moves int, single bool) (all []due) {
	workers, pr := ft.problem()
	pr.MaxMoves, pr.Trial = moves, single
	var planner rebalance.Planner
	plan, err := planner.Plan(pr)
	if err != nil {
		ft.fail(Converged, "%v", err)
	}
	at := func(worker int32) *member {
		if worker == rebalance.None {
			return nil
		}
		return workers[worker]
	}
	names := ft.w.taskNames()
	for _, c := range plan.Changes {
		d := due{c.Reason, names[c.Task], at(c.From), at(c.To)}
		healthy := d.to != nil && ft.isOpen(d.to) && (d.from == nil || d.from.draining || ft.isOpen(d.from))
		if ft.isHealthy(d.task) && (healthy || d.to == nil && ft.isCalm()) {
			all = append(all, d)
		}
	}
	return all
}

// problem returns the planner's problem for what really runs, and its workers. Each worker has
// a kind of its own, and each task a class. Faulty tasks stay where they are, and faulty
// workers gain nothing. While faults last, nor do workers with a limit, because a faulty task
// may have the room.
func (ft *finalTerms) problem() (workers []*member, pr *rebalance.Problem) {
	w, names := ft.w, ft.w.taskNames()
	pr = new(rebalance.Problem)
	for _, name := range w.members {
		m := w.workers[name]
		if !m.alive {
			continue
		}
		state := rebalance.Open
		switch {
		case m.draining:
			state = rebalance.Draining
		case !ft.isOpen(m), m.settings.MaxTasks > 0 && !ft.isCalm():
			state = rebalance.Quarantined
		}
		var runs, pinned []int32
		for _, task := range w.runsOn(name) {
			switch at, expected := slices.BinarySearch(names, task); {
			case expected && ft.isHealthy(task):
				runs = append(runs, int32(at))
			case expected:
				pinned = append(pinned, int32(at))
			}
		}
		pr.States, pr.Running = append(pr.States, state), append(pr.Running, append(runs, pinned...))
		pr.Pinned, pr.Kind = append(pr.Pinned, int32(len(pinned))), append(pr.Kind, int32(len(workers)))
		pr.Share, pr.MaxTasks = append(pr.Share, int32(max(m.settings.Share, 1))), append(pr.MaxTasks, int32(m.settings.MaxTasks))
		pr.Zone = append(pr.Zone, int32(slices.Index(zoneNames, m.settings.Zone)))
		workers = append(workers, m)
	}
	for i, name := range names {
		task, may := w.tasks[name], make([]int32, 0, len(workers))
		for k, m := range workers {
			if lacking(&m.settings, task.Requires) == "" {
				may = append(may, int32(k))
			}
		}
		if !ft.isHealthy(name) {
			task.Instances = len(w.cluster.Running(name))
		}
		pr.Want, pr.MaxPerZone = append(pr.Want, int32(task.Instances)), append(pr.MaxPerZone, int32(task.MaxPerZone))
		pr.Class, pr.May = append(pr.Class, int32(i)), append(pr.May, may)
	}
	return workers, pr
}

package simulator

// Checks of writes: each write is compared with the plan and with the tasks that
// other workers may run.

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// checkSent checks that a write was not sent too late.
func (r *review) checkSent(c *call) {
	if d := r.deposed; d != nil && (d.op == orchestrator.OpList || d.returned.Before(c.sent)) {
		r.fail(Deposed, "%v %s %s was sent after %s had reported a higher epoch", c.op, c.task, c.worker, d.worker)
	}
	ended := r.l.cause != nil && r.began.Before(r.l.ended) && r.l.ended.Before(c.sent)
	switch begun := r.moving[c.task]; {
	case !ended:
		if r.moving == nil {
			r.moving = make(map[string]bool)
		}
		r.moving[c.task] = true
	case errors.Is(r.l.cause, orchestrator.ErrDeposed), !begun:
		r.fail(Cancelled, "%v %s %s was sent %v after the leader's context had ended: %v", c.op, c.task, c.worker, c.sent.Sub(r.l.ended), r.l.cause)
	}
}

// checkStart compares a start with the tasks that other workers may run.
func (r *review) checkStart(c *call, wb *workerBelief) {
	belief := &r.l.belief
	task := r.view.tasks[c.task]
	change, back := r.planned(c)
	if change == nil {
		r.fail(Planned, "%s was started on %s, without such a change in the plan", c.task, c.worker)
		return
	}
	if back && !r.stopped[writeKey{c.task, c.worker}] {
		r.fail(Planned, "%s was given back to %s, where it had not been stopped", c.task, c.worker)
	}
	if !back {
		r.checkRules(c, wb, change)
	}
	if wb.mayRun[c.task] {
		return // the worker may run it already
	}
	silent, answering := belief.holding(c.task, c.worker)
	limit, why := task.Instances, "wanted"
	if r.neverAnswered != nil && r.reportedCopies[c.task] < limit {
		limit, why = r.reportedCopies[c.task], "reported, and "+r.neverAnswered.name+" was never heard"
	}
	by := intent{want: task.Instances, sent: c.sent}
	if change.Kind.Op == orchestrator.Move {
		// If more copies than wanted run, or a silent worker holds one, an answering
		// copy may still move: the number of copies does not grow.
		by.moved, by.from = r.reportedCopies[c.task], change.From
		by.asked = belief.workers[change.From].asked
		limit = max(limit, by.moved)
	} else {
		by.departed = r.l.departures[c.task]
	}
	if r.startsFirst(task) {
		moving := r.yetToStop(c.task)
		by.first = moving > 0
		answering = max(answering-moving, 0)
	}
	r.l.intents[c.intentKey()] = by
	if silent+answering+1 > limit {
		r.fail(Conservative, "%s was started on %s by %v, while %d silent or late and %d answering workers may run it; %d are %s",
			c.task, c.worker, change.Kind, silent, answering, limit, why)
	}
}

// startsFirst reports whether a move of the task starts it at its new place before it
// stops it at its old one. It does not if more copies run than wanted already,
// because a frozen worker holds a copy or one is stopped in this term.
func (r *review) startsFirst(task orchestrator.Task[string]) bool {
	return cmp.Or(task.Handoff, r.w.Handoff) == orchestrator.StartThenStop && r.frozenCopies[task.Name] == 0 && r.neverAnswered == nil &&
		!slices.ContainsFunc(r.plan.Changes, func(c orchestrator.Change[string, string]) bool {
			return c.Task == task.Name && c.Kind.Op == orchestrator.Stop
		})
}

// yetToStop counts the copies of a task that a move starts elsewhere before it stops
// them.
func (r *review) yetToStop(task string) int {
	n := 0
	for i := range r.plan.Changes {
		p := &r.plan.Changes[i]
		if p.Task == task && p.Kind.Op == orchestrator.Move && r.l.belief.workers[p.From].mayRun[task] {
			n++
		}
	}
	return n
}

// planned returns the change that a start belongs to, or nil. back reports whether
// the start gives back a task that a move has stopped.
func (r *review) planned(c *call) (change *orchestrator.Change[string, string], back bool) {
	for i := range r.plan.Changes {
		p := &r.plan.Changes[i]
		if p.Task != c.task || p.Kind.Op == orchestrator.Stop {
			continue
		}
		if p.To == c.worker {
			return p, false
		}
		if p.Kind.Op == orchestrator.Move && p.From == c.worker {
			change, back = p, true
		}
	}
	return change, back
}

// checkStop compares a stop with the plan.
func (r *review) checkStop(c *call) {
	if until, ok := r.active(orchestrator.PauseStop, c.worker, c.task); ok {
		r.fail(Paused, "%s was stopped on %s, where its stop pauses until term %d", c.task, c.worker, until)
	}
	if r.stops(c) != nil {
		return
	}
	r.fail(Planned, "%s was stopped on %s, without such a change in the plan", c.task, c.worker)
}

// checkWaiting compares the plan's waiting entries of silent workers with the tasks
// that these may run. Every such task that is expected must be named.
func (r *review) checkWaiting() {
	if r.incomplete() {
		return
	}
	held := make(map[writeKey]bool)
	for _, w := range r.plan.Waiting {
		if w.Reason == orchestrator.ReasonHeld {
			held[writeKey{w.Task, w.Worker}] = true
		}
	}
	for _, name := range r.l.belief.workerNames() {
		wb := r.l.belief.workers[name]
		if !wb.frozen() {
			continue
		}
		for _, task := range slices.Sorted(maps.Keys(r.view.tasks)) {
			if key := (writeKey{task, name}); held[key] != wb.mayRun[task] {
				r.fail(Conservative, "%s is silent or late, and may run %s: %v; the plan says held: %v", name, task, wb.mayRun[task], held[key])
			}
		}
	}
}

// checkStops counts the stops that are not part of a move. They must leave enough
// answering copies.
func (r *review) checkStops() {
	stops := make(map[string]int)
	for i := range r.plan.Changes {
		if p := &r.plan.Changes[i]; p.Kind.Op == orchestrator.Stop {
			stops[p.Task]++
		}
	}
	for _, task := range slices.Sorted(maps.Keys(stops)) {
		answering, want := r.answeringCopies[task], r.view.tasks[task].Instances
		if left := answering - stops[task]; left < min(want, answering) {
			r.fail(Trimmed, "%s ran on %d answering workers, and was stopped on %d of them; wanted: %d", task, answering, stops[task], want)
		}
	}
}

// checkBudget counts the moves of healthy tasks.
func (r *review) checkBudget() {
	if r.w.maxMoves < 0 {
		return
	}
	moves := 0
	for i := range r.plan.Changes {
		if c := &r.plan.Changes[i]; c.Kind.Op == orchestrator.Move && r.healthy[c.Task] {
			moves++
		}
	}
	if moves > r.w.maxMoves {
		r.fail(Budgeted, "the plan has %d moves, want at most %d", moves, r.w.maxMoves)
	}
}

// move is a move that has begun, with its first call.
type move struct {
	change *orchestrator.Change[string, string]
	first  *call
}

// checkReceiver checks the beginning of a move. No other move to the receiver may
// have begun before the receiver acknowledged a start in this term, unless that
// move's stop failed (T8).
func (r *review) checkReceiver(c *call, change *orchestrator.Change[string, string]) {
	for _, add := range r.own() {
		if add.op == orchestrator.OpAdd && add.worker == change.To && !add.settled().After(c.sent) && !add.fails(add.settled()) {
			r.moves = append(r.moves, move{change, c})
			return
		}
	}
	for _, m := range r.moves {
		at := m.first.settled()
		if m.change.To == change.To && (m.first.op == orchestrator.OpAdd && !stopUnderWay(m.first.err) || at.After(c.sent) || !m.first.fails(at)) {
			r.fail(Ordered, "the move of %s to %s began after that of %s, before %s had acknowledged a start in this term",
				c.task, change.To, m.change.Task, change.To)
		}
	}
	r.moves = append(r.moves, move{change, c})
}

// recordTimeouts records when a write of this term to each worker first timed out.
func (r *review) recordTimeouts() {
	r.timedOut = make(map[string]time.Time)
	for _, c := range r.l.calls {
		if c.term.Number != r.stats.Term.Number || c.op == orchestrator.OpList {
			continue
		}
		var at time.Time
		switch {
		case c.returned.IsZero() || c.returned.After(c.deadline):
			at = c.deadline
		case errors.Is(c.err, context.DeadlineExceeded):
			at = c.returned
		default:
			continue
		}
		if first, ok := r.timedOut[c.worker]; !ok || at.Before(first) {
			r.timedOut[c.worker] = at
		}
	}
}

// role is the role of a write in its change.
type role uint8

const (
	single     role = iota // a start or a stop that is not part of a move
	firstHalf              // the first half of a move
	secondHalf             // the second half of a move
	giveBack               // the restart of a task that a move has stopped
)

// checkRole checks a write's place in its change. The second half of a move must
// follow the acknowledged first. No change may begin on a worker after a write to it
// timed out.
func (r *review) checkRole(c *call) {
	change, role := r.roleOf(c)
	if change == nil {
		return // reported already
	}
	if role == firstHalf {
		r.checkReceiver(c, change)
	}
	first := r.startsFirst(r.view.tasks[c.task])
	if role == secondHalf {
		done, other, op := r.stopped, change.From, orchestrator.OpRemove
		if first {
			done, other, op = r.started, change.To, orchestrator.OpAdd
		}
		if !done[writeKey{c.task, other}] {
			r.fail(Ordered, "%v %s %s was sent, and no %v on %s was acknowledged before it", c.op, c.task, c.worker, op, other)
		}
	}
	// A stopped task must be started again, and a duplicate stopped.
	if role == giveBack || role == secondHalf && first {
		return
	}
	ends := []string{c.worker}
	if role == firstHalf {
		ends = []string{change.From, change.To}
	}
	for _, name := range ends {
		if at, ok := r.timedOut[name]; ok && at.Before(c.sent) {
			r.fail(Ordered, "%v %s %s was sent %v after a write to %s had timed out", c.op, c.task, c.worker, c.sent.Sub(at), name)
		}
	}
}

// roleOf returns the change that a write belongs to, and the role of the write in
// it.
func (r *review) roleOf(c *call) (*orchestrator.Change[string, string], role) {
	first := r.startsFirst(r.view.tasks[c.task])
	if c.op == orchestrator.OpAdd {
		change, back := r.planned(c)
		switch {
		case back:
			return change, giveBack
		case change == nil || change.Kind.Op == orchestrator.Start:
			return change, single
		case first:
			return change, firstHalf
		}
		return change, secondHalf
	}
	change := r.stops(c)
	switch {
	case change == nil || change.Kind.Op == orchestrator.Stop:
		return change, single
	case first:
		return change, secondHalf
	}
	return change, firstHalf
}

// stops returns the change that a stop belongs to, or nil.
func (r *review) stops(c *call) *orchestrator.Change[string, string] {
	for i := range r.plan.Changes {
		if p := &r.plan.Changes[i]; p.Task == c.task && p.Kind.Op != orchestrator.Start && p.From == c.worker {
			return p
		}
	}
	return nil
}

// checkFollowUps checks the moves that have started a task at its new place first.
// The task must be stopped at its old place, unless the stop would have begun too
// late or another call to that worker was under way.
func (r *review) checkFollowUps() {
	_, deposed := r.deposedAt()
	if inTime := r.ended.Before(r.listed.Add(2 * r.w.Timeout)); !inTime || deposed != "" {
		return
	}
	for _, v := range r.moves {
		at := v.first.settled()
		if _, late := r.timedOut[v.change.From]; late || v.first.op != orchestrator.OpAdd || v.first.fails(at) {
			continue
		}
		if !slices.ContainsFunc(r.own(), func(c *call) bool {
			return c.op == orchestrator.OpRemove && c.task == v.change.Task && c.worker == v.change.From
		}) {
			r.fail(Ordered, "%s was started on %s, and not stopped on %s, its place before the move", v.change.Task, v.change.To, v.change.From)
		}
	}
}

// checkGiveBacks checks the moves that have stopped a task and then could not start
// it. The task must be given back, unless three timeouts had passed by then or
// another leader was elected.
func (r *review) checkGiveBacks() {
	inTime := r.ended.Before(r.listed.Add(3 * r.w.Timeout))
	if !inTime || r.deposed != nil || errors.Is(r.l.cause, orchestrator.ErrDeposed) {
		return
	}
	for i := range r.plan.Changes {
		p := &r.plan.Changes[i]
		from, to := writeKey{p.Task, p.From}, writeKey{p.Task, p.To}
		if p.Kind.Op != orchestrator.Move || r.startsFirst(r.view.tasks[p.Task]) || !r.stopped[from] {
			continue
		}
		if (!r.sent[to] || r.refused[to]) && !r.sent[from] {
			r.fail(Ordered, "%s was stopped on %s, certainly not started on %s, and not given back", p.Task, p.From, p.To)
		}
	}
}

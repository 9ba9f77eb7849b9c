package simulator

// The review of moves: how many there are, in which order their two halves are
// sent, and what becomes of one that gets stuck half-way.

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// checkBudget counts the moves of a plan.
func (r *review) checkBudget() {
	if r.w.maxMoves < 0 {
		return
	}
	moves := 0
	for i := range r.plan.Changes {
		if r.plan.Changes[i].Kind.Op == orchestrator.Move {
			moves++
		}
	}
	if moves > r.w.maxMoves {
		r.fail(Budgeted, "the plan has %d moves, want at most %d", moves, r.w.maxMoves)
	}
}

// noteTimeouts finds out when each worker was first waited for in vain by a write
// of this term.
func (r *review) noteTimeouts() {
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

// half is what a write is to its change.
type half uint8

const (
	alone      half = iota // a start or a stop of its own
	firstHalf              // of a move
	secondHalf             // of a move
	giveBack               // of what a move has stopped
)

// checkHalf holds a write against the change that it belongs to: the second half
// of a move follows the acknowledged first, and nothing new begins on a worker
// that was waited for in vain.
func (r *review) checkHalf(c *call, s *seat) {
	change, role := r.roleOf(c)
	if change == nil {
		return // which has failed already
	}
	if c.op == orchestrator.OpAdd && role != giveBack {
		r.checkAvoided(c, s)
	}
	if role == firstHalf {
		r.checkVenture(c, change)
	}
	first := r.first(r.view.tasks[c.task])
	if role == secondHalf {
		done, other, op := r.stopped, change.From, orchestrator.OpRemove
		if first {
			done, other, op = r.started, change.To, orchestrator.OpAdd
		}
		if !done[writeKey{c.task, other}] {
			r.fail(Ordered, "%v %s %s was sent, and no %v on %s was acknowledged before it", c.op, c.task, c.worker, op, other)
		}
	}
	// What has stopped is not left so, and what runs twice neither.
	if role == giveBack || role == secondHalf && first {
		return
	}
	ends := []string{c.worker}
	if role == firstHalf {
		ends = []string{change.From, change.To}
	}
	for _, name := range ends {
		if at, ok := r.timedOut[name]; ok && at.Before(c.sent) {
			r.fail(Ordered, "%v %s %s was sent %v after the term had waited for %s in vain", c.op, c.task, c.worker, c.sent.Sub(at), name)
		}
	}
}

// roleOf returns the change that a write belongs to, and what it is to that.
func (r *review) roleOf(c *call) (*orchestrator.Change[string, string], half) {
	first := r.first(r.view.tasks[c.task])
	if c.op == orchestrator.OpAdd {
		change, back := r.planned(c)
		switch {
		case back:
			return change, giveBack
		case change == nil || change.Kind.Op == orchestrator.Start:
			return change, alone
		case first:
			return change, firstHalf
		}
		return change, secondHalf
	}
	change := r.stops(c)
	switch {
	case change == nil || change.Kind.Op == orchestrator.Stop:
		return change, alone
	case first:
		return change, secondHalf
	}
	return change, firstHalf
}

// stops returns the change that a stop belongs to.
func (r *review) stops(c *call) *orchestrator.Change[string, string] {
	for i := range r.plan.Changes {
		if p := &r.plan.Changes[i]; p.Task == c.task && p.Kind.Op != orchestrator.Start && p.From == c.worker {
			return p
		}
	}
	return nil
}

// checkFollowUps looks at the moves that have started a task at its new place first:
// it has to be stopped at its old one, unless that would have begun too late, or
// another call there was in the way.
func (r *review) checkFollowUps() {
	_, deposed := r.deposedAt()
	if inTime := r.ended.Before(r.listed.Add(2 * r.w.Timeout)); !inTime || deposed != "" {
		return
	}
	for _, v := range r.ventures {
		at := v.first.settled()
		if _, late := r.timedOut[v.change.From]; late || v.first.op != orchestrator.OpAdd || v.first.fails(at) {
			continue
		}
		if !slices.ContainsFunc(r.own(), func(c *call) bool {
			return c.op == orchestrator.OpRemove && c.task == v.change.Task && c.worker == v.change.From
		}) {
			r.fail(Ordered, "%s was started on %s, and not stopped on %s, from where it was to move", v.change.Task, v.change.To, v.change.From)
		}
	}
}

// checkGiveBacks looks at the moves that have stopped a task and then could not
// start it: it has to be given back, unless a third timeout was over by then, or
// somebody else is the leader.
func (r *review) checkGiveBacks() {
	inTime := r.ended.Before(r.listed.Add(3 * r.w.Timeout))
	if !inTime || r.deposed != nil || errors.Is(r.l.cause, orchestrator.ErrDeposed) {
		return
	}
	for i := range r.plan.Changes {
		p := &r.plan.Changes[i]
		from, to := writeKey{p.Task, p.From}, writeKey{p.Task, p.To}
		if p.Kind.Op != orchestrator.Move || r.first(r.view.tasks[p.Task]) || !r.stopped[from] {
			continue
		}
		if (!r.sent[to] || r.refused[to]) && !r.sent[from] {
			r.fail(Ordered, "%s was stopped on %s, certainly not started on %s, and not given back", p.Task, p.From, p.To)
		}
	}
}

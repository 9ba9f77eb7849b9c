package simulator

// The review of ends: what becomes of a term whose leader's time is over (T6).

import (
	"context"
	"errors"
	"time"

	"github.com/f8949c05/orchestrator"
)

// checkAborts checks that a deposed leader's term ends at once, and every call of
// it with it; and that no call is cut off for any other reason.
func (r *review) checkAborts() {
	at, why := r.deposedAt()
	if why == "" {
		for _, c := range r.own() {
			if c.op != orchestrator.OpList && r.l.cutOff(c.err) {
				r.fail(Cancelled, "%v %s %s was cut off after %v, and its leader was not deposed", c.op, c.task, c.worker, c.returned.Sub(c.sent))
			}
		}
		return
	}
	if at.Before(r.listed) {
		return // its calls have gone by the time that it could know
	}
	if r.ended.After(at) {
		r.fail(Deposed, "the term went on for %v after %s", r.ended.Sub(at), why)
	}
	for _, c := range r.own() {
		if c.op != orchestrator.OpList && (c.returned.IsZero() || c.returned.After(at)) && !c.cancelled() {
			r.fail(Deposed, "%v %s %s went on after %s", c.op, c.task, c.worker, why)
		}
	}
}

// cutOff says whether an error comes from the end of the leader's context. That of
// a leader that has crashed is told from nothing else.
func (l *leader) cutOff(err error) bool {
	return errors.Is(err, context.Canceled) || l.cause != nil && !l.crashed && errors.Is(err, l.cause)
}

// deposedAt returns when the leader learned during the term that it is deposed,
// and how.
func (r *review) deposedAt() (at time.Time, why string) {
	if d := r.deposed; d != nil {
		at, why = d.returned, d.worker+" had told of a higher epoch"
	}
	l := r.l
	if errors.Is(l.cause, orchestrator.ErrDeposed) && !l.ended.After(r.ended) && (why == "" || l.ended.Before(at)) {
		at, why = l.ended, "its context had ended, because it is deposed"
	}
	return at, why
}

package simulator

// The review of listings: who is waited for (T2, T3).

import (
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// checkPatience checks that the listing has waited for those that answered the
// term before, and for new ones, and for nobody else: a worker that does not
// answer makes one term last a timeout, and not every term.
func (r *review) checkPatience() {
	if r.cut() {
		return
	}
	last, name := r.began, ""
	unasked := maps.Clone(r.patient)
	var earliest time.Time // when somebody was asked who is not waited for
	for _, c := range r.own() {
		s := r.seat(c)
		if c.op != orchestrator.OpList || s == nil {
			continue
		}
		delete(unasked, s)
		if !r.patient[s] {
			if earliest.IsZero() {
				earliest = c.sent
			}
			continue
		}
		if !earliest.IsZero() && c.sent.After(earliest) {
			r.fail(Patient, "%s, which had answered the term before or is new, was asked %v after one that is silent", c.worker, c.sent.Sub(earliest))
		}
		if at := c.settled(); at.After(last) {
			last, name = at, c.worker
		}
	}
	// A context ends a little before its deadline, and from then on nobody is asked.
	// Who would have been, but for the calls that took that long, is waited for.
	// Or it could not be asked at all, and nobody waits for it.
	most, deadline := last, r.began.Add(r.w.Timeout)
	if slices.Contains(slices.Collect(maps.Values(unasked)), true) && deadline.Sub(last) <= r.w.Timeout/1000 {
		most = deadline
	}
	switch {
	case r.listed.After(most):
		r.fail(Patient, "the listing went on for %v after everybody had answered whom the term was to wait for", r.listed.Sub(most))
	case r.listed.Before(last):
		r.fail(Patient, "the listing ended %v before the answer of %s or its deadline, and that had answered the term before or is new", last.Sub(r.listed), name)
	}
}

// expectPatience takes note of whom this term is to wait for.
func (r *review) expectPatience() {
	r.patient = make(map[*seat]bool)
	for _, s := range r.l.mind.seats {
		r.patient[s] = s.patience
	}
}

package simulator

// The review of receivers: how much a term risks on a worker that has not
// proved yet that it can start anything (T8).

import (
	"errors"
	"time"

	"github.com/f8949c05/orchestrator"
)

// venture is a move that has begun.
type venture struct {
	change *orchestrator.Change[string, string]
	first  *call
}

// checkVenture takes note of a move that begins with c, and checks that its
// receiver may have one more under way: one for each start that it has
// acknowledged in this term, and one; and none once it has failed one without
// having acknowledged any.
func (r *review) checkVenture(c *call, change *orchestrator.Change[string, string]) {
	r.ventures = append(r.ventures, venture{change, c})
	under := 0
	for _, v := range r.ventures {
		if v.change.To == change.To && r.undecided(v, c.sent) {
			under++
		}
	}
	if proved := r.proved(change.To, c.sent); under > proved+1 {
		r.fail(Proven, "the move of %s to %s began, the %d. under way to it, and it has acknowledged %d starts in this term",
			c.task, change.To, under, proved)
	}
	for _, failed := range r.ventures {
		add := r.venturedStart(failed)
		if failed.change.To != change.To || add == nil || stopUnderWay(add.err) {
			continue
		}
		if at := add.settled(); add.fails(at) && !at.After(c.sent) && r.proved(change.To, at) == 0 {
			r.fail(Proven, "the move of %s to %s began, which had failed to take %s before it had acknowledged any start",
				c.task, change.To, add.task)
		}
	}
}

// undecided says whether a move was under way still at a moment after its
// beginning.
func (r *review) undecided(v venture, at time.Time) bool {
	add := r.venturedStart(v)
	if add != nil && !add.settled().After(at) {
		return false
	}
	stop := v.first
	return stop.op != orchestrator.OpRemove || stop.settled().After(at) || !stop.fails(stop.settled())
}

// venturedStart returns the start that belongs to a move, or nil where it was
// not sent.
func (r *review) venturedStart(v venture) *call {
	if v.first.op == orchestrator.OpAdd {
		return v.first
	}
	for _, c := range r.startsOn(v.change.To) {
		if c.task == v.change.Task {
			return c
		}
	}
	return nil
}

// proved counts the starts that a worker had acknowledged in this term.
func (r *review) proved(worker string, by time.Time) int {
	n := 0
	for _, c := range r.startsOn(worker) {
		if at := c.settled(); !at.After(by) && !c.fails(at) {
			n++
		}
	}
	return n
}

// startsOn returns the starts that this term has sent to a worker.
func (r *review) startsOn(worker string) []*call {
	if r.adds == nil {
		r.adds = make(map[string][]*call)
		for _, c := range r.own() {
			if c.op == orchestrator.OpAdd {
				r.adds[c.worker] = append(r.adds[c.worker], c)
			}
		}
	}
	return r.adds[worker]
}

// own returns the calls of this term.
func (r *review) own() []*call {
	if r.calls == nil {
		for _, c := range r.l.calls {
			if c.term.Number == r.stats.Term.Number {
				r.calls = append(r.calls, c)
			}
		}
	}
	return r.calls
}

// settled returns when a term goes on after a call: when that is answered, or
// its time is up.
func (c *call) settled() time.Time {
	if c.returned.IsZero() || c.returned.After(c.deadline) {
		return c.deadline
	}
	return c.returned
}

// fails says whether a call that was settled then has failed for its term.
func (c *call) fails(settled time.Time) bool { return !c.returned.Equal(settled) || c.err != nil }

// stopUnderWay says whether an error means that a stop is under way: that is
// nobody's failure.
func stopUnderWay(err error) bool {
	return errors.Is(err, orchestrator.ErrStopping) && !errors.Is(err, orchestrator.ErrRejected)
}

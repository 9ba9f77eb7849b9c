package simulator

// The review of refusals: what is avoided after a start has failed, for how long,
// and whether the worker is to blame for it (T9).

import (
	"errors"
	"slices"

	"github.com/f8949c05/orchestrator"
)

// grudge is what a leader holds against a worker and a task: how many starts have
// failed in a row, the last of them in which term.
type grudge struct {
	failures int
	last     uint64
}

// until returns the first term that may try again: 1, 2, 4 and so on terms are
// left out, 64 at most.
func (g grudge) until() uint64 {
	return g.last + 1 + uint64(min(longestBackoff, 1<<min(max(g.failures-1, 0), 16)))
}

// forgotten says whether it has been free to be tried for so long that it counts
// no more.
func (g grudge) forgotten(term uint64) bool { return g.until()+longestBackoff < term }

// checkAvoided checks that a start may be tried again by now, and that a worker
// to blame gets nothing, or a single task once its time is up.
func (r *review) checkAvoided(c *call, s *seat) {
	term := r.stats.Term.Number
	if g, ok := s.grudges[c.task]; ok && !g.forgotten(term) && term < g.until() {
		r.fail(Avoided, "%s was started on %s, where it had failed %d times in a row, the last time in term %d",
			c.task, c.worker, g.failures, g.last)
	}
	if !s.closed {
		return
	}
	if term < s.closedUntil {
		r.fail(Avoided, "%s was started on %s, which is avoided until term %d", c.task, c.worker, s.closedUntil)
	}
	for i := range r.plan.Changes {
		if p := &r.plan.Changes[i]; p.Kind.Op != orchestrator.Stop && p.To == c.worker && p.Task != c.task {
			r.fail(Avoided, "%s is to be tried out, and %s and %s were to start on it", c.worker, c.task, p.Task)
		}
	}
}

// absolve takes in that a worker lists what it had failed to start.
func (s *seat) absolve() {
	for task := range s.told {
		if s.tainted[task] {
			s.succeed(task)
		}
	}
}

// succeed takes in that a worker runs a task after all: that opens it again, and
// what was held against it is perhaps forgotten.
func (s *seat) succeed(task string) {
	delete(s.grudges, task)
	delete(s.tainted, task)
	if s.closed {
		s.closed = false
		clear(s.grudges)
	}
}

// checkBlame takes in how the starts of the term have ended, and checks what the
// plan says is avoided because of it.
func (r *review) checkBlame() {
	if _, deposed := r.deposedAt(); deposed != "" {
		return // it lets go of calls in flight, and has no next term
	}
	failed := make(map[*seat][]*call)
	proved := make(map[*seat]bool)
	for _, name := range r.l.mind.names() {
		s := r.l.mind.seats[name]
		for _, c := range r.startsOn(name) {
			switch r.verdict(c) {
			case wentWell:
				proved[s] = true
				s.succeed(c.task)
				r.l.mind.seen[c.task], r.l.mind.sure[c.task] = true, true
			case failedThere:
				failed[s] = append(failed[s], c)
			}
		}
	}
	for _, name := range r.l.mind.names() {
		s := r.l.mind.seats[name]
		for _, c := range failed[s] {
			g := s.grudges[c.task]
			if g.forgotten(r.stats.Term.Number) {
				g = grudge{}
			}
			s.grudges[c.task] = grudge{g.failures + 1, r.stats.Term.Number}
			s.tainted[c.task] = true
		}
	}
	for _, name := range r.l.mind.names() {
		s := r.l.mind.seats[name]
		for _, c := range failed[s] {
			r.checkPair(s, c.task)
		}
		r.checkClosed(s, failed[s], proved[s])
	}
}

// verdict is what a start says of its worker and its task.
type verdict uint8

const (
	nothing verdict = iota
	wentWell
	failedThere
)

func (r *review) verdict(c *call) verdict {
	at := c.settled()
	switch {
	case r.seat(c) == nil:
		return nothing
	case !c.fails(at):
		return wentWell
	case !c.returned.Equal(at):
		return failedThere
	case errors.Is(c.err, orchestrator.ErrStopping), errors.Is(c.err, orchestrator.ErrStale), errors.Is(c.err, orchestrator.ErrDeposed):
		return nothing // nobody is to blame
	}
	return failedThere
}

// checkPair checks that the plan says for how long a task is avoided where it has
// failed in this term.
func (r *review) checkPair(s *seat, task string) {
	want := s.grudges[task].until()
	for _, a := range r.plan.Avoided {
		if a.Whole || a.Worker != s.name || a.Task != task {
			continue
		}
		if a.Until < want {
			r.fail(Avoided, "%s has failed on %s for the %d. time in a row, and is avoided there until term %d, want %d",
				task, s.name, s.grudges[task].failures, a.Until, want)
		}
		return
	}
	r.fail(Avoided, "%s has failed on %s, and the plan does not have it as avoided", task, s.name)
}

// checkClosed checks that a worker is avoided as a whole if it is to blame, and
// not else.
func (r *review) checkClosed(s *seat, failed []*call, proved bool) {
	var now orchestrator.Avoided[string, string]
	for _, a := range r.plan.Avoided {
		if a.Whole && a.Worker == s.name {
			now = a
		}
	}
	idle := true
	for _, state := range r.l.o.LastActual() {
		idle = idle && (state.Name != s.name || len(state.Tasks) == 0)
	}
	may, must := false, false
	for _, c := range failed {
		may = may || !proved && (idle || r.l.mind.seen[c.task])
		must = must || !proved && (idle || r.l.mind.sure[c.task] && !r.failedElsewhere(c.task, s))
	}
	worse := now.Whole && now.Until != s.closedUntil
	switch {
	case worse && !may:
		r.fail(Avoided, "%s is to blame until term %d, and has not failed to start anything that ever ran anywhere, or has started something",
			s.name, now.Until)
	case must && !now.Whole:
		r.fail(Avoided, "%s has failed to start %s, started nothing in this term, and is not to blame", s.name, failed[0].task)
	case worse && now.Until < (grudge{now.Failures, r.stats.Term.Number}).until():
		r.fail(Avoided, "%s has failed in %d terms in a row, and is avoided until term %d", s.name, now.Failures, now.Until)
	}
	s.closed, s.closedUntil = now.Whole, now.Until
}

// failedElsewhere says whether a task may be what is to blame.
func (r *review) failedElsewhere(task string, but *seat) bool {
	return slices.ContainsFunc(r.l.mind.names(), func(name string) bool {
		s := r.l.mind.seats[name]
		return s != but && s.tainted[task]
	})
}

// forgetTasks drops what concerns tasks that are expected no more.
func (m *mind) forgetTasks(v view) {
	for task := range m.sure {
		if _, expected := v.tasks[task]; !expected {
			delete(m.sure, task)
		}
	}
	for _, s := range m.seats {
		for task := range s.grudges {
			if _, expected := v.tasks[task]; !expected {
				delete(s.grudges, task)
			}
		}
	}
}

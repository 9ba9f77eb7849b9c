package simulator

// What is known when a term makes its plan: who is silent, who is given up, and
// who runs what.

import (
	"maps"

	"github.com/f8949c05/orchestrator"
)

// judge is when the answers are in, and the plan is made.
func (r *review) judge() {
	if r.judged {
		return
	}
	r.judged = true
	mind := &r.l.mind
	answered := make(map[*seat]bool)
	for _, c := range r.l.calls {
		own := c.term.Number == r.stats.Term.Number
		if own && !c.returned.IsZero() && !c.returned.After(r.listed) {
			continue // what it has said was taken in
		}
		open := c.returned.IsZero() || c.returned.After(r.began)
		if s := mind.seats[c.worker]; s != nil && open && !r.listed.Before(c.deadline) {
			s.missed = true // it could not be asked
			s.failed = s.failed || own && c.serial == s.serial && c.op == orchestrator.OpList && !r.cut()
		}
	}
	for _, s := range mind.seats {
		if s.heard && s.answered == r.stats.Term.Number {
			answered[s] = true
		}
	}
	if !r.cut() {
		for _, s := range mind.seats {
			if !answered[s] {
				s.patience = false
			}
			if !answered[s] && s.state != orchestrator.Lost {
				s.state = orchestrator.Silent
			}
		}
		r.giveUp()
	}
	for _, s := range mind.seats {
		r.know(s)
	}
	r.picture()
	r.unheard = mind.unheard()
	r.checkWaiting()
	for _, s := range mind.seats {
		for task := range s.may {
			if s.state != orchestrator.Lost {
				r.reported[task]++
			}
			if s.state == orchestrator.Answering {
				r.answering[task]++
			}
		}
	}
}

// picture keeps what is known when the plan is made.
func (r *review) picture() {
	for name, s := range r.l.mind.seats {
		switch s.state {
		case orchestrator.Answering:
			r.listing[name] = maps.Clone(s.told)
			for task := range s.told {
				if _, expected := r.view.tasks[task]; expected {
					r.l.mind.sure[task] = true
				}
				r.running[task]++
			}
		case orchestrator.Silent:
			for task := range s.may {
				r.held[task]++
			}
		}
	}
}

// know ends the time in which the leader did not know what a worker runs.
func (r *review) know(s *seat) {
	if s.state == orchestrator.Lost || !s.heard {
		return
	}
	r.l.lost[s.name].end(r.listed, func(since spell) bool { return since.serial != s.serial })
	for task := range s.told {
		r.l.hidden[writeKey{task, s.name}].end(r.listed, func(h spell) bool { return h.since.Before(s.since) })
		for _, run := range r.w.running[task] {
			m := run.worker
			again := m.registered && m.joined.Before(s.since) && r.l.epoch == r.w.epoch
			if m.name == s.name && run.stray.covers(r.listed) && again {
				run.stray.heard = r.listed
			}
		}
	}
}

// giveUp has those be lost of which the orchestrator says so, and checks that
// they may be.
func (r *review) giveUp() {
	mind := &r.l.mind
	mass := mind.massLoss(r.listed, &r.w.setup)
	for _, state := range r.l.o.LastActual() {
		s := mind.seats[state.Name]
		switch {
		case s == nil:
			r.fail(Said, "LastActual names %s, which is no member", state.Name)
		case s.state == state.State:
			if mind.mustLose(s, r.listed, &r.w.setup) {
				r.fail(Lost, "%s was heard %v ago, and is not lost", s.name, r.listed.Sub(s.since))
			}
		case state.State == orchestrator.Lost && s.state == orchestrator.Silent:
			if why := mind.mayLose(s, r.listed, &r.w.setup, mass); why != "" {
				r.fail(Lost, "%s is lost, though %s", s.name, why)
			}
			for task := range s.told {
				r.given[task] = r.given[task] || s.may[task]
			}
			r.l.orphan(s)
			s.state, s.may = orchestrator.Lost, make(map[string]bool)
			r.l.lost[s.name] = append(r.l.lost[s.name], spell{since: r.listed})
		default:
			r.fail(Said, "%s is %v, and LastActual says %v", s.name, s.state, state.State)
		}
	}
}

package simulator

// What a leader may believe: which workers are silent or late, and which tasks they
// may run. It follows from the contract alone, independently of the orchestrator's
// code.

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// massLossHold is the longest time for which a mass loss prevents workers from being
// declared lost.
const massLossHold = 5 * time.Minute

// belief is what a leader may believe.
type belief struct {
	workers map[string]*workerBelief
	former  map[string]*workerBelief // the last workerBelief of each name, even if it has been removed
	started bool                     // there was a term with workers
	// massSince is when the present mass loss began. massBegan and massEnded are
	// when a mass loss was last found to begin and to end. massEnded is zero during
	// a mass loss.
	massSince, massBegan, massEnded time.Time
	// guarded: a mass loss prevents workers from being declared lost, or did so
	// until its time limit.
	lossBlocked bool
}

// workerBelief is what a leader knows of a worker during one membership.
type workerBelief struct {
	expectedWorker
	initial    bool // it was a member in the first term that had workers
	heard      bool
	lastAnswer time.Time // its last answer, or when it could first have answered
	asked      time.Time // when the call of that answer was sent
	answered   uint64    // the term of that answer
	state      orchestrator.State
	// missed is when a call last failed or had used nearly its whole timeout; zero
	// if the worker has answered since. surely: the leader knew this when the
	// answers were in. failed: this term's List call failed. doubtful: the leader
	// itself has cancelled a call.
	missed                             time.Time
	certainlyMissed, failed, cancelled bool
	awaited                            bool // the next term waits for it, because it answered in time or is new
	usesLateAnswer                     bool // an answer that came after its term had continued serves this term
	late                               bool // it counts as answering, but has not answered this term

	reported  map[string]bool // its last answer, updated by acknowledged writes
	mayRun    map[string]bool // the tasks that it may run
	sentSince map[string]bool // those of them sent since its last answer
	everSeen  map[string]bool // the tasks listed by it or sent to it since it became a member

	lateAnswer *call // a late answer, which the next term uses

	quarantined bool               // according to the last plan
	failures    map[string]failure // by task, since the task last started anywhere
	counted     map[string]bool    // tasks that failed here and have started elsewhere since
}

// failure is when a start last failed.
type failure struct {
	term uint64
	at   time.Time
}

// begin records the members, and the answers to List that came after their term had
// continued. busy reports whether a call to a worker is under way.
func (b *belief) begin(v view, at time.Time, p *setup, busy func(worker string) bool) {
	workers := make(map[string]*workerBelief, len(v.workers))
	for _, place := range v.workers {
		s := b.workers[place.name]
		if s == nil && busy(place.name) {
			s = b.former[place.name]
		}
		if s == nil || s.serial != place.serial {
			s = b.replace(s, at)
		}
		s.expectedWorker, s.failed = place, false
		workers[place.name] = s
		if late := s.lateAnswer; late != nil && late.term.Number > s.answered {
			s.applyAnswer(late)
			s.usesLateAnswer, s.awaited = true, late.returned.Sub(late.sent) <= max(late.limit, p.Timeout/10)
		}
		s.lateAnswer = nil
	}
	if b.former == nil {
		b.former = make(map[string]*workerBelief)
	}
	maps.Copy(b.former, b.workers)
	b.workers = workers
	b.started = b.started || len(workers) > 0
}

// replace returns a new workerBelief that replaces old, which may be nil. The new worker may
// run the tasks last sent to the old one: it may have received those calls, or may
// still receive them.
func (b *belief) replace(old *workerBelief, at time.Time) *workerBelief {
	s := &workerBelief{
		initial: !b.started, lastAnswer: at, awaited: true,
		reported: make(map[string]bool), mayRun: make(map[string]bool), sentSince: make(map[string]bool),
		everSeen: make(map[string]bool), failures: make(map[string]failure), counted: make(map[string]bool),
	}
	if old != nil && old.state != orchestrator.Lost {
		s.mayRun, s.sentSince = maps.Clone(old.sentSince), maps.Clone(old.sentSince)
		s.everSeen = maps.Clone(old.sentSince)
	}
	return s
}

// applyAnswer records an answer to List.
func (wb *workerBelief) applyAnswer(c *call) {
	c.heard = true
	wb.missed, wb.failed, wb.certainlyMissed, wb.cancelled, wb.late, wb.awaited = time.Time{}, false, false, false, false, true
	wb.heard, wb.asked, wb.lastAnswer, wb.answered, wb.state = true, c.sent, c.returned, c.term.Number, orchestrator.Answering
	wb.reported = make(map[string]bool, len(c.tasks))
	for _, task := range c.tasks {
		wb.reported[task], wb.everSeen[task] = true, true
	}
	wb.mayRun = maps.Clone(wb.reported)
	clear(wb.sentSince)
}

// acknowledge records the answer to a write for which its term has waited. A later
// answer proves nothing: the outcome of its write is unknown until the worker's next
// answer to List.
func (wb *workerBelief) acknowledge(c *call) {
	switch {
	case c.err == nil && c.op == orchestrator.OpAdd:
		wb.start(c.task)
		wb.reported[c.task] = true
	case c.err == nil:
		wb.stop(c.task)
		delete(wb.reported, c.task)
	case c.op == orchestrator.OpAdd && certainlyNot(c.err) && !wb.reported[c.task]:
		wb.stop(c.task)
	}
}

// start records that the worker may run a task.
func (wb *workerBelief) start(task string) {
	wb.mayRun[task], wb.sentSince[task], wb.everSeen[task] = true, true, true
}

// stop records that the worker does not run a task.
func (wb *workerBelief) stop(task string) {
	delete(wb.mayRun, task)
	delete(wb.sentSince, task)
}

// frozen reports whether the worker has not answered this term, so that it keeps the
// tasks that it may run.
func (wb *workerBelief) frozen() bool { return wb.state == orchestrator.Silent || wb.late }

// answers reports whether the worker has answered this term.
func (wb *workerBelief) answers() bool { return wb.state == orchestrator.Answering && !wb.late }

// certainlyNot reports whether an error means that nothing was done. If it has
// several meanings, the first in the order of the contract counts.
func certainlyNot(err error) bool {
	return errors.Is(err, orchestrator.ErrRejected) && !errors.Is(err, orchestrator.ErrStopping) &&
		!errors.Is(err, orchestrator.ErrDeposed) || errors.Is(err, orchestrator.ErrStale)
}

// holding counts the workers other than but that may run a task and are not lost:
// the frozen ones and the answering ones.
func (b *belief) holding(task, but string) (frozen, answering int) {
	for _, s := range b.workers {
		switch {
		case s.name == but || !s.mayRun[task]:
		case s.frozen():
			frozen++
		case s.answers():
			answering++
		}
	}
	return frozen, answering
}

// neverAnswered returns an initial worker that has not answered yet and so may run any
// task, or nil.
func (b *belief) neverAnswered() *workerBelief {
	for _, name := range b.workerNames() {
		if s := b.workers[name]; s.initial && !s.heard && s.state == orchestrator.Silent {
			return s
		}
	}
	return nil
}

func (b *belief) workerNames() []string { return slices.Sorted(maps.Keys(b.workers)) }

// mayLose returns why a worker must not be declared lost now, or "" if it may be.
func (b *belief) mayLose(s *workerBelief, now time.Time, p *setup, mass bool) string {
	switch {
	case p.hold:
		return "silent workers are held until they are removed"
	case now.Sub(s.lastAnswer) < p.Grace:
		return "its grace period has not ended: it answered " + now.Sub(s.lastAnswer).String() + " ago"
	case s.missed.IsZero() || s.missed.Sub(s.lastAnswer) < p.Grace:
		return "no call to it has failed since its grace period ended"
	case mass && p.Grace > 0 && now.Sub(b.massSince) < massLossHold:
		return "too many workers are silent"
	}
	return ""
}

// massLoss reports whether too many workers are silent, and records since when.
func (b *belief) massLoss(now time.Time, p *setup) bool {
	members, silent := 0, 0
	for _, s := range b.workers {
		if s.state != orchestrator.Lost {
			members++
		}
		if s.state == orchestrator.Silent {
			silent++
		}
	}
	mass := members >= 3 && float64(silent) > p.maxLoss*float64(members)
	switch {
	case mass && b.massSince.IsZero():
		b.massSince = now
	case silent == 0:
		b.massSince = time.Time{}
	}
	switch {
	case mass && (b.massBegan.IsZero() || !b.massEnded.IsZero()):
		b.massBegan, b.massEnded = now, time.Time{}
	case !mass && b.massEnded.IsZero():
		b.massEnded = now
	}
	b.lossBlocked = mass || b.lossBlocked && silent > 0 && now.Before(b.massEnded.Add(p.Timeout))
	return mass
}

// holdEnds returns when a mass loss ceases to prevent losses, as far as is known
// now: at its time limit, or one timeout after it ended.
func (b *belief) holdEnds(p *setup) time.Time {
	end := b.massBegan
	if p.Grace == 0 || end.IsZero() {
		return end
	}
	end = end.Add(massLossHold)
	if !b.massEnded.IsZero() && b.massEnded.Add(p.Timeout).Before(end) {
		end = b.massEnded.Add(p.Timeout)
	}
	return end
}

// isDue reports whether the next term waits for a silent worker, because the worker
// can then be declared lost.
func (b *belief) isDue(s *workerBelief, now time.Time, p *setup) bool {
	return s.state == orchestrator.Silent && !p.hold && now.Sub(s.lastAnswer) >= p.Grace && !b.lossBlocked
}

// mustLose reports whether a silent worker must be declared lost now.
func (b *belief) mustLose(s *workerBelief, now time.Time, p *setup) bool {
	return s.state == orchestrator.Silent && s.failed && !p.hold &&
		now.Sub(s.lastAnswer) >= p.Grace && !now.Before(b.holdEnds(p))
}

// applyListing runs when the answers are in, before the first write.
func (r *review) applyListing() {
	if r.applied {
		return
	}
	r.applied = true
	b := &r.l.belief
	if !r.incomplete() {
		r.checkListing()
		r.checkStates(r.missing())
	}
	for _, s := range b.workers {
		s.usesLateAnswer = false
	}
	for _, s := range b.workers {
		r.endUnknowns(s)
	}
	r.learnListed()
	r.recordCopies()
	r.recordHealth()
	r.neverAnswered = b.neverAnswered()
	r.checkWaiting()
}

// missing returns the workers that have not answered this term. A call misses the
// term if it fails or has used 15/16 of its timeout.
func (r *review) missing() []*workerBelief {
	for _, c := range r.l.calls {
		s := r.workerBelief(c)
		waited := r.listed.Sub(c.sent)
		own, stuck := c.term.Number == r.stats.Term.Number, c.underWay(r.began) && !r.began.Before(c.deadline)
		if s == nil && stuck { // it blocks calls to the successor of its worker
			s = r.l.belief.workers[c.worker]
		}
		switch {
		case s == nil:
		case own && c.op == orchestrator.OpList && (c.returned.IsZero() || c.returned.After(r.listed)):
			s.awaited = false
			if waited >= r.w.Timeout*15/16 {
				s.missed = r.listed
			}
			s.certainlyMissed = s.certainlyMissed || waited >= r.w.Timeout
			s.failed = s.failed || waited >= r.w.Timeout
			c.limit = r.limit
		case !own && stuck:
			s.missed, s.certainlyMissed = r.listed, true
		case !own && c.underWay(r.began) && c.deadline.Sub(s.missed) <= 2*r.w.Timeout:
			s.missed = r.listed
		}
	}
	var missing []*workerBelief
	for _, s := range r.l.belief.workers {
		if !s.usesLateAnswer && (!s.heard || s.answered != r.stats.Term.Number) {
			missing = append(missing, s)
		}
	}
	return missing
}

// recordCopies keeps the beliefs on which the plan is based.
func (r *review) recordCopies() {
	for name, s := range r.l.belief.workers {
		for task := range s.mayRun {
			switch {
			case s.frozen():
				r.frozenCopies[task]++
			case s.answers():
				r.answeringCopies[task]++
			}
			if s.state != orchestrator.Lost {
				r.reportedCopies[task]++
			}
		}
		if s.answers() {
			r.listedOn[name] = maps.Clone(s.reported)
			for task := range s.reported {
				r.listedCopies[task]++
			}
		}
	}
}

// endUnknowns ends the periods in which the leader did not know what a worker runs.
func (r *review) endUnknowns(s *workerBelief) {
	if s.state == orchestrator.Lost || !s.heard {
		return
	}
	r.l.lost[s.name].end(r.listed, func(since span) bool { return since.serial != s.serial })
	for task := range s.reported {
		r.l.omitted[writeKey{task, s.name}].end(r.listed, func(h span) bool { return h.since.Before(s.lastAnswer) })
		for _, run := range r.w.running[task] {
			m := run.worker
			again := m.registered && m.joined.Before(s.lastAnswer) && r.l.epoch == r.w.epoch
			if m.name == s.name && run.unknown.covers(r.listed) && again {
				run.unknown.heard = r.listed
			}
		}
	}
}

// hasLeft reports whether the leader knows by now that a worker is no longer a
// member.
func (l *leader) hasLeft(s *workerBelief) bool {
	place := l.views[len(l.views)-1].worker(s.name)
	return place == nil || place.serial != s.serial
}

// checkStates adopts the workers' states from LastActual, and checks that each state
// is allowed. missing holds the workers that have not answered.
func (r *review) checkStates(missing []*workerBelief) {
	b := &r.l.belief
	states := make(map[string]orchestrator.State)
	for _, state := range r.l.o.LastActual() {
		states[state.Name] = state.State
		if b.workers[state.Name] == nil {
			r.fail(Recorded, "LastActual names %s, which is not a member", state.Name)
		}
	}
	for _, s := range missing {
		answering, before := states[s.name] == orchestrator.Answering, s.state
		switch grace := r.listed.Sub(s.lastAnswer) >= r.w.Grace; {
		case answering && (s.certainlyMissed && !r.l.hasLeft(s) || before != orchestrator.Answering):
			r.fail(Recorded, "%s has not answered, was %v before, and LastActual says answering", s.name, before)
		case !answering && before == orchestrator.Answering && s.missed.IsZero() && !grace:
			r.fail(Recorded, "%s is %v, and no call to it failed or had its whole timeout", s.name, states[s.name])
		}
		if s.late = answering; !answering && before != orchestrator.Lost {
			s.state = orchestrator.Silent
		}
	}
	for _, s := range b.workers {
		s.certainlyMissed = !s.missed.IsZero() && !s.cancelled
	}
	mass := b.massLoss(r.listed, &r.w.setup)
	for name, state := range states {
		s := b.workers[name]
		switch {
		case s == nil:
		case s.state == state:
			if b.mustLose(s, r.listed, &r.w.setup) && !r.l.hasLeft(s) {
				r.fail(LossAccurate, "%s answered %v ago, and is not lost", s.name, r.listed.Sub(s.lastAnswer))
			}
		case state == orchestrator.Lost && s.state == orchestrator.Silent:
			if why := b.mayLose(s, r.listed, &r.w.setup, mass); why != "" {
				r.fail(LossAccurate, "%s is lost, though %s", s.name, why)
			}
			for task := range s.reported {
				r.lostTasks[task] = r.lostTasks[task] || s.mayRun[task]
			}
			r.l.orphan(s)
			s.state, s.mayRun = orchestrator.Lost, make(map[string]bool)
			r.l.lost[s.name] = append(r.l.lost[s.name], span{since: r.listed})
		default:
			r.fail(Recorded, "%s is %v, and LastActual says %v", s.name, s.state, state)
		}
	}
}

// orphan records that the tasks of a worker may be started elsewhere.
func (l *leader) orphan(s *workerBelief) {
	for task := range s.everSeen {
		l.lostTasks[task] = true
	}
}

// span is a period in which a leader may lack knowledge. It ends when the leader
// learns the truth.
type span struct {
	since, heard time.Time
	serial       uint64 // of a removed worker
}

// covers reports whether the period contains a moment.
func (s span) covers(at time.Time) bool { return s.meets(at, at) }

// meets reports whether the period contains any moment between from and to.
func (s span) meets(from, to time.Time) bool {
	return !s.since.IsZero() && !s.since.After(to) && (s.heard.IsZero() || s.heard.After(from))
}

// spans are periods of one kind, in order of time.
type spans []span

func (s spans) meet(from, to time.Time) bool {
	return slices.ContainsFunc(s, func(one span) bool { return one.meets(from, to) })
}

// end ends the periods that last and for which so returns true.
func (s spans) end(at time.Time, so func(span) bool) {
	for i := range s {
		if s[i].covers(at) && so(s[i]) {
			s[i].heard = at
		}
	}
}

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
	// lossBlocked: a mass loss prevents workers from being declared lost, or did so
	// until its time limit.
	lossBlocked bool
}

// workerBelief is what a leader knows of a worker during one membership.
type workerBelief struct {
	expectedWorker
	initial     bool // it was a member in the first term that had workers
	hasAnswered bool
	lastAnswer  time.Time // its last answer, or when it could first have answered
	asked       time.Time // when the call of that answer was sent
	answered    uint64    // the term of that answer
	state       orchestrator.State
	// lastMissed is when a call last failed or had used nearly its whole timeout; zero
	// if the worker has answered since. certainlyMissed: the leader knew this when
	// the answers were in. failed: this term's List call failed. cancelled: the
	// leader itself has cancelled a call.
	lastMissed                         time.Time
	certainlyMissed, failed, cancelled bool
	awaited                            bool // the next term waits for it, because it answered in time or is new
	usesLateAnswer                     bool // an answer that came after its term had continued serves this term
	late                               bool // it counts as answering, but has not answered this term

	reported  map[string]bool // its last answer, updated by acknowledged writes
	mayRun    map[string]bool // the tasks that it may run
	sentSince map[string]bool // those of them sent since its last answer
	everSeen  map[string]bool // the tasks listed by it or sent to it since it became a member
	planned   map[string]bool // the tasks that it was known to run when the plan was made
	held      map[string]bool // the tasks that it may have run then

	lateAnswer *call // a late answer, which the next term uses

	quarantined     bool               // according to the last plan
	failures        map[string]failure // by task, since the task last started anywhere
	countedFailures map[string]bool    // tasks that failed here and have started elsewhere since
}

// failure is when a start last failed.
type failure struct {
	term uint64
	at   time.Time
}

// begin records the members, and the answers to List that came after their term had
// continued. busy reports whether a call to a worker is under way.
func (b *belief) begin(v view, at time.Time, s *setup, busy func(worker string) bool) {
	workers := make(map[string]*workerBelief, len(v.workers))
	for _, expected := range v.workers {
		wb := b.workers[expected.name]
		if wb == nil && busy(expected.name) {
			wb = b.former[expected.name]
		}
		if wb == nil || wb.serial != expected.serial {
			wb = b.replace(wb, at)
		}
		wb.expectedWorker, wb.failed = expected, false
		workers[expected.name] = wb
		if late := wb.lateAnswer; late != nil && late.term.Number > wb.answered {
			wb.applyAnswer(late)
			wb.usesLateAnswer, wb.awaited = true, late.returned.Sub(late.sent) <= max(late.limit, s.Timeout/10)
		}
		wb.lateAnswer = nil
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
func (b *belief) replace(former *workerBelief, at time.Time) *workerBelief {
	wb := &workerBelief{
		initial: !b.started, lastAnswer: at, awaited: true,
		reported: make(map[string]bool), mayRun: make(map[string]bool), sentSince: make(map[string]bool),
		everSeen: make(map[string]bool), failures: make(map[string]failure), countedFailures: make(map[string]bool),
	}
	if former != nil && former.state != orchestrator.Lost {
		wb.mayRun, wb.sentSince = maps.Clone(former.sentSince), maps.Clone(former.sentSince)
		wb.everSeen = maps.Clone(former.sentSince)
	}
	return wb
}

// applyAnswer records an answer to List.
func (wb *workerBelief) applyAnswer(c *call) {
	c.processed = true
	wb.lastMissed, wb.failed, wb.certainlyMissed, wb.cancelled, wb.late, wb.awaited = time.Time{}, false, false, false, false, true
	wb.hasAnswered, wb.asked, wb.lastAnswer, wb.answered, wb.state = true, c.sent, c.returned, c.term.Number, orchestrator.Answering
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
	for _, wb := range b.workers {
		switch {
		case wb.name == but || !wb.mayRun[task]:
		case wb.frozen():
			frozen++
		case wb.answers():
			answering++
		}
	}
	return frozen, answering
}

// neverAnswered returns an initial worker that has not answered yet and so may run any
// task, or nil.
func (b *belief) neverAnswered() *workerBelief {
	for _, name := range b.workerNames() {
		if wb := b.workers[name]; wb.initial && !wb.hasAnswered && wb.state == orchestrator.Silent {
			return wb
		}
	}
	return nil
}

func (b *belief) workerNames() []string { return slices.Sorted(maps.Keys(b.workers)) }

// mayLose returns why a worker must not be declared lost now, or "" if it may be.
func (b *belief) mayLose(wb *workerBelief, now time.Time, s *setup, mass bool) string {
	switch {
	case s.hold:
		return "silent workers are held until they are removed"
	case now.Sub(wb.lastAnswer) < s.Grace:
		return "its grace period has not ended: it answered " + now.Sub(wb.lastAnswer).String() + " ago"
	case wb.lastMissed.IsZero() || wb.lastMissed.Sub(wb.lastAnswer) < s.Grace:
		return "no call to it has failed since its grace period ended"
	case mass && s.Grace > 0 && now.Sub(b.massSince) < massLossHold:
		return "too many workers are silent"
	}
	return ""
}

// massLoss reports whether too many workers are silent, and records since when.
func (b *belief) massLoss(now time.Time, s *setup) bool {
	members, silent := 0, 0
	for _, wb := range b.workers {
		if wb.state != orchestrator.Lost {
			members++
		}
		if wb.state == orchestrator.Silent {
			silent++
		}
	}
	mass := members >= 3 && float64(silent) > s.maxLoss*float64(members)
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
	b.lossBlocked = mass || b.lossBlocked && silent > 0 && now.Before(b.massEnded.Add(s.Timeout))
	return mass
}

// holdEnds returns when a mass loss ceases to prevent losses, as far as is known
// now: at its time limit, or one timeout after it ended.
func (b *belief) holdEnds(s *setup) time.Time {
	end := b.massBegan
	if s.Grace == 0 || end.IsZero() {
		return end
	}
	end = end.Add(massLossHold)
	if !b.massEnded.IsZero() && b.massEnded.Add(s.Timeout).Before(end) {
		end = b.massEnded.Add(s.Timeout)
	}
	return end
}

// isDue reports whether the next term waits for a silent worker, because the worker
// can then be declared lost.
func (b *belief) isDue(wb *workerBelief, now time.Time, s *setup) bool {
	return wb.state == orchestrator.Silent && !s.hold && now.Sub(wb.lastAnswer) >= s.Grace && !b.lossBlocked
}

// mustLose reports whether a silent worker must be declared lost now.
func (b *belief) mustLose(wb *workerBelief, now time.Time, s *setup) bool {
	return wb.state == orchestrator.Silent && wb.failed && !s.hold &&
		now.Sub(wb.lastAnswer) >= s.Grace && !now.Before(b.holdEnds(s))
}

// hasLeft reports whether the leader knows by now that a worker is no longer a
// member.
func (l *leader) hasLeft(wb *workerBelief) bool {
	expected := l.views[len(l.views)-1].worker(wb.name)
	return expected == nil || expected.serial != wb.serial
}

// recordLost records that the tasks of a worker may be started elsewhere.
func (l *leader) recordLost(wb *workerBelief) {
	for task := range wb.everSeen {
		l.lostTasks[writeKey{task, wb.name}] = true
	}
}

// span is a period in which a leader may lack knowledge. It ends when the leader
// learns the truth.
type span struct {
	since, until time.Time
	serial       uint64 // of a removed worker
}

// covers reports whether the period contains a moment.
func (s span) covers(at time.Time) bool { return s.meets(at, at) }

// meets reports whether the period contains any moment between from and to.
func (s span) meets(from, to time.Time) bool {
	return !s.since.IsZero() && !s.since.After(to) && (s.until.IsZero() || s.until.After(from))
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
			s[i].until = at
		}
	}
}

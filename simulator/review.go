package simulator

// The review of a term: once it is over, what its leader was told and has sent
// is gone through in order, and held against what it left behind.

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// review is called at the end of each term, in its goroutine.
func (l *leader) review(stats orchestrator.TermStats) {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.violation != nil {
		return
	}
	r := &review{
		w: w, l: l, stats: stats, began: stats.Start, listed: stats.Start.Add(stats.Listing), ended: time.Now(),
		view: l.viewAt(stats.Start), plan: l.o.LastPlan(), events: l.events(),
		reported: make(map[string]int), answering: make(map[string]int),
		stopped: make(map[writeKey]bool), started: make(map[writeKey]bool),
		refused: make(map[writeKey]bool), sent: make(map[writeKey]bool),
		listing: make(map[string]map[string]bool), running: make(map[string]int), held: make(map[string]int),
		given: make(map[string]bool),
	}
	r.note()
	r.run()
	l.forget(stats.Start)
	l.reviewed = stats.Term.Number
	if w.report.Terms++; w.report.Terms == w.terms {
		close(w.enough)
	}
	w.judgeOverlaps()
}

// forget drops what no further review will ask for.
func (l *leader) forget(before time.Time) {
	for len(l.views) > 1 && !l.views[1].at.After(before) {
		l.views = l.views[1:]
	}
	l.calls = slices.DeleteFunc(l.calls, func(c *call) bool { return c.heard })
}

// event is a call that sets out, or that returns.
type event struct {
	at   time.Time
	back bool
	call *call
}

// events returns what has happened, in order; what returns comes before what is
// sent in the same instant.
func (l *leader) events() []event {
	var events []event
	for _, c := range l.calls {
		if c.term.Number > l.reviewed {
			events = append(events, event{c.sent, false, c})
		}
		if !c.returned.IsZero() {
			events = append(events, event{c.returned, true, c})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int {
		if n := a.at.Compare(b.at); n != 0 {
			return n
		}
		if a.back != b.back {
			if a.back {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.call.worker, b.call.worker), cmp.Compare(a.call.task, b.call.task))
	})
	return events
}

// review is that of one term.
type review struct {
	w                    *world
	l                    *leader
	stats                orchestrator.TermStats
	began, listed, ended time.Time
	view                 view
	plan                 orchestrator.Plan[string, string]
	events               []event
	begun, judged        bool
	unheard              *seat
	reported, answering  map[string]int  // copies when the plan was made
	moving               map[string]bool // tasks with a write that was sent in time
	deposed              *call           // which was told of a higher epoch

	// Of this term's writes, those answered in time: what was stopped and
	// started, and what was certainly not started. And what was to be started.
	stopped, started, refused, sent map[writeKey]bool
	timedOut                        map[string]time.Time // by worker

	calls []*call            // of this term; see own
	adds  map[string][]*call // the starts of this term; see startsOn
	// When the plan was made: what each answering worker had listed, how many of
	// these and of the silent ones have each task, and the tasks of those that were
	// lost in this term.
	listing       map[string]map[string]bool
	running, held map[string]int
	given         map[string]bool

	patient  map[*seat]bool // whom the term is to wait for
	ventures []venture      // the moves that have begun
}

// writeKey is a task and a worker.
type writeKey struct{ task, worker string }

// startKey is a start in one of a leader's terms.
type startKey struct {
	term uint64
	writeKey
}

func (r *review) fail(broken Invariant, format string, args ...any) {
	r.w.fail(r.l, r.stats.Term, broken, format, args...)
}

// cut says whether the term ended before it had planned anything.
func (r *review) cut() bool {
	var whole *orchestrator.TermError
	return r.stats.Err != nil && !errors.As(r.stats.Err, &whole)
}

func (r *review) run() {
	if took := r.ended.Sub(r.began); took > 5*r.w.Timeout {
		r.fail(Bounded, "the term took %v, which is more than five times %v", took, r.w.Timeout)
	} else {
		r.w.report.Longest = max(r.w.report.Longest, float64(took)/float64(r.w.Timeout))
	}
	r.noteTimeouts()
	for _, e := range r.events {
		if !e.at.Before(r.began) {
			r.begin()
		}
		if e.at.After(r.listed) || !e.back && e.call.op != orchestrator.OpList {
			r.judge()
		}
		r.take(e)
	}
	r.begin()
	r.judge()
	r.compare()
	r.checkPatience()
	r.checkPlan()
	r.checkPrompt()
	r.checkForeseen()
	r.checkStops()
	r.checkBudget()
	// Calls that come back in this very instant, and what a leader may have
	// besides, are beyond those in flight.
	r.w.countGoroutines(r.l, r.stats.Term, len(r.w.names)+4*len(r.w.leaders))
	r.checkGiveBacks()
	r.checkFollowUps()
	r.checkFailures()
	r.checkAborts()
	r.checkBlame()
	if r.deposed != nil && !errors.Is(r.stats.Err, orchestrator.ErrDeposed) {
		r.fail(Deposed, "%s has told of a higher epoch, and the term returned: %s", r.deposed.worker, said(r.stats.Err))
	}
}

// note writes down how the term went.
func (r *review) note() {
	if r.w.Transcript == nil {
		return
	}
	lane := loopLane(r.l.number)
	for _, c := range r.plan.Changes {
		r.w.note(lane, "  term %d: %v %s, from %q to %q: %s", r.stats.Term.Number, c.Kind, c.Task, c.From, c.To, c.Outcome)
	}
	r.w.note(lane, "leader %d has ended term %d after %v: %v", r.l.number, r.stats.Term.Number,
		r.ended.Sub(r.began), said(r.stats.Err))
}

// begin is when the term takes over who is there.
func (r *review) begin() {
	if r.begun {
		return
	}
	r.begun = true
	for _, s := range r.l.mind.seats {
		if p := r.view.place(s.name); p == nil || p.serial != s.serial {
			r.l.orphan(s)
			for task := range s.may {
				r.l.bereft[task] = r.l.parted(s)
			}
		}
	}
	r.l.mind.begin(r.view, r.began, r.busy)
	r.l.mind.forgetTasks(r.view)
	r.expectPatience()
}

// busy says whether a call to a worker was under way when the term began.
func (r *review) busy(worker string) bool {
	return slices.ContainsFunc(r.l.calls, func(c *call) bool {
		return c.worker == worker && c.sent.Before(r.began) && (c.returned.IsZero() || c.returned.After(r.began))
	})
}

// take takes in one event.
func (r *review) take(e event) {
	c := e.call
	if e.back {
		r.hearDeposed(c)
	}
	s := r.seat(c)
	if s == nil { // of what was removed nothing is known any more
		c.heard = e.back
		return
	}
	own := c.term.Number == r.stats.Term.Number
	switch {
	case !e.back && c.op == orchestrator.OpAdd:
		r.checkSent(c)
		r.checkStart(c, s)
		r.checkHalf(c, s)
		r.sent[writeKey{c.task, c.worker}] = true
		s.start(c.task)
	case !e.back && c.op == orchestrator.OpRemove:
		r.checkSent(c)
		r.checkStop(c)
		r.checkHalf(c, s)
	case !e.back:
	case c.op != orchestrator.OpList:
		c.heard = true
		inTime := own && !c.returned.After(c.deadline)
		if inTime {
			s.acknowledge(c)
			r.answer(c)
		}
	case c.err != nil:
		c.heard = true
		s.missed = true
		// A term that is cut short cuts its calls off, and may hear of that or not.
		s.failed = s.failed || own && !e.at.After(r.listed) && !r.cut()
	case own && r.inTime(c):
		s.hear(c)
		s.absolve()
	default: // for the next term
		c.heard = true
		if s.late == nil || s.late.term.Number < c.term.Number {
			s.late = c
		}
	}
}

// answer takes in the answer to a write of this term.
func (r *review) answer(c *call) {
	key := writeKey{c.task, c.worker}
	switch {
	case c.err == nil && c.op == orchestrator.OpRemove:
		r.stopped[key] = true
	case c.err == nil:
		r.started[key] = true
	case c.op == orchestrator.OpAdd && certainlyNot(c.err):
		r.refused[key] = true
	}
}

// inTime says whether the term has waited for an answer to List. One that is cut
// short waits no longer than it must, which cannot be seen from here.
func (r *review) inTime(c *call) bool {
	if r.cut() {
		for _, state := range r.l.o.LastActual() {
			if state.Name == c.worker {
				return state.LastAnswer.Equal(c.returned)
			}
		}
	}
	return !c.returned.After(r.listed)
}

// seat returns whom a call was meant for, unless that was removed since.
func (r *review) seat(c *call) *seat {
	if s := r.l.mind.seats[c.worker]; s != nil && s.serial == c.serial {
		return s
	}
	return nil
}

// hearDeposed takes in that a worker knows a higher epoch, however late it says so.
func (r *review) hearDeposed(c *call) {
	if r.deposed == nil && errors.Is(c.err, orchestrator.ErrDeposed) {
		r.deposed = c
	}
}

// compare holds what the term left behind against what was said.
func (r *review) compare() {
	actual := r.l.o.LastActual()
	if len(actual) != len(r.l.mind.seats) {
		r.fail(Said, "LastActual has %d workers, and there are %d", len(actual), len(r.l.mind.seats))
	}
	for _, state := range actual {
		s := r.l.mind.seats[state.Name]
		if s == nil {
			continue // said already
		}
		said := slices.Sorted(maps.Keys(s.told))
		got := slices.Sorted(slices.Values(state.Tasks))
		if !slices.Equal(said, got) {
			r.fail(Said, "%s has said %v, and LastActual has %v", state.Name, said, got)
		}
	}
}

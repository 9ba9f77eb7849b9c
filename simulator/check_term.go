package simulator

// The review of a term: once it is over, what its leader was told and has sent
// is gone through in order, and held against what it left behind.

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
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

	calls []*call // of this term; see own
	// When the plan was made: what each answering worker had listed, how many of
	// these and of the silent ones have each task, and the tasks of those that were
	// lost in this term.
	listing       map[string]map[string]bool
	running, held map[string]int
	given         map[string]bool

	awaited []*seat       // the workers that the listing waits for
	limit   time.Duration // when the listing goes on without the rest; 0: not before the timeout

	sound    map[string]bool // the tasks that are healthy
	someOpen bool            // some open worker is not quarantined
	moved    int             // healthy tasks that the plan moves
	moves    []move          // those that have begun
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

// cut reports whether the term ended before it had planned anything.
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
	r.checkPauses()
	if r.deposed != nil && !errors.Is(r.stats.Err, orchestrator.ErrDeposed) {
		r.fail(Deposed, "%s has told of a higher epoch, and the term returned: %s", r.deposed.worker, said(r.stats.Err))
	}
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

// note writes down how the term went.
func (r *review) note() {
	if r.w.Transcript == nil {
		return
	}
	lane := loopLane(r.l.number)
	for _, c := range r.plan.Changes {
		r.w.note(lane, "  term %d: %v %s, from %q to %q: %s", r.stats.Term.Number, c.Kind, c.Task, c.From, c.To, c.Outcome)
	}
	for _, p := range r.plan.Paused {
		r.w.note(lane, "  term %d: %s of %q on %q pauses until term %d, after %d failures", r.stats.Term.Number, p.Kind, p.Task, p.Worker, p.Until, p.Failures)
	}
	for _, p := range r.plan.Waiting {
		r.w.note(lane, "  term %d: %d of %s wait, %q: %s", r.stats.Term.Number, p.Instances, p.Task, p.Worker, p.Reason)
	}
	r.w.note(lane, "leader %d has ended term %d after %v: %v", r.l.number, r.stats.Term.Number,
		r.ended.Sub(r.began), said(r.stats.Err))
}

// begin runs when the term adopts the members and the late answers.
func (r *review) begin() {
	if r.begun {
		return
	}
	r.begun = true
	for _, s := range r.l.belief.seats {
		if p := r.view.place(s.name); p == nil || p.serial != s.serial {
			r.l.orphan(s)
			r.l.forgetPauses(s.name, r.view.tasks)
			for task := range s.may {
				r.l.bereft[task] = r.l.parted(s)
			}
		}
	}
	r.l.forgetPauses("", r.view.tasks)
	r.l.belief.begin(r.view, r.began, &r.w.setup, r.busy)
	r.await()
}

// busy reports whether a call to a worker was under way when the term began.
func (r *review) busy(worker string) bool {
	return slices.ContainsFunc(r.l.calls, func(c *call) bool { return c.worker == worker && c.underWay(r.began) })
}

// take processes one event.
func (r *review) take(e event) {
	c := e.call
	if e.back {
		r.hearDeposed(c)
	}
	s := r.seat(c)
	if s == nil { // its worker was removed
		c.heard = e.back
		return
	}
	own := c.term.Number == r.stats.Term.Number
	switch {
	case !e.back && c.op == orchestrator.OpAdd:
		r.checkSent(c)
		r.checkStart(c, s)
		r.checkHalf(c)
		r.sent[writeKey{c.task, c.worker}] = true
		s.start(c.task)
	case !e.back && c.op == orchestrator.OpRemove:
		r.checkSent(c)
		r.checkStop(c)
		r.checkHalf(c)
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
		s.missed = e.at
		s.doubtful = s.doubtful || c.cut || r.l.cutOff(c.err)
		// A term that is cut short cuts its calls off, which says nothing of a worker.
		if own && !e.at.After(r.listed) && !r.cut() {
			s.missed, s.awaited, s.surely, s.failed = r.listed, false, true, true
		}
	case own && r.inTime(c):
		s.hear(c)
	default: // for the next term
		c.heard = true
		if s.overdue == nil || s.overdue.term.Number < c.term.Number {
			s.overdue = c
		}
	}
}

// answer records the answer to a write of this term.
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

// inTime reports whether the term has waited for an answer to List. One that is cut
// short waits no longer than it must, which cannot be seen from here.
func (r *review) inTime(c *call) bool {
	if r.cut() || c.returned.Equal(r.listed) { // then either is right
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
	if s := r.l.belief.seats[c.worker]; s != nil && s.serial == c.serial {
		return s
	}
	return nil
}

// hearDeposed records that a worker knows a higher epoch, however late it says so.
func (r *review) hearDeposed(c *call) {
	if r.deposed == nil && errors.Is(c.err, orchestrator.ErrDeposed) {
		r.deposed = c
	}
}

// compare holds what the term left behind against what was said.
func (r *review) compare() {
	actual := r.l.o.LastActual()
	if len(actual) != len(r.l.belief.seats) {
		r.fail(Said, "LastActual has %d workers, and there are %d", len(actual), len(r.l.belief.seats))
	}
	for _, state := range actual {
		s := r.l.belief.seats[state.Name]
		if s == nil {
			continue // said already
		}
		said := slices.Sorted(maps.Keys(s.told))
		if s.state == orchestrator.Lost {
			said = nil
		}
		got := slices.Sorted(slices.Values(state.Tasks))
		if !slices.Equal(said, got) {
			r.fail(Said, "%s has said %v, and LastActual has %v", state.Name, said, got)
		}
	}
}

// checkListing checks that the term has gone on when it should: when all workers that
// it waits for had answered, or, once half of them had, after four times as long as
// that took and at least a tenth of the timeout (T3). It records that limit.
func (r *review) checkListing() {
	const never = time.Duration(math.MaxInt64)
	took := make([]time.Duration, 0, len(r.awaited))
	for _, s := range r.awaited {
		took = append(took, never)
		if c := r.lists(s); c != nil && !c.returned.IsZero() {
			took[len(took)-1] = c.returned.Sub(r.began)
		}
	}
	slices.Sort(took)
	due := time.Duration(0)
	if n := len(took); n > 0 {
		due = min(took[n-1], r.w.Timeout)
		if half := took[n-n/2-1]; half <= due {
			r.limit = max(4*half, r.w.Timeout/10)
			due = min(due, r.limit)
		}
	}
	if listed := r.listed.Sub(r.began); listed != due {
		r.fail(Patient, "the listing took %v, want %v; the %d workers that it waits for took %v", listed, due, len(took), took)
	}
}

// lists returns this term's call of List to a worker, or nil.
func (r *review) lists(s *seat) *call {
	for _, c := range r.own() {
		if c.op == orchestrator.OpList && r.seat(c) == s {
			return c
		}
	}
	return nil
}

// await finds out which workers this term is to wait for: those that answered in
// time last, new ones, and silent ones that may be lost. If there are none of these, it waits for the others.
func (r *review) await() {
	var others []*seat
	served := false
	for _, s := range r.l.belief.seats {
		switch {
		case s.fresh:
			served = true
		case r.busy(s.name):
		case s.awaited || r.l.belief.isDue(s, r.began, &r.w.setup):
			r.awaited = append(r.awaited, s)
		default:
			others = append(others, s)
		}
	}
	if len(r.awaited) == 0 && !served {
		r.awaited = others
	}
}

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

// cutOff reports whether an error comes from the end of the leader's context. That of
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

// checkPrompt checks that the term began soon after the earliest change that the
// term before did not know: once that was over, and a moment had passed.
func (r *review) checkPrompt() {
	l := r.l
	last := l.latest
	l.latest = spell{since: r.began, heard: r.ended}
	if !r.w.run || last.since.IsZero() || l.paused {
		return
	}
	for _, v := range l.views {
		if !v.different || !v.at.After(last.since) || v.at.After(r.began) {
			continue
		}
		due := v.at
		if last.heard.After(due) {
			due = last.heard
		}
		if wait := r.began.Sub(due); wait > 26*settle {
			r.fail(Prompt, "a change was heard of %v before the term, and nothing else was to wait for in the last %v of it", r.began.Sub(v.at), wait)
		}
		return
	}
}

// runs has a leader use Run, and checks what that returns.
func (l *leader) runs(ctx context.Context) {
	<-time.After(loopLane(l.number).after(0))
	err := l.o.Run(ctx, whole(l.w.every))
	if want := context.Cause(ctx); want != nil && !errors.Is(err, want) || want == nil && !errors.Is(err, orchestrator.ErrDeposed) {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		l.w.fail(l, orchestrator.Term{}, Prompt, "Run has returned %v, and its context has ended with %v", err, want)
	}
}

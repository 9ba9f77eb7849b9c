package simulator

// The review of a term. When the term has ended, the leader's calls and their
// answers are processed in order and compared with the term's results.

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// checkTerm checks a term. It is called at the end of each term, in its goroutine.
func (l *leader) checkTerm(stats orchestrator.TermStats) {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.violation != nil {
		return
	}
	r := &review{
		w: w, l: l, stats: stats, began: stats.Start, listed: stats.Start.Add(stats.Listing), ended: time.Now(),
		view: l.viewAt(stats.Start), plan: l.o.LastPlan(), events: l.callEvents(),
		reportedCopies: make(map[string]int), answeringCopies: make(map[string]int),
		stopped: make(map[writeKey]bool), started: make(map[writeKey]bool),
		refused: make(map[writeKey]bool), sent: make(map[writeKey]bool),
		listedOn: make(map[string]map[string]bool), listedCopies: make(map[string]int), frozenCopies: make(map[string]int),
		lostTasks: make(map[string]bool),
	}
	r.transcribe()
	r.check()
	l.dropOld(stats.Start)
	l.reviewed = stats.Term.Number
	if w.report.Terms++; w.report.Terms == w.terms {
		close(w.termsDone)
	}
	w.explainOverlaps()
}

// dropOld drops what no later review needs.
func (l *leader) dropOld(before time.Time) {
	for len(l.views) > 1 && !l.views[1].at.After(before) {
		l.views = l.views[1:]
	}
	l.calls = slices.DeleteFunc(l.calls, func(c *call) bool { return c.processed })
}

// callEvent is the sending or the return of a call.
type callEvent struct {
	at   time.Time
	back bool
	call *call
}

// callEvents returns the events of the term in order. At the same instant, returns
// precede sends.
func (l *leader) callEvents() []callEvent {
	var events []callEvent
	for _, c := range l.calls {
		if c.term.Number > l.reviewed {
			events = append(events, callEvent{c.sent, false, c})
		}
		if !c.returned.IsZero() {
			events = append(events, callEvent{c.returned, true, c})
		}
	}
	slices.SortStableFunc(events, func(a, b callEvent) int {
		if n := a.at.Compare(b.at); n != 0 {
			return n
		}
		if a.back != b.back {
			if a.back {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.call.worker, b.call.worker), cmp.Compare(a.call.place, b.call.place), cmp.Compare(a.call.task, b.call.task))
	})
	return events
}

// review holds the data of one term's review.
type review struct {
	w      *world
	l      *leader
	stats  orchestrator.TermStats
	view   view // what the term expects
	plan   orchestrator.Plan[string, string]
	events []callEvent
	calls  []*call // of this term; see own

	began, listed, ended time.Time
	adopted              bool // adopt has run
	listingApplied       bool // applyListing has run

	awaited []*workerBelief // the workers for which the listing waits
	limit   time.Duration   // when the listing continues without the rest; 0: only after the timeout

	// The beliefs on which the plan is based. Numbers of copies are by task.
	neverAnswered   *workerBelief              // see belief.neverAnswered
	listedOn        map[string]map[string]bool // by answering worker: the tasks that it lists
	listedCopies    map[string]int             // listed by answering workers
	answeringCopies map[string]int             // that answering workers may run
	frozenCopies    map[string]int             // that silent and late workers may run
	reportedCopies  map[string]int             // that workers may run that are not lost
	lostTasks       map[string]bool            // the tasks of workers declared lost in this term
	healthy         map[string]bool            // tasks of which no start has failed since the last that succeeded
	someOpen        bool                       // some open worker is not quarantined

	// The writes of this term. stopped, started and refused hold those answered in
	// time: refused means certainly not started.
	sent, stopped, started, refused map[writeKey]bool
	timedOut                        map[string]time.Time // by worker: when a write first timed out
	moving                          map[string]bool      // tasks with a write that was sent in time
	moves                           []move               // the moves that have begun
	moved                           int                  // number of healthy tasks that the plan moves
	deposed                         *call                // the call that reported a higher epoch
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

// incomplete reports whether the term ended before it had a plan.
func (r *review) incomplete() bool {
	var whole *orchestrator.TermError
	return r.stats.Err != nil && !errors.As(r.stats.Err, &whole)
}

func (r *review) check() {
	if took := r.ended.Sub(r.began); took > 5*r.w.Timeout {
		r.fail(Bounded, "the term took %v, which is more than five times %v", took, r.w.Timeout)
	} else {
		r.w.report.LongestTerm = max(r.w.report.LongestTerm, float64(took)/float64(r.w.Timeout))
	}
	r.recordTimeouts()
	for _, e := range r.events {
		if !e.at.Before(r.began) {
			r.adopt()
		}
		if e.at.After(r.listed) || !e.back && e.call.op != orchestrator.OpList {
			r.applyListing()
		}
		r.process(e)
	}
	r.adopt()
	r.applyListing()
	r.checkRecorded()
	r.checkPlan()
	r.checkPlacement()
	r.checkPrompt()
	r.checkPredicted()
	r.checkStops()
	r.checkBudget()
	// There may be more goroutines than calls in flight: those of calls that return
	// at this instant, and a few of each leader.
	r.w.countGoroutines(r.l, r.stats.Term, len(r.w.names)+4*len(r.w.leaders))
	r.checkGiveBacks()
	r.checkFollowUps()
	r.checkFailures()
	r.checkAborts()
	r.checkPauses()
	if r.deposed != nil && !errors.Is(r.stats.Err, orchestrator.ErrDeposed) {
		r.fail(Deposed, "%s reported a higher epoch, and the term returned: %s", r.deposed.worker, answerText(r.stats.Err))
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

// transcribe adds the term's results to the transcript.
func (r *review) transcribe() {
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
		r.ended.Sub(r.began), answerText(r.stats.Err))
}

// adopt runs when the term adopts the members and the late answers.
func (r *review) adopt() {
	if r.adopted {
		return
	}
	r.adopted = true
	for _, wb := range r.l.belief.workers {
		if p := r.view.worker(wb.name); p == nil || p.serial != wb.serial {
			r.l.recordLost(wb)
			r.l.forgetPauses(wb.name, r.view.tasks)
			for task := range wb.mayRun {
				r.l.departures[task] = r.l.removedAt(wb)
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

// process processes one event.
func (r *review) process(e callEvent) {
	c := e.call
	if e.back {
		r.recordDeposition(c)
	}
	wb := r.workerBelief(c)
	if wb == nil { // its worker was removed
		c.processed = e.back
		return
	}
	own := c.term.Number == r.stats.Term.Number
	switch {
	case !e.back && c.op == orchestrator.OpAdd:
		r.checkSent(c)
		r.checkStart(c, wb)
		r.checkRole(c)
		r.sent[writeKey{c.task, c.worker}] = true
		wb.start(c.task)
	case !e.back && c.op == orchestrator.OpRemove:
		r.checkSent(c)
		r.checkStop(c)
		r.checkRole(c)
	case !e.back:
	case c.op != orchestrator.OpList:
		c.processed = true
		inTime := own && !c.returned.After(c.deadline)
		if inTime {
			wb.acknowledge(c)
			r.recordAnswer(c)
		}
	case c.err != nil:
		c.processed = true
		wb.lastMissed = e.at
		wb.cancelled = wb.cancelled || c.cut || r.l.cutOff(c.err)
		// A term that is cut short cancels its calls, which proves nothing about a
		// worker.
		if own && !e.at.After(r.listed) && !r.incomplete() {
			wb.lastMissed, wb.awaited, wb.certainlyMissed, wb.failed = r.listed, false, true, true
		}
	case own && r.inTime(c):
		wb.applyAnswer(c)
	default: // for the next term
		c.processed = true
		if wb.lateAnswer == nil || wb.lateAnswer.term.Number < c.term.Number {
			wb.lateAnswer = c
		}
	}
}

// recordAnswer records the answer to a write of this term.
func (r *review) recordAnswer(c *call) {
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

// inTime reports whether the term has used an answer to List. For a term that was
// cut short, only LastActual shows it.
func (r *review) inTime(c *call) bool {
	if r.incomplete() || c.returned.Equal(r.listed) { // at that instant either is right
		for _, state := range r.l.o.LastActual() {
			if state.Name == c.worker {
				return state.LastAnswer.Equal(c.returned)
			}
		}
	}
	return !c.returned.After(r.listed)
}

// workerBelief returns what the leader believes of the worker that a call was meant for,
// or nil if the worker has been removed.
func (r *review) workerBelief(c *call) *workerBelief {
	if wb := r.l.belief.workers[c.worker]; wb != nil && wb.serial == c.serial {
		return wb
	}
	return nil
}

// recordDeposition records a worker's report of a higher epoch, no matter how late it is.
func (r *review) recordDeposition(c *call) {
	if r.deposed == nil && errors.Is(c.err, orchestrator.ErrDeposed) {
		r.deposed = c
	}
}

// checkRecorded compares LastActual with what workers have listed and acknowledged.
func (r *review) checkRecorded() {
	actual := r.l.o.LastActual()
	if len(actual) != len(r.l.belief.workers) {
		r.fail(Recorded, "LastActual has %d workers, want %d", len(actual), len(r.l.belief.workers))
	}
	for _, state := range actual {
		wb := r.l.belief.workers[state.Name]
		if wb == nil {
			continue // reported already
		}
		want := slices.Sorted(maps.Keys(wb.reported))
		if wb.state == orchestrator.Lost {
			want = nil
		}
		got := slices.Sorted(slices.Values(state.Tasks))
		if !slices.Equal(want, got) {
			r.fail(Recorded, "%s has listed and acknowledged %v, and LastActual has %v", state.Name, want, got)
		}
	}
}

// checkAborts checks that the term of a deposed leader ends immediately with all its
// calls, and that no call is cancelled for any other reason.
func (r *review) checkAborts() {
	at, why := r.deposedAt()
	if why == "" {
		for _, c := range r.own() {
			if c.op != orchestrator.OpList && r.l.cutOff(c.err) {
				r.fail(Cancelled, "%v %s %s was cancelled after %v, and its leader was not deposed", c.op, c.task, c.worker, c.returned.Sub(c.sent))
			}
		}
		return
	}
	if at.Before(r.listed) {
		return // the leader could not know before its calls had returned
	}
	if r.ended.After(at) {
		r.fail(Deposed, "the term lasted %v longer after %s", r.ended.Sub(at), why)
	}
	for _, c := range r.own() {
		if c.op != orchestrator.OpList && (c.returned.IsZero() || c.returned.After(at)) && !c.cancelled() {
			r.fail(Deposed, "%v %s %s was not cancelled after %s", c.op, c.task, c.worker, why)
		}
	}
}

// cutOff reports whether an error results from the end of the leader's context. For
// a crashed leader, only context.Canceled counts, because its cause is also the
// error of all its calls.
func (l *leader) cutOff(err error) bool {
	return errors.Is(err, context.Canceled) || l.cause != nil && !l.crashed && errors.Is(err, l.cause)
}

// deposedAt returns when the leader learned during the term that it is deposed, and
// how.
func (r *review) deposedAt() (at time.Time, why string) {
	if d := r.deposed; d != nil {
		at, why = d.returned, d.worker+" had reported a higher epoch"
	}
	l := r.l
	if errors.Is(l.cause, orchestrator.ErrDeposed) && !l.ended.After(r.ended) && (why == "" || l.ended.Before(at)) {
		at, why = l.ended, "its context had ended, because it is deposed"
	}
	return at, why
}

// checkPrompt checks that the term began soon after the earliest change that the
// previous term did not know: soon after both the change and the end of that term.
func (r *review) checkPrompt() {
	l := r.l
	last := l.lastTerm
	l.lastTerm = span{since: r.began, until: r.ended}
	if !r.w.usesRun || last.since.IsZero() || l.paused {
		return
	}
	for _, v := range l.views {
		if !v.changed || !v.at.After(last.since) || v.at.After(r.began) {
			continue
		}
		due := v.at
		if last.until.After(due) {
			due = last.until
		}
		if wait := r.began.Sub(due); wait > 26*settle {
			r.fail(Prompt, "a change arrived %v before the term, and for the last %v of it no term was under way", r.began.Sub(v.at), wait)
		}
		return
	}
}

// runTicker makes a leader use Run, and checks the result of Run.
func (l *leader) runTicker(ctx context.Context) {
	<-time.After(loopLane(l.number).after(0))
	err := l.o.Run(ctx, roundDown(l.w.every))
	if want := context.Cause(ctx); want != nil && !errors.Is(err, want) || want == nil && !errors.Is(err, orchestrator.ErrDeposed) {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		l.w.fail(l, orchestrator.Term{}, Prompt, "Run returned %v, and its context ended with %v", err, want)
	}
}

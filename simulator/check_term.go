package simulator

// The review of a term: when it has ended, its calls and its results are compared with what
// users are promised, and with what Plan has said.

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// review holds the data of one term's review.
type review struct {
	w     *world
	l     *leader
	stats orchestrator.TermStats
	view  view // what the term expects
	plan  orchestrator.Plan[string, string]
	whole bool    // the term has made a plan
	own   []*call // the calls of this term, in the order of sending

	began, listed, ended time.Time
}

// massLossHold is the longest time for which a mass loss prevents workers from being
// declared lost.
const massLossHold = 5 * time.Minute

// checkTerm checks a term. It is called at the end of each term, in its goroutine.
func (l *leader) checkTerm(stats orchestrator.TermStats) {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.violation != nil {
		return
	}
	var failures *orchestrator.TermError
	r := &review{
		w: w, l: l, stats: stats, view: l.expected, plan: l.o.LastPlan(),
		whole: stats.Err == nil || errors.As(stats.Err, &failures),
		began: stats.Start, listed: stats.Start.Add(stats.Listing), ended: time.Now(),
	}
	if l.term != stats.Term.Number { // it called no worker
		r.view = l.view
	}
	for _, c := range l.calls {
		if c.term.Number == stats.Term.Number {
			r.own = append(r.own, c)
		}
	}
	if l.first.IsZero() {
		l.first = r.began
	}
	r.transcribe()
	r.check()
	l.calls = slices.DeleteFunc(l.calls, func(c *call) bool { // an answer at the instant at which the term begins or the listing ends may be late
		return !c.returned.IsZero() && (c.op != orchestrator.OpList || r.knows(c) && c.returned.Before(r.listed) && !c.returned.Equal(r.began))
	})
	l.reviewed, l.wasWhole = stats.Term.Number, r.whole
	if w.report.Terms++; w.report.Terms == w.Terms {
		close(w.termsDone)
	}
	w.judgeStarts(false)
}

func (r *review) check() {
	r.checkDuration()
	r.hear()
	r.checkWrites()
	if r.whole {
		r.checkInitialWait()
		r.checkLost()
		r.checkStops()
		r.checkMoves()
		r.checkPredicted()
	}
	r.l.listings = append(r.l.listings, r.listed)
	for _, s := range r.w.pending {
		if s.leader == r.l && s.term == r.stats.Term.Number {
			r.w.judgeRules(s)
		}
	}
}

func (r *review) fail(broken Invariant, format string, args ...any) {
	r.w.fail(r.l, r.stats.Term, broken, format, args...)
}

// transcribe adds the term's results to the transcript.
func (r *review) transcribe() {
	lane := loopLane(r.l.number)
	for _, c := range r.plan.Changes {
		r.w.note(lane, "  term %d: %v %s, from %q to %q: %s", r.stats.Term.Number, c.Kind, c.Task, c.From, c.To, c.Outcome)
	}
	r.w.note(lane, "leader %d has ended term %d after %v: %v; pauses %+v", r.l.number, r.stats.Term.Number,
		r.ended.Sub(r.began), r.stats.Err, r.plan.Paused)
}

// checkDuration checks that a term takes at most five timeouts, its listing one, and that a
// few slow workers do not make the listing long (T3): if half of the workers answer soon,
// all of which were in time in the last term, the listing takes at most four times as long
// as these, or a tenth of the timeout.
func (r *review) checkDuration() {
	timeout := r.w.Timeout
	took := r.ended.Sub(r.began)
	r.w.report.LongestTerm = max(r.w.report.LongestTerm, float64(took)/float64(timeout))
	if took > 5*timeout || r.stats.Listing > timeout {
		r.fail(Bounded, "the term took %v, and its listing %v; the timeout is %v", took, r.stats.Listing, timeout)
	}
	if !r.whole || !r.l.wasWhole {
		return
	}
	var answers []time.Duration
	for _, c := range r.own {
		known := r.l.contacts[c.worker]
		if c.op == orchestrator.OpList && c.err == nil && !c.returned.IsZero() &&
			known != nil && known.session == c.session && known.answered == r.l.reviewed && known.inTime {
			answers = append(answers, c.returned.Sub(r.began))
		}
	}
	half := (len(r.view.workers) + 1) / 2
	if half == 0 || len(answers) < half {
		return
	}
	slices.Sort(answers)
	if most := max(4*answers[half-1], timeout/10); r.stats.Listing > most+timeout/1000 {
		r.fail(ListingBounded, "the listing took %v, though half of %d workers answered within %v", r.stats.Listing, len(r.view.workers), answers[half-1])
	}
}

// checkWrites checks that each write belongs to a change of the plan, and that it went to a
// worker that had answered in this term (T4).
func (r *review) checkWrites() {
	for _, c := range r.own {
		if c.op == orchestrator.OpList {
			continue
		}
		change, back := r.changeOf(c)
		if c.op == orchestrator.OpAdd {
			o := r.l.orders[orderKey{c.term.Number, c.task, c.worker}]
			o.change, o.back = change, back
		}
		if change == nil {
			r.fail(Planned, "%v %s %s was sent, without such a change in the plan", c.op, c.task, c.worker)
		}
		if known := r.l.contacts[c.worker]; known == nil || known.session != c.session || known.answered != r.stats.Term.Number {
			r.fail(Conservative, "%v %s %s was sent, and the worker had not answered in this term", c.op, c.task, c.worker)
		}
	}
}

// checkInitialWait checks that a term that began in the initial wait starts nothing but what it moves:
// it may run on a worker that registers later (T4).
func (r *review) checkInitialWait() {
	waits := r.began.Before(r.l.first.Add(r.w.initialWait))
	if waits == r.stats.InitialWait.IsZero() {
		r.fail(Conservative, "the term began %v after the first one, and its wait ends at %v", r.began.Sub(r.l.first), r.stats.InitialWait)
	}
	for i := range r.plan.Changes {
		if c := &r.plan.Changes[i]; waits && c.Kind.Op == orchestrator.Start {
			r.fail(Conservative, "%s was started on %s, and workers may still register", c.Task, c.To)
		}
	}
}

// changeOf returns the change that a write belongs to, or nil. back: the write starts a task
// again that a move has stopped.
func (r *review) changeOf(c *call) (change *orchestrator.Change[string, string], back bool) {
	for i := range r.plan.Changes {
		p := &r.plan.Changes[i]
		switch {
		case p.Task != c.task:
		case c.op == orchestrator.OpAdd && p.Kind.Op != orchestrator.Stop && p.To == c.worker,
			c.op == orchestrator.OpRemove && p.Kind.Op != orchestrator.Start && p.From == c.worker:
			return p, false
		case p.Kind.Op == orchestrator.Move && p.From == c.worker:
			change, back = p, true
		}
	}
	return change, back
}

// checkLost checks that no worker is declared lost before its grace period has ended or
// during a mass loss (T4, T5).
func (r *review) checkLost() {
	l, w, members, silent := r.l, r.w, 0, 0
	states := l.o.LastActual()
	for _, state := range states {
		if known := l.contacts[state.Name]; known != nil && !known.lost {
			members++
			if state.State != orchestrator.Answering {
				silent++
			}
		}
	}
	mass := members >= 3 && float64(silent) > w.maxLoss*float64(members)
	switch {
	case mass && l.massSince.IsZero():
		l.massSince = r.listed
	case silent == 0:
		l.massSince = time.Time{}
	}
	for _, state := range states {
		known := l.contacts[state.Name]
		if known == nil || known.lost || state.State != orchestrator.Lost {
			continue
		}
		if w.hold || r.listed.Sub(known.since) < w.Grace || mass && w.Grace > 0 && r.listed.Sub(l.massSince) < massLossHold {
			r.fail(LossAccurate, "%s answered %v ago and is lost; the grace period is %v, and %d of %d workers are silent",
				state.Name, r.listed.Sub(known.since), w.Grace, silent, members)
		}
		known.lost, l.departed = true, r.listed
		w.forget(state.Name, "", UnfencedLost)
	}
}

// checkStops checks that enough answering copies of each task remain after surplus copies
// have stopped (P4).
func (r *review) checkStops() {
	stops := make(map[string]int)
	for i := range r.plan.Changes {
		if p := &r.plan.Changes[i]; p.Kind.Op == orchestrator.Stop {
			stops[p.Task]++
		}
	}
	for task, n := range stops {
		listed := 0
		for _, known := range r.l.contacts {
			if known.answered == r.stats.Term.Number && slices.Contains(known.tasks, task) {
				listed++
			}
		}
		if want := r.view.tasks[task].Instances; listed-n < min(want, listed) {
			r.fail(Kept, "%s ran on %d answering workers, and was stopped on %d of them; wanted: %d", task, listed, n, want)
		}
	}
}

// checkMoves checks that no move leaves its task stopped without need (T8). The second half
// follows the acknowledged first. If the task was stopped and certainly not started, it is
// given back, unless three timeouts had passed by then or the leader is deposed.
func (r *review) checkMoves() {
	deposed := errors.Is(r.stats.Err, orchestrator.ErrDeposed) || errors.Is(r.l.cause, orchestrator.ErrDeposed)
	inTime := !deposed && r.ended.Before(r.listed.Add(3*r.w.Timeout))
	sent := func(op orchestrator.Op, task, worker string) *call {
		for _, c := range r.own {
			if c.op == op && c.task == task && c.worker == worker {
				return c
			}
		}
		return nil
	}
	for i := range r.plan.Changes {
		p := &r.plan.Changes[i]
		if p.Kind.Op != orchestrator.Move {
			continue
		}
		stop, begin := sent(orchestrator.OpRemove, p.Task, p.From), sent(orchestrator.OpAdd, p.Task, p.To)
		if stop != nil && begin != nil {
			first, second := stop, begin
			if begin.sent.Before(stop.sent) {
				first, second = begin, stop
			}
			if !first.answered(second.sent) || first.err != nil {
				r.fail(Kept, "%v %s %s was sent, and %v on %s had not been acknowledged", second.op, p.Task, second.worker, first.op, first.worker)
			}
		}
		stranded := stop != nil && stop.err == nil && stop.answered(r.ended) && (begin == nil || begin.refused())
		if stranded && inTime && sent(orchestrator.OpAdd, p.Task, p.From) == nil {
			r.fail(Kept, "%s was stopped on %s, certainly not started on %s, and not given back", p.Task, p.From, p.To)
		}
	}
}

// prediction is the result of Plan, and its inputs.
type prediction struct {
	plan    orchestrator.Plan[string, string]
	pauses  bool                // something paused in the last term
	at      time.Time           // when it was made
	view    time.Time           // when the latest change arrived
	answers map[string][]string // by worker: the answer that the leader would know already
}

// predict calls Plan before a drawn subset of terms. The review of the term uses the result.
// Plan must take no time, call no worker and change nothing.
func (l *leader) predict() {
	w := l.w
	rnd := newRandom(w.seed, "plan", uint64(l.number), uint64(time.Since(w.began)))
	if !w.callsPlan || !rnd.chance(0.3) {
		return
	}
	before, began := l.o.LastPlan().Stats.Term, time.Now()
	w.mu.Lock()
	l.isPlanning = true
	f := &prediction{at: began, view: l.view.at, pauses: len(l.o.LastPlan().Paused) > 0, answers: make(map[string][]string)}
	for _, state := range l.o.LastActual() {
		if known := l.contacts[state.Name]; state.State == orchestrator.Answering && known != nil && known.session == l.sessions[state.Name] {
			f.answers[state.Name] = state.Tasks
		}
	}
	w.mu.Unlock()
	var err error
	f.plan, err = l.o.Plan(orchestrator.Hypothesis[string, string]{})
	after := l.o.LastPlan().Stats.Term
	w.mu.Lock()
	defer w.mu.Unlock()
	l.isPlanning = false
	w.report.Plans++
	w.note(loopLane(l.number), "leader %d plans %d changes: %v", l.number, len(f.plan.Changes), err)
	took, refused := time.Since(began), err != nil && before.Number == 0 && errors.Is(err, orchestrator.ErrNoTerm)
	if after != before || took > 0 || err != nil && !refused || err == nil && before.Number == 0 {
		w.fail(l, before, Predicted, "Plan took %v and returned: %v; LastPlan was of %v before, and of %v after", took, err, before, after)
	}
	if err == nil {
		l.predicted = f
	}
}

// checkPredicted checks that the term has done what Plan returned just before, if all
// workers answered as the leader expected then, and no pause has ended since.
func (r *review) checkPredicted() {
	f := r.l.predicted
	r.l.predicted = nil
	if f == nil || !r.view.at.Equal(f.view) {
		return
	}
	for _, p := range r.view.workers {
		known := r.l.contacts[p.name]
		answer, ok := f.answers[p.name]
		if !ok || known.answered != r.stats.Term.Number || known.asked.Before(r.began) || !slices.Equal(known.tasks, answer) {
			return
		}
	}
	if f.pauses && r.listed.After(r.l.elected.Add(r.w.maxPause)) || r.w.rules.some() {
		return // a pause may have ended, or evictions may have been held long enough
	}
	if f.pauses && slices.ContainsFunc(r.l.listings, func(listed time.Time) bool {
		free := listed.Add(r.w.Timeout * 3 / 2)
		return free.After(f.at) && !free.After(r.listed)
	}) {
		return // a worker on which a task hung may be free for the next one
	}
	r.w.report.PlansCompared++
	did, predicted := r.plan.Changes, f.plan.Changes
	if !slices.EqualFunc(did, predicted, func(a, b orchestrator.Change[string, string]) bool {
		return a.Kind.Op == b.Kind.Op && a.Task == b.Task && a.From == b.From && a.To == b.To
	}) {
		r.fail(Predicted, "Plan had %d changes, and the term after it %d or other ones, though all workers answered the same", len(predicted), len(did))
	}
}

// dryRun runs a term with WithDryRun before the leader's first term, in some of
// the runs. It must write nothing and fence no worker. Its network has no faults.
func (l *leader) dryRun(ctx context.Context) {
	w := l.w
	if rnd := newRandom(w.seed, "rehearsal", uint64(l.number)); !w.callsPlan || !rnd.chance(0.2) {
		return
	}
	net := newLayer(func(ctx context.Context, m message) ([]string, []error) {
		if term, ok := orchestrator.TermFromContext(ctx); ok || len(m.writes) > 0 {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.fail(l, term, Predicted, "in a dry run %v was sent to %s, with term %v", m.writes, m.worker, term)
		}
		tasks, err := w.cluster.List(ctx, m.worker)
		return tasks, []error{err}
	}, false)
	w.mu.Lock()
	v := l.view
	w.report.DryRuns++
	w.mu.Unlock()
	o, err := orchestrator.New(net, append(w.options(), orchestrator.WithDryRun())...)
	if err != nil {
		return // elect has used the same options
	}
	_ = o.UpdateTasks(slices.Collect(maps.Values(v.tasks)))
	for _, p := range v.workers {
		_ = o.AddWorker(p.name, orchestrator.WithWorkerSettings(p.settings))
	}
	_ = o.NextTerm(ctx)
}

package simulator

// Plans: what a term would do is asked for now and then, and held against what
// the next one does.

import (
	"context"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// foresight is a Plan, and what it was made from.
type foresight struct {
	plan    orchestrator.Plan[string, string]
	view    time.Time           // when the latest change had been heard of
	answers map[string][]string // by worker
}

// foresee calls Plan, before a term, in those runs and for those terms that are
// drawn. What it returns is for the review of the term.
func (l *leader) foresee(ctx context.Context) {
	w := l.w
	d := throw(w.seed, "plan", uint64(l.number), uint64(time.Since(w.began)))
	if !w.plans || !d.chance(0.3) {
		return
	}
	before := l.o.LastPlan().Stats.Term
	w.mu.Lock()
	f := &foresight{view: l.views[len(l.views)-1].at, answers: make(map[string][]string)}
	l.asking = f
	w.mu.Unlock()
	plan, err := l.o.Plan(ctx)
	after := l.o.LastPlan().Stats.Term
	w.mu.Lock()
	defer w.mu.Unlock()
	l.asking = nil
	w.report.Plans++
	w.note(loopLane(l.number), "leader %d foresees %d changes: %v", l.number, len(plan.Changes), said(err))
	for _, c := range plan.Changes {
		w.note(loopLane(l.number), "  foreseen: %v %s, from %q to %q", c.Kind, c.Task, c.From, c.To)
	}
	if after != before {
		w.fail(l, after, Foreseen, "LastPlan is that of %v after a Plan, and was that of %v", after, before)
	}
	for _, c := range plan.Changes {
		if c.Outcome != orchestrator.OutcomePlanned {
			w.fail(l, plan.Stats.Term, Foreseen, "a Plan says of the %v of %s: %s", c.Kind, c.Task, c.Outcome)
		}
	}
	if err == nil {
		f.plan, l.foreseen = plan, f
	}
}

// checkForeseen checks that the term has done what a Plan had said just before,
// where nobody has said anything else meanwhile.
func (r *review) checkForeseen() {
	f := r.l.foreseen
	r.l.foreseen = nil
	if f == nil || r.cut() || !r.view.at.Equal(f.view) || r.stats.Term.Number%longestBackoff == 0 {
		return // when so many terms have passed what is long past is forgotten
	}
	for name := range r.l.mind.seats {
		if _, heard := r.listing[name]; !heard {
			return
		}
	}
	for _, c := range r.own() {
		if c.op == orchestrator.OpList && !slices.Equal(c.tasks, f.answers[c.worker]) {
			return
		}
	}
	r.w.report.PlansKept++
	did, said := r.plan.Changes, f.plan.Changes
	if !slices.EqualFunc(did, said, func(a, b orchestrator.Change[string, string]) bool {
		return a.Kind == b.Kind && a.Task == b.Task && a.From == b.From && a.To == b.To
	}) {
		r.fail(Foreseen, "a Plan had %d changes, and the term after it %d, or others, with the same answers from everybody", len(said), len(did))
	}
	if !slices.Equal(r.plan.Waiting, f.plan.Waiting) {
		r.fail(Foreseen, "a Plan had %v wait, and the term after it %v", f.plan.Waiting, r.plan.Waiting)
	}
}

// peek makes a List for a Plan: it takes its time, and gets lost where nothing
// gets through.
func (b *bound) peek(ctx context.Context, name string, to address) ([]string, error) {
	l, w := b.l, b.l.w
	d := throw(w.seed, "peek", uint64(l.number), uint64(time.Since(w.began)))
	d.text(name)
	w.mu.Lock()
	m := w.workers[name]
	latency := d.between(w.network.MinLatency, w.network.MaxLatency) + m.slow
	there, back := m.path != cut && !l.isolated && !l.crashed, m.path != deaf
	w.mu.Unlock()
	timer := time.NewTimer(farLane(l.lane(), m.index).after(latency))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		there = false
	}
	var tasks []string
	err := errOther
	w.mu.Lock()
	meant := m.is(context.WithValue(ctx, addressKey{}, to))
	w.mu.Unlock()
	if there && meant {
		tasks, err = w.cluster.List(ctx, name)
	}
	if !there || !back {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return tasks, err
}

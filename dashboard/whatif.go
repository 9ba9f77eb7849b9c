package dashboard

// What-if plans and drains.

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// mostPlans bounds the plans that a view keeps.
const mostPlans = 20

// whatIf returns what the next term would do if the query came true. It calls no worker and
// changes nothing. It computes one plan at a time. Others wait for a second, because a reader may
// leave a page that is being refreshed for another, and are refused then.
//
// An answer with an entity tag is the first one to the query after the term, since the tag says
// that it does not change before the next term.
func (v *view) whatIf(q *query) (api.WhatIf, *api.Error) {
	limit, key := min(q.number("limit", someRows, 1), mostRows), q.values.Encode()
	if v.hypothesis(q); q.err != nil {
		return api.WhatIf{}, q.err
	}
	if v.snapshot == nil {
		return api.WhatIf{}, noTerm()
	}
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	select {
	case v.h.planning <- struct{}{}:
		defer func() { <-v.h.planning }()
	case <-q.gone:
		return api.WhatIf{}, problem(http.StatusServiceUnavailable, "The client has gone.")
	case <-patience.C:
		return api.WhatIf{}, problem(http.StatusTooManyRequests, "Another plan is being computed. Try again in a second.")
	}
	var plan api.Plan
	var err error
	for range 3 { // a term may end before Plan begins, and then the header must be of that
		fresh, failed := v.h.view()
		if failed != nil {
			return api.WhatIf{}, failed
		}
		v = fresh
		if answer, ok := v.plans[key]; ok && q.tagged {
			answer.Header = v.header()
			return answer, nil
		}
		hypothesis := v.hypothesis(q) // a worker may have gone since
		if q.err != nil {
			return api.WhatIf{}, q.err
		}
		plan, err = v.snapshot.WhatIf(hypothesis, q.lines("add"))
		if err != nil || plan.Stats.Term.Number == v.stats.Term.Number+1 {
			break
		}
	}
	switch {
	case errors.Is(err, orchestrator.ErrUnknownWorker):
		return api.WhatIf{}, v.unknownName(sentence(err))
	case errors.Is(err, orchestrator.ErrInvalid):
		return api.WhatIf{}, problem(http.StatusBadRequest, sentence(err))
	case err != nil: // of a source that does not lead any more
		return api.WhatIf{}, v.h.notLeading(sentence(err))
	}
	v.countLosses(&plan)
	answer := v.planned(&plan, q, limit)
	if q.tagged && len(v.plans) < mostPlans {
		v.plans[key] = answer
	}
	return answer, nil
}

// countLosses sets what the workers have now that a plan assumes to be lost. The plan counts no
// tasks on them.
func (v *view) countLosses(plan *api.Plan) {
	table := v.workers()
	for i := range min(len(table.rows), len(plan.Workers)) {
		w, now := &plan.Workers[i], &table.rows[i]
		if w.State == orchestrator.Lost && now.State != orchestrator.Lost && w.Name == now.Name.Name {
			w.Before = now.Tasks
		}
	}
}

// sentence returns the text of an error as a sentence.
func sentence(err error) string {
	text := errText(err)
	return strings.ToUpper(text[:min(len(text), 1)]) + text[min(len(text), 1):] + "."
}

// hypothesis returns what the query assumes of the workers of the term. A parameter may be repeated,
// and have a name on each line.
func (v *view) hypothesis(q *query) (h orchestrator.Hypothesis[int, string]) {
	known := func(param string) (workers []int) {
		for _, text := range q.lines(param) {
			workers = append(workers, v.find(q, named(text)))
		}
		return workers
	}
	h.Drain, h.Undrain, h.Silence, h.Lose = known("drain"), known("undrain"), known("silence"), known("lose")
	for _, text := range q.lines("add") {
		if v.workers().has(text) {
			q.fail("A worker is called %s already.", quote(text))
		}
	}
	return h
}

// planned returns a plan with its names as text, and without what exceeds the bounds.
func (v *view) planned(p *api.Plan, q *query, limit int) api.WhatIf {
	most, bytes := limit, q.bytes/4
	if q.tagged {
		most = mostBars
	}
	p.Waiting = withStops(p.Waiting, p.Paused, nil)
	out := api.WhatIf{
		Header: v.header(), Verdict: v.h.words.verdict(p), WorkersTotal: len(p.Workers),
		WaitingTotal: len(p.Waiting), PausedTotal: len(p.Paused), ChangesTotal: sum(p.Stats.Changes),
	}
	change := func(w orchestrator.WorkerPlan[string]) int { return max(w.After-w.Before, w.Before-w.After) }
	workers := slices.SortedStableFunc(slices.Values(p.Workers), func(a, b orchestrator.WorkerPlan[string]) int { return cmp.Compare(change(b), change(a)) })
	out.Plan = api.Plan{Stats: p.Stats, Workers: some(workers, most, bytes)}
	to := &out.Plan
	to.Changes, to.Waiting, to.Paused = some(p.Changes, limit, bytes), some(p.Waiting, limit, bytes), some(p.Paused, limit, bytes)
	to.Holds = someHolds(p.Holds)
	if held := v.h.words.held(p.Stats.MovesHeld, to.Holds); held != "" {
		out.Verdict += " " + held + "."
	}
	return out
}

// someHolds returns the first holds with printable text.
func someHolds(all []orchestrator.Hold) []orchestrator.Hold {
	holds := some(all, mostNames, mostBytes)
	for i := range holds {
		holds[i] = history.HoldText(&holds[i])
	}
	return holds
}

// some returns the first of some values: at most limit, and as many as fit into a number of bytes.
func some[E any](all []E, limit, bytes int) []E {
	all = all[:min(limit, len(all))]
	return append([]E{}, all[:fit(all, bytes)]...)
}

// verdict returns in one sentence what follows from a plan.
func (w words) verdict(p *api.Plan) string {
	say := struct {
		orchestrator.TermStats
		Ops              map[string]int // changes
		Least, Most      int            // tasks of an open worker
		Failing, Staying int            // instances
	}{TermStats: p.Stats, Ops: make(map[string]int), Least: -1}
	for i := range p.Workers {
		if w := &p.Workers[i]; w.State == orchestrator.Answering && !w.Draining && !w.Quarantined {
			say.Most = max(say.Most, w.After)
			if say.Least < 0 || w.After < say.Least {
				say.Least = w.After
			}
		}
	}
	for kind, times := range p.Stats.Changes {
		say.Ops[string(kind.Op)] += times
	}
	for i := range p.Waiting {
		switch w := &p.Waiting[i]; w.Kind() {
		case orchestrator.WaitingFailing:
			say.Failing += w.Instances
		case orchestrator.WaitingStaying:
			say.Staying += w.Instances
		}
	}
	return w.say("verdict", say, "; ") + "."
}

// setDraining drains a worker, or ends that. It changes what the next term does, and does
// not wait for it.
func (h *Handler) setDraining(r *http.Request, q *query, draining bool) (api.Drain, *api.Error) {
	if h.drain == nil {
		return api.Drain{}, problem(http.StatusForbidden, "This dashboard is read-only. The option WithDrain allows to drain workers.")
	}
	v, failed := h.view()
	if failed != nil {
		return api.Drain{}, failed
	}
	text, event := named(q.text("worker")), "worker draining"
	if !draining {
		event = "worker undrained"
	}
	i := v.find(q, text)
	if q.err != nil {
		return api.Drain{}, q.err
	}
	if err := v.snapshot.Drain(r.Context(), i, draining); err != nil {
		h.log(r, slog.LevelWarn, event+" failed", "worker", text, "err", err)
		if errors.Is(err, orchestrator.ErrUnknownWorker) {
			return api.Drain{}, v.unknownName(sentence(err))
		}
		return api.Drain{}, problem(http.StatusInternalServerError, sentence(err))
	}
	h.log(r, slog.LevelInfo, event, "worker", text, "client", r.RemoteAddr)
	return api.Drain{Worker: api.Name{Name: text}, Draining: draining}, nil
}

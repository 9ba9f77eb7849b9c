package dashboard

// What-if plans and drains.

import (
	"cmp"
	"errors"
	"fmt"
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
func (v *view[W, T]) whatIf(q *query) (api.WhatIf, *api.Error) {
	limit, key := min(q.number("limit", someRows, 1), mostRows), q.values.Encode()
	hypothesis := v.hypothesis(q)
	if q.err != nil {
		return api.WhatIf{}, q.err
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
	var plan orchestrator.Plan[W, T]
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
		plan, err = v.lead.Plan(hypothesis)
		if err != nil || plan.Stats.Term.Number == v.plan.Stats.Term.Number+1 {
			break
		}
	}
	switch {
	case errors.Is(err, orchestrator.ErrNoTerm):
		return api.WhatIf{}, noTerm()
	case errors.Is(err, orchestrator.ErrUnknownWorker):
		return api.WhatIf{}, v.unknownName(sentence(err))
	case errors.Is(err, orchestrator.ErrInvalid):
		return api.WhatIf{}, problem(http.StatusBadRequest, sentence(err))
	case err != nil: // of a source that does not lead any more
		return api.WhatIf{}, v.h.notLeading(sentence(err))
	}
	v.countLosses(&plan)
	answer := v.planned(&plan, limit, q.bytes)
	if q.tagged && len(v.plans) < mostPlans {
		v.plans[key] = answer
	}
	return answer, nil
}

// countLosses sets what the workers have now that a plan assumes to be lost. The plan counts no
// tasks on them.
func (v *view[W, T]) countLosses(plan *orchestrator.Plan[W, T]) {
	table := v.workers()
	for i := range min(len(table.states), len(plan.Workers)) {
		w, now := &plan.Workers[i], &table.rows[i]
		if w.State == orchestrator.Lost && now.State != orchestrator.Lost && w.Name == table.states[i].Name {
			w.Before = now.Tasks
		}
	}
}

// sentence returns the text of an error as a sentence.
func sentence(err error) string {
	text := errText(err)
	return strings.ToUpper(text[:min(len(text), 1)]) + text[min(len(text), 1):] + "."
}

// hypothesis returns what the query assumes. A parameter may be repeated, and have a name on
// each line.
func (v *view[W, T]) hypothesis(q *query) (h orchestrator.Hypothesis[W, T]) {
	known := func(param string) (names []W) {
		for _, text := range q.lines(param) {
			if i := v.named(q, text); i >= 0 {
				names = append(names, v.workers().states[i].Name)
			}
		}
		return names
	}
	h.Drain, h.Undrain, h.Silence, h.Lose = known("drain"), known("undrain"), known("silence"), known("lose")
	for _, text := range q.lines("add") {
		name, err := parseName[W](text)
		if err != nil {
			q.fail("The parameter add is %s: %v.", quote(text), err)
		}
		if len(v.workers().byText[text]) > 0 {
			q.fail("A worker is called %s already.", quote(text))
		}
		h.AddWorkers = append(h.AddWorkers, orchestrator.Worker[W]{Name: name})
	}
	return h
}

// planned returns a plan with its names as text, and without what exceeds the bounds.
func (v *view[W, T]) planned(p *orchestrator.Plan[W, T], limit, bytes int) api.WhatIf {
	out := api.WhatIf{
		Header: v.header(), Verdict: verdict(p), WorkersTotal: len(p.Workers),
		ChangesTotal: len(p.Changes), WaitingTotal: len(p.Waiting), PausedTotal: len(p.Paused),
	}
	change := func(w *orchestrator.WorkerPlan[W]) int { return max(w.After-w.Before, w.Before-w.After) }
	order := make([]*orchestrator.WorkerPlan[W], len(p.Workers))
	for i := range p.Workers {
		order[i] = &p.Workers[i]
	}
	slices.SortStableFunc(order, func(a, b *orchestrator.WorkerPlan[W]) int { return cmp.Compare(change(b), change(a)) })
	out.Plan = api.Plan{Stats: p.Stats, Workers: []orchestrator.WorkerPlan[string]{}}
	to := &out.Plan
	for _, w := range order[:min(limit, len(order))] {
		to.Workers = append(to.Workers, orchestrator.WorkerPlan[string]{
			Name: history.NameText(w.Name), State: w.State, Late: w.Late, Draining: w.Draining, Quarantined: w.Quarantined,
			Before: w.Before, After: w.After,
		})
	}
	to.Workers = to.Workers[:fit(to.Workers, bytes/4)]
	to.Changes = someText(p.Changes, limit, bytes/4, history.ChangeText)
	to.Waiting = someText(p.Waiting, limit, bytes/4, history.WaitingText)
	to.Paused = someText(p.Paused, limit, bytes/4, history.PauseText)
	to.Holds = someHolds(p.Holds)
	if held := api.HeldText(p.Stats.MovesHeld, to.Holds); held != "" {
		out.Verdict += " " + held + "."
	}
	return out
}

// someHolds returns the first holds with printable text.
func someHolds(all []orchestrator.Hold) []orchestrator.Hold {
	return someText(all, mostNames, mostBytes, history.HoldText)
}

// someText returns the first of some values with text for names: at most limit, and as many as
// fit into a number of bytes.
func someText[From, To any](all []From, limit, bytes int, text func(*From) To) []To {
	some := make([]To, min(limit, len(all)))
	for i := range some {
		some[i] = text(&all[i])
	}
	return some[:fit(some, bytes)]
}

// verdict returns in one sentence what follows from a plan.
func verdict[W, T comparable](p *orchestrator.Plan[W, T]) string {
	counts := make(map[orchestrator.ChangeOp]int)
	for i := range p.Changes {
		counts[p.Changes[i].Kind.Op]++
	}
	least, most := -1, 0
	for i := range p.Workers {
		w := &p.Workers[i]
		if w.State != orchestrator.Answering || w.Draining || w.Quarantined {
			continue
		}
		most = max(most, w.After)
		if least < 0 || w.After < least {
			least = w.After
		}
	}
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if len(p.Changes) == 0 {
		add("The next term would change nothing")
	} else {
		fewest := ""
		switch p.Stats.Adds {
		case 0:
		case p.Stats.LowerBound:
			fewest = ", with the fewest starts possible"
		default:
			fewest = fmt.Sprintf(", with %s where %d would be the fewest possible", count(p.Stats.Adds, "start", "starts"), p.Stats.LowerBound)
		}
		var does []string
		for _, op := range []orchestrator.ChangeOp{orchestrator.Move, orchestrator.Start, orchestrator.Stop} {
			switch n := counts[op]; {
			case n > 0 && does == nil:
				does = append(does, string(op)+" "+count(n, "instance", "instances"))
			case n > 0:
				does = append(does, string(op)+" "+grouped(n))
			}
		}
		add("The next term would %s%s", strings.Join(does, " and "), fewest)
	}
	switch {
	case least < 0:
		add("no worker would be open to new tasks")
	case least == most:
		add("each open worker would have %s", count(most, "task", "tasks"))
	default:
		add("each open worker would have %d to %d tasks", least, most)
	}
	if p.Stats.MassLoss {
		add("so many workers would be silent that none is declared lost")
	}
	if n := p.Stats.Instances.Held; n > 0 {
		add("%s held by workers that do not answer", count(n, "instance would be", "instances would be"))
	}
	failing := 0
	for i := range p.Waiting {
		if w := &p.Waiting[i]; w.Kind() == orchestrator.WaitingFailing {
			failing += w.Instances
		}
	}
	if n := p.Stats.Instances.Unplaceable - failing; n > 0 {
		add("%s have no place", count(n, "instance would", "instances would"))
	}
	if failing > 0 {
		add("%s for another try, because starts failed", count(failing, "instance would wait", "instances would wait"))
	}
	if until := p.Stats.InitialWait; !until.IsZero() {
		add("nothing would start before %s that a worker may run which has not registered yet", clock(until, p.Stats.Start))
	}
	if n := p.Stats.Deferred; n > 0 {
		add("%s left to later terms", count(n, "move would be", "moves would be"))
	}
	return strings.Join(parts, "; ") + "."
}

// setDraining drains a worker, or ends that. It changes what the next term does, and does
// not wait for it.
func (h *Handler[W, T]) setDraining(r *http.Request, q *query, draining bool) (api.Drain, *api.Error) {
	if h.drain == nil {
		return api.Drain{}, problem(http.StatusForbidden, "This dashboard is read-only. The option WithDrain allows to drain workers.")
	}
	v, failed := h.view()
	if failed != nil {
		return api.Drain{}, failed
	}
	text := printable(q.text("worker"))
	var i int
	if nth := q.number("nth", 0, 0); nth == 0 {
		i = v.named(q, text)
	} else if i = v.workers().find(text, nth); i < 0 && q.err == nil {
		q.err = v.unknownName("No worker is called " + quote(text) + ".")
	}
	if q.err != nil {
		return api.Drain{}, q.err
	}
	set, event := h.drain, "worker draining"
	if !draining {
		set, event = h.undrain, "worker undrained"
	}
	if err := set(r.Context(), v.workers().states[i].Name); err != nil {
		h.log(r, slog.LevelWarn, event+" failed", "worker", text, "err", err)
		if errors.Is(err, orchestrator.ErrUnknownWorker) {
			return api.Drain{}, v.unknownName(sentence(err))
		}
		return api.Drain{}, problem(http.StatusInternalServerError, sentence(err))
	}
	h.log(r, slog.LevelInfo, event, "worker", text, "client", r.RemoteAddr)
	return api.Drain{Worker: v.workers().rows[i].Name, Draining: draining}, nil
}

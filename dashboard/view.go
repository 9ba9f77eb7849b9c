package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// view computes the answers to one request, from one term and the history up to it. Its
// methods are safe for concurrent use.
type view struct {
	*termView
	past *history.View
}

// termView is a term, and what several requests about it need. That is computed once, by the
// first request that needs it.
type termView struct {
	h        *Handler
	lead     *lead
	snapshot snapshot // nil before the first term
	stats    orchestrator.TermStats

	plan       func() *api.Plan // see snapshot
	workers    func() *workerTable
	unexpected func() map[string]bool // tasks that run and are not expected
	causes     func() []api.Problem   // without those that depend on the time

	plans map[string]api.WhatIf // of pages, by query; the holder of h.planning's token owns it
}

func newView(h *Handler, l *lead, s snapshot) *termView {
	v := &termView{h: h, lead: l, snapshot: s, plans: make(map[string]api.WhatIf)}
	if s != nil {
		v.stats = s.Stats()
	}
	v.plan = sync.OnceValue(v.makePlan)
	v.workers = sync.OnceValue(v.makeWorkers)
	v.unexpected = sync.OnceValue(v.findUnexpected)
	v.causes = sync.OnceValue(v.findCauses)
	return v
}

func (v *termView) makePlan() *api.Plan {
	if v.snapshot == nil {
		return &api.Plan{}
	}
	p := v.snapshot.Plan()
	p.Waiting = withStops(p.Waiting, p.Paused, p.Changes)
	return &p
}

// withStops returns what waits, with the instances that must leave their workers and could not: their stops have not
// ended, or their starts elsewhere failed. A plan has them in the terms between two tries only.
func withStops(waiting []api.Waiting, paused []api.Pause, changes []api.Change) []api.Waiting {
	stops, missing := make(map[attempt]bool), make(map[attempt]bool)
	for i := range paused {
		if p := &paused[i]; p.Kind == orchestrator.PauseStop {
			stops[attempt{p.Task, p.Worker}] = true
		}
	}
	all := waiting
	if len(paused)+len(changes) > 0 {
		all = slices.Clone(waiting)
	}
	for i := range all {
		switch w := &all[i]; {
		case w.Reason == orchestrator.ReasonFailed:
			missing[attempt{w.Task, w.Worker}] = true
		case w.Reason == orchestrator.ReasonPaused && w.Named && stops[attempt{w.Task, w.Worker}]:
			w.Reason = orchestrator.ReasonStopping
		}
	}
	leaves := []orchestrator.Reason{orchestrator.ReasonDrain, orchestrator.ReasonRequires, orchestrator.ReasonZone, orchestrator.ReasonLimit}
	for i := range changes {
		c := &changes[i]
		stays := api.Waiting{Task: c.Task, Instances: 1, Reason: orchestrator.ReasonPaused, Worker: c.From, Named: true}
		if c.Outcome == orchestrator.OutcomeStopping || stops[attempt{c.Task, c.From}] {
			stays.Reason = orchestrator.ReasonStopping
		}
		switch c.Outcome {
		case orchestrator.OutcomeStopping, orchestrator.OutcomeFailed, orchestrator.OutcomeReturned:
			if slices.Contains(leaves, c.Kind.Reason) && !missing[attempt{c.Task, c.To}] { // it was not stopped
				all = append(all, stays)
			}
		}
	}
	return all
}

// unknownName returns the error for a name that no worker or task has.
func (v *view) unknownName(detail string) *api.Error {
	if v.snapshot == nil {
		return noTerm()
	}
	err := problem(http.StatusNotFound, detail)
	err.Type = api.TypeUnknownName
	return err
}

// header returns the part that all answers have.
func (v *view) header() api.Header {
	stats := &v.stats
	h := api.Header{Term: stats.Term, Observed: stats.Observed, Start: stats.Start, Took: stats.Total, Now: time.Now()}
	if v.h.replays {
		h.Now = h.Start.Add(h.Took)
	}
	if h.Observed && v.h.leader != nil {
		h.Leader = printable(v.h.leader())
	}
	return h
}

// tag returns the entity tag of answers that change with the term. It is weak, because each
// answer also has the time. The tag changes too when a term is overdue, which is a problem;
// the progress of a term under way has an answer of its own.
func (v *view) tag() string {
	term, suffix := v.stats.Term, ""
	if v.overdue(time.Now()) != nil {
		suffix = "-overdue"
	}
	if last, _ := v.past.Last(); v.snapshot != nil && last != term {
		suffix += "-unrecorded" // the recording follows within the term's goroutine
	}
	return fmt.Sprintf(`W/"%d-%d%s"`, term.Epoch, term.Number, suffix)
}

// progress returns the term under way, or nil.
func (v *view) progress() *api.Progress {
	p := v.lead.Progress()
	if p.Phase == "" {
		return nil
	}
	return &p
}

// current returns the answer that is always up to date.
func (v *view) current(*query) (api.Current, *api.Error) {
	return api.Current{Header: v.header(), Tag: v.tag(), Progress: v.progress()}, nil
}

// errText returns the text of an error, or "".
func errText(err error) string {
	if err == nil {
		return ""
	}
	return printable(err.Error())
}

package dashboard

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// view computes the answers to one request, from one term and the history up to it. Its
// methods are safe for concurrent use.
type view[W, T comparable] struct {
	*termView[W, T]
	past *history.View
}

// termView is a term, and what several requests about it need. That is computed once, by the
// first request that needs it.
type termView[W, T comparable] struct {
	h        *Handler[W, T]
	lead     *lead[W, T]
	snapshot *orchestrator.Snapshot[W, T] // nil before the first term
	plan     orchestrator.Plan[W, T]      // of snapshot

	workers func() *workerTable[W, T]
	tasks   func() *taskTable[T]
	causes  func() []api.Problem // without those that depend on the time

	plans map[string]api.WhatIf // of pages, by query; the holder of h.planning's token owns it
}

func newView[W, T comparable](h *Handler[W, T], l *lead[W, T], s *orchestrator.Snapshot[W, T]) *termView[W, T] {
	v := &termView[W, T]{h: h, lead: l, snapshot: s, plans: make(map[string]api.WhatIf)}
	if s != nil {
		v.plan = s.Plan()
	}
	v.workers = sync.OnceValue(v.makeWorkers)
	v.tasks = sync.OnceValue(v.makeTasks)
	v.causes = sync.OnceValue(v.findCauses)
	return v
}

// unknownName returns the error for a name that no worker or task has.
func (v *view[W, T]) unknownName(detail string) *api.Error {
	if v.snapshot == nil {
		return noTerm()
	}
	err := problem(http.StatusNotFound, detail)
	err.Type = api.TypeUnknownName
	return err
}

// header returns the part that all answers have.
func (v *view[W, T]) header() api.Header {
	stats := &v.plan.Stats
	h := api.Header{Term: stats.Term, Observed: stats.Observed, Start: stats.Start, Took: stats.Total, Now: time.Now()}
	if h.Observed && v.h.leader != nil {
		h.Leader = printable(v.h.leader())
	}
	return h
}

// tag returns the entity tag of answers that change with the term. It is weak, because each
// answer also has the time. The tag changes too when a term is overdue, which is a problem;
// the progress of a term under way has an answer of its own.
func (v *view[W, T]) tag() string {
	term, suffix := v.plan.Stats.Term, ""
	if v.overdue(time.Now()) != nil {
		suffix = "-overdue"
	}
	if last, _ := v.past.Last(); v.snapshot != nil && last != term {
		suffix += "-unrecorded" // the recording follows within the term's goroutine
	}
	return fmt.Sprintf(`W/"%d-%d%s"`, term.Epoch, term.Number, suffix)
}

// progress returns the term under way, or nil.
func (v *view[W, T]) progress() *api.Progress {
	p := v.lead.Progress()
	if p.Phase == "" {
		return nil
	}
	out := &api.Progress{Term: p.Term, Start: p.Start, Phase: p.Phase, Since: p.Since, Done: p.Done, Total: p.Total}
	for _, name := range p.WaitingFor {
		out.WaitingFor = append(out.WaitingFor, history.NameText(name))
	}
	return out
}

// current returns the answer that is always up to date.
func (v *view[W, T]) current() api.Current {
	return api.Current{Header: v.header(), Tag: v.tag(), Progress: v.progress()}
}

// errText returns the text of an error, or "".
func errText(err error) string {
	if err == nil {
		return ""
	}
	return printable(err.Error())
}

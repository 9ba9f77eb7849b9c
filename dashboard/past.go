package dashboard

// What the history has: terms, changes, loads.

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

const (
	// lastChanges bounds api.Status.Changes, and someChanges those of a worker or a task, and
	// api.WorkerDetail.Events.
	lastChanges = 12
	someChanges = 50
)

// changesOf returns the last changes that a filter selects, the newest first, and the number
// of all.
func (v *view) changesOf(f history.Filter, limit, bytes int) (changes []api.RepeatedChange, total int) {
	rows, total := v.past.Repeated(f, history.Position{}, limit)
	changes = v.repeated(rows)
	return changes[:fit(changes, bytes)], total
}

// eventsOf returns the last events of a worker, the newest first, and the number of all.
func (v *view) eventsOf(worker string, bytes int) (events []api.TermEvent, total int) {
	events = []api.TermEvent{}
	for t, e := range v.past.Events(worker) {
		if total++; total <= someChanges {
			events = append(events, api.TermEvent{Term: t.Stats.Term, Start: t.Stats.Start, WorkerEvent: *e})
		}
	}
	return events[:fit(events, bytes)], total
}

// repeated returns changes of the history as those of the API.
func (v *view) repeated(rows []history.Repeated) []api.RepeatedChange {
	out, causes := make([]api.RepeatedChange, len(rows)), make(map[orchestrator.Term]*history.Cause)
	for i, row := range rows {
		out[i] = api.RepeatedChange{Change: *row.Change, Term: row.At.Term, Times: row.Times}
		if row.Change.Kind != (orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance}) {
			continue
		}
		if _, known := causes[row.At.Term]; !known {
			causes[row.At.Term] = v.uneven(row.At.Term)
		}
		out[i].Cause = causes[row.At.Term]
	}
	return out
}

// uneven returns what made the spread uneven of which a term made moves, or nil.
func (v *view) uneven(term orchestrator.Term) *history.Cause {
	if c, ok := v.past.Uneven(term); ok {
		return &c
	}
	return nil
}

// changeList returns the changes that the query selects, the newest first.
func (v *view) changeList(q *query) (api.Changes, *api.Error) {
	filter := history.Filter{
		Task: q.optional("task"), Worker: q.optional("worker"),
		Reason: orchestrator.Reason(q.oneOf("reason", "missing", "lost", "vanished", "unexpected", "surplus", "rebalance", "drain", "requires", "zone", "limit", "room")),
		Outcome: orchestrator.Outcome(q.oneOf("outcome",
			"planned", "dry", "done", "failed", "returned", "unknown", "stopping", "skipped")),
	}
	head := v.header()
	if text := q.text("since"); text != "" {
		ago, err := time.ParseDuration(text)
		if filter.Since = head.Now.Add(-ago); err != nil {
			filter.Since, err = time.Parse(time.RFC3339Nano, text)
		}
		if err != nil {
			q.fail("The parameter since is %s: must be a duration such as 10m, or a time such as 2006-01-02T15:04:05Z.", quote(printable(text)))
		}
	}
	if text := q.text("newer"); text != "" {
		filter.Newer = q.term("newer", text)
	}
	limit := min(q.number("limit", someRows, 1), mostRows)
	var after history.Position
	if text := q.text("after"); text != "" {
		term, index, _ := strings.Cut(text, "/")
		after.Term = q.term("after", term)
		after.Index, _ = strconv.Atoi(index)
	}
	if q.err != nil {
		return api.Changes{}, q.err
	}
	rows, matching := v.past.Repeated(filter, after, limit+1)
	out := api.Changes{Header: head, Changes: v.repeated(rows[:min(len(rows), limit)])}
	n := fit(out.Changes, q.bytes)
	out.Changes = out.Changes[:n]
	out.Page = api.Page{Total: v.past.Counts().Changes, Matching: matching}
	if n < len(rows) {
		out.After = termText(rows[n-1].At.Term) + "/" + strconv.Itoa(rows[n-1].At.Index)
	}
	return out, nil
}

// termText returns a term as the value of a parameter.
func termText(t orchestrator.Term) string { return fmt.Sprintf("%d-%d", t.Epoch, t.Number) }

// term returns the term that a value of the parameter stands for.
func (q *query) term(name, value string) (t orchestrator.Term) {
	epoch, number, ok := strings.Cut(value, "-")
	var errs [2]error
	t.Epoch, errs[0] = strconv.ParseUint(epoch, 10, 64)
	t.Number, errs[1] = strconv.ParseUint(number, 10, 64)
	if !ok || errs[0] != nil || errs[1] != nil {
		q.fail("The parameter %s is %s: must be an epoch and a number, such as 7-1200, as an answer had them.", name, quote(printable(value)))
	}
	return t
}

// termList returns the terms of the history, the newest first.
func (v *view) termList(q *query) (api.Terms, *api.Error) {
	limit := min(q.number("limit", someRows, 1), mostRows)
	var before orchestrator.Term
	if text := q.text("after"); text != "" {
		before = q.term("after", text)
	}
	if q.err != nil {
		return api.Terms{}, q.err
	}
	out := api.Terms{Header: v.header(), Terms: v.termRows(before, limit+1)}
	more := len(out.Terms) > limit
	out.Terms = out.Terms[:min(limit, len(out.Terms))]
	n := fit(out.Terms, q.bytes)
	more = more || n < len(out.Terms)
	out.Terms = out.Terms[:n]
	total := v.past.Counts().Terms
	out.Page = api.Page{Total: total, Matching: total}
	if more {
		out.After = termText(out.Terms[n-1].Stats.Term)
	}
	return out, nil
}

// term returns one term of the history: that with the number and, if it is given, the epoch.
func (v *view) term(q *query) (api.TermDetail, *api.Error) {
	number, epoch := uint64(q.number("number", 0, 1)), uint64(q.number("epoch", 0, 0))
	limit := min(q.number("limit", someRows, 1), mostRows)
	if q.err != nil {
		return api.TermDetail{}, q.err
	}
	t, quiet, ok := v.past.Term(orchestrator.Term{Epoch: epoch, Number: number})
	if !ok {
		return api.TermDetail{}, problem(http.StatusNotFound,
			"The history does not have this term: it did nothing, or it is too old, or another leader ran it.")
	}
	out := api.TermDetail{
		Header: v.header(), TermRow: termRow(t, quiet),
		ChangesTotal: len(t.Changes) + t.ChangesMore, EventsTotal: len(t.Events) + t.EventsMore,
		Cause: v.uneven(t.Stats.Term),
	}
	out.Changes = some(t.Changes, limit, q.bytes/2)
	waiting := withStops(t.Waiting, t.Paused, t.Changes)
	out.Waiting, out.WaitingTotal = some(waiting, limit, q.bytes/8), len(waiting)+t.WaitingMore
	out.Events = some(t.Events, limit, q.bytes/4)
	return out, nil
}

// termRow returns a term of the history as a row.
func termRow(t *history.Term, followed history.Quiet) api.TermRow {
	return api.TermRow{Stats: t.Stats, Quiet: followed.Terms, Holds: t.Holds[:min(len(t.Holds), mostNames)]}
}

// heldSince returns since when there is a hold, as far as the history goes, or zero without a hold.
func (v *view) heldSince() (first time.Time) {
	if len(v.plan().Holds) == 0 {
		return first
	}
	first = v.stats.Start
	for t := range v.past.Terms(orchestrator.Term{}) {
		if len(t.Holds) == 0 {
			break
		}
		first = t.Stats.Start
	}
	return first
}

// since returns from when on the history has a problem, or the zero time. It looks for the
// workers and the tasks that the problem names.
func (v *view) since(p *api.Problem) (first time.Time) {
	switch p.Kind {
	case api.ProblemQuarantined:
		for _, worker := range p.Workers {
			for t, e := range v.past.Events(worker.Name) {
				if e.After == nil || !e.After.Quarantined {
					break
				}
				if first.IsZero() || t.Stats.Start.Before(first) {
					first = t.Stats.Start
				}
			}
		}
	case api.ProblemFailing, api.ProblemUnplaced, api.ProblemStaying:
		// A missing instance may be failing in one term and unplaced in the next.
		stays := p.Kind == api.ProblemStaying
		concerns := func(w history.Waiting) bool {
			kind := w.Kind()
			return kind != orchestrator.WaitingHeld && stays == (kind == orchestrator.WaitingStaying) && slices.ContainsFunc(p.Tasks, func(n api.Name) bool { return n.Name == w.Task })
		}
		for t := range v.past.Terms(orchestrator.Term{}) {
			if !slices.ContainsFunc(t.Waiting, concerns) {
				break
			}
			first = t.Stats.Start
		}
	}
	return first
}

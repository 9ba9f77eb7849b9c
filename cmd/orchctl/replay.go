package main

// Replays: the answers of a log of package history, as of its end.

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

func replay(*flag.FlagSet) action {
	return func(ctx context.Context, s *session, args []string) error {
		ring, err := history.Open(args[0])
		if err != nil {
			return fmt.Errorf("replay: %s", api.Printable(err.Error()))
		}
		for _, note := range ring.Notes() {
			s.say("%s", api.Printable(note))
		}
		s.settings.log = &past{ring.View()}
		rest := args[1:]
		if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
			rest = slices.Concat([]string{"terms"}, rest)
		}
		var known []string
		for _, c := range commands() {
			if c.replays && c.name == rest[0] {
				return s.execute(ctx, &c, s.settings, rest[1:])
			}
			if c.replays {
				known = append(known, c.name)
			}
		}
		return fail(exitUsage, "replay: a log has no answer to %q, only to %s", rest[0], strings.Join(known, ", "))
	}
}

// past answers requests from a log.
type past struct{ *history.View }

const (
	allRows  = 1 << 30
	someRows = 50 // of the changes and events of one worker or task
)

// get is session.get for a log. A list has at most as many rows as the query says, and is not
// continued.
func (p *past) get(query url.Values, answer any) error {
	limit, _ := strconv.Atoi(query.Get("limit"))
	name := query.Get("name")
	switch a := answer.(type) {
	case *api.Header:
		*a = p.header()
	case *api.Terms:
		*a = api.Terms{Header: p.header()}
		var rows []api.TermRow
		for t, quiet := range p.Terms(orchestrator.Term{}) {
			rows = append(rows, api.TermRow{Stats: t.Stats, Quiet: quiet.Terms, Holds: t.Holds})
		}
		a.Terms, a.Page = part(rows, len(rows), limit)
	case *api.Changes:
		filter, err := filterOf(query)
		rows, matching := p.changes(filter, limit+1)
		*a = api.Changes{Header: p.header()}
		a.Changes, a.Page = part(rows, matching, limit)
		return err
	case *api.Workers:
		*a = api.Workers{Header: p.header()}
		a.Workers, a.Page = p.workers(query, limit)
	case *api.WorkerDetail:
		all, _ := p.workers(url.Values{}, allRows)
		i := slices.IndexFunc(all, func(w api.Worker) bool { return w.Name.Name == name })
		if i < 0 {
			return fail(exitUnknown, "at its end the log has no worker %s; orchctl replay FILE changes -worker may show an earlier one", shown(api.Name{Name: name}))
		}
		*a = api.WorkerDetail{Header: p.header(), Worker: all[i], Load: []api.LoadPoint{}, Events: []api.TermEvent{}}
		a.Changes, a.ChangesTotal = p.changes(history.Filter{Worker: &name}, someRows)
		for t, e := range p.Events(name) {
			if a.EventsTotal++; a.EventsTotal <= someRows {
				a.Events = append(a.Events, api.TermEvent{Term: t.Stats.Term, Start: t.Stats.Start, WorkerEvent: *e})
			}
		}
		for _, l := range p.Load(name) {
			a.Load = append(a.Load, api.LoadPoint{Term: l.Term, Time: l.Time, Tasks: l.Tasks})
		}
	case *api.Tasks:
		rows := p.waiting(func(w *api.Waiting) bool { return isKind(w, query.Get("waiting")) })
		*a = api.Tasks{Header: p.header()}
		a.Tasks, a.Page = part(rows, len(rows), limit)
		if n := p.last().WaitingMore; n > 0 {
			a.Matching, a.After = a.Matching+n, "end"
		}
	case *api.TaskDetail:
		*a = api.TaskDetail{Header: p.header(), Task: api.Task{Name: api.Name{Name: name}}, LongestGap: p.LongestGap(name)}
		for _, t := range p.waiting(func(w *api.Waiting) bool { return w.Task == name }) {
			a.Task = t
		}
		a.Changes, a.ChangesTotal = p.changes(history.Filter{Task: &name}, someRows)
		if a.ChangesTotal+len(a.Waiting) == 0 {
			return fail(exitUnknown, "the log has no change of a task %s", shown(a.Name))
		}
	}
	return nil
}

// part returns the first rows of a list, and what says so.
func part[R any](rows []R, matching, limit int) ([]R, api.Page) {
	page := api.Page{Total: matching, Matching: matching}
	if len(rows) > limit {
		rows, page.After = rows[:limit], "end" // a log is not read page by page
	}
	return slices.Concat([]R{}, rows), page
}

// header returns the last term of the log, and its end as the present.
func (p *past) header() (h api.Header) {
	h.Term, h.Start = p.Last()
	if last := p.last(); last.Stats.Term == h.Term {
		h.Took = last.Stats.Total
	}
	h.Now = h.Start.Add(h.Took)
	return h
}

// last returns the last term that is not quiet.
func (p *past) last() *history.Term {
	for t := range p.Terms(orchestrator.Term{}) {
		return t
	}
	return new(history.Term)
}

// filterOf returns which changes a query selects.
func filterOf(query url.Values) (f history.Filter, err error) {
	f.Reason, f.Outcome = orchestrator.Reason(query.Get("reason")), orchestrator.Outcome(query.Get("outcome"))
	if query.Has("task") {
		f.Task = new(query.Get("task"))
	}
	if query.Has("worker") {
		f.Worker = new(query.Get("worker"))
	}
	if query.Has("since") {
		f.Since, err = time.Parse(time.RFC3339Nano, query.Get("since"))
	}
	return f, err
}

func (p *past) changes(f history.Filter, limit int) (changes []api.RepeatedChange, matching int) {
	rows, matching := p.Repeated(f, history.Position{}, limit)
	changes = []api.RepeatedChange{}
	for _, row := range rows {
		changes = append(changes, api.RepeatedChange{Change: *row.Change, Term: row.At.Term, Times: row.Times})
	}
	return changes, matching
}

// workers returns the workers at the end of the log, those with problems first. The log says
// since when a worker is in a state that it has entered within the log.
func (p *past) workers(query url.Values, limit int) ([]api.Worker, api.Page) {
	entered := make(map[string]api.Worker)
	for t := range p.Terms(orchestrator.Term{}) {
		for _, e := range t.Events {
			if _, ok := entered[e.Worker]; !ok && (e.Before == nil || e.After == nil || e.Before.State != e.After.State) {
				entered[e.Worker] = api.Worker{Since: t.Stats.Start, SinceTerm: t.Stats.Term.Number, Err: e.Err}
			}
		}
	}
	pauses := map[orchestrator.PauseKind]map[string]*api.Pause{orchestrator.PauseWorker: {}, orchestrator.PauseFallen: {}}
	for _, pause := range p.last().Paused {
		if of := pauses[pause.Kind]; of != nil {
			of[pause.Worker] = &pause
		}
	}
	var rows []api.Worker
	all := p.Workers()
	for _, w := range all {
		row := entered[w.Name]
		row.Name.Name, row.State, row.Draining, row.Quarantined, row.Tasks = w.Name, w.State, w.Draining, w.Quarantined, w.Tasks
		row.Quarantine, row.Fallen = pauses[orchestrator.PauseWorker][w.Name], pauses[orchestrator.PauseFallen][w.Name]
		state := query.Get("state")
		if (state == "" || slices.Contains(strings.Split(stateText(&row), ", "), state)) && strings.Contains(w.Name, query.Get("q")) {
			rows = append(rows, row)
		}
	}
	rank := func(w *api.Worker) int {
		return slices.IndexFunc([]string{"lost", "silent", "quarantined", "draining", ""}, func(word string) bool { return strings.Contains(stateText(w), word) })
	}
	slices.SortStableFunc(rows, func(a, b api.Worker) int { return cmp.Compare(rank(&a), rank(&b)) })
	rows, page := part(rows, len(rows), limit)
	page.Total = len(all)
	return rows, page
}

// waiting returns the tasks of which instances waited at the end of the log, by name. They have
// at most a hundred reasons.
func (p *past) waiting(selects func(*api.Waiting) bool) (tasks []api.Task) {
	sorted := slices.Clone(p.last().Waiting)
	slices.SortStableFunc(sorted, func(a, b api.Waiting) int { return strings.Compare(a.Task, b.Task) })
	for _, w := range sorted {
		if !selects(&w) {
			continue
		}
		if n := len(tasks); n == 0 || tasks[n-1].Name.Name != w.Task {
			tasks = append(tasks, api.Task{Name: api.Name{Name: w.Task}})
		}
		t := &tasks[len(tasks)-1]
		t.Waiting = append(t.Waiting, w)
		t.WaitingTotal++
	}
	return tasks
}

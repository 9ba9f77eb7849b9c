package main

// Workers: workers, worker and quarantined.

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// maxRows is the largest number of rows in an answer.
const maxRows = 1000

// limitFlag defines the flag for the length of a list.
func limitFlag(f *flag.FlagSet, rows uint) *uint {
	return f.Uint("limit", rows, "the most rows, or 0 for all")
}

// queryFlag defines a flag that is a parameter of the request: one of some words, or any text
// without words.
func queryFlag(f *flag.FlagSet, query url.Values, name, usage string, words ...string) {
	if n := len(words) - 1; n > 0 {
		usage += ": " + strings.Join(words[:n], ", ") + " or " + words[n]
	}
	f.Func(name, usage, func(value string) error {
		if len(words) > 0 && !slices.Contains(words, value) {
			return fmt.Errorf("must be %s or %s", strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
		}
		query.Set(name, value)
		return nil
	})
}

// list reads a list page by page, up to a number of rows, or to its end if limit is 0. Rows
// returns the parts of an answer. If the list is cut, show says so.
func list[A, R any](ctx context.Context, s *session, route string, query url.Values, limit uint, rows func(*A) (*api.Page, *[]R)) (*A, error) {
	all, most := new(A), int(limit)
	for {
		var a A
		_, got := rows(all)
		wanted := maxRows
		if s.settings.log != nil {
			wanted = allRows
		}
		if most > 0 {
			wanted = min(wanted, most-len(*got))
		}
		query.Set("limit", strconv.Itoa(wanted))
		if err := s.get(ctx, route, query, &a); err != nil {
			return nil, err
		}
		next, more := rows(&a)
		merged := append(*got, *more...)
		*all = a // with the header of the last part
		page, got := rows(all)
		*page, *got = *next, merged
		if next.After == "" || len(*more) == 0 || most > 0 && len(merged) >= most || len(merged) >= next.Matching {
			break
		}
		query.Set("after", next.After)
	}
	if page, got := rows(all); page.After != "" {
		s.cut = fmt.Sprintf("only the first %s of %d; -limit 0 shows all", plural(len(*got), "row"), page.Matching)
	}
	return all, nil
}

func workers(f *flag.FlagSet) action {
	query := url.Values{}
	queryFlag(f, query, "state", "only workers in this `state`",
		"answering", "silent", "lost", "draining", "quarantined", "late", "stuck")
	queryFlag(f, query, "q", "only workers whose name contains this `text`")
	limit := limitFlag(f, maxRows)
	return func(ctx context.Context, s *session, _ []string) error {
		a, err := list(ctx, s, "workers", query, *limit, workersParts)
		if err != nil {
			return err
		}
		return s.show(a, column(a.Workers, (*api.Worker).String), func() string {
			heading := []string{"worker", "state", "since", "tasks", "why"}
			placed := slices.ContainsFunc(a.Workers, func(w api.Worker) bool { return placementText(&w) != "" })
			if placed {
				heading = append(heading, "placement")
			}
			var rows [][]string
			for _, w := range a.Workers {
				why := w.Err
				if f := w.Fallen; why == "" && f != nil {
					why = api.FellText(errText(f.Err), f.Ends)
				}
				if q := w.Quarantine; w.Err == "" && q != nil {
					why = fmt.Sprintf("%s until term %d: %v", plural(q.Failures, "failure"), q.Until, q.Err)
				}
				row := []string{shown(w.Name), stateText(&w), s.when(a.Now, w.Since), strconv.Itoa(w.Tasks), api.Printable(why)}
				if placed {
					row = append(row, placementText(&w))
				}
				rows = append(rows, row)
			}
			return s.screen.table(heading, rows)
		})
	}
}

// placementText returns the zone, the labels, the share, the limit and the weight of a worker
// as a list; "" without any.
func placementText(w *api.Worker) string {
	var parts []string
	s := &w.Settings
	if s.Zone != "" {
		parts = append(parts, "zone "+api.Printable(s.Zone))
	}
	for _, label := range s.Labels {
		parts = append(parts, api.Printable(label))
	}
	if s.Share > 1 {
		parts = append(parts, fmt.Sprintf("share %d", s.Share))
	}
	if s.MaxTasks > 0 {
		parts = append(parts, "at most "+plural(s.MaxTasks, "task"))
	}
	if w.Weight > 0 || w.Level > 0 {
		parts = append(parts, fmt.Sprintf("weighs %d of %d", w.Weight, w.Level))
	}
	return strings.Join(parts, ", ")
}

func workersParts(a *api.Workers) (*api.Page, *[]api.Worker) { return &a.Page, &a.Workers }

// stateText returns the state of a worker with what else is to know about it.
func stateText(w *api.Worker) string {
	words := []string{w.State.String()}
	for _, more := range []struct {
		is   bool
		word string
	}{{w.Late, "late"}, {w.Draining, "draining"}, {w.Quarantined, "quarantined"}, {w.Stuck, "stuck"}} {
		if more.is {
			words = append(words, more.word)
		}
	}
	return strings.Join(words, ", ")
}

func workerDetail(*flag.FlagSet) action {
	return func(ctx context.Context, s *session, args []string) error {
		var a api.WorkerDetail
		if err := s.get(ctx, "worker", url.Values{"name": args}, &a); err != nil {
			return err
		}
		names := column(a.Running, (*api.TaskState).String)
		return s.show(a, names, func() string { return s.workerText(&a) })
	}
}

func (s *session) workerText(a *api.WorkerDetail) string {
	var b strings.Builder
	w := &a.Worker
	fmt.Fprintf(&b, "%s: %s, %s\n", shown(w.Name), stateText(w), plural(w.Tasks, "task"))
	if !w.Since.IsZero() {
		fmt.Fprintf(&b, "since: %s\n", s.when(a.Now, w.Since))
	}
	if placement := placementText(w); placement != "" {
		fmt.Fprintf(&b, "placement: %s\n", placement)
	}
	if w.Err != "" {
		fmt.Fprintf(&b, "why: %s\n", api.Printable(w.Err))
	}
	if !w.LastAnswer.IsZero() && w.State != orchestrator.Answering {
		fmt.Fprintf(&b, "last answer: %s\n", s.when(a.Now, w.LastAnswer))
	}
	section(&b, s.pauses(a.Pauses))
	var rows [][]string
	for _, t := range a.Running {
		rows = append(rows, []string{shown(t.Name), cmp.Or(api.Printable(t.State), "-"), api.Printable(t.Err)})
	}
	section(&b, s.screen.table([]string{"task", "state", "last error"}, rows))
	more(&b, a.TasksPage.Matching-len(a.Running), "more task")
	rows = nil
	for _, e := range a.Events {
		rows = append(rows, []string{
			strconv.FormatUint(e.Term.Number, 10), s.when(a.Now, e.Start), conditionText(e.Before, "not there") + " -> " + conditionText(e.After, "removed"),
			strconv.Itoa(e.Tasks), api.Printable(e.Err),
		})
	}
	section(&b, s.screen.table([]string{"term", "start", "state", "tasks", "why"}, rows))
	more(&b, a.EventsTotal-len(rows), "earlier state")
	s.changeSection(&b, a.Changes, a.ChangesTotal)
	return b.String()
}

// conditionText returns the state of a worker in an event, or the word for none.
func conditionText(c *history.Condition, none string) string {
	if c == nil {
		return none
	}
	return stateText(&api.Worker{State: c.State, Draining: c.Draining, Quarantined: c.Quarantined})
}

// more says how many rows are left out.
func more(b *strings.Builder, n int, noun string) {
	if n > 0 {
		fmt.Fprintf(b, "and %s\n", plural(n, noun))
	}
}

// section appends a table after an empty line. It appends nothing if there is no table.
func section(b *strings.Builder, table string) {
	if table != "" {
		b.WriteString("\n" + table)
	}
}

// pauses returns the table of what the leader leaves alone.
func (s *session) pauses(pauses []api.Pause) string {
	var rows [][]string
	for _, p := range pauses {
		rows = append(rows, append([]string{pauseText(&p)}, pauseRow(&p)...))
	}
	return s.screen.table([]string{"paused", "until", "times", "why"}, rows)
}

func pauseText(p *api.Pause) string {
	kind := api.Printable(string(p.Kind))
	switch p.Kind {
	case orchestrator.PauseMoves:
		return "all " + kind
	case orchestrator.PauseWorker, orchestrator.PauseFallen:
		return kind + " " + name(p.Worker)
	case orchestrator.PauseTask:
		return kind + " " + name(p.Task)
	}
	return kind + " of " + name(p.Task) + " on " + name(p.Worker)
}

func pauseRow(p *api.Pause) []string {
	until := fmt.Sprint("term ", p.Until)
	if !p.Ends.IsZero() {
		until = clock(p.Ends)
	}
	return []string{until, strconv.Itoa(p.Failures), errText(p.Err)}
}

// errText returns the text of an error, or "" if it is nil.
func errText(err error) string {
	if err == nil {
		return ""
	}
	return api.Printable(err.Error())
}

func quarantined(f *flag.FlagSet) action {
	limit := limitFlag(f, maxRows)
	return func(ctx context.Context, s *session, _ []string) error {
		a, err := list(ctx, s, "workers", url.Values{"state": {"quarantined"}}, *limit, workersParts)
		if err != nil {
			return err
		}
		return s.show(a, column(a.Workers, (*api.Worker).String), func() string {
			var rows [][]string
			for _, w := range a.Workers {
				if w.Quarantine != nil {
					rows = append(rows, append([]string{shown(w.Name), strconv.Itoa(w.Tasks)}, pauseRow(w.Quarantine)...))
				}
			}
			return s.screen.table([]string{"worker", "tasks", "until", "times", "why"}, rows)
		})
	}
}

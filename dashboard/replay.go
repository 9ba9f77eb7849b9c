package dashboard

import (
	"context"
	"errors"
	"iter"
	"maps"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// Replay makes the handler show the end of its history as the present: that of a log which [WithHistory]
// was given. It knows the tasks of which instances waited or changed, and not where they run.
func (h *Handler) Replay() {
	h.replays = true
	h.lead.Store(&lead{leader: &replayed{h.history.View()}})
}

// replayed is the end of a log in the place of a leader.
type replayed struct{ *history.View }

func (r *replayed) Ready() error                { return nil }
func (r *replayed) Progress() (p api.Progress)  { return p }
func (r *replayed) Config() orchestrator.Config { return orchestrator.Config{} }
func (r *replayed) Last() snapshot              { return r }

// last returns the last term that was not quiet.
func (r *replayed) last() *history.Term {
	for t := range r.Terms(orchestrator.Term{}) {
		return t
	}
	return new(history.Term)
}

func (r *replayed) Stats() orchestrator.TermStats {
	stats := r.last().Stats
	if term, start := r.View.Last(); term != stats.Term {
		stats.Term, stats.Start, stats.Total = term, start, 0
	}
	return stats
}

func (r *replayed) Plan() api.Plan {
	t := r.last()
	return api.Plan{Stats: t.Stats, Waiting: t.Waiting, Paused: t.Paused, Holds: t.Holds}
}

// Workers returns the workers at the end of the log. It says since when a worker is in a state that it
// has entered within the log.
func (r *replayed) Workers() *workerTable {
	entered := make(map[string]api.Worker)
	for t := range r.Terms(orchestrator.Term{}) {
		for _, e := range t.Events {
			if _, ok := entered[e.Worker]; !ok && (e.Before == nil || e.After == nil || e.Before.State != e.After.State) {
				entered[e.Worker] = api.Worker{Since: t.Stats.Start, SinceTerm: t.Stats.Term.Number, Err: e.Err}
			}
		}
	}
	table := &workerTable{index: make(map[string]int), holders: func([]string, func(int, int)) {}}
	for i, w := range r.View.Workers() {
		row := entered[w.Name]
		row.Name.Name, row.State, row.Draining, row.Quarantined, row.Tasks = w.Name, w.State, w.Draining, w.Quarantined, w.Tasks
		table.rows, table.tasks = append(table.rows, row), append(table.tasks, func(func(string) bool) {})
		table.index[w.Name] = i
	}
	return table
}

func (r *replayed) Expected() iter.Seq[orchestrator.Task[string]] {
	names := make(map[string]bool)
	for i := range r.last().Waiting {
		names[r.last().Waiting[i].Task] = true
	}
	for _, c := range r.Changes(history.Filter{}) {
		names[c.Task] = true
	}
	return func(yield func(orchestrator.Task[string]) bool) {
		for name := range maps.Keys(names) {
			if !yield(orchestrator.Task[string]{Name: name}) {
				return
			}
		}
	}
}

func (r *replayed) Explain(string) ([]api.WorkerReason, []orchestrator.Hold) { return nil, nil }
func (r *replayed) States(int) []api.TaskState                               { return nil }

var errReplay = errors.New("a log has no plans, and nothing in it can be changed")

func (r *replayed) WhatIf(orchestrator.Hypothesis[int, string], []string) (api.Plan, error) {
	return api.Plan{}, errReplay
}

func (r *replayed) Drain(context.Context, int, bool) error { return errReplay }

package dashboard

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// mostPauses bounds api.WorkerDetail.Pauses.
const mostPauses = 100

// workerTable is the workers of a term.
type workerTable[W, T comparable] struct {
	states []orchestrator.WorkerState[W, T] // in the order of the term
	rows   []api.Worker                     // of states
	byText map[string][]int                 // indexes of states, in their order
}

func (v *termView[W, T]) makeWorkers() *workerTable[W, T] {
	n := len(v.plan.Workers)
	t := &workerTable[W, T]{rows: make([]api.Worker, n), byText: make(map[string][]int, n)}
	if v.snapshot == nil {
		return t
	}
	pauses := map[orchestrator.PauseKind]map[W]*api.Pause{orchestrator.PauseWorker: {}, orchestrator.PauseFallen: {}}
	for i := range v.plan.Paused {
		if p := &v.plan.Paused[i]; pauses[p.Kind] != nil {
			pauses[p.Kind][p.Worker] = new(history.PauseText(p))
		}
	}
	t.states = slices.AppendSeq(make([]orchestrator.WorkerState[W, T], 0, n), v.snapshot.Workers())
	for i := range t.states {
		state := &t.states[i]
		if v.plan.Stats.Observed { // it has not looked before
			state.Since, state.SinceTerm = time.Time{}, 0
		}
		text := history.NameText(state.Name)
		t.byText[text] = append(t.byText[text], i)
		t.rows[i] = api.Worker{
			Name:  key{text: text, nth: len(t.byText[text])}.name(),
			State: state.State, Late: v.plan.Workers[i].Late, Draining: state.Draining, Quarantined: state.Quarantined,
			Stuck: errors.Is(state.Err, orchestrator.ErrStuck), Quarantine: pauses[orchestrator.PauseWorker][state.Name],
			Fallen: pauses[orchestrator.PauseFallen][state.Name], Since: state.Since, SinceTerm: state.SinceTerm, Err: errText(state.Err),
			LastAnswer: state.LastAnswer, ListTook: state.ListTook, Tasks: len(state.Tasks), Settings: state.Settings, Weight: state.Weight, Level: state.Level,
		}
	}
	return t
}

// find returns the index of a worker, or -1. The first of a text may be one with its place.
func (t *workerTable[W, T]) find(text string, nth int) int {
	if all := t.byText[text]; nth <= len(all) {
		return all[nth-1]
	}
	if text, place := cutNth(text); place > 0 && nth == 1 {
		return t.find(text, place)
	}
	return -1
}

// named returns the index of the worker that a text names without a parameter for its place.
// Another worker is never taken for it: a text that may mean several is an error of the query.
func (v *view[W, T]) named(q *query, text string) int {
	table := v.workers()
	i, alike := table.find(text, 1), len(table.byText[text])
	first, place := cutNth(text)
	switch n := len(table.byText[first]); {
	case alike > 1:
		q.fail("%d workers are called %s: the first is %s.", alike, quote(text), quote(text+"#1"))
	case alike == 1 && 0 < place && place <= n && n > 1:
		q.fail("A worker is called %s, which also means one of %d that are called %s: the former is %s.", quote(text), n, quote(first), quote(text+"#1"))
	case i < 0 && q.err == nil:
		q.err = v.unknownName("No worker is called " + quote(text) + ".")
	}
	return i
}

// is reports whether a worker is in a state that the parameter "state" names.
func is(w *api.Worker, state string) bool {
	switch state {
	case "stuck":
		return w.Stuck
	case "late":
		return w.Late
	case "draining":
		return w.Draining
	case "quarantined":
		return w.Quarantined
	}
	return state == "" || w.State.String() == state
}

// rank orders workers: those that are not as they should be first.
func rank(w *api.Worker) int {
	for i, state := range []string{"lost", "stuck", "silent", "quarantined", "late", "draining"} {
		if is(w, state) {
			return i
		}
	}
	return 6
}

// workerList returns the workers that the query selects.
func (v *view[W, T]) workerList(q *query) (api.Workers, *api.Error) {
	table, contains := v.workers(), printable(q.text("q"))
	state := q.oneOf("state", "answering", "silent", "lost", "late", "draining", "quarantined", "stuck")
	order := q.oneOf("sort", "state", "name", "tasks")
	p := newPart[int](q)
	for i := range table.rows {
		w := &table.rows[i]
		if !is(w, state) || !strings.Contains(w.Name.Name, contains) {
			continue
		}
		k := key{text: w.Name.Name, nth: max(w.Nth, 1)}
		switch order {
		case "", "state":
			k.rank = rank(w)
		case "tasks":
			k.rank = -w.Tasks
		}
		p.add(k, i)
	}
	rows := []api.Worker{}
	for _, selected := range p.selected() {
		rows = append(rows, table.rows[selected.row])
	}
	out := api.Workers{Header: v.header()}
	out.Workers, out.Page = page(p, len(table.rows), rows)
	return out, q.err
}

// says returns what a worker says of its tasks.
func (v *termView[W, T]) says(worker W) map[T]*TaskState[T] {
	if v.h.taskStates == nil {
		return nil
	}
	states := v.h.taskStates(worker)
	says := make(map[T]*TaskState[T], len(states))
	for i := range states {
		says[states[i].Task] = &states[i]
	}
	return says
}

// text returns the state as the API has it.
func (s *TaskState[T]) text(name api.Name) api.TaskState {
	return api.TaskState{Name: name, State: printable(s.State), Err: printable(s.Err), Attempts: s.Attempts, Since: s.Since}
}

// worker returns one worker with a part of its tasks.
func (v *view[W, T]) worker(q *query) (api.WorkerDetail, *api.Error) {
	table := v.workers()
	name, nth := q.name()
	i := table.find(name, nth)
	if i < 0 {
		return api.WorkerDetail{}, v.unknownName("No worker is called " + quote(name) + ".")
	}
	state, text := &table.states[i], table.rows[i].Name.Name
	out := api.WorkerDetail{Header: v.header(), Worker: table.rows[i], Pauses: []api.Pause{}, Load: v.load(text)}
	out.Changes, out.ChangesTotal = v.changesOf(history.Filter{Worker: &text}, someChanges, q.bytes/8)
	out.Events, out.EventsTotal = v.eventsOf(text, q.bytes/8)
	if n := len(table.byText[text]); n > 1 {
		out.Alike = n
	}
	for j := range v.plan.Paused {
		if p := &v.plan.Paused[j]; p.Worker == state.Name && p.Kind != orchestrator.PauseMoves {
			if out.PausesTotal++; out.PausesTotal <= mostPauses {
				out.Pauses = append(out.Pauses, history.PauseText(p))
			}
		}
	}
	out.Pauses = out.Pauses[:fit(out.Pauses, q.bytes/8)]

	q.bytes /= 2
	p := newPart[T](q)
	for _, tasks := range [][]T{state.Tasks, state.LastTasks} {
		for _, t := range tasks {
			p.add(v.taskKey(t), t)
		}
	}
	says := v.says(state.Name)
	tasks := []api.TaskState{}
	for _, selected := range p.selected() {
		t := api.TaskState{Name: selected.name()}
		if s := says[selected.row]; s != nil {
			t = s.text(t.Name)
		}
		tasks = append(tasks, t)
	}
	out.Running, out.TasksPage = page(p, p.matching, tasks)
	return out, q.err
}

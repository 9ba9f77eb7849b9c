package dashboard

import (
	"cmp"
	"iter"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// mostPauses bounds api.WorkerDetail.Pauses.
const mostPauses = 100

// workerTable is the workers of a term.
type workerTable struct {
	rows  []api.Worker       // in the order of the term
	tasks []iter.Seq[string] // of rows; of a lost worker the last ones
	index map[string]int     // of rows, by name
	// holders calls has with the index of a worker for each of some tasks that it runs, and that of the task.
	holders func(tasks []string, has func(worker, task int))
}

func (v *termView) makeWorkers() *workerTable {
	if v.snapshot == nil {
		return &workerTable{holders: func([]string, func(int, int)) {}}
	}
	pauses := map[orchestrator.PauseKind]map[string]*api.Pause{orchestrator.PauseWorker: {}, orchestrator.PauseFallen: {}}
	for i := range v.plan().Paused {
		if p := &v.plan().Paused[i]; pauses[p.Kind] != nil {
			pauses[p.Kind][p.Worker] = p
		}
	}
	t := v.snapshot.Workers()
	for i := range t.rows {
		row := &t.rows[i]
		if v.stats.Observed { // it has not looked before
			row.Since, row.SinceTerm = time.Time{}, 0
		}
		row.Quarantine, row.Fallen = pauses[orchestrator.PauseWorker][row.Name.Name], pauses[orchestrator.PauseFallen][row.Name.Name]
	}
	return t
}

func (t *workerTable) has(name string) bool {
	_, ok := t.index[name]
	return ok
}

// find returns the index of a worker. It is -1, and an error of the query, if no worker has the name.
func (v *view) find(q *query, name string) int {
	i, ok := v.workers().index[name]
	if !ok {
		q.err = cmp.Or(q.err, v.unknownName("No worker is called "+quote(name)+"."))
		return -1
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
func (v *view) workerList(q *query) (api.Workers, *api.Error) {
	table, contains := v.workers(), printable(q.text("q"))
	state := q.oneOf("state", "answering", "silent", "lost", "late", "draining", "quarantined", "stuck")
	order := q.oneOf("sort", "state", "name", "tasks")
	p := newPart[int](q)
	for i := range table.rows {
		w := &table.rows[i]
		if !is(w, state) || !strings.Contains(w.Name.Name, contains) {
			continue
		}
		k := key{text: w.Name.Name}
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
func (v *termView) says(worker int) map[string]api.TaskState {
	says := make(map[string]api.TaskState)
	for _, s := range v.snapshot.States(worker) {
		says[s.Name.Name] = s
	}
	return says
}

// worker returns one worker with a part of its tasks.
func (v *view) worker(q *query) (api.WorkerDetail, *api.Error) {
	table := v.workers()
	i := v.find(q, q.name())
	if i < 0 {
		return api.WorkerDetail{}, q.err
	}
	text := table.rows[i].Name.Name
	out := api.WorkerDetail{Header: v.header(), Worker: table.rows[i], Pauses: []api.Pause{}, Load: append([]api.LoadPoint{}, v.past.Load(text)...)}
	out.Changes, out.ChangesTotal = v.changesOf(history.Filter{Worker: &text}, someChanges, q.bytes/8)
	out.Events, out.EventsTotal = v.eventsOf(text, q.bytes/8)
	for j := range v.plan().Paused {
		if p := &v.plan().Paused[j]; p.Worker == text && p.Kind != orchestrator.PauseMoves {
			if out.PausesTotal++; out.PausesTotal <= mostPauses {
				out.Pauses = append(out.Pauses, *p)
			}
		}
	}
	out.Pauses = out.Pauses[:fit(out.Pauses, q.bytes/8)]

	q.bytes /= 2
	p := newPart[string](q)
	for t := range table.tasks[i] {
		p.add(key{text: t}, t)
	}
	says, stays := v.says(i), make(map[string]orchestrator.Reason)
	for j := range v.plan().Waiting {
		if w := &v.plan().Waiting[j]; w.Named && w.Worker == text {
			stays[w.Task] = w.Reason
		}
	}
	tasks := []api.TaskState{}
	for _, selected := range p.selected() {
		t := says[selected.row]
		t.Name, t.Stays = selected.name(), stays[selected.row]
		tasks = append(tasks, t)
	}
	out.Running, out.TasksPage = page(p, p.matching, tasks)
	return out, q.err
}

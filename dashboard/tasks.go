package dashboard

import (
	"iter"
	"strings"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// findUnexpected returns the tasks that answering workers list and that are not expected.
func (v *termView) findUnexpected() map[string]bool {
	tasks, none := make(map[string]bool), true
	if v.snapshot == nil {
		return tasks
	}
	for range v.snapshot.Expected() {
		none = false
		break
	}
	for i, list := range v.workers().tasks {
		if none && v.workers().rows[i].State != orchestrator.Lost {
			list(func(task string) bool { tasks[task] = true; return true })
		}
	}
	for i := range v.plan().Changes {
		if c := &v.plan().Changes[i]; c.Kind.Reason == orchestrator.ReasonUnexpected && c.Outcome != orchestrator.OutcomeDone {
			tasks[c.Task] = true
		}
	}
	for i := range v.plan().Paused {
		if p := &v.plan().Paused[i]; p.Kind == orchestrator.PauseStop {
			tasks[p.Task] = true
		}
	}
	if len(tasks) > 0 && !none {
		for task := range v.snapshot.Expected() {
			delete(tasks, task.Name)
		}
	}
	return tasks
}

// allTasks yields the expected tasks and then the unexpected ones, which have no instances.
func (v *termView) allTasks() iter.Seq[orchestrator.Task[string]] {
	return func(yield func(orchestrator.Task[string]) bool) {
		if v.snapshot == nil {
			return
		}
		for task := range v.snapshot.Expected() {
			if !yield(task) {
				return
			}
		}
		for task := range v.unexpected() {
			if !yield(orchestrator.Task[string]{Name: task}) {
				return
			}
		}
	}
}

// taskList returns the tasks that the query selects.
func (v *view) taskList(q *query) (api.Tasks, *api.Error) {
	total, contains := 0, printable(q.text("q"))
	kind := q.oneOf("waiting", "any", "missing", "held", "staying", "unplaced", "failing")
	waits := make(map[string]bool)
	if kind != "" {
		for i := range v.plan().Waiting {
			if w := v.plan().Waiting[i]; isKind(w, kind) {
				waits[w.Task] = true
			}
		}
	}
	p := newPart[orchestrator.Task[string]](q)
	for task := range v.allTasks() {
		total++
		if kind != "" && !waits[task.Name] {
			continue
		}
		if strings.Contains(task.Name, contains) {
			p.add(key{text: task.Name}, task)
		}
	}
	out := api.Tasks{Header: v.header()}
	out.Tasks, out.Page = page(p, total, v.taskRows(p.selected()))
	return out, q.err
}

// isKind reports whether waiting instances are of a kind that the parameter "waiting" names.
func isKind(w api.Waiting, kind string) bool {
	return kind == "any" || kind == string(w.Kind()) || kind == "missing" && isMissing(&w)
}

// isMissing reports whether waiting instances neither run nor are held.
func isMissing(w *orchestrator.Waiting[string, string]) bool {
	return w.Kind() == orchestrator.WaitingUnplaced || w.Kind() == orchestrator.WaitingFailing
}

// taskRows returns the rows of some tasks. It takes a look-up in a map for each task of each
// worker.
func (v *view) taskRows(tasks []keyed[orchestrator.Task[string]]) []api.Task {
	rows, names, byName := make([]api.Task, len(tasks)), make([]string, len(tasks)), make(map[string]*api.Task, len(tasks))
	for i, t := range tasks {
		rows[i] = api.Task{
			Name: t.name(), Instances: t.row.Instances, Workers: []api.Name{},
			Requires: t.row.Requires, MaxPerZone: t.row.MaxPerZone, Weight: t.row.Weight,
		}
		names[i], byName[t.row.Name] = t.row.Name, &rows[i]
	}
	table := v.workers()
	table.holders(names, func(worker, task int) {
		row := &rows[task]
		if row.WorkersTotal++; row.WorkersTotal <= mostNames {
			row.Workers = append(row.Workers, table.rows[worker].Name)
		}
	})
	for i := range v.plan().Waiting {
		w := &v.plan().Waiting[i]
		row := byName[w.Task]
		if row == nil {
			continue
		}
		if isMissing(w) {
			row.Missing += w.Instances
		}
		if row.WaitingTotal++; row.WaitingTotal <= mostNames {
			row.Waiting = append(row.Waiting, *w)
		}
	}
	return rows
}

// findTask returns a task that is expected or runs.
func (v *view) findTask(name string) (task orchestrator.Task[string], ok bool) {
	for task := range v.allTasks() {
		if task.Name == name {
			return task, true
		}
	}
	v.workers().holders([]string{name}, func(int, int) { // those of silent workers are not in allTasks
		task.Name, ok = name, true
	})
	return task, ok
}

// task returns one task, and why each worker has it or not.
func (v *view) task(q *query) (api.TaskDetail, *api.Error) {
	text := q.name()
	task, ok := v.findTask(text)
	if !ok {
		return api.TaskDetail{}, v.unknownName("No task is called " + quote(text) + ".")
	}
	out := api.TaskDetail{
		Header: v.header(), Task: v.taskRows([]keyed[orchestrator.Task[string]]{{key{text: text}, task}})[0], LongestGap: v.past.LongestGap(text),
	}
	out.Changes, out.ChangesTotal = v.changesOf(history.Filter{Task: &text}, someChanges, q.bytes/4)
	q.bytes /= 2
	p := newPart[int](q)
	explained, holds := v.snapshot.Explain(text)
	out.Holds = someHolds(holds)
	table := v.workers()
	for i := range explained {
		explained[i].Worker = table.rows[i].Name
		k := key{text: table.rows[i].Name.Name}
		if !explained[i].Has {
			k.rank = 1
		}
		p.add(k, i)
	}
	reasons := []api.WorkerReason{}
	for _, selected := range p.selected() {
		reasons = append(reasons, explained[selected.row])
	}
	out.Reasons, out.ReasonsPage = page(p, p.matching, reasons)
	for i := range explained {
		if explained[i].Has && len(out.States) < mostNames {
			if s, ok := v.says(i)[text]; ok {
				out.States = append(out.States, api.InstanceState{Worker: table.rows[i].Name, State: s})
			}
		}
	}
	return out, q.err
}

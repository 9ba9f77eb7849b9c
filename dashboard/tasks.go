package dashboard

import (
	"iter"
	"strings"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// taskTable is what a term says of all tasks together. It has no row for each task, because
// a scan of a million tasks is fast enough.
type taskTable[T comparable] struct {
	expected   int // tasks
	unexpected []T // tasks that answering workers list and that are not expected
	// nths has the places of the names that share their text with an earlier one, from 2.
	nths map[T]int
}

func (v *termView[W, T]) makeTasks() *taskTable[T] {
	t := &taskTable[T]{nths: make(map[T]int)}
	if v.snapshot == nil {
		return t
	}
	for range v.snapshot.Expected() {
		t.expected++
	}
	t.unexpected = v.findUnexpected(t.expected)
	counts := make(map[string]int) // by text, of those that several names may have
	for task := range v.allTasks(t) {
		// Two strings share a text only if that of one differs from it.
		if text := history.NameText(task.Name); any(text) != any(task.Name) {
			counts[text] = 0
		}
	}
	if len(counts) == 0 {
		return t
	}
	for task := range v.allTasks(t) {
		text := history.NameText(task.Name)
		if n, ok := counts[text]; ok {
			counts[text] = n + 1
			if n > 0 {
				t.nths[task.Name] = n + 1
			}
		}
	}
	return t
}

// findUnexpected returns the tasks that run and are not expected.
func (v *termView[W, T]) findUnexpected(expected int) (tasks []T) {
	known := make(map[T]bool)
	add := func(task T) {
		if !known[task] {
			known[task] = true
			tasks = append(tasks, task)
		}
	}
	if expected == 0 {
		for i := range v.workers().states {
			for _, task := range v.workers().states[i].Tasks {
				add(task)
			}
		}
		return tasks
	}
	paused := make(map[T]bool) // their stops
	for i := range v.plan.Paused {
		if p := &v.plan.Paused[i]; p.Kind == orchestrator.PauseStop {
			paused[p.Task] = true
		}
	}
	if len(paused) > 0 {
		for task := range v.snapshot.Expected() {
			delete(paused, task.Name)
		}
	}
	for i := range v.plan.Changes {
		c := &v.plan.Changes[i]
		if c.Kind.Reason == orchestrator.ReasonUnexpected && c.Outcome != orchestrator.OutcomeDone {
			add(c.Task)
		}
	}
	for i := range v.plan.Paused {
		if p := &v.plan.Paused[i]; p.Kind == orchestrator.PauseStop && paused[p.Task] {
			add(p.Task)
		}
	}
	return tasks
}

// allTasks yields the expected tasks and then the unexpected ones, which have no instances.
func (v *termView[W, T]) allTasks(t *taskTable[T]) iter.Seq[orchestrator.Task[T]] {
	return func(yield func(orchestrator.Task[T]) bool) {
		if v.snapshot == nil {
			return
		}
		for task := range v.snapshot.Expected() {
			if !yield(task) {
				return
			}
		}
		for _, task := range t.unexpected {
			if !yield(orchestrator.Task[T]{Name: task}) {
				return
			}
		}
	}
}

// taskKey returns a task's place in a list.
func (v *termView[W, T]) taskKey(task T) key {
	return key{text: history.NameText(task), nth: max(v.tasks().nths[task], 1)}
}

// taskName returns a task's name.
func (v *termView[W, T]) taskName(task T) api.Name { return v.taskKey(task).name() }

// taskList returns the tasks that the query selects.
func (v *view[W, T]) taskList(q *query) (api.Tasks, *api.Error) {
	table, contains := v.tasks(), printable(q.text("q"))
	kind := orchestrator.WaitingKind(q.oneOf("waiting", "any", "missing", "held", "staying", "unplaced", "failing"))
	waits := make(map[T]bool)
	if kind != "" {
		for i := range v.plan.Waiting {
			if w := &v.plan.Waiting[i]; kind == "any" || w.Kind() == kind || kind == "missing" && isMissing(w) {
				waits[w.Task] = true
			}
		}
	}
	p := newPart[orchestrator.Task[T]](q)
	for task := range v.allTasks(table) {
		if kind != "" && !waits[task.Name] {
			continue
		}
		if k := v.taskKey(task.Name); strings.Contains(k.text, contains) {
			p.add(k, task)
		}
	}
	out := api.Tasks{Header: v.header()}
	out.Tasks, out.Page = page(p, table.expected+len(table.unexpected), v.taskRows(p.selected()))
	return out, q.err
}

// isMissing reports whether waiting instances neither run nor are held.
func isMissing[W, T comparable](w *orchestrator.Waiting[W, T]) bool {
	return w.Kind() == orchestrator.WaitingUnplaced || w.Kind() == orchestrator.WaitingFailing
}

// taskRows returns the rows of some tasks. It takes a look-up in a map for each task of each
// worker.
func (v *view[W, T]) taskRows(tasks []keyed[orchestrator.Task[T]]) []api.Task {
	rows, byName := make([]api.Task, len(tasks)), make(map[T]*api.Task, len(tasks))
	for i, t := range tasks {
		rows[i] = api.Task{
			Name: t.name(), Instances: t.row.Instances, Workers: []api.Name{},
			Requires: t.row.Requires, MaxPerZone: t.row.MaxPerZone, Weight: t.row.Weight,
		}
		byName[t.row.Name] = &rows[i]
	}
	table := v.workers()
	for i := range table.states {
		for _, task := range table.states[i].Tasks {
			row := byName[task]
			if row == nil {
				continue
			}
			if row.WorkersTotal++; row.WorkersTotal <= mostNames {
				row.Workers = append(row.Workers, table.rows[i].Name)
			}
		}
	}
	for i := range v.plan.Waiting {
		w := &v.plan.Waiting[i]
		row := byName[w.Task]
		if row == nil {
			continue
		}
		if isMissing(w) {
			row.Missing += w.Instances
		}
		if row.WaitingTotal++; row.WaitingTotal <= mostNames {
			row.Waiting = append(row.Waiting, history.WaitingText(w))
		}
	}
	return rows
}

// findTask returns a task that is expected or runs, by the text of its name and its place
// among those with the same text.
func (v *view[W, T]) findTask(text string, nth int) (task orchestrator.Task[T], ok bool) {
	found := make(map[T]bool)
	is := func(name T) bool {
		if history.NameText(name) == text && !found[name] {
			found[name] = true
		}
		return len(found) == nth && found[name]
	}
	for task := range v.allTasks(v.tasks()) {
		if is(task.Name) {
			return task, true
		}
	}
	table := v.workers()
	for i := range table.states { // those of silent workers are not in allTasks
		for _, name := range table.states[i].Tasks {
			if is(name) {
				return orchestrator.Task[T]{Name: name}, true
			}
		}
	}
	return task, false
}

// task returns one task, and why each worker has it or not.
func (v *view[W, T]) task(q *query) (api.TaskDetail, *api.Error) {
	text, nth := q.name()
	task, ok := v.findTask(text, nth)
	if first, place := cutNth(text); !ok && place > 0 && nth == 1 {
		if task, ok = v.findTask(first, place); ok {
			text, nth = first, place
		}
	}
	if !ok {
		return api.TaskDetail{}, v.unknownName("No task is called " + quote(text) + ".")
	}
	k := key{text: text, nth: nth}
	out := api.TaskDetail{
		Header: v.header(), Task: v.taskRows([]keyed[orchestrator.Task[T]]{{k, task}})[0], LongestGap: v.past.LongestGap(text),
	}
	for twin, nth := range v.tasks().nths {
		if nth > out.Alike && history.NameText(twin) == text {
			out.Alike = nth
		}
	}
	out.Changes, out.ChangesTotal = v.changesOf(history.Filter{Task: &text}, someChanges, q.bytes/4)
	q.bytes /= 2
	p := newPart[int](q)
	explanation, _ := v.snapshot.Explain(task.Name)
	out.Holds = someHolds(explanation.Holds)
	table := v.workers()
	for i := range explanation.Workers {
		k := key{text: table.rows[i].Name.Name, nth: max(table.rows[i].Nth, 1)}
		if !explanation.Workers[i].Has {
			k.rank = 1
		}
		p.add(k, i)
	}
	reasons := []api.WorkerReason{}
	for _, selected := range p.selected() {
		why := &explanation.Workers[selected.row]
		reasons = append(reasons, api.WorkerReason{
			Worker: selected.name(), Has: why.Has, Reason: why.Reason, Until: why.Until, Ends: why.Ends,
			Failure: printable(why.Failure), Label: why.Label,
		})
	}
	out.Reasons, out.ReasonsPage = page(p, p.matching, reasons)
	for i := range table.states {
		if v.h.taskStates == nil || len(out.States) == mostNames {
			break
		}
		if explanation.Workers[i].Has {
			if s := v.says(table.states[i].Name)[task.Name]; s != nil {
				out.States = append(out.States, api.InstanceState{Worker: table.rows[i].Name, State: s.text(out.Name)})
			}
		}
	}
	return out, q.err
}

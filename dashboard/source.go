package dashboard

// All that depends on the types of the names. The rest knows their text only.

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"iter"
	"reflect"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// Source is the orchestrator of the process that leads. [orchestrator.Orchestrator] and the
// managers that contain one implement it, and so does a replica, whether it leads or not. While a
// Source with a method Ready() error, as a replica has, returns an error, the handler shows that
// in place of a term.
type Source[W, T comparable] interface {
	Last() *orchestrator.Snapshot[W, T]
	OnTerm(f func(*orchestrator.Snapshot[W, T])) (stop func())
	Plan(h orchestrator.Hypothesis[W, T]) (orchestrator.Plan[W, T], error)
	Progress() orchestrator.Progress[W]
	Config() orchestrator.Config
}

// leader is a Source with text for names.
type leader interface {
	Ready() error
	Last() snapshot // nil before the first term
	Progress() api.Progress
	Config() orchestrator.Config
}

// snapshot is an [orchestrator.Snapshot] with text for names. Equal ones are of the same term.
// Workers are numbered from 0, in the order of the term.
type snapshot interface {
	Stats() orchestrator.TermStats
	// Plan returns the plan without Workers, and of its changes only those that were not carried out
	// and those of tasks that fail or pause.
	Plan() api.Plan
	// Workers returns the workers. Of those whose names have the same text, the second is w1#2.
	Workers() *workerTable
	Expected() iter.Seq[orchestrator.Task[string]]
	// Explain returns why each worker has a task or not, without the names of the workers, and why the
	// task would not move for an even spread.
	Explain(task string) ([]api.WorkerReason, []orchestrator.Hold)
	// WhatIf plans what h says of workers, and new workers with the texts of add. Of the changes, it
	// returns the first ones.
	WhatIf(h orchestrator.Hypothesis[int, string], add []string) (api.Plan, error)
	Drain(ctx context.Context, worker int, draining bool) error
	States(worker int) []api.TaskState
}

// Lead makes the handler show the terms of source, because this process leads, and records
// them in the history. A later call replaces the source, also in the history. After stop, the
// handler answers that this process does not lead, unless Lead was called again. So it does
// after a term that was deposed. A second call of stop does nothing.
//
// If [WithDrain] or [WithTaskStates] got a function for names of other types, the handler
// answers all requests with an error that says so.
func Lead[W, T comparable](h *Handler, source Source[W, T]) (stop func()) {
	h.leading.Lock()
	defer h.leading.Unlock()
	if h.recorded != nil {
		h.recorded.stopRecord()
	}
	b := &border[W, T]{Source: source}
	b.drain = typed[func(context.Context, W) error](&b.unfit, "WithDrain", h.drain)
	b.undrain = typed[func(context.Context, W) error](&b.unfit, "WithDrain", h.undrain)
	b.states = typed[func(W) []TaskState[T]](&b.unfit, "WithTaskStates", h.taskStates)
	l := &lead{leader: b}
	h.recorded = l
	h.lead.Store(l) // before the history has its terms
	l.stopRecord = history.Record(h.history, source)
	return func() {
		h.leading.Lock()
		defer h.leading.Unlock()
		l.stopRecord()
		if h.recorded == l {
			h.recorded = nil
		}
		h.lead.CompareAndSwap(l, nil)
		h.last.Store(nil) // it refers to a snapshot
	}
}

// border turns names into text, and text into names.
type border[W, T comparable] struct {
	Source[W, T]
	drain, undrain func(context.Context, W) error // nil: read-only
	states         func(W) []TaskState[T]         // nil: not known
	unfit          error                          // an option is for other types
}

// typed returns an option's function. It sets unfit if that has another type.
func typed[F any](unfit *error, option string, given any) F {
	f, ok := given.(F)
	if given != nil && !ok {
		*unfit = invalid("%s got a %T: for the names of this source it must be a %T", option, given, f)
	}
	return f
}

func (b *border[W, T]) Ready() error {
	if r, ok := b.Source.(interface{ Ready() error }); ok && b.unfit == nil {
		return r.Ready()
	}
	return b.unfit
}

func (b *border[W, T]) Last() snapshot {
	if s := b.Source.Last(); s != nil {
		return textSnapshot[W, T]{b, s}
	}
	return nil
}

func (b *border[W, T]) Progress() api.Progress {
	p := b.Source.Progress()
	return api.Progress{
		Term: p.Term, Start: p.Start, Phase: p.Phase, Since: p.Since, Done: p.Done, Total: p.Total,
		WaitingFor: convert(p.WaitingFor, func(name *W) string { return history.NameText(*name) }),
	}
}

// textSnapshot is a snapshot of a source.
type textSnapshot[W, T comparable] struct {
	*border[W, T]
	term *orchestrator.Snapshot[W, T]
}

func (s textSnapshot[W, T]) Stats() orchestrator.TermStats { return s.term.Plan().Stats }

func (s textSnapshot[W, T]) Plan() api.Plan {
	p, fails := s.term.Plan(), make(map[T]bool)
	for i := range p.Waiting {
		if w := &p.Waiting[i]; w.Kind() == orchestrator.WaitingFailing {
			fails[w.Task] = true
		}
	}
	for i := range p.Paused {
		fails[p.Paused[i].Task] = true
	}
	all := p.Changes
	p.Workers, p.Changes = nil, nil
	for i := range all {
		if all[i].Outcome != orchestrator.OutcomeDone || len(fails) > 0 && fails[all[i].Task] {
			p.Changes = append(p.Changes, all[i])
		}
	}
	return planText(&p)
}

func (s textSnapshot[W, T]) Workers() *workerTable {
	plan := s.term.Plan().Workers
	table := &workerTable{index: make(map[string]int, len(plan))}
	lists := make([][]T, 0, len(plan))
	table.holders = func(tasks []string, has func(worker, task int)) {
		names := s.named(tasks)
		for i, list := range lists {
			for _, name := range list {
				if j, ok := names[name]; ok {
					has(i, j)
				}
			}
		}
	}
	for w := range s.term.Workers() {
		i, name := len(table.rows), history.NameText(w.Name)
		for n := 2; table.has(name); n++ {
			name = fmt.Sprintf("%s#%d", history.NameText(w.Name), n)
		}
		table.index[name], lists = i, append(lists, w.Tasks)
		table.rows = append(table.rows, api.Worker{
			Name: api.Name{Name: name}, State: w.State, Late: plan[i].Late, Draining: w.Draining, Quarantined: w.Quarantined,
			Stuck: errors.Is(w.Err, orchestrator.ErrStuck), Since: w.Since, SinceTerm: w.SinceTerm, Err: errText(w.Err),
			LastAnswer: w.LastAnswer, ListTook: w.ListTook, Tasks: len(w.Tasks), Settings: w.Settings, Weight: w.Weight, Level: w.Level,
			OutOfBand: plan[i].OutOfBand,
		})
		table.tasks = append(table.tasks, func(yield func(string) bool) {
			for _, list := range [][]T{w.Tasks, w.LastTasks} {
				for _, task := range list {
					if !yield(history.NameText(task)) {
						return
					}
				}
			}
		})
	}
	return table
}

// Expected copies no task twice if their names are strings.
func (s textSnapshot[W, T]) Expected() iter.Seq[orchestrator.Task[string]] {
	if tasks, ok := any(s.term.Expected()).(iter.Seq[orchestrator.Task[string]]); ok {
		return func(yield func(orchestrator.Task[string]) bool) {
			for t := range tasks {
				if t.Name = history.NameText(t.Name); !yield(t) {
					return
				}
			}
		}
	}
	return func(yield func(orchestrator.Task[string]) bool) {
		for t := range s.term.Expected() {
			if !yield(orchestrator.NewTask(history.NameText(t.Name), t.Settings())) {
				return
			}
		}
	}
}

func (s textSnapshot[W, T]) Explain(task string) ([]api.WorkerReason, []orchestrator.Hold) {
	var e orchestrator.Explanation[W]
	for name := range s.named([]string{task}) {
		e, _ = s.term.Explain(name)
	}
	return convert(e.Workers, func(w *orchestrator.WorkerReason[W]) api.WorkerReason {
		return api.WorkerReason{
			Has: w.Has, Reason: w.Reason, Until: w.Until, Ends: w.Ends, Failure: printable(w.Failure), Label: w.Label,
		}
	}), e.Holds
}

// named returns the tasks with some texts, and the index of the text of each. A string is found at once.
func (s textSnapshot[W, T]) named(texts []string) map[T]int {
	names, others := make(map[T]int, len(texts)), make(map[string]int)
	for i, text := range texts {
		if name, ok := any(text).(T); ok && text[0] != '"' {
			names[name] = i
		} else {
			others[text] = i
		}
	}
	add := func(name T) {
		if i, ok := others[history.NameText(name)]; ok {
			names[name] = i
		}
	}
	if len(others) > 0 {
		for t := range s.term.Expected() {
			add(t.Name)
		}
		for w := range s.term.Workers() {
			for _, name := range w.Tasks {
				add(name)
			}
		}
	}
	return names
}

func (s textSnapshot[W, T]) worker(i int) W { return s.term.Plan().Workers[i].Name }

func (s textSnapshot[W, T]) WhatIf(h orchestrator.Hypothesis[int, string], add []string) (api.Plan, error) {
	names := func(workers []int) []W { return convert(workers, func(i *int) W { return s.worker(*i) }) }
	out := orchestrator.Hypothesis[W, T]{Drain: names(h.Drain), Undrain: names(h.Undrain), Silence: names(h.Silence), Lose: names(h.Lose)}
	for _, text := range add {
		name, err := parseName[W](text)
		if err != nil {
			return api.Plan{}, invalid("the parameter add is %s: %v", quote(text), err)
		}
		out.AddWorkers = append(out.AddWorkers, orchestrator.Worker[W]{Name: name})
	}
	p, err := s.Source.Plan(out)
	p.Changes = p.Changes[:min(len(p.Changes), mostRows)]
	return planText(&p), err
}

func (s textSnapshot[W, T]) Drain(ctx context.Context, worker int, draining bool) error {
	if draining {
		return s.drain(ctx, s.worker(worker))
	}
	return s.undrain(ctx, s.worker(worker))
}

func (s textSnapshot[W, T]) States(worker int) []api.TaskState {
	if s.states == nil {
		return nil
	}
	return convert(s.states(s.worker(worker)), func(t *TaskState[T]) api.TaskState {
		return api.TaskState{
			Name: api.Name{Name: history.NameText(t.Task)}, State: printable(t.State), Err: printable(t.Err), Attempts: t.Attempts, Since: t.Since, Failing: t.Failing,
		}
	})
}

// planText returns a plan with text for names.
func planText[W, T comparable](p *orchestrator.Plan[W, T]) api.Plan {
	return api.Plan{
		Stats: p.Stats, Holds: p.Holds, Changes: convert(p.Changes, history.ChangeText[W, T]),
		Waiting: convert(p.Waiting, history.WaitingText[W, T]), Paused: convert(p.Paused, history.PauseText[W, T]),
		Workers: convert(p.Workers, func(w *orchestrator.WorkerPlan[W]) orchestrator.WorkerPlan[string] {
			return orchestrator.WorkerPlan[string]{
				Name: history.NameText(w.Name), State: w.State, Late: w.Late, Draining: w.Draining, Quarantined: w.Quarantined,
				Before: w.Before, After: w.After, Weight: w.Weight, Level: w.Level, OutOfBand: w.OutOfBand, Settings: w.Settings,
			}
		}),
	}
}

// convert converts the values of a list.
func convert[From, To any](list []From, one func(*From) To) []To {
	out := make([]To, len(list))
	for i := range out {
		out[i] = one(&list[i])
	}
	return out
}

// parseName returns the name with a text, for a worker that is not known yet.
func parseName[N comparable](text string) (name N, err error) {
	if u, ok := any(&name).(encoding.TextUnmarshaler); ok {
		return name, u.UnmarshalText([]byte(text))
	}
	if v := reflect.ValueOf(&name).Elem(); v.Kind() == reflect.String {
		v.SetString(text)
		return name, nil
	}
	if _, err = fmt.Sscan(text, &name); err != nil {
		err = fmt.Errorf("no text of a %T, which has no method UnmarshalText: %w", name, err)
	}
	return name, err
}

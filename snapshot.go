package orchestrator

import (
	"encoding/json"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator/internal/term"
)

// Snapshot is one term as it ended: its plan, the workers with their tasks, and the tasks
// that it expected, which all agree with each other. It does not change, and its methods
// are safe for concurrent use. A snapshot that is kept keeps the workers' last answers and the
// expected tasks in memory.
type Snapshot[W, T comparable] struct {
	plan     Plan[W, T]
	fleet    *term.Snapshot
	workers  []workerResult[W, T] // of fleet, in its order
	losers   map[uint64]W         // the names of removed workers, by serial
	expected []taskDef[T]
	// undecided: the term ended before it could decide.
	undecided bool
}

// workerResult is the names in a worker's result, in a form that is cheap to make: its
// answer, and the writes acknowledged since.
type workerResult[W, T comparable] struct {
	name W
	list []T
	*workerRest[T]
}

// workerRest is the part of a worker's result that is empty for most workers in most terms.
type workerRest[T comparable] struct {
	acked []Write[T]
	err   error
}

// Last returns the last term of NextTerm, or nil before the first one. It takes no time
// and never blocks, even during a term.
func (o *Orchestrator[W, T]) Last() *Snapshot[W, T] { return o.last.Load() }

// LastPlan returns the plan of [Orchestrator.Last]: its statistics, and every change and
// omission with its reason and outcome. It returns the zero Plan before the first term. Its
// slices are shared and must not be changed. LastPlan never blocks, even during a term.
func (o *Orchestrator[W, T]) LastPlan() Plan[W, T] {
	last := o.Last()
	if last == nil {
		return Plan[W, T]{}
	}
	return last.plan
}

// LastActual returns the workers of [Orchestrator.Last], as the last term of NextTerm left
// them. It returns nil before the first term. The caller owns the result. LastActual never
// blocks, even during a term.
func (o *Orchestrator[W, T]) LastActual() []WorkerState[W, T] {
	last := o.Last()
	if last == nil {
		return nil
	}
	states := slices.AppendSeq(make([]WorkerState[W, T], 0, len(last.workers)), last.Workers())
	for i := range states {
		states[i].Tasks, states[i].LastTasks = slices.Clone(states[i].Tasks), slices.Clone(states[i].LastTasks)
	}
	return states
}

// Plan returns the plan of the term. Its slices are shared and must not be changed.
func (s *Snapshot[W, T]) Plan() Plan[W, T] { return s.plan }

// Workers yields the workers as the term left them, in the order in which they were added:
// each with its last answer and the writes that it has acknowledged since. Their slices are
// shared and must not be changed. Only the tasks of workers that were written to, or that
// listed a task twice, are copied.
func (s *Snapshot[W, T]) Workers() iter.Seq[WorkerState[W, T]] {
	return func(yield func(WorkerState[W, T]) bool) {
		for i := range s.workers {
			if !yield(s.worker(i)) {
				return
			}
		}
	}
}

// Loads yields the number of tasks of each worker, 0 for a lost one, in the order of
// Workers. It copies nothing.
func (s *Snapshot[W, T]) Loads() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range s.fleet.Workers {
			if !yield(s.fleet.Load(i)) {
				return
			}
		}
	}
}

// worker returns the worker at an index.
func (s *Snapshot[W, T]) worker(i int) WorkerState[W, T] {
	w := &s.fleet.Workers[i]
	state := WorkerState[W, T]{
		Name: s.workers[i].name, State: State(w.State), Since: w.Standing.Time, SinceTerm: w.Standing.Term, Err: s.workers[i].err,
		Draining: w.Draining, Quarantined: s.plan.Workers[i].Quarantined, Settings: settingsOf(w.Rules),
		Weight: s.plan.Workers[i].Weight, Level: s.plan.Workers[i].Level,
	}
	if w.Heard {
		state.LastAnswer, state.ListTook = w.Since, w.Took
	}
	if state.State == Lost {
		state.LastTasks = s.tasks(i)
	} else {
		state.Tasks = s.tasks(i)
	}
	return state
}

// tasks returns the tasks of the worker at an index, each once. The slice may be shared.
func (s *Snapshot[W, T]) tasks(i int) []T {
	w := &s.workers[i]
	if !s.fleet.Workers[i].Repeats && len(w.acked) == 0 {
		return w.list
	}
	runs := make(map[T]bool, len(w.list)+len(w.acked))
	tasks := make([]T, 0, len(w.list)+len(w.acked))
	put := func(t T) {
		if _, known := runs[t]; !known {
			tasks = append(tasks, t)
		}
		runs[t] = true
	}
	for _, t := range w.list {
		put(t)
	}
	for _, write := range w.acked {
		if write.Op == OpAdd {
			put(write.Task)
		} else {
			runs[write.Task] = false
		}
	}
	return slices.DeleteFunc(tasks, func(t T) bool { return !runs[t] })
}

// Expected yields the tasks that the term expected, in the order of
// [Orchestrator.ListExpectedTasks]. Instances is at least 1.
func (s *Snapshot[W, T]) Expected() iter.Seq[Task[T]] { return expectedOf(s.expected) }

// WorkerState is a worker as a term left it.
type WorkerState[W, T comparable] struct {
	Name W `json:"name"`
	// Tasks is the worker's last answer with the writes that it has acknowledged since,
	// each task once. It is empty for a lost worker.
	Tasks []T `json:"tasks"`
	// LastTasks holds the tasks that a lost worker had. It is nil for other workers.
	LastTasks []T   `json:"last_tasks,omitempty"`
	State     State `json:"state"`
	// Since and SinceTerm are the start and the number of the first of the consecutive
	// terms that found the worker in this state.
	Since     time.Time `json:"since"`
	SinceTerm uint64    `json:"since_term"`
	// Err is why the term has no answer of a silent, late or lost worker. It is nil if
	// the worker answered.
	Err error `json:"-"`
	// Draining reports whether the worker drains, and Quarantined whether it receives no
	// tasks because it failed to start some.
	Draining    bool `json:"draining,omitempty"`
	Quarantined bool `json:"quarantined,omitempty"`
	// LastAnswer is the time of its last answer, zero if it never answered, and ListTook
	// the duration of that call.
	LastAnswer time.Time     `json:"last_answer,omitzero"`
	ListTook   time.Duration `json:"list_took_ns,omitempty"`
	// Settings are those of the worker; a share of 0 is 1.
	Settings WorkerSettings `json:"settings,omitzero"`
	// Weight and Level are as in [WorkerPlan].
	Weight int64 `json:"weight,omitempty"`
	Level  int64 `json:"level,omitempty"`
}

// plainState is a WorkerState without methods.
type plainState[W, T comparable] WorkerState[W, T]

// workerStateJSON is the JSON form of WorkerState.
type workerStateJSON[W, T comparable] struct {
	*plainState[W, T]

	Err string `json:"err,omitempty"`
}

// MarshalJSON writes Err as its text.
func (w WorkerState[W, T]) MarshalJSON() ([]byte, error) {
	return json.Marshal(workerStateJSON[W, T]{(*plainState[W, T])(&w), errText(w.Err)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (w *WorkerState[W, T]) UnmarshalJSON(data []byte) error {
	in := workerStateJSON[W, T]{plainState: new(plainState[W, T])}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*w = WorkerState[W, T](*in.plainState)
	w.Err = textError(in.Err)
	return nil
}

// OnTerm registers a function that NextTerm calls at the end of each term, in its goroutine,
// after those of [WithStats]. Last returns the same snapshot by then. A slow f delays the
// next term. f must not call NextTerm; it may call OnTerm and stop. f must not be nil.
//
// Functions are called in the order in which they were registered. After stop no call of f
// begins; one that has begun may still run. A second call of stop does nothing.
func (o *Orchestrator[W, T]) OnTerm(f func(*Snapshot[W, T])) (stop func()) {
	one := &observer[W, T]{call: f}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.observers = append(slices.Clip(o.observers), one)
	return func() {
		one.stopped.Store(true)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.observers = slices.DeleteFunc(slices.Clone(o.observers), func(other *observer[W, T]) bool { return other == one })
	}
}

// observer is a function registered by OnTerm.
type observer[W, T comparable] struct {
	call    func(*Snapshot[W, T])
	stopped atomic.Bool
}

// observe calls the functions registered by OnTerm.
func (o *Orchestrator[W, T]) observe(s *Snapshot[W, T]) {
	o.mu.Lock()
	observers := o.observers // never changed in place
	o.mu.Unlock()
	for _, one := range observers {
		if !one.stopped.Load() {
			one.call(s)
		}
	}
}

package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator/internal/breaker"
)

// The Orchestrator, and the methods that change what is expected.

// Orchestrator keeps the expected tasks running on the workers, as many
// instances of each as it wants, evenly spread. W and T are the names of
// workers and tasks, anything that can be compared.
//
// It does nothing by itself: the leader calls NextTerm on a ticker, or Run. All
// methods may be called from many goroutines at once; terms run one after the
// other, and every other method returns at once, also while a term is under
// way.
type Orchestrator[W, T comparable] struct {
	comm    Communicator[W, T]
	applier Applier[W, T] // nil where comm is none
	cfg     config

	// changed holds a token while there is a change that Run has not seen.
	changed chan struct{}

	// mu guards what is expected. It is held for moments only, never over a
	// call to the outside.
	mu      sync.Mutex
	tasks   taskTable[T]
	members memberTable[W]

	// turn holds a token while a term is under way; who put it there owns what
	// follows.
	turn       chan struct{}
	number     uint64
	fleet      fleet[W, T]
	breakers   *breaker.Breakers
	breakersOf uint64 // the version of expect that breakers last forgot gone tasks for
	expect     expectation
	decider    decider[W, T]

	tick atomic.Int64 // the ticker of Run, as a time.Duration; 0 without Run

	// When the log was last told of what lasts.
	massLoss, stopping reminder
	failing            struct{ moves, tasks, unheard reminder }

	lines lines[W, T]
	last  atomic.Pointer[result[W, T]]
}

// New makes an orchestrator that reaches the workers through c. It returns
// every problem with the options at once.
func New[W, T comparable](c Communicator[W, T], opts ...Option) (*Orchestrator[W, T], error) {
	if c == nil {
		return nil, invalid("the Communicator is nil")
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	applier, _ := c.(Applier[W, T])
	return &Orchestrator[W, T]{
		comm:    c,
		applier: applier,
		cfg:     cfg,
		changed: make(chan struct{}, 1),
		tasks:   newTaskTable[T](),
		members: memberTable[W]{byName: make(map[W]*member[W])},
		turn:    make(chan struct{}, 1),
		lines:   newLines[W, T](),

		breakers: breaker.New(cfg.maxPause),
	}, nil
}

// grace is how long a worker may be silent before it is lost (T4).
func (o *Orchestrator[W, T]) grace() time.Duration {
	if o.cfg.grace >= 0 {
		return o.cfg.grace
	}
	return defaultGrace * max(o.cfg.timeout, time.Duration(o.tick.Load()))
}

// AddTask makes a task expected, from the next term on. An existing name is
// redefined: what opts do not say has its default again. A bad option is an
// error, and changes nothing.
func (o *Orchestrator[W, T]) AddTask(name T, opts ...TaskOption) error {
	if err := checkName("task", name); err != nil {
		return err
	}
	c := taskConfig{instances: 1}
	for _, opt := range opts {
		if opt == nil {
			return fmt.Errorf("task %v: %w", name, invalid("a TaskOption is nil"))
		}
		if err := opt.applyTask(&c); err != nil {
			return fmt.Errorf("task %v: %w", name, err)
		}
	}
	o.mu.Lock()
	changed := o.tasks.set(name, int32(c.instances), c.handoff) || !o.tasks.loaded
	o.tasks.loaded = true
	o.mu.Unlock()
	o.signal(changed)
	return nil
}

// RemoveTask makes a task no longer expected: the next term stops it wherever
// it runs. A name that is not expected, or that AddTask would refuse, is ignored.
func (o *Orchestrator[W, T]) RemoveTask(name T) {
	if checkName("task", name) != nil {
		return
	}
	o.mu.Lock()
	changed := o.tasks.set(name, 0, HandoffDefault)
	o.mu.Unlock()
	o.signal(changed)
}

// expects reports whether a task is expected by now.
func (o *Orchestrator[W, T]) expects(task int32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tasks.defs[task].instances > 0
}

// UpdateTasks replaces all that is expected by tasks, or, where one of them is
// invalid or named twice, returns an error and changes nothing. Nil means that
// nothing is expected, and has the next term stop every task. The slice is
// copied.
//
// Until AddTask or UpdateTasks was called once, no task counts as unexpected and
// nothing is stopped. From the first call on everything else is: so load all
// tasks at once with UpdateTasks, or before the first term.
func (o *Orchestrator[W, T]) UpdateTasks(tasks []Task[T]) error {
	if err := checkTasks(tasks); err != nil {
		return fmt.Errorf("update tasks: %w", err)
	}
	o.mu.Lock()
	changed := o.tasks.replace(tasks) || !o.tasks.loaded
	o.tasks.loaded = true
	o.mu.Unlock()
	o.signal(changed)
	return nil
}

// ListExpectedTasks returns the tasks that are expected, in an order that stays
// the same from call to call. The slice is the caller's; Instances is never 0.
func (o *Orchestrator[W, T]) ListExpectedTasks() []Task[T] {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tasks.list()
}

// AddWorker adds a worker, which the next term asks what it runs and gives its
// share of tasks. An existing name is redefined and keeps its state: what is
// known of it, and whether DrainWorker was called.
func (o *Orchestrator[W, T]) AddWorker(name W, opts ...WorkerOption) error {
	if err := checkName("worker", name); err != nil {
		return err
	}
	var c workerConfig
	for _, opt := range opts {
		if opt == nil {
			return fmt.Errorf("worker %v: %w", name, invalid("a WorkerOption is nil"))
		}
		if err := opt.applyWorker(&c); err != nil {
			return fmt.Errorf("worker %v: %w", name, err)
		}
	}
	o.mu.Lock()
	changed := o.members.set(name, c.draining)
	o.mu.Unlock()
	o.signal(changed)
	return nil
}

// RemoveWorker says that a worker is stopped, or fenced off: it holds nothing
// any more, and the next term starts its tasks elsewhere. To take a worker away
// that still runs, drain it first. An unknown name, or one that AddWorker would
// refuse, is ignored.
func (o *Orchestrator[W, T]) RemoveWorker(name W) {
	if checkName("worker", name) != nil {
		return
	}
	o.mu.Lock()
	changed := o.members.remove(name)
	o.mu.Unlock()
	o.signal(changed)
}

// UpdateWorkers replaces the set of workers by workers, or, where a name
// appears twice, returns an error and changes nothing. Those that were there
// keep their state, as with AddWorker; those left out are removed, which says
// the same of them as RemoveWorker. The slice is copied.
func (o *Orchestrator[W, T]) UpdateWorkers(workers []Worker[W]) error {
	seen := make(map[W]int, len(workers))
	for i, w := range workers {
		if err := checkName("worker", w.Name); err != nil {
			return fmt.Errorf("update workers: %w", err)
		}
		if first, ok := seen[w.Name]; ok {
			return fmt.Errorf("update workers: %w", invalid("worker %v is given twice, at %d and at %d", w.Name, first, i))
		}
		seen[w.Name] = i
	}
	o.mu.Lock()
	changed := o.members.replace(workers, func(name W) bool { _, ok := seen[name]; return ok })
	o.mu.Unlock()
	o.signal(changed)
	return nil
}

// DrainWorker has a worker end with no tasks, while it keeps answering: its
// tasks move away, and it gets no others. A task that no other worker can take
// stays, and [Orchestrator.LastPlan] says so.
func (o *Orchestrator[W, T]) DrainWorker(name W) error {
	return o.setDrained(name, true)
}

// UndrainWorker takes back what DrainWorker said. A worker that was added as
// draining drains on.
func (o *Orchestrator[W, T]) UndrainWorker(name W) error {
	return o.setDrained(name, false)
}

func (o *Orchestrator[W, T]) setDrained(name W, drained bool) error {
	if err := checkName("worker", name); err != nil {
		return err
	}
	o.mu.Lock()
	m := o.members.byName[name]
	changed := m != nil && m.drained != drained
	if changed {
		m.drained = drained
		o.members.version++
	}
	o.mu.Unlock()
	if m == nil {
		return fmt.Errorf("%w: %v", ErrUnknownWorker, name)
	}
	o.signal(changed)
	return nil
}

// signal tells Run that the expectations changed.
func (o *Orchestrator[W, T]) signal(changed bool) {
	if !changed {
		return
	}
	select {
	case o.changed <- struct{}{}:
	default: // it knows already
	}
}

// LastActual returns what the last term of NextTerm left behind: for each
// worker what it answered, with the writes applied that it has acknowledged
// since; silent and lost workers with their last answer. It is nil before the
// first term, and otherwise the caller's to keep. It never blocks, also during
// a term.
func (o *Orchestrator[W, T]) LastActual() []WorkerState[W, T] {
	last := o.last.Load()
	if last == nil {
		return nil
	}
	return last.actual()
}

// LastPlan returns the last term of NextTerm: its statistics, and everything
// that it changed or had to leave undone, with the reason and the outcome. It
// is the zero Plan before the first term. It never blocks, also during a term;
// its slices are shared and must not be changed.
func (o *Orchestrator[W, T]) LastPlan() Plan[W, T] {
	last := o.last.Load()
	if last == nil {
		return Plan[W, T]{}
	}
	return last.plan
}

// result is what a term leaves behind. It is not changed once it is published.
type result[W, T comparable] struct {
	plan     Plan[W, T]
	number   uint64
	workers  []workerResult[W, T]
	breakers *breaker.Breakers // nil if they hold nothing
	names    map[int32]T       // of the tasks in breakers, in unsettled and in ran
	ran      []int32           // tasks that ran before, of those that the term changed or that wait

	massLossSince, massLossEnded time.Time // as in fleet
}

// workerResult is a worker's part of a result, in the form that costs nothing
// to make: its answer, and the acknowledged writes since.
type workerResult[W, T comparable] struct {
	name       W
	serial     uint64
	state      State
	draining   bool
	heard      bool
	initial    bool
	duplicates bool // list names some task twice
	pins       int32
	since      time.Time
	list       []T
	acked      []Write[T]
	unsettled  *unsettled // nil for most
}

// unsettled is what a worker that answers, and does what it is told, does not have:
// unconfirmed starts, failed stops, a limit, a call that failed.
type unsettled struct {
	maybe     []int32
	stops     map[int32]stop
	stopPause breaker.Pause
	gain      int32
	limited   uint64
	missed    time.Time
}

func (r *result[W, T]) actual() []WorkerState[W, T] {
	states := make([]WorkerState[W, T], len(r.workers))
	for i := range r.workers {
		w := &r.workers[i]
		s := &states[i]
		*s = WorkerState[W, T]{Name: w.name, State: w.state, Draining: w.draining}
		if w.heard {
			s.LastAnswer = w.since
		}
		if w.state == Lost {
			s.LastTasks = w.tasks()
		} else {
			s.Tasks = w.tasks()
		}
	}
	return states
}

func (w *workerResult[W, T]) tasks() []T {
	if !w.duplicates && len(w.acked) == 0 {
		return slices.Clone(w.list)
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

// takeTurn waits until no other term is under way.
func (o *Orchestrator[W, T]) takeTurn(ctx context.Context) error {
	if ctx.Err() != nil {
		return causeOf(ctx)
	}
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return causeOf(ctx)
	}
}

func (o *Orchestrator[W, T]) endTurn() { <-o.turn }

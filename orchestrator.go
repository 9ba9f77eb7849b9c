package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator/internal/loglimit"
	"github.com/f8949c05/orchestrator/internal/term"
)

// Orchestrator keeps the expected tasks running on the workers, with the expected
// number of instances of each, evenly spread. W and T are the types of the names of
// workers and tasks.
//
// The leader calls NextTerm on a ticker, or Run; nothing happens otherwise. All methods
// are safe for concurrent use. Terms run one after the other. No other method waits for
// a term.
type Orchestrator[W, T comparable] struct {
	comm    Communicator[W, T]
	applier Applier[W, T] // nil if comm does not implement it
	cfg     config

	// changed holds a token while there is a change that Run has not seen.
	changed chan struct{}

	// mu guards the fields up to holds. It is held briefly, and never during a call
	// to the Communicator.
	mu        sync.Mutex
	tasks     taskTable[T]
	members   memberTable[W]
	observers []*observer[W, T]    // replaced, never changed in place
	holds     map[string]time.Time // by why: until when moves for an even spread wait

	// turn holds a token while a term is under way. The goroutine that put it there
	// owns the fields up to expected.
	turn           chan struct{}
	number         uint64
	fleet          *term.Fleet
	workers        []*worker[W, T] // of fleet, in its order
	workersVersion uint64          // the version of members that workers was made from
	losers         map[uint64]W    // the names of removed workers, by serial; replaced, never changed in place
	expect         term.Tasks
	expected       []taskDef[T] // those of expect; shared with snapshots, so never changed in place
	tasksVersion   uint64       // the version of tasks that expect was made from
	weightsVersion uint64       // the calls of UpdateWeights that expect was made from

	epoch   atomic.Uint64               // of the next term
	tick    atomic.Int64                // the ticker of Run, as a time.Duration; 0 without Run
	runOver atomic.Pointer[atomic.Bool] // becomes true when Run returns; nil without Run

	// The log of lasting conditions.
	massLoss, stopping, storm loglimit.Limiter
	failing                   struct{ moves, tasks, neverAnswered loglimit.Limiter }

	inflight inflight[W, T]
	last     atomic.Pointer[Snapshot[W, T]]
	underWay atomic.Pointer[underWay[W, T]] // nil between terms
}

// New returns an orchestrator that reaches the workers through c. The error joins all
// problems with the options.
func New[W, T comparable](c Communicator[W, T], opts ...Option) (*Orchestrator[W, T], error) {
	if c == nil {
		return nil, invalid("the Communicator is nil")
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	applier, _ := c.(Applier[W, T])
	o := &Orchestrator[W, T]{
		comm:    c,
		applier: applier,
		cfg:     cfg,
		changed: make(chan struct{}, 1),
		holds:   make(map[string]time.Time),
		tasks:   taskTable[T]{ids: make(map[T]int32)},
		members: newMemberTable[W](nil, 0),
		turn:    make(chan struct{}, 1),
		fleet:   term.New(cfg.term()),
		inflight: inflight[W, T]{
			byName: make(map[W]*callSlot[W, T]), freed: make(chan struct{}, 1), deposed: make(chan error, 1),
		},
	}
	o.epoch.Store(cfg.Epoch)
	return o, nil
}

// grace returns how long a worker may be silent before it is declared lost (T4).
func (o *Orchestrator[W, T]) grace() time.Duration {
	if o.cfg.GracePeriod >= 0 {
		return o.cfg.GracePeriod
	}
	return defaultGrace * max(o.cfg.CommunicatorTimeout, time.Duration(o.tick.Load()))
}

// AddTask adds or redefines an expected task, from the next term on. A task is redefined as
// a whole: an option that is not given has its default, so AddTask("a") after
// AddTask("a", WithTaskInstances(2)) makes it one instance. If the name or an option is
// invalid, AddTask returns an error that wraps [ErrInvalid] and changes nothing.
func (o *Orchestrator[W, T]) AddTask(name T, opts ...TaskOption) error {
	if err := checkName("task", name); err != nil {
		return err
	}
	c := taskConfig{TaskSettings{Instances: 1}}
	for _, opt := range opts {
		if opt == nil {
			return fmt.Errorf("task %v: %w", name, invalid("a TaskOption is nil"))
		}
		if err := opt.applyTask(&c); err != nil {
			return fmt.Errorf("task %v: %w", name, err)
		}
	}
	task := NewTask(name, c.TaskSettings)
	o.change(func() bool { return o.tasks.add(&task) })
	return nil
}

// RemoveTask removes an expected task: the next term stops all its instances. A name
// that is unknown or invalid is ignored.
func (o *Orchestrator[W, T]) RemoveTask(name T) {
	if checkName("task", name) != nil {
		return
	}
	o.change(func() bool { return o.tasks.remove(name) })
}

// expects reports whether a task is expected at this moment.
func (o *Orchestrator[W, T]) expects(task int32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tasks.defs[task].instances > 0
}

// UpdateTasks replaces the expected tasks. If one is invalid or named twice, it returns
// an error that wraps [ErrInvalid] and changes nothing. Nil makes the next term stop
// every task. The slice is copied.
//
// Until the first call of AddTask or UpdateTasks, no task is unexpected and none is
// stopped. After it every other task is unexpected, so load all tasks with one call of
// UpdateTasks, or before the first term.
func (o *Orchestrator[W, T]) UpdateTasks(tasks []Task[T]) error {
	if err := checkTasks(tasks); err != nil {
		return fmt.Errorf("update tasks: %w", err)
	}
	o.change(func() bool { return o.tasks.replace(tasks) })
	return nil
}

// UpdateWeights replaces what one instance of each task takes by measurement, such as its
// load. A measured weight outranks [Task].Weight, and outlives a redefinition of the task, but
// not its removal. 0 counts as 1, the least weight. A task that weights does not name is not
// measured any more, and names of tasks that are not expected are ignored. If a weight is
// negative or above [MaxWeight], UpdateWeights returns an error that wraps [ErrInvalid] and
// changes nothing.
//
// It starts no term: the next one uses the weights. Smooth what you measure before the call.
func (o *Orchestrator[W, T]) UpdateWeights(weights map[T]int64) error {
	for name, weight := range weights {
		if err := checkWeight(weight); err != nil {
			return fmt.Errorf("update weights: task %v: %w", name, err)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tasks.measure(weights)
	return nil
}

// ListExpectedTasks returns the expected tasks, in the same order in each call. The
// caller owns the slice, but must not change that of a task. Instances is at least 1.
func (o *Orchestrator[W, T]) ListExpectedTasks() []Task[T] {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.AppendSeq(make([]Task[T], 0, o.tasks.expected), expectedOf(o.tasks.defs))
}

// AddWorker adds or redefines a worker. The next term lists a new worker and gives it
// what is missing, and its share of tasks unless such moves wait ([Plan].Holds, [PauseFallen]).
// An existing worker keeps its state, and keeps draining if DrainWorker was called. If the name
// or an option is invalid, AddWorker returns an error that wraps [ErrInvalid] and changes
// nothing.
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
	if err := c.Check(); err != nil { // of all settings together
		return fmt.Errorf("worker %v: %w", name, err)
	}
	o.change(func() bool { return o.members.set(name, c.draining, c.WorkerSettings) })
	return nil
}

// RemoveWorker asserts that a worker has stopped or is fenced off: its tasks have ended,
// and the next term starts them elsewhere. To remove a worker that still runs, drain it
// first; otherwise its tasks run twice. A name that is unknown or invalid is ignored.
func (o *Orchestrator[W, T]) RemoveWorker(name W) {
	if checkName("worker", name) != nil {
		return
	}
	o.change(func() bool { return o.members.remove(name) })
}

// UpdateWorkers replaces the workers. If a name is invalid or appears twice, it returns
// an error that wraps [ErrInvalid] and changes nothing. Known workers keep their state,
// as in AddWorker. Workers left out are removed, with the assertion of RemoveWorker.
// The slice is copied.
func (o *Orchestrator[W, T]) UpdateWorkers(workers []Worker[W]) error {
	if err := checkWorkers(workers); err != nil {
		return fmt.Errorf("update workers: %w", err)
	}
	seen := make(map[W]int, len(workers))
	for i, w := range workers {
		if first, ok := seen[w.Name]; ok {
			return fmt.Errorf("update workers: %w", invalid("worker %v is given twice, at %d and at %d", w.Name, first, i))
		}
		seen[w.Name] = i
	}
	o.change(func() bool {
		return o.members.replace(workers, func(name W) bool { _, ok := seen[name]; return ok })
	})
	return nil
}

// DrainWorker drains a worker: its tasks move away, and it receives none. A task that no
// other worker can take stays, and [Orchestrator.LastPlan] gives the reason. The error
// wraps [ErrUnknownWorker] if the worker was not added, and [ErrInvalid] if the name is
// invalid.
func (o *Orchestrator[W, T]) DrainWorker(name W) error {
	return o.setDrained(name, true)
}

// UndrainWorker undoes DrainWorker. A worker that was added as draining keeps
// draining. The error wraps [ErrUnknownWorker] if the worker was not added, and
// [ErrInvalid] if the name is invalid.
func (o *Orchestrator[W, T]) UndrainWorker(name W) error {
	return o.setDrained(name, false)
}

func (o *Orchestrator[W, T]) setDrained(name W, drained bool) (err error) {
	if err := checkName("worker", name); err != nil {
		return err
	}
	o.change(func() bool {
		m := o.members.byName[name]
		if m == nil {
			err = fmt.Errorf("%w: %v", ErrUnknownWorker, name)
		}
		if m == nil || m.drained == drained {
			return false
		}
		m.drained = drained
		o.members.version++
		return true
	})
	return err
}

// change calls f with mu held, and notifies Run if f has changed the expectations.
func (o *Orchestrator[W, T]) change(f func() (changed bool)) {
	o.mu.Lock()
	changed := f()
	o.mu.Unlock()
	if !changed {
		return
	}
	select {
	case o.changed <- struct{}{}:
	default: // already notified
	}
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

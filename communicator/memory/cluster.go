package memory

// The Cluster, the processes in it, and the options of New.

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// Cluster holds workers within this process, and the network between them and the
// caller. It is an [orchestrator.Communicator] and an [orchestrator.Applier]. See
// the package documentation.
//
// Its methods may be called from any number of goroutines.
type Cluster[W, T comparable] struct {
	run  func(ctx context.Context, name W, task T) error
	opts []worker.Option
	// announce: the cluster calls Ready on the tasks' behalf.
	announce bool

	// mu guards the fields below and all processes. It is never held during a call
	// to user code or a wait.
	mu      sync.Mutex
	alive   map[W]*process[W, T]
	dead    []*process[W, T] // killed; their tasks may not have returned yet
	links   map[W]link
	refuse  func(op orchestrator.Op, name W, task T) error
	history history[W, T]
}

// process is one start of a worker.
type process[W, T comparable] struct {
	name   W
	worker *worker.Worker[T]

	gone  bool
	calls map[*context.CancelCauseFunc]struct{} // calls under way, cancelled when the process is killed
	runs  map[T]uint64                          // the tasks that run, with the numbers of their starts
}

// New returns a Cluster without workers. Its workers call run for each task, as
// worker.New describes, with their name. A nil run waits until its context ends.
//
// The error wraps [orchestrator.ErrInvalid] and names every worker option that is
// out of range.
func New[W, T comparable](run func(ctx context.Context, name W, task T) error, opts ...Option) (*Cluster[W, T], error) {
	var cfg config
	for _, opt := range opts {
		opt.apply(&cfg)
	}
	if run == nil {
		run = func(ctx context.Context, _ W, _ T) error {
			<-ctx.Done()
			return nil
		}
	}
	c := &Cluster[W, T]{
		run: run,
		// With readiness, an Add returns only after the start of its task has been
		// recorded.
		opts:     append(cfg.worker, worker.WithReadiness()),
		announce: !cfg.readiness,
		alive:    make(map[W]*process[W, T]),
		links:    make(map[W]link),
		history:  history[W, T]{tasks: make(map[T]*taskHistory[W])},
	}
	var none W
	if _, err := c.newProcess(none); err != nil { // all workers have the same options
		return nil, fmt.Errorf("new cluster: %w", err)
	}
	return c, nil
}

func (c *Cluster[W, T]) newProcess(name W) (*process[W, T], error) {
	p := &process[W, T]{
		name:  name,
		calls: make(map[*context.CancelCauseFunc]struct{}),
		runs:  make(map[T]uint64),
	}
	var err error
	p.worker, err = worker.New(func(ctx context.Context, task T) error {
		if !c.started(p, task) {
			return ErrDown
		}
		defer c.stopped(p, task)
		if c.announce {
			worker.Ready(ctx)
		}
		return c.run(ctx, p.name, task)
	}, c.opts...)
	return p, err
}

// Start starts a process for each worker named. The process is empty, has a new
// incarnation, and has seen no term. If the worker is running, it is killed first.
// To make it know the current term before any call arrives, call Worker(name).Fence.
func (c *Cluster[W, T]) Start(names ...W) {
	c.Kill(names...)
	for _, name := range names {
		p, err := c.newProcess(name)
		if err != nil {
			continue // impossible: New has checked the options
		}
		c.mu.Lock()
		if c.alive[name] == nil { // of two Starts at the same time, one suffices
			c.alive[name] = p
			c.history.event(WorkerStarted, name, nil)
		}
		c.mu.Unlock()
	}
}

// Kill ends the process of each worker named, as a crash does. Calls under way fail
// with [ErrDown]. The contexts of its tasks end, and none of them counts as running
// any longer, even if its function has not returned. Workers that are not running
// are ignored.
func (c *Cluster[W, T]) Kill(names ...W) {
	for _, name := range names {
		c.kill(name)
	}
}

func (c *Cluster[W, T]) kill(name W) {
	c.mu.Lock()
	p := c.alive[name]
	if p == nil {
		c.mu.Unlock()
		return
	}
	delete(c.alive, name)
	c.dead = append(c.dead, p)
	p.gone = true
	calls := p.calls
	p.calls = nil
	c.history.killed(p)
	c.mu.Unlock()

	for end := range calls {
		(*end)(ErrDown)
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.worker.Close(now) // tells the tasks to stop, without waiting for them
}

// Close kills all workers. It returns nil when the functions of their tasks have
// returned, or an error when ctx ends first. The Cluster may be used again.
func (c *Cluster[W, T]) Close(ctx context.Context) error {
	c.mu.Lock()
	names := make([]W, 0, len(c.alive))
	for name := range c.alive {
		names = append(names, name)
	}
	c.mu.Unlock()
	c.Kill(names...)

	c.mu.Lock()
	dead := c.dead
	c.dead = nil
	c.mu.Unlock()
	var errs []error
	for i, p := range dead {
		if err := p.worker.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("worker %v: %w", p.name, err))
			c.mu.Lock()
			c.dead = append(c.dead, dead[i])
			c.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// Worker returns the running worker of that name, or nil. Use it to read its Status
// or raise its fence. Calls through it bypass the network.
func (c *Cluster[W, T]) Worker(name W) *worker.Worker[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.alive[name]; p != nil {
		return p.worker
	}
	return nil
}

// Option changes how [New] sets up a Cluster.
type Option interface {
	apply(*config)
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

type config struct {
	readiness bool
	worker    []worker.Option
}

// WithWorkerOptions adds options for every worker, after those of earlier uses.
// [New] returns their errors. A function given to worker.WithCompletion is called
// for the tasks of every worker.
//
// By default the workers have the defaults of package worker.
func WithWorkerOptions(opts ...worker.Option) Option {
	return optionFunc(func(c *config) { c.worker = append(c.worker, opts...) })
}

// WithReadiness makes the function that runs the tasks responsible for calling
// worker.Ready. The Add that started a task does not return before.
//
// By default a task is ready as soon as it runs.
func WithReadiness() Option {
	return optionFunc(func(c *config) { c.readiness = true })
}

// Both leave open whether a write was done, as errors of a real network do.
var (
	// ErrDown is returned immediately if the worker has no process, or if its
	// process was killed during the call.
	ErrDown = errors.New("the worker's process is gone")

	// ErrCut is returned immediately if the worker is cut off by [Cluster.Cut].
	ErrCut = errors.New("the worker is cut off")
)

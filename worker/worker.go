package worker

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"

	"github.com/f8949c05/orchestrator"
)

// Worker runs tasks, one function call each. See the package documentation.
//
// Its methods may be called from any number of goroutines. The cost of Add and
// Remove does not depend on the number of tasks.
type Worker[T comparable] struct {
	run   func(ctx context.Context, task T) error
	hooks hooks[T]
	cfg   config

	// mu guards the fields below and every entry. It is not held while a function of
	// the user, the logger or the record is called, nor while waiting.
	mu          sync.Mutex
	fence       orchestrator.Term // the highest term seen; zero: none
	recorder    recorder[T]
	leasePeriod *leasePeriod
	leases      LeaseStats // Left is unused
	tasks       map[T]*entry[T]
	order       list.List // all tasks, in the order in which they were added
	queue       list.List // the tasks that wait for a slot
	busy        int       // slots in use
	listed      []T       // the result of List; nil: to be rebuilt
	pins        int       // how many tasks at the end of listed are pinned
	log         changeLog // counts the changes of what Status returns
	failedRuns  uint64
	closed      bool
	random      *rand.Rand
	refusals    map[T]*refusal // of tasks that have asked to run elsewhere
}

// New returns a Worker that calls run for each task that is added.
//
// run is called in a separate goroutine, and never twice at the same time for the
// same task. It should run until its context ends. If it returns or panics earlier,
// that is a failure, and it is called again (see [WithBackoff] and
// [WithCompletion]). It must return soon after its context has ended, because the
// task counts as running until then. context.Cause returns the reason, one of the
// errors of this package. The worker cannot recover a panic in a goroutine that run
// has started.
//
// The error names every invalid option and wraps [orchestrator.ErrInvalid], or it
// says why the record given to [WithRecord] cannot be loaded.
func New[T comparable](run func(ctx context.Context, task T) error, opts ...Option) (*Worker[T], error) {
	cfg := newConfig(opts)
	cfg.refuse(run == nil, "run is nil: must be a function")
	hooks := hooksOf[T](&cfg)
	cfg.refuse(cfg.resort != nil && cfg.lease == 0, "WithLastResort without WithLease: there is no lease to lose")
	cfg.refuse(cfg.attempts != 0 && cfg.completion == nil, "WithAttempts without WithCompletion: there are no jobs")
	if len(cfg.problems) > 0 {
		return nil, fmt.Errorf("new worker: %w", errors.Join(cfg.problems...))
	}
	r, err := newRecorder(hooks.record)
	if err != nil {
		return nil, fmt.Errorf("new worker: %w", err)
	}
	w := &Worker[T]{
		run:      run,
		recorder: r,
		hooks:    hooks,
		cfg:      cfg,
		tasks:    make(map[T]*entry[T]),
		log:      changeLog{count: 1},
		random:   rand.New(rand.NewPCG(cfg.seed, 0)),
		refusals: make(map[T]*refusal),
	}
	w.leasePeriod = w.newLeasePeriod()
	return w, nil
}

// Incarnation returns a random number from 1 to 2⁶³-1 that is new for every Worker,
// and after every [Worker.Rejoin]. A transport announces it with the worker's name,
// sends it with every call, and refuses calls with another number. Such calls are
// meant for another process of the same name, about which this worker knows nothing.
func (w *Worker[T]) Incarnation() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leasePeriod.incarnation
}

// List returns every task that was added and has not stopped, in any state, in the
// order in which they were added. While nothing changes List returns the same slice.
// The caller must not change it.
//
// With [WithCompletion] the jobs that run, have completed or have failed come last,
// and List pins them ([orchestrator.Pin]): they must not be moved. If Pin returns false
// in a leader's List, Remove rejects jobs that run until a later List can pin them.
//
// List raises the fence to the call's term. A call with a lower epoch than the
// worker has seen gets [orchestrator.ErrDeposed], which tells its leader to stop. A
// call with a lower term of the same epoch, or with no term, may read. List also
// fails if ctx has ended, or if the call is meant for another incarnation
// ([ContextWithIncarnation]).
func (w *Worker[T]) List(ctx context.Context) ([]T, error) {
	c := callerOf(ctx)
	if c.ended != nil {
		return nil, c.ended
	}
	carried := orchestrator.Pin(ctx, 0) // without mu, because it may call the transport
	w.mu.Lock()
	if err := w.admitRead(c); err != nil {
		w.mu.Unlock()
		return nil, err
	}
	if w.listed == nil {
		w.list()
	}
	listed, pins, lost := w.listed, w.pins, w.recordSeen(c, carried)
	w.mu.Unlock()
	orchestrator.Pin(ctx, pins)
	if lost {
		w.cfg.logger.Warn("transport does not carry pins, jobs that run will not be stopped", slog.Int("tasks", pins))
	}
	return listed, nil
}

// list rebuilds w.listed. The caller holds mu.
func (w *Worker[T]) list() {
	w.listed = make([]T, 0, len(w.tasks))
	var pinned []T
	for e := range w.entries() {
		if w.pinned(e) {
			pinned = append(pinned, e.name)
		} else {
			w.listed = append(w.listed, e.name)
		}
	}
	w.listed, w.pins = append(w.listed, pinned...), len(pinned)
}

// Stop is the first half of [Worker.Close]. It ends all tasks with the cause
// [ErrClosed], and returns when their functions have returned. Completed and failed
// jobs stay in List and in the record ([WithRecord]) until Close, so that a
// transport can report them first. After Stop has begun, Add fails with
// [orchestrator.ErrRejected].
//
// If ctx ends first, the error counts the tasks that have not stopped and wraps the
// cause of ctx. Stop may then be called again to continue waiting.
func (w *Worker[T]) Stop(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	for e := range w.entries() {
		if e.state != Stopping && e.state != Completed && e.state != Failed {
			w.stop(e, ErrClosed)
		}
	}
	w.settleIfEmpty()
	w.mu.Unlock()
	for {
		_, changed := w.Changes() // before the check, so that no change is missed
		w.mu.Lock()
		left := w.busy // falls only: no task starts after closed is set
		w.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("stop worker: %d tasks have not stopped: %w", left, context.Cause(ctx))
		}
	}
}

// Close ends all tasks with the cause [ErrClosed]. It returns when the tasks have
// stopped and the record ([WithRecord]) is removed. After Close has begun, Add fails
// with [orchestrator.ErrRejected]; List and Remove still answer. Keep the lease alive
// until Close has returned: if it is lost earlier, the last resort is still called.
//
// If ctx ends first, the error counts the tasks that have not stopped and wraps the
// cause of ctx. Close may be called again to continue waiting, or to try again to
// remove the record.
func (w *Worker[T]) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.stopEach(ErrClosed)
	w.settleIfEmpty()
	p := w.leasePeriod // the last: Rejoin creates none after closed is set
	w.mu.Unlock()
	err := w.awaitEmpty(ctx, p)
	if err == nil {
		err = w.removeRecord(ctx)
	}
	if err != nil {
		return fmt.Errorf("close worker: %w", err)
	}
	return nil
}

// The causes with which the context of a running task ends, as returned by
// context.Cause.
var (
	// ErrRemoved is the cause if the leader took the task from this worker: it moves, or is not
	// wanted any more.
	ErrRemoved = errors.New("the task was removed from this worker")

	// ErrClosed is the cause if the worker was closed.
	ErrClosed = errors.New("the worker was closed")

	// ErrLeaseLost is the cause if the worker may have lost its lease (see
	// WithLease), so that its tasks may soon run elsewhere. Check returns it too.
	ErrLeaseLost = errors.New("the lease is lost")

	// ErrUpdated is the cause if the task is restarted in place, with new content
	// or under a new token.
	ErrUpdated = errors.New("the task was updated")

	// ErrRescheduled is the cause if the task has called Reschedule.
	ErrRescheduled = errors.New("the task has asked to run elsewhere")

	// ErrReturned is the cause if the task's function has returned. It ends the
	// goroutines that the function left behind.
	ErrReturned = errors.New("the task's function has returned")
)

// ErrIncarnation reports a call meant for another incarnation of the worker (see
// ContextWithIncarnation). It wraps [orchestrator.ErrRejected].
var ErrIncarnation = fmt.Errorf("%w: the call is meant for another incarnation", orchestrator.ErrRejected)

// errNoLease refuses writes that come before the lease is acknowledged.
var errNoLease = errors.New("the worker's lease is not acknowledged yet")

// errGoexit is the failure of a task whose function neither returned nor panicked.
var errGoexit = errors.New("the task's function called runtime.Goexit")

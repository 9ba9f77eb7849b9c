package worker

// The Worker: its state, how it is made and closed, and what it lists. Writes
// are in writes.go, the states of a task in task.go, what runs in run.go.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/f8949c05/orchestrator"
)

// Worker runs tasks, one function each. See the package documentation.
//
// Its methods may be called from any number of goroutines. Add and Remove cost
// the same however many tasks there are.
type Worker[T comparable] struct {
	run   func(ctx context.Context, task T) error
	hooks hooks[T]
	cfg   config
	idler *idler

	// mu guards what follows, and every entry. It is never held over a call to
	// the outside, nor over a wait.
	mu     sync.Mutex
	fence  orchestrator.Term // the highest seen; zero: none
	scribe scribe[T]
	tenure *tenure
	leases LeaseStats // Left is unused
	tasks  map[T]*entry[T]
	order  chain[*entry[T]] // all of tasks, in the order they were added
	queue  chain[*entry[T]] // those that wait for a slot
	busy   int              // slots held
	listed []T              // what List returns; nil: to be made anew
	pins   int              // how many at the end of listed are pinned
	log    changeLog        // how often anything of this has changed
	closed bool
	random *rand.Rand
}

// New returns a Worker that calls run for each task that it is told to run.
//
// run is called in a goroutine of its own, for one task never twice at the same
// time, and should go on until its context ends: what it returns, or panics
// with, is a failure, after which it is started again (see [WithBackoff] and
// [WithCompletion]). It must return soon after its context has ended, as the
// task counts as running until it has. context.Cause then says why, with one of
// the errors of this package. A panic in a goroutine that run itself has
// started is beyond the worker's reach, as everywhere in Go.
//
// The error names every option that is out of range and wraps
// [orchestrator.ErrInvalid], or says why the record given to [WithRecord] cannot
// be loaded.
func New[T comparable](run func(ctx context.Context, task T) error, opts ...Option) (*Worker[T], error) {
	cfg := newConfig(opts)
	if run == nil {
		cfg.invalid("run is nil: must be a function")
	}
	hooks := hooksOf[T](&cfg)
	if cfg.resort != nil && cfg.lease == 0 {
		cfg.invalid("WithLastResort without WithLease: there is no lease to lose")
	}
	if cfg.attempts != 0 && cfg.completion == nil {
		cfg.invalid("WithAttempts without WithCompletion: there are no jobs")
	}
	if len(cfg.problems) > 0 {
		return nil, fmt.Errorf("new worker: %w", errors.Join(cfg.problems...))
	}
	s, err := newScribe(hooks.record)
	if err != nil {
		return nil, fmt.Errorf("new worker: %w", err)
	}
	w := &Worker[T]{
		run:    run,
		scribe: s,
		hooks:  hooks,
		cfg:    cfg,
		tasks:  make(map[T]*entry[T]),
		log:    changeLog{count: 1},
		random: rand.New(rand.NewPCG(cfg.seed, 0)),
	}
	w.tenure = w.newTenure()
	w.idler = w.newIdler()
	return w, nil
}

// Incarnation returns a random number, from 1 to 2⁶³-1, that is new for every
// Worker, and after every [Worker.Rejoin]. A transport announces it with the
// worker's name, has every call carry it, and refuses those that carry another:
// they were meant for a predecessor of the same name, about which this worker
// can say nothing.
func (w *Worker[T]) Incarnation() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tenure.incarnation
}

// List returns every task that the worker was told to run and that has not
// stopped, whatever its state, in the order they were added. While nothing
// changes it returns the very same slice, which nobody may change.
//
// With [WithCompletion] the jobs that run, have completed or have failed come
// last, and List pins them ([orchestrator.Pin]): they are not to be moved.
//
// It raises the fence to the call's term. A call of a lower epoch than was seen
// gets [orchestrator.ErrDeposed], so that its leader learns of it; one of a
// lower term of the same epoch, or of none, may read. List fails besides only
// where ctx has ended, and where the call is meant for another incarnation
// ([ContextWithIncarnation]).
func (w *Worker[T]) List(ctx context.Context) ([]T, error) {
	c := callerOf(ctx)
	if c.ended != nil {
		return nil, c.ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admitRead(c); err != nil {
		return nil, err
	}
	if w.listed == nil {
		w.list()
	}
	w.tell(c)
	orchestrator.Pin(ctx, w.pins)
	return w.listed, nil
}

// list makes the list anew. The lock is held.
func (w *Worker[T]) list() {
	w.listed = make([]T, 0, len(w.tasks))
	var pinned []T
	for e := range w.order.all() {
		if w.pinned(e) {
			pinned = append(pinned, e.name)
		} else {
			w.listed = append(w.listed, e.name)
		}
	}
	w.listed, w.pins = append(w.listed, pinned...), len(pinned)
}

// Stop is the first half of [Worker.Close]: it ends all tasks with the cause
// [ErrClosed], and returns when their functions have. What has completed or failed stays in
// List and in the record ([WithRecord]) until Close, so that a transport can report
// it in between. From then on Add is refused with [orchestrator.ErrRejected].
//
// Where ctx ends first the error counts the tasks that have not stopped, and wraps
// the context's cause; Stop may be called again to wait on.
func (w *Worker[T]) Stop(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.idler.cancel(ErrClosed)
	for e := range w.order.all() {
		if e.state != Stopping && e.state != Completed && e.state != Failed {
			w.stop(e, ErrClosed)
		}
	}
	w.settleIfEmpty()
	w.mu.Unlock()
	for {
		_, changed := w.Changes() // first: what changes after it is looked at again
		w.mu.Lock()
		left := w.busy // nothing starts any more
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

// Close ends all tasks with the cause [ErrClosed], and returns when they have
// stopped, the record is removed, if there is one ([WithRecord]), and the function
// of [WithSpareTime] has returned. From then on Add is refused with
// [orchestrator.ErrRejected]; List and Remove go on answering. A lease is to be
// kept until Close has returned: where it is lost before, the last resort has its
// turn all the same.
//
// Where ctx ends first the error counts the tasks that have not stopped, and
// wraps the context's cause. The function of WithSpareTime, which is no task and
// needs no lease, is waited for a second at most once the rest is done, and the
// error says that it has not returned. Close may be called again to wait on, or to
// try again where the record could not be removed.
func (w *Worker[T]) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.idler.cancel(ErrClosed)
	w.stopEach(ErrClosed)
	w.settleIfEmpty()
	t := w.tenure // the last
	w.mu.Unlock()
	err := w.empty(ctx, t)
	if err == nil {
		err = w.removeRecord(ctx)
	}
	if err == nil {
		err = w.idler.end(ctx)
	}
	if err != nil {
		return fmt.Errorf("close worker: %w", err)
	}
	return nil
}

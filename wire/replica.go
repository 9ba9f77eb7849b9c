package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/internal/loglimit"
	"github.com/f8949c05/orchestrator/worker"
)

// Replica is one of several equal processes that share tasks. Make it with [New]. Its
// methods may be called from any number of goroutines.
type Replica struct {
	s        *settings
	backend  Backend
	waiter   Waiter // nil: none
	traits   Traits
	patience time.Duration // for stops, before a report
	source   *sourceRunner
	worker   *worker.Worker[string]
	log      *slog.Logger
	limiters sync.Map // of warnings, by text
	woken    chan struct{}
	killed   chan struct{} // for tests: the process is killed
	parts    sync.WaitGroup
	public   published
}

// Run makes a Replica and runs it; see [New] and [Replica.Run].
func Run(ctx context.Context, b Backend, tasks Source, work func(ctx context.Context, task string) error, opts ...Option) error {
	r, err := New(b, tasks, work, opts...)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// New returns a replica that shares the tasks of the Source with the other replicas of the
// table. It calls work in a separate goroutine for each task that it is to run. work must
// return soon after its ctx has ended. If it returns earlier, also with nil, that is a
// failure, and it is called again.
//
// The error wraps [ErrInvalid] and names every bad argument and option.
func New(b Backend, tasks Source, work func(ctx context.Context, task string) error, opts ...Option) (*Replica, error) {
	r := &Replica{backend: b, woken: make(chan struct{}, 1), killed: make(chan struct{})}
	if d, ok := b.(Describer); ok {
		r.traits = d.Traits()
	}
	s, err := newSettings(opts, r.traits, b == nil, tasks == nil, work == nil)
	if err != nil {
		return nil, err
	}
	if r.worker, err = worker.New(work, s.worker...); err != nil {
		return nil, fmt.Errorf("WithLease or WithWorker: %w", err)
	}
	r.s, r.log, r.patience = s, s.log, 25*time.Millisecond
	if r.waiter, _ = b.(Waiter); r.waiter != nil {
		r.patience = 5 * time.Millisecond
	}
	r.source = &sourceRunner{r: r, source: tasks, lease: s.self.Lease}
	return r, nil
}

// wake makes the loop look again.
func (r *Replica) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// warn logs a warning, at most once a minute for each text, which must be constant.
func (r *Replica) warn(text string, args ...any) {
	limiter, _ := r.limiters.LoadOrStore(text, new(loglimit.Limiter))
	if omitted, ok := limiter.(*loglimit.Limiter).Take(time.Now(), ""); ok {
		r.log.Warn(text, append(args, loglimit.Omitted(omitted))...)
	}
}

// Run joins the table and runs tasks until ctx ends. Then its tasks move to other replicas,
// those that are left are stopped, and it returns nil. It must be called once.
//
// Errors: one that wraps [ErrUndrained] if tasks were stopped because they had not moved in
// time, [ErrForeign] if the table belongs to another service, or [ErrInvalid] if the Source
// says so. Failures of the backend are retried.
func (r *Replica) Run(ctx context.Context) error {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := newLoop(r)
	err := l.run(ctx, running)
	l.stopLeading("the replica ends")
	r.source.run(running, false)
	cancel()
	if err != nil {
		r.worker.EndLease(err)
	}
	closeErr := r.worker.Close(context.WithoutCancel(ctx))
	r.parts.Wait()
	if c, ok := r.backend.(io.Closer); ok {
		closeErr = errors.Join(closeErr, c.Close())
	}
	return cmp.Or(err, closeErr)
}

package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/worker"
)

// Transport is a session at its transport. Join and Leave are called by the Runner's
// goroutine, Keep and Announce by goroutines of the session.
type Transport interface {
	// Join makes the worker a member. It retries until it succeeds or another
	// attempt in this session cannot help. If ctx ends first, Join returns its cause.
	Join(ctx context.Context) error
	// Keep keeps the membership until ctx ends. Its error ends the session.
	Keep(ctx context.Context) error
	// Announce tells the leader that the worker drains. It returns nil when all tasks
	// have moved, and the cause of ctx if ctx ends first. Any other error ends the
	// session. If the transport learns that no other member can take tasks, it calls
	// [Session.Alone].
	Announce(ctx context.Context) error
	// Leave ends the membership, also if Join failed, which may have taken effect. The
	// worker has no tasks. ctx may have ended; reason is why the session has.
	Leave(ctx context.Context, reason error)
}

// Config says how a Runner joins.
type Config struct {
	// Open begins a session.
	Open func(s *Session) Transport
	// Final reports whether another session after err cannot help.
	Final func(err error) bool
	// Stopped, if not nil, is called once, after all tasks have stopped for good and
	// before the worker is closed.
	Stopped func(ctx context.Context)
}

// Runner runs one member. Run and Close may be called from many goroutines, Sessions
// once by the function that Run calls.
type Runner struct {
	// Drain is how long the member drains when the context of Run has ended; 0: not at all. It
	// is set before Run.
	Drain time.Duration

	worker *worker.Worker[string]
	name   string
	log    *slog.Logger

	drain    chan struct{} // closed when the member must drain
	leave    chan struct{} // closed when it must leave, drained or not
	finished chan struct{} // closed when Run has ended

	leaving sync.Once
	hurried error // the cause to leave immediately; set before leave is closed
	early   error // why the last session stopped tasks that had not moved; set before finished is closed

	// Used by the goroutine of Run only:
	config Config
	closed bool // the worker

	mu      sync.Mutex // guards the fields below
	ran     bool       // it runs, or has run
	closing bool       // Close was called; it does not run later
}

// errEarly reports that a member left before it was drained.
var errEarly = errors.New("stopped before everything had moved")

// DefaultDrain is the Drain of members without another one.
const DefaultDrain = 20 * time.Second

// New returns the Runner of a worker that has not run yet.
func New(w *worker.Worker[string], name string, log *slog.Logger) *Runner {
	return &Runner{
		worker: w, name: name, log: log,
		drain: make(chan struct{}), leave: make(chan struct{}), finished: make(chan struct{}),
	}
}

// Run calls serve, which calls Sessions. When ctx ends, the member drains as with Close, for at most
// the time of Drain. The context of serve ends only after that. Then Run closes the worker, unless Sessions has, and lets Close
// return. It returns the error of serve, or the cause of ctx, with the reason if tasks were stopped
// that had not moved. Run may be called once, and not after Close; otherwise its error wraps
// [orchestrator.ErrInvalid].
func (r *Runner) Run(ctx context.Context, serve func(ctx context.Context) error) error {
	if !r.begin() {
		return fmt.Errorf("%w: Member.Run was called before, or after Close", orchestrator.ErrInvalid)
	}
	defer close(r.finished)
	defer r.closeWorker(ctx)
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.drainAfter(ctx, serving, end)
	}()
	err := serve(serving)
	end(nil)
	<-drained
	switch {
	case ctx.Err() == nil && err != nil:
		return fmt.Errorf("member %s: %w", r.name, err)
	case ctx.Err() != nil && err == nil && r.early != nil:
		return fmt.Errorf("%w: %w: %w", context.Cause(ctx), errEarly, r.early)
	case ctx.Err() != nil && err == nil:
		return context.Cause(ctx)
	}
	return err
}

// drainAfter makes the member drain when ctx ends, and leave when the time of Drain is over. It ends
// serving if the member does not drain, and returns when serving has ended.
func (r *Runner) drainAfter(ctx, serving context.Context, end context.CancelCauseFunc) {
	select {
	case <-ctx.Done():
	case <-serving.Done():
		return
	}
	if r.Drain == 0 {
		end(context.Cause(ctx))
		return
	}
	r.startDrain()
	select {
	case <-time.After(r.Drain):
		r.leaveNow(context.Cause(ctx))
	case <-serving.Done():
	}
}

// begin reports whether the member may run.
func (r *Runner) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ran || r.closing {
		return false
	}
	r.ran = true
	return true
}

// Close drains the member until ctx ends, then makes it leave, and returns when Run has
// ended. If tasks were stopped that had not moved, the error wraps the reason. Further
// calls return the same result. A member that has not run never will; Close then closes
// its worker.
func (r *Runner) Close(ctx context.Context) error {
	if err := r.close(ctx); err != nil {
		return fmt.Errorf("close member %s: %w", r.name, err)
	}
	return nil
}

func (r *Runner) close(ctx context.Context) error {
	if !r.startDrain() {
		return r.worker.Close(ctx)
	}
	select {
	case <-r.finished:
	case <-ctx.Done():
		r.leaveNow(context.Cause(ctx))
		<-r.finished
	}
	if r.early != nil {
		return fmt.Errorf("%w: %w", errEarly, r.early)
	}
	return nil
}

// startDrain makes a running member drain, and reports whether it has begun to run. If
// it has not, it never will.
func (r *Runner) startDrain() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ran && !r.closing {
		close(r.drain)
	}
	r.closing = true
	return r.ran
}

// leaveNow makes the member leave. Only the first cause counts. It first logs the number
// of the remaining tasks and the name of one. If a task does not stop, Close waits for
// it, and nothing later would log why.
func (r *Runner) leaveNow(cause error) {
	r.leaving.Do(func() {
		if tasks := r.worker.Status(); len(tasks) > 0 { // not List: the worker would take it for the leader's
			r.log.Warn("drain cut short, stopping remaining tasks", "worker", r.name, "tasks", len(tasks), "first", tasks[0].Task)
		}
		r.hurried = cause
		close(r.leave)
	})
}

// Sessions runs one session after the other until ctx ends, Close ends it, or another
// session cannot help. It then closes the worker. It returns the cause of ctx, nil
// after Close, or the error for which Final returned true.
func (r *Runner) Sessions(ctx context.Context, c Config) error {
	r.config = c
	ctx, cancel := context.WithCancelCause(ctx)
	joining, noMore := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-r.drain:
			noMore(errDraining) // a worker that has not joined has no tasks to move
		case <-ctx.Done():
			return
		}
		select {
		case <-r.leave:
			cancel(fmt.Errorf("%w: %w", errLeaving, r.hurried))
		case <-ctx.Done():
		}
	})
	err := r.repeat(ctx, joining)
	cancel(err)
	waiting.Wait()
	r.closeWorker(ctx) // if no session has
	if errors.Is(err, errLeaving) || errors.Is(err, errDraining) {
		return nil
	}
	return err
}

// repeat runs one session after the other. They join as long as joining lives, which
// ends with ctx.
func (r *Runner) repeat(ctx, joining context.Context) error {
	retry := backoff.New()
	for {
		joined, err := r.session(ctx, joining)
		switch {
		case joining.Err() != nil:
			return context.Cause(joining)
		case r.config.Final(err):
			return err
		}
		r.early = nil // counts only for the last session
		r.log.Warn("membership lost, registering again", "worker", r.name, "err", err)
		if joined {
			retry.Reset()
		}
		if !retry.Wait(joining) {
			return context.Cause(joining)
		}
	}
}

// session runs one session. When it returns, the session has no task and no goroutine
// left. It reports whether the worker had joined, and why the session ended.
func (r *Runner) session(ctx, joining context.Context) (joined bool, err error) {
	s := newSession(ctx, r.worker, r.drain)
	t := r.config.Open(s)
	s.run(s.awaitLeaseLoss)
	if err = s.join(joining, t); err == nil {
		joined = true
		err = r.keep(ctx, s, t)
	}
	r.early = s.early(ctx, err)
	return joined, r.end(ctx, s, t, err)
}

// keep keeps the membership until ctx ends, the worker is drained, or the membership
// is lost. It returns the reason.
func (r *Runner) keep(ctx context.Context, s *Session, t Transport) error {
	s.run(t.Keep)
	drain, alone, over := r.drain, s.alone, make(chan error, 2)
	for {
		select {
		case <-drain:
			drain = nil
			s.draining = true
			r.log.Info("draining", "worker", r.name)
			s.run(func(ctx context.Context) error {
				if err := t.Announce(ctx); err != nil {
					return err
				}
				over <- errDraining
				return nil
			})
		case <-alone:
			alone = nil
			s.run(func(ctx context.Context) error {
				if s.finishJobs(ctx, r.log, r.name) {
					over <- errAlone
				}
				return nil
			})
		case err := <-over:
			return err
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// end ends a session. It stops all tasks, under the lease for as long as the lease
// lasts, and then leaves. It returns the reason, joined with an error that keeps the
// worker from joining again.
func (r *Runner) end(ctx context.Context, s *Session, t Transport, reason error) error {
	// A worker that will not join again is closed; another is emptied.
	last := ctx.Err() != nil || errors.Is(reason, errDraining) || r.config.Final(reason)
	if last {
		// If the lease is lost meanwhile, the tasks have less time to stop.
		unwatch := context.AfterFunc(s.ctx, func() { r.worker.EndLease(context.Cause(s.ctx)) })
		r.closeWorker(ctx)
		unwatch()
	} else {
		r.worker.EndLease(reason)
	}
	s.end(reason)
	s.parts.Wait() // no request for the lease is under way
	if !last {
		if err := r.worker.Rejoin(ctx); err != nil {
			reason = errors.Join(reason, err)
			r.closeWorker(ctx)
		}
	}
	t.Leave(ctx, reason)
	return reason
}

// nameLate logs the tasks that have not stopped in their time. They ignore their context.
func (r *Runner) nameLate() {
	var late []string
	for _, t := range r.worker.Status() {
		if t.State == worker.Stopping {
			late = append(late, t.Task)
		}
	}
	if len(late) > 0 {
		r.log.Error("tasks do not stop, the process waits for them and keeps their lease", "worker", r.name, "tasks", late)
	}
}

// closeWorker stops all tasks and closes the worker. Only the first call has an
// effect. It waits for tasks that do not stop: the lease is kept for them, or the last
// resort ends them.
func (r *Runner) closeWorker(ctx context.Context) {
	if r.closed {
		return
	}
	r.closed = true
	late := time.AfterFunc(max(r.worker.StopTime(), time.Second), r.nameLate)
	defer late.Stop()
	ctx = context.WithoutCancel(ctx)
	var err error
	if r.config.Stopped != nil {
		err = r.worker.Stop(ctx)
		r.config.Stopped(ctx)
	}
	if err = errors.Join(err, r.worker.Close(ctx)); err != nil {
		r.log.Error("worker not closed", "worker", r.name, "err", err)
	}
}

package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/f8949c05/orchestrator/worker"
)

// Reasons for the end of a session.
var (
	// errDraining ends the session of a closing member that has no tasks left, or
	// has not joined yet.
	errDraining = errors.New("worker is draining")
	// errAlone reports that no other worker can take the tasks of a closing member.
	// It wraps errDraining: the member does not join again.
	errAlone = fmt.Errorf("%w: no other worker can take its tasks", errDraining)
	// errLeaving reports that the context of Close has ended.
	errLeaving = errors.New("drain cut short")
	// errLeaseOver reports that the worker has begun to stop all tasks because its
	// lease may have expired.
	errLeaseOver = errors.New("lease may have expired")
)

// Session is one membership of a worker, from Open to Leave.
type Session struct {
	worker    *worker.Worker[string]
	leaseLost <-chan struct{} // from worker.LeaseLost when the session began
	drain     <-chan struct{} // closed when the member must drain
	draining  bool            // drain was seen; used by the Runner's goroutine only
	alone     chan struct{}   // capacity 1: has a token once Alone was called

	// ctx ends when all tasks have stopped, or earlier if the membership is lost. Its
	// cause is the reason.
	ctx    context.Context
	cancel context.CancelCauseFunc
	parts  sync.WaitGroup
}

// newSession returns the session that w is about to begin. It outlives ctx until all
// tasks have stopped.
func newSession(ctx context.Context, w *worker.Worker[string], drain <-chan struct{}) *Session {
	s := &Session{worker: w, leaseLost: w.LeaseLost(), drain: drain, alone: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return s
}

// Draining returns a channel that is closed when the member must drain.
func (s *Session) Draining() <-chan struct{} { return s.drain }

// run runs a part of the session in a goroutine, with the session's context. An error
// of a part ends the session, which waits for all its parts.
func (s *Session) run(part func(context.Context) error) {
	s.parts.Go(func() {
		if err := part(s.ctx); err != nil {
			s.end(err)
		}
	})
}

// end ends the session. Only the first reason counts.
func (s *Session) end(reason error) { s.cancel(reason) }

// Alone reports that no other member can take the tasks of a draining worker. The
// session then finishes the pinned tasks that run now, and ends. Only the first call
// has an effect.
func (s *Session) Alone() {
	select {
	case s.alone <- struct{}{}:
	default:
	}
}

// Emptied waits until the worker has no tasks. It returns nil if they have moved, and
// an error if the lease was lost, which stops tasks too. It returns the cause of ctx
// if ctx ends first.
func (s *Session) Emptied(ctx context.Context) error {
	for {
		_, changed := s.worker.Changes() // before Status, so that no change is missed
		if len(s.worker.Status()) == 0 {
			if s.hasLostLease() {
				return errLeaseOver
			}
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// join joins until ctx or the session ends.
func (s *Session) join(ctx context.Context, t Transport) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	return t.Join(ctx)
}

// awaitLeaseLoss returns errLeaseOver when the worker stops all tasks because of its
// lease, and nil if ctx ends first.
func (s *Session) awaitLeaseLoss(ctx context.Context) error {
	select {
	case <-s.leaseLost:
		return errLeaseOver
	case <-ctx.Done():
		return nil
	}
}

// hasLostLease reports whether the worker stops, or has stopped, all tasks because of its
// lease.
func (s *Session) hasLostLease() bool {
	select {
	case <-s.leaseLost:
		return true
	default:
		return false
	}
}

// finishJobs waits until the pinned tasks that run now have ended, logs what is left,
// and returns true. It returns false if ctx ends first.
func (s *Session) finishJobs(ctx context.Context, log *slog.Logger, name string) bool {
	runs := func(t worker.TaskStatus[string]) bool {
		return t.Pinned && (t.State == worker.Starting || t.State == worker.Running)
	}
	jobs := make(map[string]bool)
	for _, t := range s.worker.Status() {
		jobs[t.Task] = runs(t)
	}
	for {
		_, changed := s.worker.Changes() // before Status, so that no change is missed
		left := s.worker.Status()
		if slices.ContainsFunc(left, func(t worker.TaskStatus[string]) bool { return jobs[t.Task] && runs(t) }) {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return false
			}
		}
		if len(left) > 0 {
			log.Info("no other worker can take tasks, stopping the rest", "worker", name, "tasks", len(left), "first", left[0].Task)
		}
		return true
	}
}

// early explains why tasks are stopped here that have not moved. reason ended the
// session, and ctx is the member's. early returns nil if there are no such tasks, or if
// no other worker could have taken them. Completed and failed tasks do not count.
func (s *Session) early(ctx context.Context, reason error) error {
	if errors.Is(reason, errAlone) {
		return nil
	}
	left := slices.ContainsFunc(s.worker.Status(), func(t worker.TaskStatus[string]) bool {
		return t.State != worker.Completed && t.State != worker.Failed
	})
	drained := errors.Is(reason, errDraining)
	// A worker that loses its lease while it drains is empty too, although its tasks have
	// not moved.
	emptied := s.draining && !drained && s.hasLostLease()
	switch {
	case !left && !emptied:
		return nil
	case drained, ctx.Err() != nil:
		return reason
	}
	return fmt.Errorf("%w: %w", worker.ErrLeaseLost, reason)
}

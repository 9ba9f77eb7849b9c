package closing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/f8949c05/orchestrator/worker"
)

// Reasons for the end of a membership.
var (
	// ErrDraining ends the membership of a closing member that has no tasks left, or
	// has not joined yet. It is also the reason why a closing member refuses tasks.
	ErrDraining = errors.New("worker is draining")
	// ErrAlone reports that no other worker can take the tasks of a closing member.
	// It wraps ErrDraining: the member does not rejoin.
	ErrAlone = fmt.Errorf("%w: no other worker can take its tasks", ErrDraining)
	// ErrLeaving reports that the context of Close has ended.
	ErrLeaving = errors.New("drain cut short")
	// ErrFenced reports that the worker has begun to stop all tasks because its
	// lease may have expired.
	ErrFenced = errors.New("lease may have expired")
)

// Late returns a callback for [New] that logs the remaining tasks of w as a warning.
// The log then names a task that Close waits for, if it does not stop.
func Late(logger *slog.Logger, name string, w *worker.Worker[string]) func() {
	return func() {
		tasks, _ := w.List(context.Background()) // a call without a term cannot fail
		if len(tasks) > 0 {
			logger.Warn("drain cut short, stopping remaining tasks", "worker", name, "tasks", len(tasks), "first", tasks[0])
		}
	}
}

// Membership is one membership of a worker.
type Membership struct {
	worker   *worker.Worker[string]
	fenced   <-chan struct{} // from worker.LeaseLost when the membership began
	draining bool
}

// NewMembership returns the membership that w is about to begin.
func NewMembership(w *worker.Worker[string]) *Membership {
	return &Membership{worker: w, fenced: w.LeaseLost()}
}

// Fence waits until the worker stops all tasks because of its lease, and returns
// [ErrFenced]. It returns nil if ctx ends first.
func (m *Membership) Fence(ctx context.Context) error {
	select {
	case <-m.fenced:
		return ErrFenced
	case <-ctx.Done():
		return nil
	}
}

// Drain records that the member drains. It must be called from the same goroutine as
// Early.
func (m *Membership) Drain() { m.draining = true }

// Alone handles a draining worker whose tasks no other worker can take. It waits
// until the pinned tasks that run now have ended, logs what is left, and returns
// true. It returns false if ctx ends first.
func (m *Membership) Alone(ctx context.Context, logger *slog.Logger, name string) bool {
	runs := func(t worker.TaskStatus[string]) bool {
		return t.Pinned && (t.State == worker.Starting || t.State == worker.Running)
	}
	jobs := make(map[string]bool)
	for _, t := range m.worker.Status() {
		jobs[t.Task] = runs(t)
	}
	for {
		_, changed := m.worker.Changes() // before Status, so that no change is missed
		left := m.worker.Status()
		if slices.ContainsFunc(left, func(t worker.TaskStatus[string]) bool { return jobs[t.Task] && runs(t) }) {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return false
			}
		}
		if len(left) > 0 {
			logger.Info("no other worker can take tasks, stopping the rest", "worker", name, "tasks", len(left), "first", left[0].Task)
		}
		return true
	}
}

// Emptied waits until the worker has no tasks. It reports whether they have moved,
// which is false if ctx ended or the lease was lost.
func (m *Membership) Emptied(ctx context.Context) bool {
	for {
		_, changed := m.worker.Changes() // before Status, so that no change is missed
		if len(m.worker.Status()) == 0 {
			return !m.lost() // a lost lease stops tasks too
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Early explains why tasks are stopped here that have not moved. err ended the
// membership, and ctx is the member's. Early returns nil if no such task is left, or
// if no other worker could have taken the tasks. Completed and failed tasks do not
// count.
func (m *Membership) Early(ctx context.Context, err error) error {
	if errors.Is(err, ErrAlone) {
		return nil
	}
	stopped := slices.ContainsFunc(m.worker.Status(), func(t worker.TaskStatus[string]) bool {
		return t.State != worker.Completed && t.State != worker.Failed
	})
	drained := errors.Is(err, ErrDraining)
	switch {
	case !stopped && (drained || !m.draining || !m.lost()):
		return nil
	case drained, ctx.Err() != nil:
		return err
	}
	return fmt.Errorf("%w: %w", worker.ErrLeaseLost, err)
}

// lost reports whether the worker stops, or has stopped, all tasks because of its
// lease.
func (m *Membership) lost() bool {
	select {
	case <-m.fenced:
		return true
	default:
		return false
	}
}

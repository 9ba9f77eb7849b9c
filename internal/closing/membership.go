package closing

// How one membership of a member ends: with everything moved, or with what it had
// stopped here.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/f8949c05/orchestrator/worker"
)

// What a membership ends with.
var (
	// ErrDraining says that a member that closes has nothing left to do, and takes
	// nothing.
	ErrDraining = errors.New("the worker is being drained")
	// ErrAlone says that no other worker can take the tasks of a member that closes.
	// It wraps ErrDraining: the member does not come back.
	ErrAlone = fmt.Errorf("%w: no other worker can take its tasks", ErrDraining)
	// ErrLeaving says that Close will not wait any longer.
	ErrLeaving = errors.New("Close waits no longer")
	// ErrFenced says that the worker has begun to stop everything, for want of its
	// lease.
	ErrFenced = errors.New("the lease can have ended")
)

// Late returns what [New] takes: a warning that says what is left of a worker's tasks,
// so that a log tells what is waited for if they do not stop.
func Late(logger *slog.Logger, name string, w *worker.Worker[string]) func() {
	return func() {
		tasks, _ := w.List(context.Background()) // which fails for calls of others only
		if len(tasks) > 0 {
			logger.Warn("Close waits no longer, what is left is stopped", "worker", name, "tasks", len(tasks), "first", tasks[0])
		}
	}
}

// Membership is one membership of a worker.
type Membership struct {
	worker   *worker.Worker[string]
	fenced   <-chan struct{} // the worker's, as of this membership
	draining bool
}

// NewMembership returns the one that a worker is about to begin.
func NewMembership(w *worker.Worker[string]) *Membership {
	return &Membership{worker: w, fenced: w.Fenced()}
}

// Fence returns [ErrFenced] once the worker stops everything for want of its
// lease, and nil where ctx ends before.
func (m *Membership) Fence(ctx context.Context) error {
	select {
	case <-m.fenced:
		return ErrFenced
	case <-ctx.Done():
		return nil
	}
}

// Drain says that the worker is to end empty. It is called from where Early is.
func (m *Membership) Drain() { m.draining = true }

// Alone is for a worker whose tasks no other can take. It waits for the jobs that run
// now, logs what is left, and reports whether it did: not if ctx ended before.
func (m *Membership) Alone(ctx context.Context, logger *slog.Logger, name string) bool {
	runs := func(t worker.TaskStatus[string]) bool {
		return t.Pinned && (t.State == worker.Starting || t.State == worker.Running)
	}
	jobs := make(map[string]bool)
	for _, t := range m.worker.Status() {
		jobs[t.Task] = runs(t)
	}
	for {
		_, changed := m.worker.Changes() // first: what changes after it is looked at again
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
			logger.Info("no other worker can take the tasks, what is left is stopped", "worker", name, "tasks", len(left), "first", left[0].Task)
		}
		return true
	}
}

// Emptied waits until all the tasks of the worker have moved, and reports whether
// they have.
func (m *Membership) Emptied(ctx context.Context) bool {
	for {
		_, changed := m.worker.Changes() // first: what changes after it is looked at again
		if len(m.worker.Status()) == 0 {
			return !m.lost() // it may have stopped them for that
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Early says, at the end of the membership and of what it has ended with, why
// tasks are stopped here that have not moved; nil: none is, as what has completed
// is not, or no other worker could have taken them. ctx is the member's.
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

// lost reports whether the worker stops everything for want of its lease, or has.
func (m *Membership) lost() bool {
	select {
	case <-m.fenced:
		return true
	default:
		return false
	}
}

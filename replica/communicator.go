package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
)

// WorkerID names a member for an orchestrator. Its text is "name#id".
type WorkerID struct {
	Name string
	ID   uint64
}

// String returns the text of w.
func (w WorkerID) String() string { return fmt.Sprintf("%s#%d", w.Name, w.ID) }

// MarshalText returns the text of w.
func (w WorkerID) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

var (
	errGone      = fmt.Errorf("%w: the member is gone", orchestrator.ErrRejected)
	errNotHeld   = errors.New("nothing new heard, and the caller does not take held lists")
	errWithdrawn = fmt.Errorf("%w: other members may still run the task", orchestrator.ErrStopping)
)

// communicator is what a leader's orchestrator calls. List is what a member may run. Apply
// marks orders, which the replica's loop writes for all members at once, and waits for the
// report.
type communicator struct {
	mu      sync.Mutex // guards d
	d       *dispatch
	wake    func()
	calls   atomic.Int32 // of Apply, under way
	timeout time.Duration
}

var _ orchestrator.Applier[WorkerID, string] = (*communicator)(nil)

// do calls f with the lock held.
func (c *communicator) do(f func(d *dispatch)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.d)
}

// List returns what a member may run, those not yet started first. It is the same slice
// while nothing changes (C2), and held if the member is silent (A10).
func (c *communicator) List(ctx context.Context, w WorkerID) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.d.members[w.ID]
	if m == nil || m.gone {
		return nil, errGone
	}
	if silent := m.held || m.unreadable || !m.waiting.IsZero() && time.Since(m.waiting) > c.timeout; silent && !orchestrator.Held(ctx) {
		return nil, errNotHeld
	}
	return m.mayRunAll(), nil
}

// Add makes a member run a task.
func (c *communicator) Add(ctx context.Context, w WorkerID, task string) error {
	return errors.Join(c.Apply(ctx, w, []orchestrator.Write[string]{{Op: orchestrator.OpAdd, Task: task}})...)
}

// Remove makes a member stop a task.
func (c *communicator) Remove(ctx context.Context, w WorkerID, task string) error {
	return errors.Join(c.Apply(ctx, w, []orchestrator.Write[string]{{Op: orchestrator.OpRemove, Task: task}})...)
}

// Apply makes the writes orders of w and waits until its reports have answered them.
func (c *communicator) Apply(ctx context.Context, w WorkerID, writes []orchestrator.Write[string]) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.d.members[w.ID]
	if !ok {
		m = &memberOrders{gone: true}
	}
	entries, done, errs := make([]*entry, len(writes)), make([]bool, len(writes)), make([]error, len(writes))
	for i, write := range writes {
		if ok {
			entries[i] = c.d.order(m, write.Task, write.Op == orchestrator.OpAdd)
		}
	}
	c.calls.Add(1)
	defer c.calls.Add(-1)
	c.wake()
	for open := true; open; {
		changed, cause := m.changed, context.Cause(ctx)
		open = false
		for i, write := range writes {
			if done[i] {
				continue
			}
			if done[i], errs[i] = outcome(m, write, entries[i], cause); done[i] && errs[i] == nil {
				orchestrator.Applied(ctx, write)
			}
			open = open || !done[i]
		}
		if open {
			c.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
			}
			c.mu.Lock()
		}
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// outcome returns whether a write was answered, and its result. cause is why the call has
// ended; nil: it has not. Then an order to run that was never written is taken back.
func outcome(m *memberOrders, write orchestrator.Write[string], e *entry, cause error) (done bool, err error) {
	add := write.Op == orchestrator.OpAdd
	switch {
	case m.gone && add:
		return true, errGone
	case m.gone, e == nil, !add && e.isOver():
		return true, nil
	case add && !e.run:
		if why, ok := strings.CutPrefix(e.why, orchestrator.ErrElsewhere.Error()); ok {
			return true, fmt.Errorf("%w%s", orchestrator.ErrElsewhere, why)
		}
		return true, fmt.Errorf("%w: %s", orchestrator.ErrRejected, e.why)
	case add && e.isRead() && m.reports(write.Task) && !m.starting[write.Task]:
		return true, nil
	case cause == nil, errors.Is(cause, orchestrator.ErrDeposed):
	case add && e.dirty && (e.Version == 0 || e.Stop): // it was never written
		e.run, e.dirty = false, false
		m.touch()
		return true, errWithdrawn
	case !add && e.isRead() && m.also[write.Task]:
		return true, fmt.Errorf("%w: %w", orchestrator.ErrStopping, cause)
	}
	return cause != nil, cause
}

package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
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

// UnmarshalText reads what MarshalText returns.
func (w *WorkerID) UnmarshalText(text []byte) error {
	i := strings.LastIndexByte(string(text), '#')
	id, err := strconv.ParseUint(string(text[i+1:]), 10, 64)
	if i < 0 || err != nil {
		return invalid("worker ID %q: must be name#id", text)
	}
	w.Name, w.ID = string(text[:i]), id
	return nil
}

var (
	errGone      = fmt.Errorf("%w: the member is gone", orchestrator.ErrRejected)
	errNotHeld   = errors.New("nothing new heard, and the caller does not take held lists")
	errWithdrawn = fmt.Errorf("%w: other members may still run the task", orchestrator.ErrStopping)
)

// communicator is what a leader's orchestrator calls. List is what a member may run. Apply
// marks orders, which the replica's loop writes for all members at once, and waits for the
// report.
type communicator struct {
	mu      sync.Mutex // guards everything below
	d       *dispatch
	waiting int // calls of Apply under way
	wake    func()
	timeout time.Duration
}

var _ orchestrator.Applier[WorkerID, string] = (*communicator)(nil)

// do calls f with the lock held.
func (c *communicator) do(f func(d *dispatch)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.d)
}

// isWaiting reports whether calls are under way.
func (c *communicator) isWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting > 0
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
	silent := m.held || m.unreadable || !m.waiting.IsZero() && time.Since(m.waiting) > c.timeout
	if silent && !orchestrator.Held(ctx) {
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
	entries, errs, open := make([]*entry, len(writes)), make([]error, len(writes)), make(map[int]bool)
	for i, write := range writes {
		open[i] = true
		if ok {
			entries[i] = c.d.order(m, write.Task, write.Op == orchestrator.OpAdd)
		}
	}
	c.waiting++
	c.wake()
	for ended := false; ; {
		for i := range open {
			done, err := outcome(m, writes[i], entries[i])
			if errs[i] = err; done {
				delete(open, i)
			}
			if done && err == nil {
				orchestrator.Applied(ctx, writes[i])
			}
		}
		if ended || len(open) == 0 {
			break
		}
		changed := m.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			ended = true
		}
		c.mu.Lock()
	}
	c.waiting--
	for i := range open {
		errs[i] = expire(context.Cause(ctx), m, writes[i], entries[i])
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// outcome returns whether a write was answered, and its result.
func outcome(m *memberOrders, write orchestrator.Write[string], e *entry) (done bool, err error) {
	add := write.Op == orchestrator.OpAdd
	switch {
	case m.gone && add:
		return true, errGone
	case m.gone, e == nil:
		return true, nil
	case !add:
		return e.isOver(), nil
	case !e.run: // refused
		return true, fmt.Errorf("%w: %s", orchestrator.ErrRejected, e.why)
	}
	_, refused := m.report.Refused[write.Task]
	return e.isRead() && !refused && !m.starting[write.Task], nil
}

// expire returns the result of a write that is open when the call's context has ended. An
// order to run that was never written is taken back.
func expire(cause error, m *memberOrders, write orchestrator.Write[string], e *entry) error {
	switch {
	case errors.Is(cause, orchestrator.ErrDeposed):
	case write.Op == orchestrator.OpAdd && e.dirty && e.run && (e.Version == 0 || e.Stop): // it was never written
		e.run, e.dirty = false, false
		m.touch()
		return errWithdrawn
	case write.Op == orchestrator.OpRemove && e.isRead() && m.also[write.Task]:
		return fmt.Errorf("%w: %w", orchestrator.ErrStopping, cause)
	}
	return cause
}

package closing

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrEarly reports that a member left before it was drained.
var ErrEarly = errors.New("stopped before everything had moved")

// Closing coordinates the end of one member, which runs once and may have several
// memberships in turn. Its methods may be called from many goroutines.
type Closing struct {
	drain, leave, finished chan struct{}
	late                   func()

	mu      sync.Mutex
	state   state
	drains  bool  // drain is closed
	hurried error // the reason to leave; set just before leave is closed
	early   error // why the member left before it was drained; set when finished is closed
}

type state uint8

const (
	idle   state = iota // not run and not closed
	run                 // running, or has run
	unused              // closed before it ran; it never runs
)

// New returns the Closing of a member that has not run yet. late is called if the
// context of a Close ends before the run does. It is called at most once, just
// before the member is told to leave.
func New(late func()) *Closing {
	return &Closing{drain: make(chan struct{}), leave: make(chan struct{}), finished: make(chan struct{}), late: late}
}

// Begin reports whether the member may run. It may run once, and not after Close. If
// Begin returns true, the caller must call Finish after the run.
func (c *Closing) Begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != idle {
		return false
	}
	c.state = run
	return true
}

// Finish records that the member has run. early says why it stopped tasks that had
// not moved; nil means that it stopped none.
func (c *Closing) Finish(early error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.early = early
	close(c.finished)
}

// Drain returns a channel that is closed when the member must drain.
func (c *Closing) Drain() <-chan struct{} { return c.drain }

// Leave returns a channel that is closed when the member must leave, drained or not.
func (c *Closing) Leave() <-chan struct{} { return c.leave }

// Hurried returns the reason to leave immediately: the cause of the context of a
// Close. It is nil until just before Leave's channel is closed.
func (c *Closing) Hurried() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hurried
}

// Close drains the member until ctx ends, then tells it to leave, and returns when
// it has run. If the member was not drained, the error wraps [ErrEarly] and the
// argument of Finish. Further calls return the same result. A member that has not
// run is closed with stop instead, and never runs.
func (c *Closing) Close(ctx context.Context, stop func(context.Context) error) error {
	if !c.begin() {
		return stop(ctx)
	}
	select {
	case <-c.finished:
	case <-ctx.Done():
		select {
		case <-c.finished: // the result takes precedence over an ended context
		default:
			c.hurry(context.Cause(ctx))
			<-c.finished
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.early != nil {
		return fmt.Errorf("%w: %w", ErrEarly, c.early)
	}
	return nil
}

// begin closes the drain channel of a running member, and reports whether the member
// has begun to run.
func (c *Closing) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == idle {
		c.state = unused
	}
	if c.state == run && !c.drains {
		c.drains = true
		close(c.drain)
	}
	return c.state == run
}

// hurry tells the member to leave. Only the first cause counts.
func (c *Closing) hurry(cause error) {
	c.mu.Lock()
	first := c.hurried == nil
	if first {
		c.hurried = cause
	}
	c.mu.Unlock()
	if first {
		c.late()
		close(c.leave)
	}
}

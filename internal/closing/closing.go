package closing

// The end of a member as whoever closes it sees it, however many memberships it has.

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrEarly says that a member left before it was drained.
var ErrEarly = errors.New("stopped before everything had moved")

// Closing is the end of one member, which runs once. Its methods may be called
// from any number of goroutines.
type Closing struct {
	drain, leave, finished chan struct{}
	late                   func()

	mu      sync.Mutex
	state   state
	drains  bool  // drain is closed
	hurried error // why leave is closed, or is about to be; nil: it is not
	early   error // why it left before it was drained, once finished is closed
}

type state uint8

const (
	idle   state = iota // it may run
	run                 // it does, or did
	unused              // it was closed before, and never will
)

// New returns that of a member that has not run yet. late is called, once at most,
// where the context of a Close ends before the member has run, and before the member
// is told to leave.
func New(late func()) *Closing {
	return &Closing{drain: make(chan struct{}), leave: make(chan struct{}), finished: make(chan struct{}), late: late}
}

// Begin reports whether the member may run: it may once, if it was not closed
// before. Where it may, Finish is to be called when it has run.
func (c *Closing) Begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != idle {
		return false
	}
	c.state = run
	return true
}

// Finish says that the member has run. early says why it had to stop something
// that had not moved; nil: it had not.
func (c *Closing) Finish(early error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.early = early
	close(c.finished)
}

// Drain returns a channel that is closed when the member is to be drained.
func (c *Closing) Drain() <-chan struct{} { return c.drain }

// Leave returns a channel that is closed when it is to leave, drained or not.
func (c *Closing) Leave() <-chan struct{} { return c.leave }

// Hurried returns why it is to leave at once: the cause of the context that some
// Close was called with. It is nil until Leave's channel is about to be closed.
func (c *Closing) Hurried() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hurried
}

// Close has the member drained until ctx ends, and then leave, and returns when it
// has run: with [ErrEarly], wrapped with what Finish was told, where it was not
// drained, and with the same whenever it is called again. One that has not run
// never will, and is closed by stop.
func (c *Closing) Close(ctx context.Context, stop func(context.Context) error) error {
	if !c.begin() {
		return stop(ctx)
	}
	select {
	case <-c.finished:
	case <-ctx.Done():
		select {
		case <-c.finished: // that wins over a context that has ended
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

// begin has the member be drained, and reports whether it has begun to run.
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

// hurry has the member leave.
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

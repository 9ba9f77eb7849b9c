package lease

// Deadlines that are put off by what a coordinator acknowledges.

import (
	"sync"
	"time"
)

// Deadline passes a fixed time after the latest moment given to Extend. Once it
// has passed, nothing puts it off any more. Its methods may be called from any
// number of goroutines.
type Deadline struct {
	length time.Duration
	done   chan struct{}

	mu    sync.Mutex // guards what follows, and that done is closed once
	from  Instant
	begun bool
	over  bool
	timer *time.Timer
}

// NewDeadline returns a Deadline that passes length after what Extend is given.
// Until its first Extend it does not run.
func NewDeadline(length time.Duration) *Deadline {
	return &Deadline{length: length, done: make(chan struct{})}
}

// Extend has the Deadline pass its length after sent, if that is later than it
// would. A lease is extended by when its keepalive was sent, however late the
// acknowledgement came: the coordinator counts from somewhere in between. It
// does nothing once the Deadline has passed by the clock, noticed or not.
func (d *Deadline) Extend(sent Instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over || d.begun && (d.left() <= 0 || !sent.after(d.from)) {
		return
	}
	d.from, d.begun = sent, true
	if left := d.left(); left > 0 && d.timer == nil {
		d.timer = time.AfterFunc(d.pause(left), d.check)
	}
}

// Left returns how much time is left, by the clock as it is now: 0 once the
// Deadline has passed, and from then on; its length before the first Extend.
func (d *Deadline) Left() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left()
}

// Done returns a channel that is closed when the Deadline has passed. Where it
// passed while the machine was suspended, that is found out within a twentieth
// of its length, or by whoever calls Left first.
func (d *Deadline) Done() <-chan struct{} { return d.done }

// End has the Deadline pass now. It leaves no timer and no goroutine behind.
func (d *Deadline) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
}

// check looks at the clock again, since a timer stands still with the machine.
func (d *Deadline) check() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if left := d.left(); left > 0 {
		d.timer.Reset(d.pause(left))
	}
}

func (d *Deadline) pause(left time.Duration) time.Duration {
	return min(left, max(d.length/20, time.Millisecond))
}

// left is Left with the lock held.
func (d *Deadline) left() time.Duration {
	switch {
	case d.over:
		return 0
	case !d.begun:
		return d.length
	}
	left := d.length - d.from.Elapsed()
	if left <= 0 {
		d.end()
		return 0
	}
	return left
}

func (d *Deadline) end() {
	if d.over {
		return
	}
	d.over = true
	close(d.done)
	if d.timer != nil {
		d.timer.Stop()
	}
}

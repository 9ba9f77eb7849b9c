// Package lease tells a lease holder when its lease can have ended at the
// coordinator that granted it. Its clock also runs while the machine is suspended,
// if the operating system has such a clock.
package lease

import (
	"sync"
	"time"
)

// Instant is a point in time, read from two clocks. The zero Instant is not a time.
type Instant struct {
	mono time.Time
	boot time.Duration // from the clock that also runs in a suspended machine
}

// Now returns the current time.
func Now() Instant {
	return Instant{mono: time.Now(), boot: awake()}
}

// Elapsed returns the time that has passed since i: the larger of the times on two clocks.
// Go's monotonic clock stops while the machine is suspended. The other clock does not: on
// Linux it is CLOCK_BOOTTIME, elsewhere the wall clock, which may be set back. In a bubble
// of testing/synctest, Go's clock is fake and the other is real, so Elapsed returns the
// real time if that is longer. Neither runs in a virtual machine that its host has paused.
func (i Instant) Elapsed() time.Duration {
	return max(time.Since(i.mono), awake()-i.boot)
}

// after reports whether i was read later than j.
func (i Instant) after(j Instant) bool {
	if i.mono.Equal(j.mono) {
		return i.boot > j.boot
	}
	return i.mono.After(j.mono)
}

// wall reads the wall clock.
func wall() time.Duration { return time.Duration(time.Now().UnixNano()) }

// Deadline passes a fixed time after the latest Instant given to Extend. A Deadline
// that has passed cannot be extended. Its methods may be called from any number of
// goroutines.
type Deadline struct {
	length time.Duration
	done   chan struct{}

	mu    sync.Mutex // guards the fields below and the closing of done
	from  Instant
	begun bool
	over  bool
	timer *time.Timer
}

// NewDeadline returns a Deadline that passes length after the Instant given to
// Extend. It does not run before the first Extend.
func NewDeadline(length time.Duration) *Deadline {
	return &Deadline{length: length, done: make(chan struct{})}
}

// Extend moves the Deadline to its length after sent, if that is later. sent must be
// the time at which the keepalive was sent, however late the acknowledgement
// arrived, because the coordinator counts from a time between the two. Extend does
// nothing if the Deadline has passed by the clock, even if Done is still open.
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

// Left reads the clock and returns the time left: the length before the first
// Extend, and 0 from the moment at which the Deadline has passed.
func (d *Deadline) Left() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left()
}

// Done returns a channel that is closed when the Deadline has passed. If the
// Deadline passes while the machine is suspended, the next call of Left or Extend
// closes the channel. Without such a call, it is closed within a twentieth of the
// length after the machine resumes.
func (d *Deadline) Done() <-chan struct{} { return d.done }

// End makes the Deadline pass now. It leaves no timer and no goroutine behind.
func (d *Deadline) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
}

// check reads the clock again, because timers stop while the machine is suspended.
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

// left is Left with mu held.
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

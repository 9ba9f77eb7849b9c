package lease

// Points in time, and the time elapsed since.

import "time"

// Instant is a point in time, read from two clocks. The zero Instant is not a time.
type Instant struct {
	mono time.Time
	boot time.Duration // from the clock that also runs in a suspended machine
}

// Now returns the current time.
func Now() Instant {
	return Instant{mono: time.Now(), boot: awake()}
}

// Elapsed returns the time that has passed since i, as far as two clocks can tell.
//
// It is the larger of the times on two clocks. Go's monotonic clock stops while the
// machine is suspended. The other clock does not: on Linux it is CLOCK_BOOTTIME,
// elsewhere the wall clock, which may be set back. In a bubble of testing/synctest,
// Go's clock is fake and the other is real, so Elapsed returns the real time if that
// is longer.
//
// Neither clock runs in a virtual machine that its host has paused.
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

package lease

// Moments, and how much time has passed since.

import "time"

// Instant is a moment, read from two clocks. The zero Instant is none.
type Instant struct {
	mono time.Time
	boot time.Duration // of the clock that goes on in a suspended machine
}

// Now returns the present moment.
func Now() Instant {
	return Instant{mono: time.Now(), boot: awake()}
}

// Elapsed returns how much time has passed since i, at least.
//
// It is the larger of what two clocks say. Go's own stands still while the
// machine is suspended; the other does not: on Linux it is CLOCK_BOOTTIME,
// elsewhere the wall clock, which may be set back meanwhile. In a bubble of
// testing/synctest Go's own is fake and the other is not: a bubble in which
// less fake than real time has passed sees the real one.
//
// Neither goes on in a virtual machine that its host has paused.
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

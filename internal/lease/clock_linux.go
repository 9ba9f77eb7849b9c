package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// awake reads a clock that also runs while the machine is suspended. If a sandbox
// forbids the call, awake reads the wall clock. If the call fails only at times,
// Elapsed is too large, so that leases end early, or it falls back to Go's clock.
func awake() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return wall()
	}
	return time.Duration(t.Nano())
}

package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// awake reads a clock that goes on while the machine is suspended. A sandbox
// may forbid to read it; one that does so now and then makes leases end early,
// never late.
func awake() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return wall()
	}
	return time.Duration(t.Nano())
}

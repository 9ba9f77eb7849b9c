package proctest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Now reads CLOCK_BOOTTIME, in nanoseconds. All processes of the machine share this
// clock, and it does not stop while a process or the machine is suspended.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) //nolint:forbidigo // without the clock no test of this package can run
	}
	return ts.Nano()
}

// Pause sends SIGSTOP and returns when the process has stopped.
func (p *Process) Pause() {
	p.T.Helper()
	p.signal(syscall.SIGSTOP)
	for !p.isStopped() {
		runtime.Gosched() // the kernel needs some microseconds
	}
	p.write(Event{Kind: Paused, PID: p.PID()})
}

// Resume continues a stopped process.
func (p *Process) Resume() {
	p.T.Helper()
	p.write(Event{Kind: Resumed, PID: p.PID()})
	p.signal(syscall.SIGCONT)
}

// isStopped reads the state of the process from /proc: each of its threads must have
// stopped.
func (p *Process) isStopped() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	if err != nil {
		p.T.Fatal(err)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		_, rest, ok := strings.Cut(string(stat), ") ") // after the name, which may contain any character
		if !ok || rest[0] != 'T' {
			return false
		}
	}
	return len(threads) > 0
}

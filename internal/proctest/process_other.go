//go:build !linux

package proctest

import "time"

// Now reads the wall clock, in nanoseconds. All processes of the machine share it.
func Now() int64 { return time.Now().UnixNano() }

// Pause fails the test.
func (p *Process) Pause() {
	p.T.Helper()
	p.T.Fatal("processes can be paused only on Linux")
}

// Resume fails the test.
func (p *Process) Resume() {
	p.T.Helper()
	p.T.Fatal("processes can be resumed only on Linux")
}

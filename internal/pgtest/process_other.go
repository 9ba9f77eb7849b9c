//go:build !linux

package pgtest

import (
	"os/exec"
	"testing"
)

// give skips the test. It is the first function here that starting a server calls.
func give(t testing.TB, _ string) {
	t.Helper()
	t.Skip("servers are started only on Linux")
}

func prioritize(int) {}

func tempDir() string { return "" }

func unprivileged(testing.TB, *exec.Cmd) {}

func removeMemory(string) {}

func (p *process) crash()          {}
func (p *process) pause()          {}
func (p *process) resume()         {}
func (p *process) limit(string)    {}
func (p *process) children() []int { return nil }
func (p *process) gone([]int)      {}

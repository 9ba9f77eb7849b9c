// Package stagetest tests the examples as processes.
package stagetest

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

// programEnv makes the test binary the program.
const programEnv = "ORCHESTRATOR_EXAMPLE_TEST"

// IsProgram reports whether this process is the program or one of its roles, rather
// than the tests. TestMain then calls the program's main function.
func IsProgram() bool { return os.Getenv(programEnv) != "" || stage.Role() != "" }

// Program is an example that runs as a process.
type Program struct {
	Process *os.Process
	Stderr  bytes.Buffer // to be read after Wait

	cmd    *exec.Cmd
	stdout *bufio.Reader
	seen   bytes.Buffer
}

// Start starts the program under test in a folder.
func Start(t testing.TB, dir string, args ...string) *Program {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{cmd: exec.CommandContext(t.Context(), executable, args...)}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), programEnv+"=1", "TMPDIR="+t.TempDir())
	p.cmd.Stderr = &p.Stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(io.TeeReader(stdout, &p.seen))
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.Process = p.cmd.Process
	return p
}

// Until reads the program's output to the first line that matches, and returns the
// match of the last group.
func (p *Program) Until(t testing.TB, pattern string) string {
	t.Helper()
	for {
		line, err := p.stdout.ReadString('\n')
		if m := regexp.MustCompile(pattern).FindStringSubmatch(line); m != nil {
			return m[len(m)-1]
		}
		if err != nil {
			_ = p.cmd.Wait()
			t.Fatalf("no %v in:\n%s%s", pattern, &p.seen, &p.Stderr)
		}
	}
}

// Wait returns the whole output, once no process of the program is left. It checks
// the exit code; -1 stands for a signal.
func (p *Program) Wait(t testing.TB, code int) string {
	t.Helper()
	if _, err := io.Copy(io.Discard, p.stdout); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // the exit code is checked next
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("exit code %d, want %d:\n%s%s", got, code, &p.seen, &p.Stderr)
	}
	return p.seen.String()
}

// CheckWidth checks that each line of an output fits into a terminal of 80 columns.
func CheckWidth(t testing.TB, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

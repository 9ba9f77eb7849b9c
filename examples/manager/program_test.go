package main

// The example as a process.

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asProgram is the environment variable that makes the test binary the program, as
// workerEnv makes it a worker.
const asProgram = "ORCHESTRATOR_MANAGER_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || os.Getenv(workerEnv) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

type program struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
	seen   bytes.Buffer
	stderr bytes.Buffer
}

// start starts the program in a folder.
func start(t *testing.T, dir string, args ...string) *program {
	t.Helper()
	executable, err := os.Executable()
	require.NoError(t, err)
	p := &program{cmd: exec.CommandContext(t.Context(), executable, args...)}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+t.TempDir())
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.stdout = bufio.NewReader(io.TeeReader(stdout, &p.seen))
	require.NoError(t, p.cmd.Start())
	return p
}

// until reads the program's output to the first line that matches.
func (p *program) until(t *testing.T, pattern *regexp.Regexp) {
	t.Helper()
	for {
		line, err := p.stdout.ReadString('\n')
		if pattern.MatchString(line) {
			return
		}
		if err != nil {
			_ = p.cmd.Wait()
			t.Fatalf("no %v in:\n%s%s", pattern, &p.seen, &p.stderr)
		}
	}
}

// wait waits until no process of the program is left, and returns its output.
func (p *program) wait(t *testing.T, code int) string {
	t.Helper()
	_, err := io.Copy(io.Discard, p.stdout)
	require.NoError(t, err)
	_ = p.cmd.Wait() // the exit code is checked next
	require.Equal(t, code, p.cmd.ProcessState.ExitCode(), "%s%s", &p.seen, &p.stderr)
	return p.seen.String()
}

// Package proctest tests with real processes. It starts the test's own binary again in
// another role, and kills, stops and continues it. Each process writes what it runs
// to one shared journal. The journal is then checked for tasks that ran in two
// places at once.
package proctest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
)

// Role is the main function of a process. Its argument is the settings as JSON.
type Role func(settings string) error

// NewRole returns a role that calls main with its settings.
func NewRole[S any](main func(S) error) Role {
	return func(text string) error {
		var settings S
		if err := json.Unmarshal([]byte(text), &settings); err != nil {
			return fmt.Errorf("read settings: %w", err)
		}
		return main(settings)
	}
}

// Main is the body of TestMain. It runs the tests. In a process that a [Process]
// started with one of these roles, it runs the role instead.
func Main(m *testing.M, roles map[string]Role) {
	for role, main := range roles {
		settings, ok := os.LookupEnv(prefix + role)
		if !ok {
			continue
		}
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			exit(4) // the test process has ended
		}()
		if err := main(settings); err != nil {
			fmt.Fprintln(os.Stderr, role, err)
			exit(1)
		}
		exit(0)
	}
	exit(m.Run())
}

const prefix = "ORCHESTRATOR_PROCTEST_"

func exit(code int) {
	os.Exit(code) //nolint:forbidigo // this package owns the process
}

// Process is a process of a test: the test's own binary, or any command. It can be
// started again after its end. Only Output may be used outside the test's goroutine.
type Process struct {
	T        testing.TB
	Name     string
	Command  []string // with arguments; nil: the test's own binary in the role
	Role     string   // a role of Main
	Settings any      // passed to the role as JSON
	Journal  *Journal // records the end of the process; nil: not recorded
	Output   Output

	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts the process. It is killed at the end of the test at the latest.
func (p *Process) Start() {
	p.T.Helper()
	cmd, err := p.command()
	if err != nil {
		p.T.Fatalf("start %s: %v", p.Name, err)
	}
	cmd.Stdout, cmd.Stderr = &p.Output, &p.Output
	// The process ends when its standard input does, so it ends with the test,
	// however the test ends.
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		p.T.Fatalf("start %s: %v", p.Name, err)
	}
	if err := cmd.Start(); err != nil {
		p.T.Fatalf("start %s: %v", p.Name, err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // most processes are killed, so an error is expected
		if p.Journal != nil {
			_ = p.Journal.Write(Event{Kind: Died, PID: cmd.Process.Pid, Text: cmd.ProcessState.String()})
		}
	}()
	p.cmd, p.exited = cmd, exited
	p.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		_ = lifeline.Close()
	})
}

func (p *Process) command() (*exec.Cmd, error) {
	if p.Command != nil {
		return exec.Command(p.Command[0], p.Command[1:]...), nil
	}
	text, err := json.Marshal(p.Settings)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), prefix+p.Role+"="+string(text))
	return cmd, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended and the journal records its end.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Alive reports whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Kill sends SIGKILL and returns when the process has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Leave sends SIGTERM and returns immediately.
func (p *Process) Leave() {
	p.T.Helper()
	p.signal(syscall.SIGTERM)
}

func (p *Process) signal(s syscall.Signal) {
	p.T.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.T.Fatalf("send %v to %s: %v", s, p.Name, err)
	}
}

func (p *Process) write(e Event) {
	p.T.Helper()
	if err := p.Journal.Write(e); err != nil {
		p.T.Fatal(err)
	}
}

// FreeAddrs returns n free addresses of this machine, for processes that listen on
// the same address again after a restart. They share a random host in 127.0.0.0/8.
// Outgoing connections use 127.0.0.1, so the kernel gives none of them one of these
// ports.
func FreeAddrs(t testing.TB, n int) []string {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	addrs := make([]string, n)
	for i := range addrs {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // at the end; otherwise the port could be chosen twice
		addrs[i] = l.Addr().String()
	}
	return addrs
}

// Output keeps the last 8 KiB written to it. The zero value is empty.
type Output struct {
	mu   sync.Mutex
	text []byte
}

const keptOutput = 8 << 10

// Write appends p. It never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if len(o.text) > 2*keptOutput {
		o.text = bytes.Clone(o.text[len(o.text)-keptOutput:])
	}
	return len(p), nil
}

// Tail returns the text that is kept.
func (o *Output) Tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text[max(0, len(o.text)-keptOutput):])
}

package trial

// Processes: this test's binary, started again as something else.

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Main is TestMain: it runs the tests; or, in a process that a [Process] has
// started with one of these roles, that role, with the settings as JSON.
func Main(m *testing.M, roles map[string]func(settings string) error) {
	for role, main := range roles {
		settings, ok := os.LookupEnv(prefix + role)
		if !ok {
			continue
		}
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			exit(4) // the test is gone
		}()
		if err := main(settings); err != nil {
			fmt.Fprintln(os.Stderr, role, err)
			exit(1)
		}
		exit(0)
	}
	exit(m.Run())
}

const prefix = "ORCHESTRATOR_TRIAL_"

func exit(code int) {
	os.Exit(code) //nolint:forbidigo // the process is this package's
}

// Process is one process, or the one that was started last in its place: this test's
// binary, or a command of any kind. Its methods are for the test's goroutine, but
// those of Output.
type Process struct {
	T        testing.TB
	Command  []string // with its arguments; nil: this test's binary, in the role
	Role     string   // of Main's
	Settings any      // for the role
	Journal  *Journal // nil: its end is not written down
	Output   Output

	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts the process. It is killed when the test ends, at the latest.
func (p *Process) Start() {
	p.T.Helper()
	cmd, err := p.command()
	if err != nil {
		p.T.Fatalf("start %s: %v", p.Role, err)
	}
	cmd.Stdout, cmd.Stderr = &p.Output, &p.Output
	// It ends when this end of its standard input does: when the test is over,
	// however that ends.
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		p.T.Fatalf("start %s: %v", p.Role, err)
	}
	if err := cmd.Start(); err != nil {
		p.T.Fatalf("start %s: %v", p.Role, err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it ended is no news: most are killed
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

// PID returns the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process is gone, and the journal says so.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Alive reports whether the process is there still.
func (p *Process) Alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Kill is SIGKILL. It returns when the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Leave is SIGTERM. It returns at once.
func (p *Process) Leave() {
	p.T.Helper()
	p.signal(syscall.SIGTERM)
}

// Pause stops the process with SIGSTOP, and returns once it has stopped.
func (p *Process) Pause() {
	p.T.Helper()
	p.signal(syscall.SIGSTOP)
	for !p.isStopped() {
		runtime.Gosched() // it takes the kernel some microseconds
	}
	p.write(Event{Kind: Paused, PID: p.PID()})
}

// Resume lets a stopped process go on.
func (p *Process) Resume() {
	p.T.Helper()
	p.write(Event{Kind: Resumed, PID: p.PID()})
	p.signal(syscall.SIGCONT)
}

func (p *Process) signal(s syscall.Signal) {
	p.T.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.T.Fatalf("send %v to %s: %v", s, p.Role, err)
	}
}

func (p *Process) write(e Event) {
	p.T.Helper()
	if err := p.Journal.Write(e); err != nil {
		p.T.Fatal(err)
	}
}

// isStopped reads the state of the process from the kernel: all its threads
// have to have stopped.
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
		_, rest, ok := strings.Cut(string(stat), ") ") // after the name, which may hold anything
		if !ok || rest[0] != 'T' {
			return false
		}
	}
	return len(threads) > 0
}

// FreeAddrs returns n addresses of this machine that nobody listens at, for
// processes that come back to them when they are started again. They are of a host
// of their own in 127.0.0.0/8, so that nobody else is given one of these ports
// meanwhile: connections begin at 127.0.0.1.
func FreeAddrs(t testing.TB, n int) []string {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	addrs := make([]string, n)
	for i := range addrs {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // at the end, or else it is chosen again
		addrs[i] = l.Addr().String()
	}
	return addrs
}

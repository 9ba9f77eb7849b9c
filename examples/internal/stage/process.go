// Package stage has helpers that the examples share: processes that run the same
// program in another role, servers and certificates for this machine, and a log.
package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// roleEnv holds the role of a process that Start has started.
const roleEnv = "ORCHESTRATOR_EXAMPLE_ROLE"

// Main calls run and ends the process: with code 0 if run returns nil or the error of
// its context, and otherwise with code 1 and a message. The context ends with an
// interrupt or SIGTERM. A second one ends the process.
func Main(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	interrupted := ctx.Err() != nil && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err()))
	stop()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, name+": interrupted")
	case err != nil:
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Role returns the role that Start has given to this process, or "".
func Role() string { return os.Getenv(roleEnv) }

// Child returns a context for a process that Start has started. It ends when the
// standard input ends. The kernel closes that pipe when the parent has ended, even if
// the parent was killed, so no process is left behind. Child also ignores
// interrupts: Ctrl-C reaches all processes, but the parent decides.
func Child() context.Context {
	signal.Ignore(os.Interrupt)
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	return ctx
}

// Process is a process that runs this program in a role.
type Process struct {
	cmd   *exec.Cmd
	end   context.CancelFunc
	ended chan struct{} // closed when the process has ended, after err is set
	err   error
}

// Start starts this program again, in a role. It closes the standard input of the
// process when ctx ends, and kills the process if it has not ended after grace.
// Stdout may be nil.
func Start(ctx context.Context, role string, grace time.Duration, stdout, stderr io.Writer) (*Process, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	p := &Process{cmd: exec.CommandContext(ctx, executable), end: end, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	stdin, err := p.cmd.StdinPipe()
	if err == nil {
		p.cmd.Cancel, p.cmd.WaitDelay = stdin.Close, grace
		err = p.cmd.Start()
	}
	if err != nil {
		end()
		return nil, err
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal. It returns an error if the process has ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Ended returns a channel that is closed when the process has ended and its whole
// output is written.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// HasEnded reports whether Ended is closed.
func (p *Process) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Err returns the error of a process that has ended, or nil if its code was 0.
func (p *Process) Err() error { return p.err }

// End makes the process end, and does not wait for it.
func (p *Process) End() { p.end() }

// Stop makes the process end, and returns when it has ended.
func (p *Process) Stop() {
	p.end()
	<-p.ended
}

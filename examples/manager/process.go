// A worker process as its parent sees it: started, told to leave, stopped.

package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// workerEnv is the environment variable that makes this program a worker. It holds a
// spec.
const workerEnv = "ORCHESTRATOR_MANAGER_WORKER"

// process is a worker process.
type process struct {
	spec    spec
	cmd     *exec.Cmd
	end     context.CancelFunc
	leaving bool          // it was told to leave
	ended   chan struct{} // closed when the process has ended, after err is set
	err     error
}

// startProcess starts this program again, as a worker.
func startProcess(ctx context.Context, s spec, stderr io.Writer) (*process, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, executable)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		end()
		return nil, err
	}
	// Closing its input asks the process to end; if it does not, it is killed.
	cmd.Cancel = stdin.Close
	cmd.WaitDelay = stopTime + time.Second
	if err := cmd.Start(); err != nil {
		end()
		return nil, err
	}
	p := &process{spec: s, cmd: cmd, end: end, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// leave tells the process to leave: to move its tasks to other workers, and then to
// end.
func (p *process) leave() error {
	p.leaving = true
	return p.cmd.Process.Signal(syscall.SIGTERM)
}

// state reports whether the process has ended, and its error.
func (p *process) state() (ended bool, err error) {
	select {
	case <-p.ended:
		return true, p.err
	default:
		return false, nil
	}
}

// stop ends the process, and returns when it has ended.
func (p *process) stop() {
	p.end()
	<-p.ended
}

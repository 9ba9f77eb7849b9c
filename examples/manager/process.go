// A worker process as the example sees it: started, told to leave, stopped.

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

// workerEnv makes this program a worker: it holds a spec.
const workerEnv = "ORCHESTRATOR_MANAGER_WORKER"

// process is a worker process.
type process struct {
	spec    spec
	cmd     *exec.Cmd
	end     context.CancelFunc
	leaving bool          // it was told to
	ended   chan struct{} // closed when the process is gone, with err
	err     error
}

// startProcess starts this very program once more, as a worker.
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
	// It is asked to end by the end of its input; if it does not, it is killed.
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

// leave tells the process to hand on what it runs, and to end then.
func (p *process) leave() error {
	p.leaving = true
	return p.cmd.Process.Signal(syscall.SIGTERM)
}

// state reports whether the process has ended, and what it failed with.
func (p *process) state() (ended bool, err error) {
	select {
	case <-p.ended:
		return true, p.err
	default:
		return false, nil
	}
}

// stop ends the process. It returns when it is gone.
func (p *process) stop() {
	p.end()
	<-p.ended
}

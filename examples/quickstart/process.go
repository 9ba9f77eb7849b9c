// A worker process as the leader sees it.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// workerEnv makes this program a worker. It holds the worker's name and its probe
// interval.
const workerEnv = "ORCHESTRATOR_QUICKSTART_WORKER"

// process is a worker process.
type process struct {
	member member
	cmd    *exec.Cmd
	end    context.CancelFunc
	ended  chan struct{} // closed when the process has ended and all its reports are handled
}

// startProcess starts this program as a worker, and returns when it listens. heard
// is called with each of its reports, in order, from one goroutine.
func startProcess(ctx context.Context, name string, every time.Duration, stderr io.Writer, heard func(worker string, r report)) (*process, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, executable)
	cmd.Env = append(os.Environ(), workerEnv+"="+name+" "+every.String())
	cmd.Stderr = stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		end()
		return nil, err
	}
	// Closing its input makes the process end. If it does not end, it is killed.
	cmd.Cancel = stdin.Close
	cmd.WaitDelay = 2 * probeTimeout
	if err := cmd.Start(); err != nil {
		end()
		return nil, err
	}

	p := &process{cmd: cmd, end: end, ended: make(chan struct{})}
	url := make(chan string, 1)
	go func() {
		defer close(p.ended)
		out := json.NewDecoder(stdout)
		for {
			var r report
			if err := out.Decode(&r); err != nil {
				break
			}
			if r.URL != "" {
				url <- r.URL
				continue
			}
			heard(name, r)
		}
		_ = cmd.Wait() // a killed worker returns an error
	}()
	select {
	case u := <-url:
		p.member = member{Name: name, URL: u}
		return p, nil
	case <-p.ended:
		err = fmt.Errorf("worker %s ended before it listened: %v", name, cmd.ProcessState)
	case <-time.After(startTimeout):
		err = fmt.Errorf("worker %s did not listen within %v", name, startTimeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.stop()
	return nil, err
}

// kill ends the process as kill -9 does, and returns when it has ended.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	p.stop()
	return err
}

// stop makes the process end, and returns when it has ended.
func (p *process) stop() {
	p.end()
	<-p.ended
}

//go:build peers

package main

// The worker processes that join and are killed while reaction times are measured.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/worker"
)

// workerProcess is at most one worker process.
type workerProcess struct {
	lease   time.Duration
	taskLog *taskLog
	fail    func(error)

	spec   workerSpec
	cmd    *exec.Cmd      // nil: no process
	stdin  io.WriteCloser // the process exits when it is closed
	ended  chan struct{}
	killed chan struct{} // closed before the process is killed
}

// workerSpec is the configuration of a worker process.
type workerSpec struct {
	Name    string
	Lease   time.Duration
	Manager string // its address
}

// workerEnv makes this program a worker process. It holds a workerSpec as JSON.
const workerEnv = "ORCHESTRATOR_BENCH_WORKER"

// A worker process reports lines on its standard output: the time in nanoseconds,
// the kind and, if any, the task.
const (
	saysJoin  = "join"
	saysStart = "start"
	saysStop  = "stop"
)

// join starts a process, and returns when it began to join.
func (p *workerProcess) join(ctx context.Context, spec workerSpec) (time.Time, error) {
	spec.Lease = p.lease
	text, err := json.Marshal(spec)
	if err != nil {
		return time.Time{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return time.Time{}, err
	}
	var stderr bytes.Buffer
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return time.Time{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return time.Time{}, err
	}
	if err := cmd.Start(); err != nil {
		return time.Time{}, err
	}
	p.spec, p.cmd, p.stdin = spec, cmd, stdin
	p.ended, p.killed = make(chan struct{}), make(chan struct{})
	joined := make(chan time.Time, 1)
	go func() {
		defer close(p.ended)
		err := p.follow(stdout, joined)
		err = errors.Join(err, cmd.Wait())
		select {
		case <-p.killed:
		default:
			p.fail(fmt.Errorf("worker process %s: %w: %s", spec.Name, err, stderr.Bytes()))
		}
	}()
	select {
	case at := <-joined:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

// follow records the reports of the process until it ends.
func (p *workerProcess) follow(stdout io.Reader, joined chan<- time.Time) error {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		nanos, said, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseInt(nanos, 10, 64)
		if err != nil {
			return fmt.Errorf("bad report %q: %w", lines.Text(), err)
		}
		at := time.Unix(0, n)
		switch kind, task, _ := strings.Cut(said, " "); kind {
		case saysJoin:
			joined <- at
		case saysStart:
			if err := p.taskLog.startAt(at, task, p.spec.Name); err != nil {
				p.fail(err)
			}
		case saysStop:
			p.taskLog.stop(task, p.spec.Name)
		}
	}
	return lines.Err()
}

// kill sends SIGKILL, and waits until the process has ended.
func (p *workerProcess) kill() error {
	close(p.killed)
	err := p.cmd.Process.Kill()
	<-p.ended
	p.cmd = nil
	p.taskLog.killed(p.spec.Name)
	return errors.Join(err, ignoreClosed(p.stdin.Close()))
}

// ignoreClosed returns nil if Wait has already closed the pipe.
func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// close kills the process, if any.
func (p *workerProcess) close() error {
	if p.cmd == nil {
		return nil
	}
	return p.kill()
}

// workerMain is the main function of a worker process. In any other process it
// returns immediately.
func workerMain() {
	text, ok := os.LookupEnv(workerEnv)
	if !ok {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the benchmark has ended
	}()
	var spec workerSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = spec.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// reporter writes the lines of a worker process.
type reporter struct{ mu sync.Mutex }

func (r *reporter) say(kind, task string) {
	now := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Printf("%d %s %s\n", now, kind, task)
}

// run runs a worker until the process is killed.
func (spec workerSpec) run(ctx context.Context) error {
	var r reporter
	w, err := worker.New(func(ctx context.Context, task string) error {
		r.say(saysStart, task)
		defer r.say(saysStop, task)
		<-ctx.Done()
		return context.Cause(ctx)
	}, worker.WithLease(spec.Lease, spec.Lease/5))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	member, err := manager.NewMember(spec.Manager, spec.Name, w, manager.WithDrain(0))
	if err != nil {
		return err
	}
	r.say(saysJoin, "")
	return member.Run(ctx, l)
}

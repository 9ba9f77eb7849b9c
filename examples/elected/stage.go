package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// stage runs the processes. All of them write to one pipe, so that their lines are
// read in the order in which they were written.
type stage struct {
	out       io.Writer
	endpoint  string
	began     time.Time
	pipe      *os.File // the output of the processes
	lines     chan string
	exits     chan exit
	processes map[string]*exec.Cmd
	inputs    []io.Closer
	reading   sync.WaitGroup

	leader   string
	running  map[string]string // task to worker
	contents map[string]string
	gone     map[string]bool
	starts   int
	wrong    error // the first violation
}

// exit is the end of a process.
type exit struct {
	name string
	err  error
}

func newStage(out io.Writer, endpoint string) (*stage, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &stage{
		out: out, endpoint: endpoint, began: time.Now(), pipe: w,
		lines: make(chan string, 1000), exits: make(chan exit, 10), processes: make(map[string]*exec.Cmd),
		running: make(map[string]string), contents: make(map[string]string), gone: make(map[string]bool),
	}
	s.reading.Go(func() {
		defer close(s.lines)
		for in := bufio.NewScanner(r); in.Scan(); {
			s.lines <- in.Text()
		}
		_ = r.Close() // all writers have closed the pipe
	})
	return s, nil
}

func (s *stage) print(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format, args...) }

func (s *stage) title(text string) {
	s.print("\n%4.1fs  %s\n", time.Since(s.began).Seconds(), text)
}

// start starts a process, which ends with this one.
func (s *stage) start(role, name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, role, name, s.endpoint)
	cmd.Stdout, cmd.Stderr = s.pipe, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.processes[name] = cmd
	s.inputs = append(s.inputs, stdin)
	s.reading.Go(func() {
		s.exits <- exit{name, cmd.Wait()}
	})
	return nil
}

func (s *stage) signal(name string, how os.Signal) {
	_ = s.processes[name].Process.Signal(how) // if the process has ended, until detects it
}

// until reads lines until holds returns true. It returns an error if a process
// fails, a task runs twice or ctx ends.
func (s *stage) until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		select {
		case line := <-s.lines:
			s.hear(line)
		case e := <-s.exits:
			s.ended(e)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		if s.wrong != nil {
			return s.wrong
		}
	}
	s.print("       → %s\n", what)
	return nil
}

func (s *stage) hear(line string) {
	s.print("       %s\n", line)
	words := strings.Fields(line)
	if len(words) < 2 {
		return
	}
	switch name, does := words[0], words[1]; {
	case does == "leads":
		s.leader = name
	case does == "runs" && len(words) == 4:
		task := words[2]
		if other, ok := s.running[task]; ok {
			s.wrong = fmt.Errorf("%s started on %s while running on %s", task, name, other)
		}
		s.running[task], s.contents[task] = name, words[3]
		s.starts++
	case does == "stops" && len(words) == 3:
		delete(s.running, words[2])
	}
}

// ended records the end of a process and of its tasks. Only a killed process may
// fail.
func (s *stage) ended(e exit) {
	if code := s.processes[e.name].ProcessState.ExitCode(); code > 0 {
		s.wrong = fmt.Errorf("%s: %w", e.name, e.err)
	}
	for len(s.lines) > 0 { // earlier lines of the process
		s.hear(<-s.lines)
	}
	s.gone[e.name] = true
	for task, worker := range s.running {
		if worker == e.name {
			delete(s.running, task)
		}
	}
}

// close ends the remaining processes, which exit when their input is closed.
func (s *stage) close() {
	for _, stdin := range s.inputs {
		_ = stdin.Close() // may be closed already
	}
	_ = s.pipe.Close()
	for range s.lines {
	}
	s.reading.Wait()
}

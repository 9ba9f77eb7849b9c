// Elected shows a leader that is elected in etcd but sends assignments to its
// workers over gRPC. So etcd is not in the path of each assignment.
//
//	go run ./examples/elected
//
// It starts an etcd, two candidates and three workers, each candidate and worker as
// a process, injects faults, prints what happens, and ends. README.md explains the
// output.
//
// Read leader.go for the leader's use of etcd and gRPC, and worker.go for a member
// that takes no assignments from etcd. This file has the demonstration.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

const (
	// lease is the lease of the leader and of each worker. It is short to keep the run
	// short.
	lease = 2 * time.Second
	// timeout is the longest time for the whole run.
	timeout = 2 * time.Minute
)

func main() {
	if role := stage.Role(); role != "" {
		stage.Main("elected", func(leave context.Context) error { return play(leave, role) })
	}
	stage.Main("elected", func(ctx context.Context) error { return run(ctx, os.Stdout) })
}

// play runs a process: a candidate or a worker. Its role has three words: the kind of
// process, its name and etcd's endpoint. It ends with its parent.
func play(leave context.Context, role string) error {
	words := strings.Fields(role)
	client, err := clientv3.New(etcd.ClientConfig(words[2]))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the process is about to end
	ctx := stage.Child()
	if words[0] == "candidate" {
		err = stand(ctx, client, words[1])
	} else {
		err = work(ctx, leave, client, words[1])
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// say prints a line in one write, because all processes share their output.
func say(words ...string) {
	_, _ = io.WriteString(os.Stdout, strings.Join(words, " ")+"\n")
}

// run starts etcd, and runs the demonstration on it.
func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	server, err := embed.Start(ctx, embed.Config{NoFsync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	client, err := clientv3.New(etcd.ClientConfig(server.Endpoint()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	registry, err := etcd.NewRegistry(client)
	if err != nil {
		return err
	}
	f, err := newFleet(stage.NewLog(out), server.Endpoint())
	if err != nil {
		return err
	}
	defer f.close()
	return f.demonstrate(ctx, registry)
}

// demonstrate makes six events happen, and waits for the result of each.
func (f *fleet) demonstrate(ctx context.Context, registry *etcd.Registry) error {
	put := func(task, content string) error {
		_, _, err := registry.Put(ctx, etcd.Item{Name: task, Content: []byte(content)})
		return err
	}
	starts := 0 // before the leader is killed
	for _, event := range []struct {
		title  string
		happen func() error
		result string
		holds  func() bool
	}{{
		title: "six tasks, a candidate and three workers",
		happen: func() error {
			for i := range 6 {
				if err := put(fmt.Sprintf("task%d", i+1), "one"); err != nil {
					return err
				}
			}
			return f.start(ctx, "candidate c1", "worker w1", "worker w2", "worker w3")
		},
		result: "each worker runs two tasks",
		holds:  func() bool { return f.leader == "c1" && f.loads() == "w1:2 w2:2 w3:2" },
	}, {
		title: "the leader is killed, a candidate joins, and a task is changed",
		happen: func() error {
			starts = f.starts
			return errors.Join(f.start(ctx, "candidate c2"), f.processes["c1"].Signal(os.Kill), put("task1", "two"))
		},
		result: "the next leader restarts the changed task, and no other",
		holds:  func() bool { return f.leader == "c2" && f.contents["task1"] == "two" && f.starts == starts+1 },
	}, {
		title:  "w1 leaves (SIGTERM): its tasks move first",
		happen: func() error { return f.processes["w1"].Signal(syscall.SIGTERM) },
		result: "w1 has ended, and the others run its tasks",
		holds:  func() bool { return f.gone["w1"] && f.loads() == "w2:3 w3:3" },
	}, {
		title:  "w4 joins: it gets its share, and no other task moves",
		happen: func() error { return f.start(ctx, "worker w4") },
		result: "each worker runs two tasks",
		holds:  func() bool { return f.loads() == "w2:2 w3:2 w4:2" },
	}, {
		title:  "w2 is killed: its tasks start elsewhere when its lease has ended",
		happen: func() error { return f.processes["w2"].Signal(os.Kill) },
		result: "the others run its tasks",
		holds:  func() bool { return f.loads() == "w3:3 w4:3" },
	}, {
		title: "w3 and w4 leave at once: no worker can take their tasks",
		happen: func() error {
			return errors.Join(f.processes["w3"].Signal(syscall.SIGTERM), f.processes["w4"].Signal(syscall.SIGTERM))
		},
		result: "all workers have ended",
		holds:  func() bool { return f.gone["w3"] && f.gone["w4"] && f.loads() == "" },
	}} {
		f.log.Title("%s", event.title)
		if err := event.happen(); err != nil {
			return err
		}
		if err := f.until(ctx, event.holds); err != nil {
			return fmt.Errorf("before %s: %w", event.result, err)
		}
		f.log.Say("→ %s", event.result)
	}
	f.log.Title("the end: no task ever ran twice")
	return nil
}

// fleet is the processes, and what their output says. All of them write to one pipe,
// so that their lines are read in the order in which they were written.
type fleet struct {
	log       *stage.Log
	endpoint  string
	pipe      *os.File // the standard output of all processes
	lines     chan string
	processes map[string]*stage.Process

	leader   string
	runs     map[string]string // the worker of each task
	contents map[string]string // the content of each task
	gone     map[string]bool   // the processes that have ended
	starts   int               // of tasks
}

func newFleet(log *stage.Log, endpoint string) (*fleet, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	f := &fleet{
		log: log, endpoint: endpoint, pipe: write, lines: make(chan string), processes: make(map[string]*stage.Process),
		runs: make(map[string]string), contents: make(map[string]string), gone: make(map[string]bool),
	}
	go func() {
		defer close(f.lines)
		for in := bufio.NewScanner(read); in.Scan(); {
			f.lines <- in.Text()
		}
		_ = read.Close() // all processes have ended
	}()
	return f, nil
}

// start starts processes. The end of each becomes a line after its last line.
func (f *fleet) start(ctx context.Context, roles ...string) error {
	for _, role := range roles {
		name := strings.Fields(role)[1]
		p, err := stage.Start(ctx, role+" "+f.endpoint, 2*lease, f.pipe, os.Stderr)
		if err != nil {
			return err
		}
		f.processes[name] = p
		go func() {
			<-p.Ended()
			_, _ = fmt.Fprintln(f.pipe, name, "ends") // fails after close
		}()
	}
	return nil
}

// until reads lines until holds returns true. It returns an error if a process fails,
// a task runs twice or ctx ends.
func (f *fleet) until(ctx context.Context, holds func() bool) error {
	for !holds() {
		select {
		case line := <-f.lines:
			f.log.Say("%s", line)
			if err := f.observe(strings.Fields(line)); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (f *fleet) observe(words []string) error {
	if len(words) < 2 {
		return nil
	}
	switch name, does := words[0], words[1]; does {
	case "leads":
		f.leader = name
	case "runs":
		task := words[2]
		if other, ok := f.runs[task]; ok {
			return fmt.Errorf("%s started on %s while it ran on %s", task, name, other)
		}
		f.runs[task], f.contents[task] = name, words[3]
		f.starts++
	case "stops":
		delete(f.runs, words[2])
	case "ends":
		exit, failed := errors.AsType[*exec.ExitError](f.processes[name].Err())
		if failed && exit.ExitCode() > 0 { // negative: it was killed
			return fmt.Errorf("%s: %w", name, exit)
		}
		f.gone[name] = true
		for task, worker := range f.runs {
			if worker == name {
				delete(f.runs, task)
			}
		}
	}
	return nil
}

// loads returns the number of tasks of each worker that runs any.
func (f *fleet) loads() string {
	n := make(map[string]int)
	for _, worker := range f.runs {
		n[worker]++
	}
	var all []string
	for worker, tasks := range n {
		all = append(all, fmt.Sprintf("%s:%d", worker, tasks))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// close ends the remaining processes.
func (f *fleet) close() {
	go func() {
		for _, p := range f.processes {
			p.End()
		}
		for _, p := range f.processes {
			p.Stop()
		}
		_ = f.pipe.Close()
	}()
	for range f.lines { // until the pipe is closed, so that no process waits to write
	}
}

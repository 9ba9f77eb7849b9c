package main

// The fleet: worker processes that come and go, what the manager knows of them, and
// how to wait for it.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

const (
	lookEvery = 50 * time.Millisecond
	// patience limits how long to wait for anything.
	patience = 30 * time.Second
)

// fleet is a manager and its workers.
type fleet struct {
	manager   *runningManager
	folder    folder
	view      *view
	stderr    io.Writer
	processes map[string]*process // by name; without those that have left
}

// process is a worker process.
type process struct {
	*stage.Process
	leaving bool // it was told to leave
}

// state reports whether the process has ended, and its error.
func (p *process) state() (ended bool, err error) {
	select {
	case <-p.Ended():
		return true, p.Err()
	default:
		return false, nil
	}
}

// join starts worker processes, and returns when they are members.
func (f *fleet) join(ctx context.Context, names ...string) error {
	ids := make([]string, 0, len(names))
	for _, name := range names {
		role, err := json.Marshal(spec{Name: name, Manager: f.manager.address, Folder: f.folder})
		if err != nil {
			return err
		}
		p, err := stage.Start(ctx, string(role), stopTime+time.Second, nil, f.stderr)
		if err != nil {
			return err
		}
		f.processes[name] = &process{Process: p}
		ids = append(ids, fmt.Sprintf("%s (process %d)", name, p.PID()))
	}
	err := f.until(ctx, func() error {
		members := f.members()
		for _, name := range names {
			if !slices.Contains(members, name) {
				return fmt.Errorf("%s is not a member", name)
			}
		}
		return nil
	})
	if err == nil {
		f.view.say("joined: %s", strings.Join(ids, ", "))
	}
	return err
}

// leave tells worker processes to leave, and returns when they have left and their
// tasks have moved.
func (f *fleet) leave(ctx context.Context, names ...string) error {
	for _, name := range names {
		f.processes[name].leaving = true
		if err := f.processes[name].Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	err := f.until(ctx, func() error {
		members := f.members()
		for _, name := range names {
			if ended, err := f.processes[name].state(); !ended || err != nil {
				return errors.Join(fmt.Errorf("%s has not left", name), err)
			}
			if slices.Contains(members, name) {
				return fmt.Errorf("%s is still a member", name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		f.processes[name].Stop()
		delete(f.processes, name)
	}
	f.view.say("left: %s", strings.Join(names, ", "))
	return nil
}

// completed returns all completions.
func (f *fleet) completed() ([]manager.Completion, error) {
	var all []manager.Completion
	for after := ""; ; after = all[len(all)-1].Task {
		some, err := f.manager.Completed(after, manager.MaxList)
		if err != nil || len(some) == 0 {
			return all, err
		}
		all = append(all, some...)
	}
}

func (f *fleet) members() []string {
	var names []string
	for _, m := range f.manager.Members() {
		names = append(names, m.Name)
	}
	return names
}

// even returns the tasks of each worker. It fails unless there are n tasks in all,
// each at one worker, spread over all workers of the fleet, with loads that differ
// by at most one.
func (f *fleet) even(n int) (map[string][]string, error) {
	runs := make(map[string][]string)
	seen := make(map[string]bool)
	for _, w := range f.manager.LastActual() {
		if w.State != orchestrator.Answering {
			return nil, fmt.Errorf("%s does not answer", w.Name)
		}
		runs[w.Name.Name] = w.Tasks
		for _, t := range w.Tasks {
			if seen[t] {
				return nil, fmt.Errorf("%s is on two workers", t)
			}
			seen[t] = true
		}
	}
	if here, want := slices.Sorted(maps.Keys(runs)), slices.Sorted(maps.Keys(f.processes)); !slices.Equal(here, want) {
		return nil, fmt.Errorf("manager knows %v: want %v", here, want)
	}
	if len(seen) != n {
		return nil, fmt.Errorf("%d tasks are on workers: want %d", len(seen), n)
	}
	least, most := n, 0
	for _, tasks := range runs {
		least, most = min(least, len(tasks)), max(most, len(tasks))
	}
	if most-least > 1 {
		return nil, fmt.Errorf("loads differ by %d", most-least)
	}
	return runs, nil
}

// until calls waitingFor repeatedly until it returns nil. It fails if the manager or
// a worker process fails, or after patience.
func (f *fleet) until(ctx context.Context, waitingFor func() error) error {
	return f.watch(ctx, patience, waitingFor)
}

// pass waits for a duration, and fails if the manager or a worker process fails.
func (f *fleet) pass(ctx context.Context, d time.Duration) error {
	over := time.Now().Add(d)
	return f.watch(ctx, d+patience, func() error {
		if time.Now().Before(over) {
			return errors.New("waiting")
		}
		return nil
	})
}

func (f *fleet) watch(ctx context.Context, limit time.Duration, waitingFor func() error) error {
	began := time.Now()
	for {
		err := waitingFor()
		switch {
		case err == nil:
			return nil
		case time.Since(began) > limit:
			return fmt.Errorf("after %v: %w", limit, err)
		case !pause(ctx, lookEvery):
			return context.Cause(ctx)
		}
		if err := f.manager.failed(); err != nil {
			return err
		}
		for name, p := range f.processes {
			if ended, err := p.state(); ended && (err != nil || !p.leaving) {
				return errors.Join(fmt.Errorf("%s has ended", name), err)
			}
		}
	}
}

// stop stops the remaining processes.
func (f *fleet) stop() {
	for _, p := range f.processes {
		p.End()
	}
	for _, p := range f.processes {
		p.Stop()
	}
}

package main

// A worker process: it runs the manager's tasks, two at a time, until it is told to
// leave.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/boltfile"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/worker"
)

const (
	slots = 2 // tasks that a worker runs at the same time; the others wait, first in, first out
	// lease is how long the manager waits for a silent worker before it starts the
	// worker's tasks elsewhere. The worker stops all tasks before that, and gives
	// each stopTime to end.
	lease    = 10 * time.Second
	stopTime = 2 * time.Second
	// leaveTime is how long a leaving worker waits until its tasks have moved.
	leaveTime = 20 * time.Second
)

// spec is the configuration of a worker process.
type spec struct {
	Name    string
	Manager string // the manager's address
	Folder  folder
}

// workerMain is the main function of a worker process. Its role is a spec. On SIGTERM
// the worker leaves: its tasks move to other workers first. The process ends
// immediately when its parent has ended.
func workerMain(leave context.Context, role string) error {
	var s spec
	if err := json.Unmarshal([]byte(role), &s); err != nil {
		return fmt.Errorf("role %q: %w", role, err)
	}
	ctx := stage.Child()
	err := runWorker(ctx, leave.Done(), s, os.Stderr)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// runWorker runs a worker until ctx ends, or until it is told to leave and has left.
func runWorker(ctx context.Context, leave <-chan struct{}, s spec, stderr io.Writer) (err error) {
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("process", s.Name)
	record, err := boltfile.OpenRecord(s.Folder.record(s.Name))
	if err != nil {
		return err
	}
	defer func() { _ = record.Close() }()
	t := &tasks{name: s.Name}
	if t.results, err = openResults(s.Folder.results(s.Name)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.results.close()) }()

	w, err := worker.New(t.run,
		worker.WithSlots(slots),
		worker.WithAccept(accept),
		worker.WithCompletion(func(string) {}), // the member reports completions
		worker.WithRecord(record),
		worker.WithLease(lease, stopTime),
		worker.WithLastResort(func(tasks []string) {
			logger.Error("exiting, lease expires before tasks have stopped", "tasks", tasks)
			os.Exit(3)
		}),
		worker.WithLogger(logger),
	)
	if err != nil {
		return err
	}
	own, err := credentials(s.Folder, s.Name)
	if err != nil {
		return err
	}
	member, err := manager.NewMember(s.Manager, s.Name, w, grpc.WithCredentials(own), grpc.WithLogger(logger))
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", stage.Loopback)
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- member.Run(ctx, listener) }()
	select {
	case err := <-ran:
		return err
	case <-leave:
	}
	limited, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	return errors.Join(member.Close(limited), <-ran)
}

// tasks is the state that a worker's tasks share.
type tasks struct {
	name    string // the worker's
	results *results
}

// accept refuses tasks that cannot be run, so that the manager learns the reason
// immediately.
func accept(_ context.Context, task string, text []byte) error {
	if !strings.HasPrefix(task, kindCount) && !strings.HasPrefix(task, kindFollow) {
		return fmt.Errorf("task name must begin with %s or %s", kindCount, kindFollow)
	}
	_, err := decodeContent(text)
	return err
}

// run runs a task.
func (t *tasks) run(ctx context.Context, task string) error {
	text, version := worker.Content(ctx)
	c, err := decodeContent(text)
	if err != nil {
		return err
	}
	if strings.HasPrefix(task, kindFollow) {
		worker.Movable(ctx) // following continues where its record ends
		return follow(ctx, c.File, c.To, t.name)
	}
	return count(ctx, c.File, c.Rate, result{Task: task, Version: version, Worker: t.name}, t.results)
}

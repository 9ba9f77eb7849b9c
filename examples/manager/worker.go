package main

// A worker process: it runs the manager's tasks, two at a time, until it is told to
// leave.

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/boltfile"
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

// role returns the role of a worker process. It has three words: the name, the
// manager's address and the folder.
func role(name, address, dir string) string { return strings.Join([]string{name, address, dir}, " ") }

// workerMain is the main function of a worker process. On SIGTERM the worker leaves.
// The process ends immediately when its parent has ended.
func workerMain(leave context.Context, role string) error {
	words := strings.SplitN(role, " ", 3)
	ctx := stage.Child()
	err := runWorker(ctx, leave, words[0], words[1], words[2])
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// runWorker runs a worker until ctx ends, or until leave ends and the worker has left.
func runWorker(ctx, leave context.Context, name, address, dir string) error {
	logger := logger(os.Stderr, name)
	record, err := boltfile.OpenRecord(filepath.Join(dir, name+".db"))
	if err != nil {
		return err
	}
	defer func() { _ = record.Close() }()
	w, err := worker.New(runTask,
		worker.WithSlots(slots),
		worker.WithAccept(accept),
		worker.WithCompletion(func(string) {}), // the member reports completions
		worker.WithRecord(record),
		worker.WithLease(lease, stopTime),
		worker.WithLastResort(func(tasks []string) {
			const code = 3
			logger.Error("exiting, lease expires before tasks have stopped", "tasks", tasks, "code", code)
			os.Exit(code)
		}),
		worker.WithLogger(logger),
	)
	if err != nil {
		return err
	}
	own, err := credentials(dir, name)
	if err != nil {
		return err
	}
	member, err := manager.NewMember(address, name, w, manager.WithDrain(leaveTime), grpc.WithCredentials(own), grpc.WithLogger(logger))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", stage.Loopback)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = member.Close(ctx) })() // at once
	if err = member.Run(leave, listener); leave.Err() == nil {
		return err
	}
	return member.Close(ctx) // it has left: were all tasks moved?
}

// accept refuses tasks that cannot run, so that the manager learns the reason
// immediately.
func accept(_ context.Context, task string, text []byte) error {
	if !strings.HasPrefix(task, countPrefix) && !strings.HasPrefix(task, followPrefix) {
		return fmt.Errorf("task name must begin with %s or %s", countPrefix, followPrefix)
	}
	_, err := decode(text)
	return err
}

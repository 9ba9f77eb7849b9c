package main

// A worker process: it registers with its zone and its labels, and runs what it is given.

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/worker"
)

const (
	lease = 3 * time.Second // short, to keep the story short
	// leaveTime is how long a leaving worker waits until its tasks have moved.
	leaveTime = 10 * time.Second
)

// roleOf returns the role of a worker process. It has three words: the name, the manager's
// address and the settings as JSON.
func roleOf(name, address string, settings orchestrator.WorkerSettings) string {
	text, _ := json.Marshal(settings) // never fails
	return strings.Join([]string{name, address, string(text)}, " ")
}

// workerMain is the main function of a worker process. On SIGTERM the worker leaves.
func workerMain(leave context.Context, role string) error {
	ctx := stage.Child()
	words := strings.SplitN(role, " ", 3)
	var settings orchestrator.WorkerSettings
	if err := json.Unmarshal([]byte(words[2]), &settings); err != nil {
		return err
	}
	w, err := worker.New(serve, worker.WithLease(lease, lease/6), worker.WithLastResort(die))
	if err != nil {
		return err
	}
	member, err := manager.NewMember(words[1], words[0], w, manager.WithSettings(settings), manager.WithDrain(leaveTime),
		grpc.WithPlaintext(), grpc.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", stage.Loopback)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = member.Close(ctx) })() // at once
	if err = member.Run(leave, listener); leave.Err() != nil {
		err = member.Close(ctx) // it has left: were all tasks moved?
	}
	if ctx.Err() != nil { // the story has ended
		return nil
	}
	return err
}

// die is the last resort for tasks that do not stop in time: it ends the process.
func die(tasks []string) {
	const code = 3
	slog.Error("exiting, lease expires before tasks have stopped", "tasks", tasks, "code", code)
	os.Exit(code)
}

// serve is the function of every task. A real one would serve its tenant.
func serve(ctx context.Context, _ string) error {
	worker.Movable(ctx)
	<-ctx.Done()
	return nil
}

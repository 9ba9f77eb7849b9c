// A worker process: it does what the manager gives it, two tasks at a time, until
// it is told to leave.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/f8949c05/orchestrator/worker/boltrecord"
)

const (
	slots = 2 // tasks that a worker runs at once; the others wait, first in, first out
	// lease is how long a worker that is not heard may still run what it had. It
	// stops everything before that, and gives tasks stopTime to come to an end.
	lease    = 10 * time.Second
	stopTime = 2 * time.Second
	// leaveTime is how long a worker that leaves waits until all it has has moved.
	leaveTime = 20 * time.Second
)

// spec is what a worker process is told.
type spec struct {
	Name    string
	Manager string // its address
	Folder  folder
}

// errAlone ends a worker whose manager is gone.
var errAlone = errors.New("the manager's process is gone")

// workerMain is main in a worker process. SIGTERM has it leave: what it runs is
// moved to others first. It ends at once when stdin does: the kernel closes the
// pipe when the example is gone, however it went, so that no worker is left behind.
func workerMain(text string, stdin io.Reader, stderr io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the workers too; the example decides
	leave, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("%s=%q: %w", workerEnv, text, err)
	}
	ctx, end := context.WithCancelCause(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		end(errAlone)
	}()
	err := runWorker(ctx, leave.Done(), s, stderr)
	if errors.Is(err, errAlone) {
		return nil
	}
	return err
}

// runWorker is the life of a worker: until ctx ends, or until it was told to leave
// and has.
func runWorker(ctx context.Context, leave <-chan struct{}, s spec, stderr io.Writer) (err error) {
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("process", s.Name)
	record, err := boltrecord.Open(s.Folder.record(s.Name))
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
		worker.WithCompletion(func(string) {}), // the member tells the manager
		worker.WithRecord(record),
		worker.WithLease(lease, stopTime),
		worker.WithLastResort(func(tasks []string) {
			logger.Error("ends at once: the lease is about to end, and not all has stopped", "tasks", tasks)
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
	member, err := grpc.NewMember(s.Manager, s.Name, w, grpc.WithCredentials(own), grpc.WithLogger(logger))
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", loopback)
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

// tasks is what the tasks of a worker share.
type tasks struct {
	name    string // the worker's
	results *results
}

// accept refuses what cannot be run, so that the manager hears why at once.
func accept(_ context.Context, task string, text []byte) error {
	if !strings.HasPrefix(task, kindCount) && !strings.HasPrefix(task, kindFollow) {
		return fmt.Errorf("a task is called %s… or %s…", kindCount, kindFollow)
	}
	_, err := decodeContent(text)
	return err
}

// run is a task.
func (t *tasks) run(ctx context.Context, task string) error {
	text, version := worker.Content(ctx)
	c, err := decodeContent(text)
	if err != nil {
		return err
	}
	if strings.HasPrefix(task, kindFollow) {
		worker.Movable(ctx) // it goes on from where the file ends
		return follow(ctx, c.File, c.To, t.name)
	}
	return count(ctx, c.File, c.Rate, result{Task: task, Version: version, Worker: t.name}, t.results)
}

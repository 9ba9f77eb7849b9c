package e2e_test

// A worker's process and its tasks.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/boltfile"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/worker"
)

// settings are common to all processes of a fleet.
type settings struct {
	Lease    time.Duration
	Stop     time.Duration
	Interval time.Duration
	Slots    int           // of each worker; 0: no limit
	Drain    time.Duration // of each worker; 0: an hour
}

// workerSettings is the configuration of a worker's process.
type workerSettings struct {
	Name      string
	Journal   string
	Record    string // a file
	Manager   string
	Listen    string
	Advertise string
	settings
}

// runWorker is the main function of a worker's process. On SIGTERM it leaves: it
// stays until its tasks have moved.
func runWorker(s workerSettings) error {
	j, err := proctest.OpenJournal(s.Journal, s.Name)
	if err != nil {
		return err
	}
	record, err := boltfile.OpenRecord(s.Record)
	if err != nil {
		return err
	}
	defer func() { _ = record.Close() }()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", s.Name)
	w, err := worker.New(
		func(ctx context.Context, task string) error { return work(ctx, task, s.Lease, j) },
		worker.WithLease(s.Lease, s.Stop),
		worker.WithSlots(s.Slots),
		worker.WithRecord(record),
		worker.WithCompletion(func(string) {}),
		worker.WithLogger(logger),
		worker.WithLastResort(func(tasks []string) {
			_ = j.Write(proctest.Event{Kind: lastResort, Text: fmt.Sprint(tasks)})
			<-time.After(50 * time.Millisecond) // time for tasks that wrongly continue
			os.Exit(3)
		}))
	if err != nil {
		return err
	}
	member, err := manager.NewMember(s.Manager, s.Name, w, manager.WithAdvertise(s.Advertise), manager.WithDrain(cmp.Or(s.Drain, time.Hour)), grpc.WithLogger(logger))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	if err = member.Run(ctx, l); ctx.Err() != nil {
		return member.Close(context.Background()) // it has left: were all tasks moved?
	}
	return err
}

// forever is the content of a task that runs until it is stopped. Any other content
// is the duration of the task.
const forever = "forever"

// stubborn is the content of a task that ignores the end of its context.
const stubborn = "stubborn"

// work is the function of every task. It records when it begins and when it ends. If
// it finds that it was suspended for longer than the lease, it calls worker.Check.
func work(ctx context.Context, task string, lease time.Duration, j *proctest.Journal) error {
	content, version := worker.Content(ctx)
	e := proctest.Event{Task: task, Token: uint64(version)}
	write := func(kind, text string) error {
		e.Kind, e.Text = kind, text
		return j.Write(e)
	}
	if err := write(proctest.Started, ""); err != nil {
		return err
	}
	defer func() { _ = write(proctest.Stopped, "") }()
	if string(content) == stubborn {
		worker.Movable(ctx)
		select {}
	}
	if string(content) != forever {
		takes, err := time.ParseDuration(string(content))
		if err != nil {
			return err
		}
		select {
		case <-time.After(takes):
			return write(did, "")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	worker.Movable(ctx)
	beat := time.NewTicker(lease / 4)
	defer beat.Stop()
	for last := proctest.Now(); ; {
		select {
		case <-ctx.Done():
		case <-beat.C:
		}
		woke := proctest.Now()
		if time.Duration(woke-last) >= lease {
			said := ""
			if err := worker.Check(ctx); err != nil {
				said = err.Error()
			}
			_ = write(checked, said)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		last = woke
	}
}

//go:build peers

package replicas_test

// The process that runs replicas, and its tasks.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/replica"
)

// settings configures the replicas of one process. Each has its own connections.
type settings struct {
	Name     string
	Store    string
	URL      string
	Table    string
	Journal  string
	Tasks    string // path of a file with their number
	Replicas int
	Lease    time.Duration
	Stop     time.Duration
	Polls    bool // instead of Wait
}

const replicaRole = "replica"

// Kinds of events.
const (
	began   = "began"   // a replica calls Run
	told    = "told"    // a Source is about to tell a number of tasks
	traffic = "traffic" // bytes over all connections of the process so far, and requests
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]proctest.Role{replicaRole: proctest.NewRole(runReplicas), serverRole: proctest.NewRole(runServer)})
}

// runReplicas is the main function of the process. On SIGTERM the replicas drain and
// leave. On SIGUSR1 the process writes its traffic to the journal.
func runReplicas(s settings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	j, err := proctest.OpenJournal(s.Journal, s.Name)
	if err != nil {
		return err
	}
	count := func() { _ = j.Write(proctest.Event{Kind: traffic, Text: fmt.Sprint(sent.Load(), requests.Load())}) }
	asked, ignored := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	signal.Notify(ignored, syscall.SIGHUP) // where no Source runs
	go func() {
		for range asked {
			count()
		}
	}()
	defer count()
	var replicas errgroup.Group
	for i := range s.Replicas {
		replicas.Go(func() error { return runReplica(ctx, s, nodeName(s, i)) })
	}
	return replicas.Wait()
}

// nodeName returns the name of the replica with the given number in a process.
func nodeName(s settings, i int) string {
	if s.Replicas == 1 {
		return s.Name
	}
	return fmt.Sprint(s.Name, ".", i)
}

func runReplica(ctx context.Context, s settings, name string) error {
	j, err := proctest.OpenJournal(s.Journal, name)
	if err != nil {
		return err
	}
	table, err := open(ctx, s.Store, s.URL, s.Table)
	if err != nil {
		return err
	}
	var b replica.Backend = table
	if s.Polls {
		b = struct { // hides Wait
			replica.Backend
			io.Closer
		}{table, table}
	}
	if err := j.Write(proctest.Event{Kind: began}); err != nil {
		return err
	}
	work := func(ctx context.Context, task string) error { return work(ctx, task, j) }
	return replica.Run(ctx, b, source(s, j), work, replica.WithName(name), replica.WithLease(s.Lease, s.Stop), replica.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
}

// source returns a Source that reads the number of tasks from a file, again at each SIGHUP.
func source(s settings, j *proctest.Journal) replica.Source {
	return func(ctx context.Context, tell func([]replica.Task) error) error {
		again := make(chan os.Signal, 1)
		signal.Notify(again, syscall.SIGHUP)
		defer signal.Stop(again)
		for ctx.Err() == nil {
			text, err := os.ReadFile(s.Tasks)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(text))
			tasks := make([]replica.Task, n)
			for i := range tasks {
				tasks[i].Name = taskName(i)
			}
			if err := errors.Join(err, j.Write(proctest.Event{Kind: told, Text: string(text)}), tell(tasks)); err != nil {
				return err
			}
			select {
			case <-again:
			case <-ctx.Done():
			}
		}
		return nil
	}
}

func taskName(i int) string { return fmt.Sprintf("t%05d", i) }

// work is the function of every task.
func work(ctx context.Context, task string, j *proctest.Journal) error {
	if err := j.Write(proctest.Event{Kind: proctest.Started, Task: task}); err != nil {
		return err
	}
	<-ctx.Done()
	return j.Write(proctest.Event{Kind: proctest.Stopped, Task: task})
}

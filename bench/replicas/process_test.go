//go:build peers

package replicas_test

// The process that runs replicas, and its tasks.

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

// settings configures the replicas of one process. Each has its own pool of connections.
type settings struct {
	Name       string
	URL        string
	Table      string
	Journal    string
	Replicas   int
	Tasks      int
	Lease      time.Duration
	Stop       time.Duration
	Listen     bool
	WorkerOnly bool
}

const replicaRole = "replica"

// began is the kind of the event that a replica calls Run.
const began = "began"

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]proctest.Role{replicaRole: proctest.NewRole(runReplicas)})
}

// runReplicas is the main function of the process. On SIGTERM the replicas drain and
// leave.
func runReplicas(s settings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var replicas errgroup.Group
	for i := range s.Replicas {
		name := s.Name
		if s.Replicas > 1 {
			name = fmt.Sprint(s.Name, ".", i)
		}
		replicas.Go(func() error { return runReplica(ctx, s, name) })
	}
	return replicas.Wait()
}

func runReplica(ctx context.Context, s settings, name string) error {
	j, err := proctest.OpenJournal(s.Journal, name)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	options := []replica.Option{
		replica.WithName(name), replica.WithLease(s.Lease, s.Stop),
		replica.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
	}
	if s.WorkerOnly {
		options = append(options, replica.WithWorkerOnly())
	}
	var table []postgres.Option
	if s.Listen {
		table = append(table, postgres.WithListen(pool.Config().ConnConfig))
	}
	r, err := replica.New(postgres.New(pool, s.Table, table...), replica.Names(taskNames(s.Tasks)...),
		func(ctx context.Context, task string) error { return work(ctx, task, j) }, options...)
	if err != nil {
		return err
	}
	if err := j.Write(proctest.Event{Kind: began}); err != nil {
		return err
	}
	return r.Run(ctx)
}

// work is the function of every task.
func work(ctx context.Context, task string, j *proctest.Journal) error {
	if err := j.Write(proctest.Event{Kind: proctest.Started, Task: task}); err != nil {
		return err
	}
	<-ctx.Done()
	return j.Write(proctest.Event{Kind: proctest.Stopped, Task: task})
}

func taskNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("t%05d", i)
	}
	return names
}

package e2e_test

// The process of a replica, and its tasks.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
	"github.com/f8949c05/orchestrator/worker"
)

// settings configures a replica.
type settings struct {
	Name    string
	URL     string
	Journal string
	Tasks   []string
	Lease   time.Duration
	Stop    time.Duration
}

// open opens the journal and the database.
func (s settings) open(ctx context.Context) (*proctest.Journal, *pgxpool.Pool, error) {
	j, err := proctest.OpenJournal(s.Journal, s.Name)
	if err != nil {
		return nil, nil, err
	}
	pool, err := pgxpool.New(ctx, s.URL)
	return j, pool, err
}

const replicaRole = "replica"

// Additional kinds of event.
const (
	leads      = "leads"   // this process became leader
	allowed    = "allowed" // worker.Check returned nil: the first time, and each time after a gap
	refused    = "refused" // worker.Check returned an error, and the task ends
	lastResort = "last resort"
)

const (
	step = 5 * time.Millisecond // between two calls of worker.Check
	gap  = 25 * time.Millisecond
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]proctest.Role{replicaRole: proctest.NewRole(runReplica), candidateRole: proctest.NewRole(runCandidate)})
}

// runReplica is the main function of a replica's process. On SIGTERM it drains and leaves.
func runReplica(s settings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	j, pool, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := replica.New(postgres.New(pool, "proof"), replica.Names(s.Tasks...),
		func(ctx context.Context, task string) error { return work(ctx, task, j) },
		replica.WithName(s.Name),
		replica.WithLease(s.Lease, s.Stop),
		replica.WithDrain(2*s.Lease),
		replica.WithInterval(s.Lease/40), // so that a leader acts on a wrong conclusion at once
		// Each round is a fall (T17).
		replica.WithOrchestrator(orchestrator.WithMaxPause(s.Lease)),
		replica.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		replica.WithLastResort(func(tasks []string) {
			_ = j.Write(proctest.Event{Kind: lastResort, Text: fmt.Sprint(tasks)})
			os.Exit(3)
		}))
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go recordLeadership(r, j, ended)
	if err := r.Run(ctx); !errors.Is(err, replica.ErrUndrained) {
		return err
	}
	return nil // the server may be away
}

// recordLeadership records each epoch that the replica leads.
func recordLeadership(r *replica.Replica, j *proctest.Journal, ended <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	led := uint64(0)
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			if s := r.Status(); s.Leading && s.Epoch != led {
				led = s.Epoch
				_ = j.Write(proctest.Event{Kind: leads, Token: led})
			}
		}
	}
}

// work is the function of every task. Before each step it calls worker.Check.
func work(ctx context.Context, task string, j *proctest.Journal) error {
	token, _ := worker.Token(ctx)
	if err := j.Write(proctest.Event{Kind: proctest.Started, Task: task, Token: token}); err != nil {
		return err
	}
	defer func() { _ = j.Write(proctest.Event{Kind: proctest.Stopped, Task: task, Token: token}) }()
	tick := time.NewTicker(step)
	defer tick.Stop()
	last := int64(0)
	for {
		at := proctest.Now() // before the check, so that a pause between them cannot hide when it was asked for
		if err := worker.Check(ctx); err != nil {
			_ = j.Write(proctest.Event{Kind: refused, At: at, Task: task, Token: token, Text: err.Error()})
			return err
		}
		if at-last > int64(gap) {
			_ = j.Write(proctest.Event{Kind: allowed, At: at, Task: task, Token: token})
		}
		last = at
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

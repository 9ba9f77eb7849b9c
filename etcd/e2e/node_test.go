package e2e_test

// The processes: nodes, each a candidate and a worker, and an etcd, so that it can be
// killed.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/worker"
)

// nodeSettings configures a node.
type nodeSettings struct {
	Name     string
	Leader   string // endpoints; separate, so that each can be cut off
	Worker   string
	Journal  string
	Store    string
	Lease    time.Duration
	Stop     time.Duration
	Interval time.Duration
	// Only restricts the node to a candidate or to a worker.
	Only string
}

const (
	onlyCandidate = "candidate"
	onlyWorker    = "worker"
)

const (
	nodeRole   = "node"
	serverRole = "etcd"
)

// Additional kinds of event.
const (
	leads      = "leads" // this process became leader
	checked    = "check" // result of worker.Check after a pause
	lastResort = "last resort"
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]proctest.Role{nodeRole: proctest.NewRole(runNode), serverRole: proctest.NewRole(runServer)})
}

// runNode is the main function of a node's process. On SIGTERM the node resigns,
// drains and leaves.
func runNode(s nodeSettings) error {
	j, err := proctest.OpenJournal(s.Journal, s.Name)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	leading, err := dial(s.Leader)
	if err != nil {
		return err
	}
	defer func() { _ = leading.Close() }()
	working, err := dial(s.Worker)
	if err != nil {
		return err
	}
	defer func() { _ = working.Close() }()

	logger := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", s.Name)
	member, err := newMember(working, s, j, logger)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	errs := make(chan error, 2)
	leadingCtx, resign := context.WithCancel(ctx)
	defer resign()
	if s.Only != onlyWorker {
		running.Go(func() { errs <- lead(leadingCtx, leading, s, j, logger) })
	}
	workingCtx, leave := context.WithCancel(ctx)
	defer leave()
	if s.Only != onlyCandidate {
		running.Go(func() { errs <- member.Run(workingCtx) })
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	select {
	case err = <-errs:
	case <-signals:
		signal.Stop(signals) // a second signal ends the process
		resign()             // so that another node leads while the tasks move
		leave()
		err = member.Close(ctx) // it waits for Run: were all tasks moved?
	}
	stop()
	running.Wait()
	return err
}

func dial(endpoint string) (*clientv3.Client, error) {
	c, err := clientv3.New(etcd.ClientConfig(endpoint))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", endpoint, err)
	}
	return c, nil
}

// lead runs the leader's side.
func lead(ctx context.Context, c *clientv3.Client, s nodeSettings, j *proctest.Journal, logger *slog.Logger) error {
	registry, err := etcd.NewRegistry(c)
	if err != nil {
		return err
	}
	membership, err := etcd.NewMembership(c)
	if err != nil {
		return err
	}
	election, err := etcd.NewElection(c, s.Name, etcd.WithLeaseDuration(s.Lease), etcd.WithLogger(logger))
	if err != nil {
		return err
	}
	return election.Run(ctx, func(ctx context.Context, l *etcd.Leadership) error {
		comm, err := etcd.NewCommunicator(ctx, c, l)
		if err != nil {
			return err
		}
		return etcd.LeadWith(ctx, l, comm, s.Interval, func(o *orchestrator.Orchestrator[etcd.WorkerID, string]) error {
			if err := errors.Join(registry.Feed(ctx, l, o), membership.Feed(ctx, l, o)); err != nil {
				return err
			}
			return j.Write(proctest.Event{Kind: leads, Token: l.Epoch()})
		}, orchestrator.WithCommunicatorTimeout(s.Lease/2), orchestrator.WithMaxPause(s.Lease)) // each round is a fall (T17)
	})
}

// newMember returns the worker's side.
func newMember(c *clientv3.Client, s nodeSettings, j *proctest.Journal, logger *slog.Logger) (*etcd.Member, error) {
	w, err := worker.New(
		func(ctx context.Context, task string) error { return work(ctx, task, s, j) },
		worker.WithLease(s.Lease, s.Stop),
		worker.WithLogger(logger),
		worker.WithLastResort(func(tasks []string) {
			_ = j.Write(proctest.Event{Kind: lastResort, Text: fmt.Sprint(tasks)})
			<-time.After(50 * time.Millisecond) // gives the tasks time to misbehave
			os.Exit(3)
		}))
	if err != nil {
		return nil, err
	}
	return etcd.NewMember(c, s.Name, w, etcd.WithLogger(logger), etcd.WithDrain(2*s.Lease))
}

// work is the function of every task. It writes to the store every 20 ms. A task
// that was paused for longer than the lease calls worker.Check and continues
// regardless, like a careless task.
func work(ctx context.Context, task string, s nodeSettings, j *proctest.Journal) error {
	token, _ := worker.Token(ctx)
	if err := j.Write(proctest.Event{Kind: proctest.Started, Task: task, Token: token}); err != nil {
		return err
	}
	defer func() { _ = j.Write(proctest.Event{Kind: proctest.Stopped, Task: task, Token: token}) }()
	if s.Store == "" {
		<-ctx.Done()
		if strings.HasPrefix(task, "stubborn") {
			select {}
		}
		return context.Cause(ctx)
	}
	c, err := dialStore(ctx, s.Store)
	if err != nil {
		return err
	}
	defer c.close()
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for last := proctest.Now(); ; {
		if _, err := c.write(os.Getpid(), task, token); err != nil && ctx.Err() == nil {
			return err
		}
		<-beat.C
		woke := proctest.Now()
		asleep := time.Duration(woke - last)
		last = woke
		if asleep < s.Lease {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			continue
		}
		e := proctest.Event{Kind: checked, Task: task, Token: token}
		if err := worker.Check(ctx); err != nil {
			e.Text = err.Error()
		}
		_ = j.Write(e)
	}
}

// serverSettings configures the etcd.
type serverSettings struct {
	Dir    string
	Listen string
}

// runServer is the main function of etcd's process. It serves until it is killed.
// Acknowledged writes are on disk, as by etcd's default. With its short ticks it
// serves soon.
func runServer(s serverSettings) error {
	server, err := embed.Start(context.Background(), embed.Config{Dir: s.Dir, Listen: s.Listen, Tick: 10 * time.Millisecond})
	if err != nil {
		return err
	}
	return <-server.Err()
}

package main

// The manager: its parts, and how it runs.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/boltfile"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

const termEvery = time.Second // a change leads to a term sooner

type plan = orchestrator.Plan[grpc.WorkerID, string]

// runningManager is a manager that runs, and its store.
type runningManager struct {
	*manager.Manager
	address string
	store   *boltfile.Store
	end     context.CancelFunc
	ended   chan struct{} // closed when Run has returned, after err is set
	err     error
}

// startManager runs a manager until stop. It calls told with the plan of each term,
// after the term. It logs until ctx ends: an interrupt also ends the workers, and
// the calls that fail because of that are expected.
func startManager(ctx context.Context, f folder, told func(plan), stderr io.Writer) (*runningManager, error) {
	own, err := credentials(f, managerName)
	if err != nil {
		return nil, err
	}
	store, err := boltfile.OpenStore(f.state())
	if err != nil {
		return nil, err
	}
	level := new(slog.LevelVar)
	level.Set(slog.LevelWarn)
	context.AfterFunc(ctx, func() { level.Set(math.MaxInt) })
	m := &runningManager{store: store, ended: make(chan struct{})}
	m.Manager, err = manager.New(store,
		grpc.WithCredentials(own),
		manager.WithInterval(termEvery),
		grpc.WithLogger(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})).With("process", managerName)),
		manager.WithOrchestrator(orchestrator.WithStats(func(orchestrator.TermStats) { told(m.LastPlan()) })),
	)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", stage.Loopback)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	m.address = listener.Addr().String()
	ctx, m.end = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(m.ended)
		m.err = m.Run(ctx, listener)
	}()
	return m, nil
}

// failed returns an error if the manager no longer runs.
func (m *runningManager) failed() error {
	select {
	case <-m.ended:
		return fmt.Errorf("manager has ended: %w", m.err)
	default:
		return nil
	}
}

// stop stops the manager, and returns when it has ended and its store is closed.
func (m *runningManager) stop() error {
	m.end()
	<-m.ended
	return m.store.Close()
}

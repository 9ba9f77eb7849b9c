// The manager: what it is made of, and how it is run.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/boltstore"
)

const (
	// loopback is an address on this machine only, with a port that the kernel
	// chooses.
	loopback  = "127.0.0.1:0"
	termEvery = time.Second // and one soon after every change
)

type plan = orchestrator.Plan[grpc.Worker, string]

// manager is a manager that runs.
type manager struct {
	*grpc.Manager
	address string
	store   *boltstore.Store
	end     context.CancelFunc
	ended   chan struct{} // closed when it runs no more, with err
	err     error
}

// startManager runs a manager until it is stopped. After each term told
// is called with what it has planned, and what came of that. ctx is for the start.
func startManager(ctx context.Context, f folder, told func(plan), stderr io.Writer) (*manager, error) {
	own, err := credentials(f, managerName)
	if err != nil {
		return nil, err
	}
	store, err := boltstore.Open(f.state())
	if err != nil {
		return nil, err
	}
	m := &manager{store: store, ended: make(chan struct{})}
	m.Manager, err = grpc.NewManager(store,
		grpc.WithCredentials(own),
		grpc.WithInterval(termEvery),
		grpc.WithLogger(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("process", managerName)),
		grpc.WithOrchestrator(orchestrator.WithStats(func(orchestrator.TermStats) { told(m.LastPlan()) })),
	)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", loopback)
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

// failed returns why it runs no more, or nil where it does.
func (m *manager) failed() error {
	select {
	case <-m.ended:
		return fmt.Errorf("the manager has ended: %w", m.err)
	default:
		return nil
	}
}

// stop returns when nothing of it is left.
func (m *manager) stop() error {
	m.end()
	<-m.ended
	return m.store.Close()
}

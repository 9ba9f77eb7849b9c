package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/dashboard"
)

// board is the dashboard of the manager. The manager stores drains, so that they outlive its
// process.
type board struct {
	address string
	server  *http.Server
	stop    func()
	ended   chan struct{} // closed when no request is served any more
}

// startBoard serves a dashboard at an address until end.
func startBoard(address string, m *manager.Manager) (*board, error) {
	h, err := dashboard.New(
		dashboard.WithTitle("manager"),
		dashboard.WithDrain(
			func(ctx context.Context, w grpcWorker) error { return m.Drain(ctx, w.Name) },
			func(ctx context.Context, w grpcWorker) error { return m.Undrain(ctx, w.Name) },
		),
		dashboard.WithTaskStates(func(w grpcWorker) []dashboard.TaskState[string] { return taskStates(m, w) }),
	)
	if err != nil {
		return nil, fmt.Errorf("-dashboard: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("-dashboard: %w", err)
	}
	b := &board{
		address: fmt.Sprintf("http://%s/", listener.Addr()),
		server:  &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute},
		stop:    dashboard.Lead(h, m), ended: make(chan struct{}),
	}
	go func() {
		defer close(b.ended)
		_ = b.server.Serve(listener) // until end
	}()
	return b, nil
}

// end stops serving.
func (b *board) end() {
	_ = b.server.Close()
	<-b.ended
	b.stop()
}

// taskStates returns what a worker has reported of its tasks.
func taskStates(m *manager.Manager, w grpcWorker) (states []dashboard.TaskState[string]) {
	for _, t := range m.Tasks(w) {
		state := dashboard.TaskState[string]{Task: t.Name, State: t.State.String(), Since: t.Since}
		if t.Failure != nil {
			state.Err, state.Attempts, state.Failing = t.Failure.Err, t.Failure.Attempts, t.Failure.First
		}
		states = append(states, state)
	}
	return states
}

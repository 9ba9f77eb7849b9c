package grpc

// A worker with scripted answers.

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/stretchr/testify/require"
)

// fake is a worker of incarnation 1. Calls without a scripted answer get that of an
// idle worker that carries out every change.
type fake struct {
	orchestratorv1.UnimplementedWorkerServer
	report func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error)
	apply  func(context.Context, *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error)

	mu       sync.Mutex
	requests []*orchestratorv1.ApplyRequest
}

func (f *fake) Report(_ context.Context, r *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	if f.report != nil {
		return f.report(r)
	}
	return &orchestratorv1.ReportResponse{Version: &orchestratorv1.Version{Incarnation: 1, Counter: 1}}, nil
}

func (f *fake) Apply(ctx context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
	f.mu.Lock()
	f.requests = append(f.requests, r)
	f.mu.Unlock()
	if f.apply != nil {
		return f.apply(ctx, r)
	}
	return done(len(r.GetChanges())), nil
}

// applied returns all Apply requests, in order.
func (f *fake) applied() []*orchestratorv1.ApplyRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

func done(n int) *orchestratorv1.ApplyResponse {
	response := &orchestratorv1.ApplyResponse{}
	for range n {
		response.Results = append(response.Results, &orchestratorv1.Result{Outcome: orchestratorv1.Outcome_OUTCOME_DONE})
	}
	return response
}

// refused returns a response for one change.
func refused(outcome orchestratorv1.Outcome, later *orchestratorv1.Term) *orchestratorv1.ApplyResponse {
	return &orchestratorv1.ApplyResponse{Results: []*orchestratorv1.Result{{Outcome: outcome}}, Term: later}
}

// reportOf returns a report of tasks by a fake.
func reportOf(counter uint64, names ...string) *orchestratorv1.ReportResponse {
	response := &orchestratorv1.ReportResponse{Version: &orchestratorv1.Version{Incarnation: 1, Counter: counter}}
	for _, name := range names {
		response.Tasks = append(response.Tasks, &orchestratorv1.Task{Name: []byte(name), State: orchestratorv1.State_STATE_RUNNING})
	}
	return response
}

// impostor serves the fake as a worker, and returns a Communicator that knows it.
func impostor(t testing.TB, f *fake, opts ...CommunicatorOption) (*Communicator, Worker) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := peer.Defaults()
	server, accepting, err := s.NewServer(l, 0)
	require.NoError(t, err)
	orchestratorv1.RegisterWorkerServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(accepting) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	c := communicator(t, opts...)
	w := Worker{"fake", 1}
	introduce(t, c, w, l.Addr().String())
	return c, w
}

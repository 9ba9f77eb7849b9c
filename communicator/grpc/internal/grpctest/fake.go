// Package grpctest provides test helpers for the packages below communicator/grpc.
package grpctest

import (
	"context"
	"sync"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// Fake is a worker of incarnation 1. Calls without a scripted answer get that of an
// idle worker that carries out every change.
type Fake struct {
	orchestratorv1.UnimplementedWorkerServer
	OnReport func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error)
	OnApply  func(context.Context, *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error)

	mu       sync.Mutex
	requests []*orchestratorv1.ApplyRequest
}

// Report returns the scripted report, or that of a worker without tasks.
func (f *Fake) Report(_ context.Context, r *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	if f.OnReport != nil {
		return f.OnReport(r)
	}
	return &orchestratorv1.ReportResponse{Version: &orchestratorv1.Version{Incarnation: 1, Counter: 1}}, nil
}

// Apply returns the scripted answer, or that every change is done.
func (f *Fake) Apply(ctx context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
	f.mu.Lock()
	f.requests = append(f.requests, r)
	f.mu.Unlock()
	if f.OnApply != nil {
		return f.OnApply(ctx, r)
	}
	return Done(len(r.GetChanges())), nil
}

// Applied returns all Apply requests, in order.
func (f *Fake) Applied() []*orchestratorv1.ApplyRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// Done returns a response for n changes that are done.
func Done(n int) *orchestratorv1.ApplyResponse {
	response := &orchestratorv1.ApplyResponse{}
	for range n {
		response.Results = append(response.Results, &orchestratorv1.Result{Outcome: orchestratorv1.Outcome_OUTCOME_DONE})
	}
	return response
}

// Refused returns a response for one change.
func Refused(outcome orchestratorv1.Outcome, later *orchestratorv1.Term) *orchestratorv1.ApplyResponse {
	return &orchestratorv1.ApplyResponse{Results: []*orchestratorv1.Result{{Outcome: outcome}}, Term: later}
}

// ReportOf returns a report of tasks by a fake.
func ReportOf(counter uint64, names ...string) *orchestratorv1.ReportResponse {
	response := &orchestratorv1.ReportResponse{Version: &orchestratorv1.Version{Incarnation: 1, Counter: counter}}
	for _, name := range names {
		response.Tasks = append(response.Tasks, &orchestratorv1.Task{Name: []byte(name), State: orchestratorv1.State_STATE_RUNNING})
	}
	return response
}

// Reporting is a worker that reports tasks of any names.
type Reporting struct {
	orchestratorv1.UnimplementedWorkerServer
	// Names yields the names of the tasks.
	Names func(yield func(name string))
}

// Report returns the tasks, all running.
func (r Reporting) Report(_ context.Context, request *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	response := &orchestratorv1.ReportResponse{Version: &orchestratorv1.Version{Incarnation: request.GetIncarnation(), Counter: 1}}
	r.Names(func(name string) {
		response.Tasks = append(response.Tasks, &orchestratorv1.Task{Name: []byte(name), State: orchestratorv1.State_STATE_RUNNING})
	})
	return response, nil
}

package grpc

// What a worker reports.

import (
	"context"
	"errors"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// Report says what the worker runs, or that it is what the caller knows.
func (s *service) Report(ctx context.Context, r *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	if err := mayCommand(ctx); err != nil {
		return nil, err
	}
	incarnation := r.GetIncarnation()
	known := uint64(0)
	if v := r.GetKnown(); v.GetIncarnation() == incarnation {
		known = v.GetCounter()
	}
	n, tasks, err := s.worker.Report(callContext(ctx, r.GetTerm(), incarnation), known)
	if errors.Is(err, orchestrator.ErrDeposed) {
		return &orchestratorv1.ReportResponse{Term: s.laterThan(r.GetTerm())}, nil
	}
	if err != nil {
		return nil, refusal(err)
	}
	return &orchestratorv1.ReportResponse{
		Version: &orchestratorv1.Version{Incarnation: incarnation, Counter: n},
		Tasks:   reported(tasks),
	}, nil
}

// reported puts tasks into messages: all in one piece of memory, their names in
// another.
func reported(tasks []worker.TaskStatus[string]) []*orchestratorv1.Task {
	if len(tasks) == 0 {
		return nil
	}
	length := 0
	for i := range tasks {
		length += len(tasks[i].Task)
	}
	names := make([]byte, 0, length)
	messages := make([]orchestratorv1.Task, len(tasks))
	list := make([]*orchestratorv1.Task, len(tasks))
	for i := range tasks {
		from := len(names)
		names = append(names, tasks[i].Task...)
		m := &messages[i]
		m.Name = names[from:len(names):len(names)]
		m.State = orchestratorv1.State(tasks[i].State)
		m.ContentVersion = tasks[i].Version
		list[i] = m
	}
	return list
}

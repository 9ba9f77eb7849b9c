package grpc

// How a worker reports its tasks.

import (
	"context"
	"errors"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// Report returns the worker's tasks, or only the version if the caller knows it. If
// the worker has seen a higher epoch than the call's, Report returns only that term.
func (s *service) Report(ctx context.Context, r *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	if err := peer.MayCommand(ctx); err != nil {
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
		Tasks:   reported(tasks, s.maxMessage/4),
	}, nil
}

// reported converts tasks to messages, all in one allocation, with their names and
// receipts in another. The errors of failed tasks take at most room bytes in all.
func reported(tasks []worker.TaskStatus[string], room int) []*orchestratorv1.Task {
	if len(tasks) == 0 {
		return nil
	}
	length := 0
	failing := 0
	for i := range tasks {
		length += len(tasks[i].Task) + len(tasks[i].Receipt)
		if tasks[i].Attempts > 0 {
			failing++
		}
	}
	longest := min(wire.MaxFailure, room/max(failing, 1))
	text := make([]byte, 0, length)
	keep := func(s string) []byte {
		from := len(text)
		text = append(text, s...)
		return text[from:len(text):len(text)]
	}
	messages := make([]orchestratorv1.Task, len(tasks))
	list := make([]*orchestratorv1.Task, len(tasks))
	for i := range tasks {
		m := &messages[i]
		m.Name, m.Receipt = keep(tasks[i].Task), keep(tasks[i].Receipt)
		m.Pinned = tasks[i].Pinned
		m.Failure = wire.FailureOf(tasks[i].Err, tasks[i].Attempts, tasks[i].Next, longest)
		m.State = orchestratorv1.State(tasks[i].State)
		m.ContentVersion = tasks[i].Version
		list[i] = m
	}
	return list
}

package grpctest

import (
	"context"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

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

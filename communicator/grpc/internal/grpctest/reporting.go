package grpctest

import (
	"context"

	"google.golang.org/protobuf/encoding/protowire"

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

// EmptyCompletions returns a CompleteRequest with as many empty completions as fit into
// size bytes.
func EmptyCompletions(worker string, size int) []byte {
	const completions = 2
	request := protowire.AppendBytes(protowire.AppendTag(nil, completions, protowire.BytesType), nil)
	for len(request) < size/2 {
		request = append(request, request...)
	}
	return protowire.AppendString(protowire.AppendTag(request, 1, protowire.BytesType), worker)
}

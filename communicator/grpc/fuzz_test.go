package grpc

// Arbitrary bytes in place of a message are an error, or decode to what protobuf
// decodes.

import (
	"context"
	"testing"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// FuzzApply applies arbitrary valid requests: each change has a true result.
func FuzzApply(f *testing.F) {
	f.Add(grpctest.Marshaled(f, &orchestratorv1.ApplyRequest{
		Term: &orchestratorv1.Term{Epoch: 5, Number: 3},
		Changes: []*orchestratorv1.Change{
			change(opAdd, "a", "content", 1), change(opRemove, "b", "", 0), change(opUpdate, "c", "content", 2), change(77, "d", "", 0),
		},
	}))
	f.Add([]byte("\x1a\x00\x1a\x02\x08\x01\x1a\x04\x08\x01\x12\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var request orchestratorv1.ApplyRequest
		if proto.Unmarshal(data, &request) != nil {
			return
		}
		w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil })
		require.NoError(t, err)
		defer func() { require.NoError(t, w.Close(t.Context())) }()
		request.Incarnation = w.Incarnation()
		response, err := (&service{worker: w, maxMessage: 1 << 20}).Apply(local(t), &request)
		require.NoError(t, err)
		require.Len(t, response.GetResults(), len(request.GetChanges()))
		grpctest.Marshaled(t, response)
		there, err := w.List(t.Context())
		require.NoError(t, err)
		last := map[string]*orchestratorv1.Change{}
		outcome := map[string]orchestratorv1.Outcome{}
		for i, c := range request.GetChanges() {
			last[string(c.GetTask())], outcome[string(c.GetTask())] = c, response.GetResults()[i].GetOutcome()
		}
		for task, c := range last {
			if outcome[task] == orchestratorv1.Outcome_OUTCOME_DONE {
				switch c.GetOp() {
				case opAdd:
					require.Contains(t, there, task)
				case opRemove:
					require.NotContains(t, there, task)
				}
			}
		}
	})
}

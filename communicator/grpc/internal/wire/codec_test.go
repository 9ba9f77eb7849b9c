package wire

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// maxRequest is the largest request of a worker in bytes.
const maxRequest = 256 << 10

// Protobuf would allocate some hundred bytes for every two of the message.
func TestR5_EmptyCompletionsTakeLittleMemory(t *testing.T) {
	data := mem.BufferSlice{mem.SliceBuffer(grpctest.EmptyCompletions("w1", maxRequest))}
	var before, after runtime.MemStats
	var req orchestratorv1.CompleteRequest
	runtime.ReadMemStats(&before)
	const rounds = 10
	for range rounds {
		require.NoError(t, RequestCodec{}.Unmarshal(data, &req))
	}
	runtime.ReadMemStats(&after)
	require.Equal(t, "w1", string(req.GetWorker()), "a field after the completions")
	require.Len(t, req.GetCompletions(), MaxCompletions+1, "one more than the manager accepts")
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/rounds, uint64(maxRequest))
}

func TestR5_CompletionsAreReadWhole(t *testing.T) {
	want := &orchestratorv1.CompleteRequest{Worker: []byte("w1")}
	for i := range MaxCompletions {
		want.Completions = append(want.Completions, &orchestratorv1.Completion{Task: []byte("t"), ContentVersion: int64(i)})
	}
	data, err := RequestCodec{}.Marshal(want)
	require.NoError(t, err)
	var got orchestratorv1.CompleteRequest
	require.NoError(t, RequestCodec{}.Unmarshal(data, &got))
	require.Len(t, got.GetCompletions(), MaxCompletions)
	require.Equal(t, want.GetCompletions()[MaxCompletions-1].GetContentVersion(), got.GetCompletions()[MaxCompletions-1].GetContentVersion())
	require.Error(t, RequestCodec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer("\x12")}, &got))
}

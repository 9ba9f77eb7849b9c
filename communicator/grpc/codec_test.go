package grpc

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// emptyCompletions returns a request with as many empty completions as fit into a
// message.
func emptyCompletions(worker string) []byte {
	const completions = 2
	request := protowire.AppendBytes(protowire.AppendTag(nil, completions, protowire.BytesType), nil)
	for len(request) < maxRequest/2 {
		request = append(request, request...)
	}
	return protowire.AppendString(protowire.AppendTag(request, 1, protowire.BytesType), worker)
}

// Protobuf would allocate some hundred bytes for every two of the message.
func TestR5_EmptyCompletionsTakeLittleMemory(t *testing.T) {
	data := mem.BufferSlice{mem.SliceBuffer(emptyCompletions("w1"))}
	var before, after runtime.MemStats
	var req orchestratorv1.CompleteRequest
	runtime.ReadMemStats(&before)
	const rounds = 10
	for range rounds {
		require.NoError(t, requestCodec{}.Unmarshal(data, &req))
	}
	runtime.ReadMemStats(&after)
	require.Equal(t, "w1", string(req.GetWorker()), "a field after the completions")
	require.Len(t, req.GetCompletions(), maxCompletions+1, "one more than the manager accepts")
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/rounds, uint64(maxRequest))
}

func TestR5_CompletionsAreReadWhole(t *testing.T) {
	want := &orchestratorv1.CompleteRequest{Worker: []byte("w1")}
	for i := range maxCompletions {
		want.Completions = append(want.Completions, &orchestratorv1.Completion{Task: []byte("t"), ContentVersion: int64(i)})
	}
	data, err := requestCodec{}.Marshal(want)
	require.NoError(t, err)
	var got orchestratorv1.CompleteRequest
	require.NoError(t, requestCodec{}.Unmarshal(data, &got))
	require.Len(t, got.GetCompletions(), maxCompletions)
	require.Equal(t, want.GetCompletions()[maxCompletions-1].GetContentVersion(), got.GetCompletions()[maxCompletions-1].GetContentVersion())
	require.Error(t, requestCodec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer("\x12")}, &got))
}

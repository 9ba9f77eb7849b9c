package grpc

import (
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/testca"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// R5: the memory and the connections that one worker may take from a manager.

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

// One identity gets its share of the connections, and the others keep theirs.
func TestR5_OnePartyTakesFewConnections(t *testing.T) {
	p := &pipes{conns: make(chan net.Conn, 1)}
	g := newConnLimiter(p, &logLimiter{logger: slog.New(slog.DiscardHandler)})
	enter := func(whose ...principal) (net.Conn, error) {
		client := p.connect()
		t.Cleanup(func() { _ = client.Close() })
		conn, err := g.Accept()
		require.NoError(t, err)
		return conn, admit(conn, whose, time.Time{})
	}
	w1, w2 := principal{roleWorker, "w1"}, principal{roleWorker, "w2"}
	var all []net.Conn
	for range maxOfOne {
		conn, err := enter(w1)
		require.NoError(t, err)
		all = append(all, conn)
	}
	refused, err := enter(w1)
	require.ErrorContains(t, err, `too many connections of worker "w1"`)
	require.NoError(t, refused.Close())
	for range 2 * maxOfOne {
		conn, err := enter(w1, w2)
		require.NoError(t, err, "a certificate with two names has places for both")
		all = append(all, conn)
	}
	refused, err = enter(w1, w2)
	require.Error(t, err)
	require.NoError(t, refused.Close())
	other, err := enter(w2)
	require.NoError(t, err)
	require.NoError(t, all[0].Close())
	again, err := enter(w1)
	require.NoError(t, err)
	for _, conn := range append(all[1:], other, again) {
		require.NoError(t, conn.Close())
	}
	_, admitted := g.counts()
	require.Zero(t, admitted)
	require.Empty(t, g.of)
}

// A worker cannot occupy the connections of another worker's server that managers
// need.
func TestR5_AWorkersServerAdmitsManagersOnly(t *testing.T) {
	ca := testca.New(t, "ours")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, accepting, err := settingsOf(t, with(t, ca.Worker(t, "w1"))).newServer(l, roleManager)
	require.NoError(t, err)
	orchestratorv1.RegisterWorkerServer(server, probed{})
	go func() { _ = server.Serve(accepting) }()
	t.Cleanup(server.Stop)
	g, ok := accepting.(*connLimiter)
	require.True(t, ok)
	target := principal{roleWorker, "w1"}
	intruder := connect(t, l.Addr().String(), target, with(t, ca.Worker(t, "w2")))
	_, err = orchestratorv1.NewWorkerClient(intruder).Apply(t.Context(), &orchestratorv1.ApplyRequest{})
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	_, admitted := g.counts()
	require.Zero(t, admitted)
	manager := connect(t, l.Addr().String(), target, with(t, ca.Manager(t)))
	_, err = orchestratorv1.NewWorkerClient(manager).Apply(t.Context(), &orchestratorv1.ApplyRequest{})
	require.NoError(t, err)
	_, admitted = g.counts()
	require.Equal(t, 1, admitted)
}

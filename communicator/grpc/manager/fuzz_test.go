package manager

import (
	"bytes"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// FuzzRequest makes a manager decode arbitrary requests. They must take little more
// memory than the message, and every valid request must have an answer. Register,
// which would call the worker, is only checked.
func FuzzRequest(f *testing.F) {
	f.Add(uint8(0), grpctest.Marshaled(f, registering("w1", 1, "127.0.0.1:7000")))
	f.Add(uint8(1), grpctest.Marshaled(f, &orchestratorv1.HeartbeatRequest{Worker: []byte("w1"), Incarnation: 1, Draining: true}))
	f.Add(uint8(2), grpctest.Marshaled(f, &orchestratorv1.LeaveRequest{Worker: []byte("w1"), Incarnation: 1}))
	failed := &orchestratorv1.Completion{Task: []byte("a"), ContentVersion: 1, Receipt: make([]byte, 16), Failure: wire.FailureOf(errors.New("no"), 1, time.Time{}, time.Unix(1_000_000, 0).Add(0), wire.MaxErrorText)}
	f.Add(uint8(3), grpctest.Marshaled(f, &orchestratorv1.CompleteRequest{Worker: []byte("w1"), Completions: []*orchestratorv1.Completion{failed, {}}}))
	f.Add(uint8(3), grpctest.EmptyCompletions("w1", maxRequest))
	f.Add(uint8(3), bytes.Repeat([]byte("\x12\x02\x22\x00"), maxRequest/8)) // empty failures
	f.Add(uint8(3), bytes.Repeat([]byte("\x12\x04\x22\x02\x1a\x00"), maxRequest/8))
	f.Add(uint8(0), bytes.Repeat([]byte("\x22\x00"), maxRequest/2))         // empty leases
	f.Add(uint8(0), bytes.Repeat([]byte("\x32\x02\x12\x00"), maxRequest/4)) // empty labels
	f.Add(uint8(1), bytes.Repeat([]byte("\x78\x00"), maxRequest/2))         // unknown fields
	m, err := New(NewMemoryStore(), communicator.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(f, err)
	_, err = m.Put(f.Context(), Item{Name: "a"})
	require.NoError(f, err)
	c := &managerServer{Manager: m}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		if len(data) > maxRequest {
			return
		}
		requests := []proto.Message{
			&orchestratorv1.RegisterRequest{}, &orchestratorv1.HeartbeatRequest{}, &orchestratorv1.LeaveRequest{}, &orchestratorv1.CompleteRequest{},
		}
		request := requests[int(kind)%len(requests)]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := wire.RequestCodec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, request)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(6*len(data)+maxRequest), "for %d bytes", len(data))
		if err != nil {
			return
		}
		ctx := localCall(t)
		switch r := request.(type) {
		case *orchestratorv1.RegisterRequest:
			asked := state.Membership{WorkerID: state.WorkerID{Name: string(r.GetWorker()), Incarnation: r.GetIncarnation()}, Address: r.GetAddress(), Lease: r.GetLease().AsDuration(), Settings: workerSettings(r.GetSettings())}
			if asked.Check(m.settings.Rules) == nil {
				require.LessOrEqual(t, len(asked.Name)+len(asked.Address), identity.MaxName+identity.MaxAddress)
			}
		case *orchestratorv1.HeartbeatRequest:
			_, err = c.Heartbeat(ctx, r)
			require.Error(t, err, "not a member")
		case *orchestratorv1.LeaveRequest:
			_, _ = c.Leave(ctx, r)
		case *orchestratorv1.CompleteRequest:
			answers, err := c.Complete(ctx, r)
			if err != nil {
				return
			}
			require.Len(t, answers.GetOutcomes(), len(r.GetCompletions()))
			for _, outcome := range answers.GetOutcomes() {
				require.Equal(t, orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_REFUSED, outcome, "there are no receipts")
			}
		}
	})
}

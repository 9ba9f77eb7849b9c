package grpc

// Arbitrary bytes in place of a message are an error, or decode to what protobuf
// decodes.

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

func marshaled(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

// FuzzReport compares the hand-written decoding of reports with protobuf's.
func FuzzReport(f *testing.F) {
	whole := reportOf(7, "a", "b/c", "\xff", strings.Repeat("x", 1024))
	whole.Tasks[1].ContentVersion, whole.Tasks[2].State = -1, 99
	whole.Tasks[1].Receipt, whole.Tasks[1].Pinned = []byte("0123456789abcdef"), true
	whole.Tasks[2].Receipt = []byte("too short")
	whole.Tasks[2].Failure = wire.FailureOf(errors.New("no disk"), 3, time.Unix(1_000_000, 0).Add(0), wire.MaxFailure)
	whole.Term = &orchestratorv1.Term{Epoch: 1 << 63, Number: 3}
	f.Add(marshaled(f, whole))
	f.Add(marshaled(f, reportOf(1)))
	f.Add(marshaled(f, reportOf(1, "")))
	f.Add(marshaled(f, reportOf(1, strings.Repeat("x", 1025))))
	f.Add([]byte("\x0a\x02\x10\x01\x0a\x09\x09\x01\x00\x00\x00\x00\x00\x00\x00")) // a version in two parts
	f.Add([]byte("\x12\x03\x0a\x01a\x13\x14\x1b\x1c"))                            // groups
	f.Add([]byte("\x12\x7f"))
	f.Add([]byte("\x80\x80\x80\x80\x10\x00"))                  // field 1<<29, one above the highest
	f.Add([]byte("\x12\x09\x0a\x01a\x80\x80\x80\x80\x10\x00")) // the same in a task
	const most = 100
	f.Fuzz(func(t *testing.T, data []byte) {
		r := wire.ReportReply{Known: wire.Report{Tasks: reportedTasks("a", "b", "b/c")}, Most: most}
		var want orchestratorv1.ReportResponse
		bad := proto.Unmarshal(data, &want)
		for _, task := range want.GetTasks() {
			if n := len(task.GetName()); n < 1 || n > identity.MaxName {
				bad = wire.ErrMalformed
			}
		}
		err := r.Decode(data)
		if bad != nil || len(want.GetTasks()) > most {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, wire.Version{Incarnation: want.GetVersion().GetIncarnation(), Counter: want.GetVersion().GetCounter()}, r.Version)
		require.Equal(t, orchestrator.Term{Epoch: want.GetTerm().GetEpoch(), Number: want.GetTerm().GetNumber()}, r.Term)
		require.Len(t, r.Tasks, len(want.GetTasks()))
		for i, task := range want.GetTasks() {
			reported := worker.State(task.GetState())
			if task.GetState() < 0 || task.GetState() > orchestratorv1.State_STATE_FAILED {
				reported = 0
			}
			require.Equal(t, wire.Task{
				Name: string(task.GetName()), State: reported, Version: task.GetContentVersion(), Pinned: task.GetPinned(), Failure: wire.FailureFrom(task.GetFailure()),
				Receipt: state.ReceiptOf(task.GetReceipt()), Given: false,
			}, r.Tasks[i])
		}
	})
}

func reportedTasks(names ...string) (tasks []wire.Task) {
	for _, name := range names {
		tasks = append(tasks, wire.Task{Name: name})
	}
	return tasks
}

// FuzzRequest makes a manager decode arbitrary requests. They must take little more
// memory than the message, and every valid request must have an answer. Register,
// which would call the worker, is only checked.
func FuzzRequest(f *testing.F) {
	f.Add(uint8(0), marshaled(f, registering("w1", 1, "127.0.0.1:7000")))
	f.Add(uint8(1), marshaled(f, &orchestratorv1.HeartbeatRequest{Worker: []byte("w1"), Incarnation: 1, Draining: true}))
	f.Add(uint8(2), marshaled(f, &orchestratorv1.LeaveRequest{Worker: []byte("w1"), Incarnation: 1}))
	failed := &orchestratorv1.Completion{Task: []byte("a"), ContentVersion: 1, Receipt: make([]byte, 16), Failure: wire.FailureOf(errors.New("no"), 1, time.Unix(1_000_000, 0).Add(0), wire.MaxFailure)}
	f.Add(uint8(3), marshaled(f, &orchestratorv1.CompleteRequest{Worker: []byte("w1"), Completions: []*orchestratorv1.Completion{failed, {}}}))
	f.Add(uint8(3), grpctest.EmptyCompletions("w1", maxRequest))
	f.Add(uint8(3), bytes.Repeat([]byte("\x12\x02\x22\x00"), maxRequest/8)) // empty failures
	f.Add(uint8(3), bytes.Repeat([]byte("\x12\x04\x22\x02\x1a\x00"), maxRequest/8))
	f.Add(uint8(0), bytes.Repeat([]byte("\x22\x00"), maxRequest/2)) // empty leases
	f.Add(uint8(1), bytes.Repeat([]byte("\x78\x00"), maxRequest/2)) // unknown fields
	m, err := NewManager(NewMemoryStore(), WithLogger(slog.New(slog.DiscardHandler)))
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
		ctx := local(t)
		switch r := request.(type) {
		case *orchestratorv1.RegisterRequest:
			asked := state.Membership{Worker: state.Worker{Name: string(r.GetWorker()), Incarnation: r.GetIncarnation()}, Address: r.GetAddress(), Lease: r.GetLease().AsDuration()}
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

// FuzzApply applies arbitrary valid requests: each change has a true result.
func FuzzApply(f *testing.F) {
	f.Add(marshaled(f, &orchestratorv1.ApplyRequest{
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
		marshaled(t, response)
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

// FuzzResult decodes arbitrary results of a change.
func FuzzResult(f *testing.F) {
	f.Add(int32(4), "rejected by the worker: no room")
	f.Add(int32(99), strings.Repeat("\xff", 4096))
	f.Fuzz(func(t *testing.T, outcome int32, message string) {
		result := &orchestratorv1.Result{Outcome: orchestratorv1.Outcome(outcome), Message: message}
		err := wire.ErrorOf(result)
		if result.GetOutcome() == orchestratorv1.Outcome_OUTCOME_DONE {
			require.NoError(t, err)
			return
		}
		require.Error(t, err)
		require.Less(t, len(err.Error()), wire.MaxMessage+200)
		want := result.GetOutcome()
		if outcome < 0 || want > orchestratorv1.Outcome_OUTCOME_STOPPING {
			want = orchestratorv1.Outcome_OUTCOME_UNSPECIFIED
		}
		require.Equal(t, want, wire.OutcomeOf(err))
	})
}

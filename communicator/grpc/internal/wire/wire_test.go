package wire

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// FuzzReport compares the hand-written decoding of reports with protobuf's.
func FuzzReport(f *testing.F) {
	whole := grpctest.ReportOf(7, "a", "b/c", "\xff", strings.Repeat("x", 1024))
	whole.Tasks[1].ContentVersion, whole.Tasks[2].State = -1, 99
	whole.Tasks[1].Receipt, whole.Tasks[1].Pinned = []byte("0123456789abcdef"), true
	whole.Tasks[2].Receipt = []byte("too short")
	whole.Tasks[2].Failure = FailureOf(errors.New("no disk"), 3, time.Unix(900_000, 0), time.Unix(1_000_000, 0).Add(0), MaxErrorText)
	whole.Tasks[1].Since, whole.Tasks[2].Since = TimeOf(time.Unix(900_000, 7)), &timestamppb.Timestamp{Seconds: 1 << 62}
	whole.Term = &orchestratorv1.Term{Epoch: 1 << 63, Number: 3}
	f.Add(grpctest.Marshaled(f, whole))
	f.Add(grpctest.Marshaled(f, grpctest.ReportOf(1)))
	f.Add(grpctest.Marshaled(f, grpctest.ReportOf(1, "")))
	f.Add(grpctest.Marshaled(f, grpctest.ReportOf(1, strings.Repeat("x", 1025))))
	f.Add([]byte("\x0a\x02\x10\x01\x0a\x09\x09\x01\x00\x00\x00\x00\x00\x00\x00")) // a version in two parts
	f.Add([]byte("\x12\x03\x0a\x01a\x13\x14\x1b\x1c"))                            // groups
	f.Add([]byte("\x12\x7f"))
	f.Add([]byte("\x12\x03\x0a\x01a\x20\x01")) // more follows
	f.Add([]byte("\x20\x01"))
	f.Add([]byte("\x80\x80\x80\x80\x10\x00"))                  // field 1<<29, one above the highest
	f.Add([]byte("\x12\x09\x0a\x01a\x80\x80\x80\x80\x10\x00")) // the same in a task
	const most = 100
	f.Fuzz(func(t *testing.T, data []byte) {
		r := ReportReply{Known: Report{Tasks: reportedTasks("a", "b", "b/c")}, Most: most}
		var want orchestratorv1.ReportResponse
		bad := proto.Unmarshal(data, &want)
		for _, task := range want.GetTasks() {
			if n := len(task.GetName()); n < 1 || n > identity.MaxName {
				bad = ErrMalformed
			}
		}
		if want.GetMore() && len(want.GetTasks()) == 0 || len(data) > MaxPages*most*LeastTask {
			bad = ErrMalformed
		}
		err := r.Decode(data)
		if bad != nil || len(want.GetTasks()) > most {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, Version{Incarnation: want.GetVersion().GetIncarnation(), Counter: want.GetVersion().GetCounter()}, r.Version)
		require.Equal(t, orchestrator.Term{Epoch: want.GetTerm().GetEpoch(), Number: want.GetTerm().GetNumber()}, r.Term)
		require.Equal(t, want.GetMore(), r.More)
		require.Equal(t, want.GetLaterNumber(), r.Later)
		require.Len(t, r.Tasks, len(want.GetTasks()))
		for i, task := range want.GetTasks() {
			reported := worker.State(task.GetState())
			if task.GetState() < 0 || task.GetState() > orchestratorv1.State_STATE_FAILED {
				reported = 0
			}
			require.Equal(t, Task{
				Name: string(task.GetName()), State: reported, Since: timeFrom(task.GetSince()), Version: task.GetContentVersion(), Pinned: task.GetPinned(), Failure: FailureFrom(task.GetFailure()),
				Receipt: state.ReceiptOf(task.GetReceipt()), Given: false,
			}, r.Tasks[i])
		}
	})
}

func reportedTasks(names ...string) (tasks []Task) {
	for _, name := range names {
		tasks = append(tasks, Task{Name: name})
	}
	return tasks
}

// FuzzResult decodes arbitrary results of a change.
func FuzzResult(f *testing.F) {
	f.Add(int32(4), "rejected by the worker: no room")
	f.Add(int32(99), strings.Repeat("\xff", 4096))
	f.Fuzz(func(t *testing.T, outcome int32, message string) {
		result := &orchestratorv1.Result{Outcome: orchestratorv1.Outcome(outcome), Message: message}
		err := ErrorOf(result)
		if result.GetOutcome() == orchestratorv1.Outcome_OUTCOME_DONE {
			require.NoError(t, err)
			return
		}
		require.Error(t, err)
		require.Less(t, len(err.Error()), MaxErrorText+200)
		want := result.GetOutcome()
		if outcome < 0 || want > orchestratorv1.Outcome_OUTCOME_STOPPING {
			want = orchestratorv1.Outcome_OUTCOME_UNSPECIFIED
		}
		require.Equal(t, want, OutcomeOf(err))
	})
}

// Names take memory once, not again with each changed report.
func TestR1_KnownNamesTakeNoMemory(t *testing.T) {
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("a name of some length %06d", i)
	}
	first := ReportReply{Most: 1 << 20}
	require.NoError(t, first.Decode(grpctest.Marshaled(t, grpctest.ReportOf(1, names...))))
	for what, next := range map[string][]string{
		"the same":               names,
		"the first is gone":      names[1:],
		"some are gone":          slices.Concat(names[:100], names[100+lookAhead-1:5000], names[5001:]),
		"some are new":           slices.Concat([]string{"new"}, names[:5000], []string{"newer", "newest"}, names[5000:]),
		"one has taken a place":  slices.Concat(names[:10], []string{"new"}, names[11:]),
		"all but one are gone":   names[5000:5001],
		"two have changed place": slices.Concat([]string{names[1], names[0]}, names[2:]),
	} {
		t.Run(what, func(t *testing.T) {
			data := grpctest.Marshaled(t, grpctest.ReportOf(2, next...))
			var r ReportReply
			allocations := testing.AllocsPerRun(3, func() {
				r = ReportReply{Known: first.Report, Most: 1 << 20}
				require.NoError(t, r.Decode(data))
			})
			require.Len(t, r.Tasks, len(next))
			for i, name := range next {
				require.Equal(t, name, r.Tasks[i].Name)
			}
			require.Less(t, allocations, 10.0)
		})
	}
}

// Of a long failure 512 bytes are kept, and not the rest behind them.
func TestR5_AShortenedFailureIsSmall(t *testing.T) {
	const n = 100
	kept := make([]*Failure, n)
	before := grpctest.InUse()
	for i := range kept {
		kept[i] = FailureFrom(&orchestratorv1.Failure{Error: strings.Repeat("x", 250<<10)})
	}
	require.Less(t, int64(grpctest.InUse())-int64(before), int64(n*10<<10))
	require.Len(t, kept[n-1].Err, MaxErrorText)
}

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

// A registration with a label for every two bytes takes little more memory than it has.
func TestR5_EmptyLabelsTakeLittleMemory(t *testing.T) {
	settings := protowire.AppendBytes(protowire.AppendTag(nil, 6, protowire.BytesType), bytes.Repeat([]byte("\x12\x00"), maxRequest/2-100))
	for what, data := range map[string][]byte{
		"in one message": settings,
		"in many":        bytes.Repeat([]byte("\x32\x02\x12\x00"), maxRequest/4),
	} {
		data := mem.BufferSlice{mem.SliceBuffer(append(data, "\x0a\x02w1"...))}
		var before, after runtime.MemStats
		var req orchestratorv1.RegisterRequest
		runtime.ReadMemStats(&before)
		const rounds = 10
		for range rounds {
			require.NoError(t, RequestCodec{}.Unmarshal(data, &req), what)
		}
		runtime.ReadMemStats(&after)
		require.Equal(t, "w1", string(req.GetWorker()), "a field after the settings")
		require.LessOrEqual(t, len(req.GetSettings().GetLabels()), orchestrator.MaxLabels+1)
		require.NotEmpty(t, req.GetSettings().GetLabels())
		require.Less(t, (after.TotalAlloc-before.TotalAlloc)/rounds, uint64(2*maxRequest), what)
	}
}

func TestR5_SettingsAreReadWhole(t *testing.T) {
	for n := range orchestrator.MaxLabels + 2 {
		want := &orchestratorv1.RegisterRequest{
			Worker:   []byte("w1"),
			Settings: &orchestratorv1.WorkerSettings{Zone: "east", Share: 2, MaxTasks: 9},
			Draining: true,
		}
		for i := range n {
			want.Settings.Labels = append(want.Settings.Labels, fmt.Sprint("label ", i))
		}
		data, err := RequestCodec{}.Marshal(want)
		require.NoError(t, err)
		var got orchestratorv1.RegisterRequest
		require.NoError(t, RequestCodec{}.Unmarshal(data, &got))
		require.True(t, proto.Equal(want, &got), "%d labels", n)
	}
	require.Error(t, RequestCodec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer("\x32\x02\x12\x07")}, new(orchestratorv1.RegisterRequest)))
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

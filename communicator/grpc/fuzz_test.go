package grpc

// Whatever arrives in place of a message: an error, or what protobuf itself reads.

import (
	"context"
	"strings"
	"testing"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

func marshaled(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

// FuzzReport reads reports by hand, and compares with what protobuf reads.
func FuzzReport(f *testing.F) {
	whole := reportOf(7, "a", "b/c", "\xff", strings.Repeat("x", 1024))
	whole.Tasks[1].ContentVersion, whole.Tasks[2].State = -1, 99
	whole.Term = &orchestratorv1.Term{Epoch: 1 << 63, Number: 3}
	f.Add(marshaled(f, whole))
	f.Add(marshaled(f, reportOf(1)))
	f.Add(marshaled(f, reportOf(1, "")))
	f.Add(marshaled(f, reportOf(1, strings.Repeat("x", 1025))))
	f.Add([]byte("\x0a\x02\x10\x01\x0a\x09\x09\x01\x00\x00\x00\x00\x00\x00\x00")) // a version in two parts
	f.Add([]byte("\x12\x03\x0a\x01a\x13\x14\x1b\x1c"))                            // groups
	f.Add([]byte("\x12\x7f"))
	f.Add([]byte("\x80\x80\x80\x80\x10\x00"))                  // field 1<<29, one more than there are
	f.Add([]byte("\x12\x09\x0a\x01a\x80\x80\x80\x80\x10\x00")) // the same in a task
	const most = 100
	f.Fuzz(func(t *testing.T, data []byte) {
		r := reply{known: &snapshot{tasks: []TaskState{{Name: "a"}, {Name: "b"}, {Name: "b/c"}}}, most: most}
		var want orchestratorv1.ReportResponse
		bad := proto.Unmarshal(data, &want)
		for _, task := range want.GetTasks() {
			if n := len(task.GetName()); n < 1 || n > maxName {
				bad = errMalformed
			}
		}
		err := r.decode(data)
		if bad != nil || len(want.GetTasks()) > most {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, version{want.GetVersion().GetIncarnation(), want.GetVersion().GetCounter()}, r.version)
		require.Equal(t, orchestrator.Term{Epoch: want.GetTerm().GetEpoch(), Number: want.GetTerm().GetNumber()}, r.term)
		require.Len(t, r.tasks, len(want.GetTasks()))
		for i, task := range want.GetTasks() {
			state := worker.State(task.GetState())
			if task.GetState() < 0 || task.GetState() > orchestratorv1.State_STATE_COMPLETED {
				state = 0
			}
			require.Equal(t, TaskState{string(task.GetName()), state, task.GetContentVersion()}, r.tasks[i])
		}
	})
}

// FuzzApply applies whatever parses: each change has an answer that is true.
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

// FuzzResult takes whatever parses for the answer to a change.
func FuzzResult(f *testing.F) {
	f.Add(int32(4), "rejected by the worker: no room")
	f.Add(int32(99), strings.Repeat("\xff", 4096))
	f.Fuzz(func(t *testing.T, outcome int32, message string) {
		result := &orchestratorv1.Result{Outcome: orchestratorv1.Outcome(outcome), Message: message}
		err := errorOf(result)
		if result.GetOutcome() == orchestratorv1.Outcome_OUTCOME_DONE {
			require.NoError(t, err)
			return
		}
		require.Error(t, err)
		require.Less(t, len(err.Error()), longestMessage+200)
		want := result.GetOutcome()
		if outcome < 0 || want > orchestratorv1.Outcome_OUTCOME_STOPPING {
			want = orchestratorv1.Outcome_OUTCOME_UNSPECIFIED
		}
		require.Equal(t, want, outcomeOf(err))
	})
}

package grpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	rpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// local returns the context of a call from a manager.
func local(t testing.TB) context.Context {
	return rpcpeer.NewContext(t.Context(), &rpcpeer.Peer{AuthInfo: &peer.Security{Plaintext: true}})
}

// direct returns a worker's service without a network, and the worker.
func direct(t testing.TB) (*service, *servedWorker) {
	t.Helper()
	s := newServedWorker(t)
	return &service{worker: s.worker, maxMessage: 2 << 20}, s
}

func change(op orchestratorv1.Op, task, content string, v int64) *orchestratorv1.Change {
	return &orchestratorv1.Change{Op: op, Task: []byte(task), Content: []byte(content), ContentVersion: v}
}

const (
	opAdd    = orchestratorv1.Op_OP_ADD
	opRemove = orchestratorv1.Op_OP_REMOVE
	opUpdate = orchestratorv1.Op_OP_UPDATE
)

// outcomes applies changes, and returns their outcomes.
func outcomes(ctx context.Context, t testing.TB, s *service, changes ...*orchestratorv1.Change) []string {
	t.Helper()
	response, err := s.Apply(ctx, &orchestratorv1.ApplyRequest{
		Term: &orchestratorv1.Term{Epoch: 5, Number: 3}, Incarnation: s.worker.Incarnation(), Changes: changes,
	})
	require.NoError(t, err)
	var all []string
	for _, r := range response.GetResults() {
		all = append(all, strings.TrimPrefix(r.GetOutcome().String(), "OUTCOME_"))
	}
	return all
}

func TestR1_AReportOfWhatIsKnownIsItsVersionAlone(t *testing.T) {
	s, _ := direct(t)
	for i := range 1000 {
		require.NoError(t, s.worker.Add(t.Context(), fmt.Sprint("a task with a long name ", i)))
	}
	request := &orchestratorv1.ReportRequest{Incarnation: s.worker.Incarnation()}
	first, err := s.Report(local(t), request)
	require.NoError(t, err)
	require.Len(t, first.GetTasks(), 1000)
	require.Equal(t, "a task with a long name 7", string(first.GetTasks()[7].GetName()))
	require.Equal(t, orchestratorv1.State_STATE_RUNNING, first.GetTasks()[7].GetState())

	request.Known = first.GetVersion()
	second, err := s.Report(local(t), request)
	require.NoError(t, err)
	require.True(t, proto.Equal(first.GetVersion(), second.GetVersion()))
	require.Empty(t, second.GetTasks())
	require.Less(t, proto.Size(second), 20)
	ctx := local(t)
	require.Less(t, testing.AllocsPerRun(100, func() { _, _ = s.Report(ctx, request) }), 20.0, "not one per task")

	request.Known.Incarnation++
	third, err := s.Report(local(t), request)
	require.NoError(t, err)
	require.Len(t, third.GetTasks(), 1000, "the report of another process is not known")
}

func TestR1_WhatIsMeantForAnotherProcessIsRefused(t *testing.T) {
	s, _ := direct(t)
	before := s.worker.Incarnation()
	require.NoError(t, s.worker.Rejoin(t.Context()))
	_, err := s.Report(local(t), &orchestratorv1.ReportRequest{Term: &orchestratorv1.Term{Epoch: 9}, Incarnation: before})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.Equal(t, "INCARNATION", wire.ReasonOf(err))
	_, err = s.Apply(local(t), &orchestratorv1.ApplyRequest{
		Term: &orchestratorv1.Term{Epoch: 9}, Incarnation: before, Changes: []*orchestratorv1.Change{change(opAdd, "a", "", 0)},
	})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.Equal(t, "INCARNATION", wire.ReasonOf(err))
	require.Equal(t, []string{"DONE"}, outcomes(local(t), t, s, change(opAdd, "b", "", 0)), "the refused call's term is not remembered")
	tasks, err := s.worker.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, tasks)
}

func TestR1_AnEarlierManagerIsDeposed(t *testing.T) {
	s, _ := direct(t)
	s.worker.Fence(orchestrator.Term{Epoch: 6, Number: 1})
	report := func(term *orchestratorv1.Term) *orchestratorv1.ReportResponse {
		response, err := s.Report(local(t), &orchestratorv1.ReportRequest{Term: term, Incarnation: s.worker.Incarnation()})
		require.NoError(t, err)
		return response
	}
	seen := &orchestratorv1.Term{Epoch: 6, Number: 1}
	require.True(t, proto.Equal(&orchestratorv1.ReportResponse{Term: seen}, report(&orchestratorv1.Term{Epoch: 5, Number: 9})))
	require.Equal(t, []string{"DEPOSED", "DEPOSED", "DEPOSED"},
		outcomes(local(t), t, s, change(opAdd, "a", "", 0), change(opRemove, "a", "", 0), change(opUpdate, "a", "", 1)))
	request := &orchestratorv1.ApplyRequest{Term: &orchestratorv1.Term{Epoch: 5, Number: 9}, Incarnation: s.worker.Incarnation()}
	answer, err := s.Apply(local(t), request)
	require.NoError(t, err)
	require.True(t, proto.Equal(&orchestratorv1.ApplyResponse{Term: seen}, answer), "even without a change")

	for _, term := range []*orchestratorv1.Term{nil, {Epoch: 6}, {Epoch: 6, Number: 1}} {
		response := report(term)
		require.NotZero(t, response.GetVersion().GetCounter(), "calls without a term, or of this epoch, may read")
		require.Nil(t, response.GetTerm())
	}
}

// The status is OK whatever the outcomes of the changes, and also without changes.
func TestR1_ChangesOfNoTermAreRefusedOnceAnyWasSeen(t *testing.T) {
	s, _ := direct(t)
	apply := func(changes ...*orchestratorv1.Change) *orchestratorv1.ApplyResponse {
		response, err := s.Apply(local(t), &orchestratorv1.ApplyRequest{Incarnation: s.worker.Incarnation(), Changes: changes})
		require.NoError(t, err)
		return response
	}
	require.Equal(t, orchestratorv1.Outcome_OUTCOME_DONE, apply(change(opAdd, "a", "", 0)).GetResults()[0].GetOutcome())
	s.worker.Fence(orchestrator.Term{Epoch: 6, Number: 1})
	response := apply(change(opAdd, "b", "", 0))
	require.Equal(t, orchestratorv1.Outcome_OUTCOME_STALE, response.GetResults()[0].GetOutcome())
	require.Nil(t, response.GetTerm())
	require.Empty(t, apply().GetResults())
}

func TestR1_OnlyAManagerCommands(t *testing.T) {
	s, _ := direct(t)
	ctx := rpcpeer.NewContext(t.Context(), &rpcpeer.Peer{})
	_, err := s.Report(ctx, &orchestratorv1.ReportRequest{Incarnation: s.worker.Incarnation()})
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	_, err = s.Apply(ctx, &orchestratorv1.ApplyRequest{Incarnation: s.worker.Incarnation()})
	require.Equal(t, codes.Unauthenticated, status.Code(err))
}

func TestR1_EachChangeHasItsAnswerBeforeTheDeadline(t *testing.T) {
	s, served := direct(t)
	require.Equal(t, []string{"DONE", "DONE"}, outcomes(local(t), t, s, change(opAdd, "slow", "", 0), change(opAdd, "b", "", 0)))
	end := served.tasks.Lingers("slow")
	defer end()
	accept := served.tasks.Refuse("no")
	defer accept()
	ctx := within(local(t), t, time.Second)
	require.Equal(t, []string{"STOPPING", "DONE", "DONE", "REJECTED", "STOPPING"}, outcomes(ctx, t, s,
		change(opRemove, "slow", "", 0), change(opRemove, "b", "", 0), change(opAdd, "c", "", 0), change(opAdd, "no", "", 0), change(opAdd, "slow", "", 0)))
	require.NoError(t, ctx.Err(), "time is left to send the answer")
}

func TestR1_ContentComesWithItsTask(t *testing.T) {
	var got []string
	told := make(chan struct{})
	w, err := worker.New(func(ctx context.Context, task string) error {
		content, version := worker.Content(ctx)
		got = append(got, fmt.Sprintf("%s: %s@%d", task, content, version))
		told <- struct{}{}
		<-ctx.Done()
		return nil
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close(t.Context())) }()
	s := &service{worker: w, maxMessage: 2 << 20}
	require.Equal(t, []string{"REJECTED"}, outcomes(local(t), t, s, change(opUpdate, "a", "zero", 1)), "an update starts nothing")
	require.Equal(t, []string{"DONE"}, outcomes(local(t), t, s, change(opAdd, "a", "one", 1)))
	<-told
	require.Equal(t, []string{"DONE"}, outcomes(local(t), t, s, change(opUpdate, "a", "two", 2)))
	<-told
	require.Equal(t, []string{"DONE"}, outcomes(local(t), t, s, change(opAdd, "a", "three", 3)))
	<-told
	require.Equal(t, []string{"a: one@1", "a: two@2", "a: three@3"}, got)
}

func TestR1_AnInvalidChangeIsRefusedAlone(t *testing.T) {
	s, _ := direct(t)
	require.Equal(t, []string{"REJECTED", "REJECTED", "REJECTED", "REJECTED", "DONE"}, outcomes(local(t), t, s,
		change(opAdd, "", "", 0), change(opUpdate, strings.Repeat("x", 1025), "", 0),
		change(orchestratorv1.Op_OP_UNSPECIFIED, "a", "", 0), change(99, "a", "", 0), change(opAdd, strings.Repeat("x", 1024), "", 0)))
	require.Empty(t, outcomes(local(t), t, s))
}

func TestR1_ReasonsAreShortAndLegible(t *testing.T) {
	s, _ := direct(t)
	errs := make([]error, 10_000)
	for i := range errs {
		errs[i] = fmt.Errorf("%w: %s\xff\xfe", orchestrator.ErrRejected, strings.Repeat("é", 1000))
	}
	for _, n := range []int{1, 10_000} {
		results := s.results(errs[:n])
		size := proto.Size(&orchestratorv1.ApplyResponse{Results: results})
		require.Less(t, size, s.maxMessage)
		for _, r := range results {
			require.True(t, utf8.ValidString(r.GetMessage()))
			require.Contains(t, r.GetMessage(), "rejected by the worker: é")
		}
	}
}

func TestC6_TheFirstOfSeveralErrorsCounts(t *testing.T) {
	for want, err := range map[orchestratorv1.Outcome]error{
		orchestratorv1.Outcome_OUTCOME_DONE:        nil,
		orchestratorv1.Outcome_OUTCOME_UNSPECIFIED: fmt.Errorf("a: %w", errors.Join(errors.New("b"), nil)),
		orchestratorv1.Outcome_OUTCOME_DEPOSED:     fmt.Errorf("%w: %w", orchestrator.ErrDeposed, orchestrator.ErrRejected),
		orchestratorv1.Outcome_OUTCOME_STALE:       fmt.Errorf("%w: %w", orchestrator.ErrStale, orchestrator.ErrStopping),
		orchestratorv1.Outcome_OUTCOME_REJECTED:    fmt.Errorf("%w: %w", worker.ErrIncarnation, orchestrator.ErrDeposed),
		orchestratorv1.Outcome_OUTCOME_STOPPING:    fmt.Errorf("%w: %w", orchestrator.ErrStopping, orchestrator.ErrStale),
	} {
		require.Equal(t, want, wire.OutcomeOf(err), "%v", err)
		r := (&service{maxMessage: 1 << 20}).results([]error{err})[0]
		back := wire.ErrorOf(r)
		require.Equal(t, want, wire.OutcomeOf(back), "and back again")
		if want != orchestratorv1.Outcome_OUTCOME_UNSPECIFIED && err != nil {
			require.ErrorContains(t, err, back.Error(), "in the same words, once")
		}
	}
	require.Equal(t, orchestrator.ErrStopping, wire.ErrorOf(&orchestratorv1.Result{Outcome: orchestratorv1.Outcome_OUTCOME_STOPPING}))
	require.ErrorContains(t, wire.ErrorOf(&orchestratorv1.Result{Outcome: 77, Message: "who knows"}), "who knows")
}

func TestR1_AServerEndsWithItsContextGracefully(t *testing.T) {
	s := newServedWorker(t)
	c, w := connected(t, s)
	require.NoError(t, c.Add(t.Context(), w, "slow"))
	end := s.tasks.Lingers("slow")
	removed := make(chan error, 1)
	go func() { removed <- c.Remove(t.Context(), w, "slow") }()
	_, next := s.worker.Changes()
	for s.worker.Status()[0].State != worker.Stopping {
		<-next
		_, next = s.worker.Changes()
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.stop() }()
	end()
	require.NoError(t, <-removed, "the call under way was answered")
	<-stopped
	_, err := c.List(t.Context(), w)
	require.Error(t, err)
}

func TestR1_NewServerSaysWhatIsWrong(t *testing.T) {
	_, err := NewServer(nil, nil, WithMaxMessage(1))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, what := range []string{"worker is nil", "Option is nil", "WithMaxMessage(1)"} {
		require.ErrorContains(t, err, what)
	}
}

func TestR1_StatesAreTheSameNumbers(t *testing.T) {
	for state := worker.Queued; state <= worker.Failed; state++ {
		require.Equal(t, "STATE_"+strings.ToUpper(state.String()), orchestratorv1.State(state).String())
	}
	require.Len(t, orchestratorv1.State_name, int(worker.Failed)+1)
}

// A call whose goroutine a function of the user ends is answered: with errors whose
// outcome is unknown.
func TestC6_AFunctionThatCallsGoexitIsAnswered(t *testing.T) {
	w, err := worker.New(func(context.Context, string) error { return nil },
		worker.WithAccept(func(context.Context, string, []byte) error { runtime.Goexit(); return nil }))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) })
	s := &service{worker: w, maxMessage: 2 << 20}
	require.Equal(t, []string{"UNSPECIFIED"}, outcomes(local(t), t, s, change(opAdd, "t", "", 0)))
}

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

// A made-up term harms nothing after the call, and a wrong incarnation is not corrected.
func TestR7_AMadeUpNumberHarmsNothing(t *testing.T) {
	served := newServedWorker(t)
	s := &service{worker: served.worker, maxMessage: grpctest.Mebi}
	own := served.worker.Incarnation()
	served.worker.Fence(orchestrator.Term{Epoch: 5})
	made := &orchestratorv1.Term{Epoch: math.MaxUint64, Number: 1}
	_, err := s.Report(local(t), &orchestratorv1.ReportRequest{Term: made, Incarnation: own})
	require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
	change := &orchestratorv1.Change{Op: orchestratorv1.Op_OP_ADD, Task: []byte("a")}
	r, err := s.Apply(local(t), &orchestratorv1.ApplyRequest{Term: made, Incarnation: own, Changes: []*orchestratorv1.Change{change}})
	require.NoError(t, err)
	require.Equal(t, orchestratorv1.Outcome_OUTCOME_REJECTED, r.GetResults()[0].GetOutcome())
	require.NoError(t, served.worker.Add(inTerm(t, 1), "a"))

	for _, err := range []error{
		second(s.Report(local(t), &orchestratorv1.ReportRequest{Incarnation: own + 1})),
		second(s.Apply(local(t), &orchestratorv1.ApplyRequest{Incarnation: own + 1})),
	} {
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		require.NotContains(t, err.Error(), fmt.Sprint(own))
	}
}

// A report says that the worker has seen a later term of the caller's epoch.
func TestR7_AReportNamesALaterTermOfTheSameEpoch(t *testing.T) {
	served := newServedWorker(t)
	s := &service{worker: served.worker, maxMessage: grpctest.Mebi}
	served.worker.Fence(orchestrator.Term{Epoch: 6, Number: 9})
	for called, want := range map[*orchestratorv1.Term]uint64{nil: 0, {Epoch: 6, Number: 9}: 0, {Epoch: 6, Number: 8}: 9} {
		r, err := s.Report(local(t), &orchestratorv1.ReportRequest{Term: called, Incarnation: served.worker.Incarnation()})
		require.NoError(t, err)
		require.Equal(t, want, r.GetLaterNumber())
		require.Nil(t, r.GetTerm())
	}
}

func second[V any](_ V, err error) error { return err }

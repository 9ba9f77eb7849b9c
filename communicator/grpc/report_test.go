package grpc

// Reports: what is kept from one to the next.

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// Of two concurrent calls the second may be answered first.
func TestR1_TheNewestReportIsKept(t *testing.T) {
	l := link{last: new(atomic.Pointer[snapshot])}
	l.last.Store(&snapshot{})
	newest := &snapshot{Report: wire.Report{Version: wire.Version{Incarnation: 7, Counter: 3}}}
	l.remember(&snapshot{Report: wire.Report{Version: wire.Version{Incarnation: 7, Counter: 1}}})
	l.remember(newest)
	l.remember(&snapshot{Report: wire.Report{Version: wire.Version{Incarnation: 7, Counter: 2}}})
	require.Same(t, newest, l.last.Load())
}

// The calls have epoch 5. Neither a status nor an outcome alone proves that there is
// a successor.
func TestT13_OnlyAHigherEpochInAnAnswerDeposes(t *testing.T) {
	const deposed, outcome = true, orchestratorv1.Outcome_OUTCOME_DEPOSED
	for name, x := range map[string]struct {
		later *orchestratorv1.Term
		want  bool
	}{
		"none":  {nil, !deposed},
		"lower": {&orchestratorv1.Term{Epoch: 4, Number: 9}, !deposed},
		"own":   {&orchestratorv1.Term{Epoch: 5, Number: 9}, !deposed},
		"later": {&orchestratorv1.Term{Epoch: 6}, deposed},
	} {
		t.Run(name, func(t *testing.T) {
			f := &grpctest.Fake{
				OnReport: func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
					r := grpctest.ReportOf(1, "a")
					r.Term = x.later
					return r, nil
				},
				OnApply: func(context.Context, *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
					return grpctest.Refused(outcome, x.later), nil
				},
			}
			c, w := impostor(t, f)
			_, listed := c.List(inTerm(t, 1), w)
			added := c.Add(inTerm(t, 1), w, "a")
			if x.want == deposed {
				require.ErrorIs(t, listed, orchestrator.ErrDeposed)
				require.ErrorIs(t, added, orchestrator.ErrDeposed)
				return
			}
			require.NoError(t, listed)
			require.ErrorIs(t, added, orchestrator.ErrRejected)
			require.NotErrorIs(t, added, orchestrator.ErrDeposed)
		})
	}

	aborted := status.Error(codes.Aborted, "another leads")
	f := &grpctest.Fake{
		OnReport: func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) { return nil, aborted },
		OnApply: func(context.Context, *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
			return nil, aborted
		},
	}
	c, w := impostor(t, f)
	_, listed := c.List(inTerm(t, 1), w)
	for _, err := range []error{listed, c.Add(inTerm(t, 1), w, "a")} {
		require.ErrorContains(t, err, "another leads")
		require.Equal(t, orchestratorv1.Outcome_OUTCOME_UNSPECIFIED, wire.OutcomeOf(err), "it may have been done or not")
	}
}

// If a worker is not believed, its call has failed, and its refusals are plain
// rejections.
func TestR5_AWorkerThatIsNotBelievedCannotBeCalled(t *testing.T) {
	later := &orchestratorv1.Term{Epoch: 1 << 63}
	f := &grpctest.Fake{
		OnReport: func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
			return &orchestratorv1.ReportResponse{Term: later}, nil
		},
		OnApply: func(context.Context, *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
			return grpctest.Refused(orchestratorv1.Outcome_OUTCOME_DEPOSED, later), nil
		},
	}
	c, w := impostor(t, f)
	var told []error
	c.settings.Observe = func(_ state.WorkerID, err error) { told = append(told, err) }
	c.settings.Believe = func(who state.WorkerID, term orchestrator.Term) bool {
		require.Equal(t, w, WorkerID(who))
		require.Equal(t, orchestrator.Term{Epoch: 1 << 63}, term)
		return false
	}
	_, err := c.List(inTerm(t, 1), w)
	require.ErrorIs(t, err, errUnconfirmed)
	require.NotErrorIs(t, err, orchestrator.ErrDeposed)
	require.Len(t, told, 1)
	require.ErrorIs(t, told[0], errUnconfirmed)
	err = c.Add(inTerm(t, 1), w, "a")
	require.ErrorIs(t, err, orchestrator.ErrRejected)
	require.NotErrorIs(t, err, orchestrator.ErrDeposed)
}

// A later version may have reasons for a status that this one does not know.
func TestR6_AnUnknownReasonSaysNothing(t *testing.T) {
	for reason, want := range map[string]orchestratorv1.Outcome{
		"":                     orchestratorv1.Outcome_OUTCOME_REJECTED,
		wire.ReasonIncarnation: orchestratorv1.Outcome_OUTCOME_REJECTED,
		"BUSY":                 orchestratorv1.Outcome_OUTCOME_UNSPECIFIED,
	} {
		f := &grpctest.Fake{OnApply: func(context.Context, *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
			return nil, wire.Status(codes.FailedPrecondition, reason, "for some reason")
		}}
		c, w := impostor(t, f)
		err := c.Add(inTerm(t, 1), w, "a")
		require.ErrorContains(t, err, "for some reason")
		require.Equal(t, want, wire.OutcomeOf(err), reason)
	}
}

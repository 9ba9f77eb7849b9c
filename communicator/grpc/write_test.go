package grpc

// The effect of a message, and what is known without its answer.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

func TestC6_AfterAMessageWithoutAnAnswerNothingIsSent(t *testing.T) {
	for name, x := range map[string]struct {
		answer error
		first  error // nil: unknown
		rest   error
	}{
		"lost":    {status.Error(codes.Unavailable, "gone"), nil, orchestrator.ErrStale},
		"aborted": {status.Error(codes.Aborted, "another leads"), nil, orchestrator.ErrStale},
		"another": {status.Error(codes.FailedPrecondition, "another"), orchestrator.ErrRejected, orchestrator.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			f := &grpctest.Fake{}
			f.OnApply = func(_ context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
				if len(f.Applied()) > 1 {
					return nil, x.answer
				}
				return grpctest.Done(len(r.GetChanges())), nil
			}
			c, w := impostor(t, f)
			c.most = 2
			errs := c.Apply(t.Context(), w, adds("a", "b", "c", "d", "e", "f"))
			requests := f.Applied()
			require.Len(t, requests, 2)
			require.Equal(t, "a", string(requests[0].GetChanges()[0].GetTask()))
			require.Equal(t, "d", string(requests[1].GetChanges()[1].GetTask()))
			require.NoError(t, errors.Join(errs[:2]...))
			for _, err := range errs[2:4] {
				if x.first == nil {
					require.Equal(t, orchestratorv1.Outcome_OUTCOME_UNSPECIFIED, wire.OutcomeOf(err))
					require.NotErrorIs(t, err, orchestrator.ErrRejected, "it may have been done")
				} else {
					require.ErrorIs(t, err, x.first)
				}
			}
			for _, err := range errs[4:] {
				require.ErrorIs(t, err, x.rest)
			}
		})
	}
}

func TestR3_MessagesStayBelowTheLimit(t *testing.T) {
	const mega = 1 << 20
	b := &library{entries: map[string]volume{}}
	var tasks []string
	for i := range 20 {
		name := fmt.Sprint("task ", i)
		b.put(name, strings.Repeat("x", mega/3), 1)
		tasks = append(tasks, name)
	}
	b.put("big", strings.Repeat("x", mega+1), 1)
	b.put("too big", strings.Repeat("x", 2*mega), 1)
	f := &grpctest.Fake{}
	c, w := impostor(t, f, WithContents(b), WithMaxMessage(2*mega))
	errs := c.Apply(t.Context(), w, adds(append(tasks, "big", "too big")...))
	require.NoError(t, errors.Join(errs[:21]...))
	require.ErrorIs(t, errs[21], orchestrator.ErrRejected)
	require.ErrorContains(t, errs[21], "WithMaxMessage")
	var sent []string
	for _, r := range f.Applied() {
		length := 0
		for _, change := range r.GetChanges() {
			length += lengthOf(change)
			sent = append(sent, string(change.GetTask()))
		}
		require.True(t, length <= mega || len(r.GetChanges()) == 1)
	}
	require.Equal(t, append(slices.Clone(tasks), "big"), sent, "in their order")
	require.Len(t, f.Applied(), 11)
}

func TestC6_WhatDidNotReachTheWorkerIsCertainlyNotDone(t *testing.T) {
	s := newServedWorker(t)
	c, w := connected(t, s)
	s.stop()
	waited := proctest.MeasureWaiting(t)
	start := time.Now()
	ctx := within(inTerm(t, 1), t, time.Minute)
	errs := c.Apply(ctx, w, adds("a", "b"))
	_, listed := c.List(ctx, w)
	require.Less(t, time.Since(start)-waited(), 10*time.Second, "an unreachable worker is not waited for")
	for _, err := range errs {
		require.ErrorIs(t, err, orchestrator.ErrRejected)
		require.NotErrorIs(t, err, orchestrator.ErrStale)
		require.ErrorContains(t, err, "at "+s.addr+": ")
		require.ErrorContains(t, err, "connection refused")
	}
	require.ErrorContains(t, listed, "at "+s.addr+": ")
	for _, failed := range []*orchestrator.CallError[WorkerID, string]{
		{Op: orchestrator.OpList, Worker: w, Err: listed}, {Op: orchestrator.OpAdd, Worker: w, Task: "a", Err: errs[0]},
	} {
		text := failed.Error()
		require.Contains(t, text, "worker w: at "+s.addr+": ")
		require.Equal(t, 1, strings.Count(text, failed.Op.String()+" "), text)
		require.Equal(t, 1, strings.Count(text, "worker "+w.String()), text)
	}

	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	err := c.Add(ended, w, "a")
	require.ErrorIs(t, err, orchestrator.ErrRejected)
	require.ErrorContains(t, err, "enough")
	require.ErrorIs(t, c.Add(t.Context(), WorkerID{"nobody", 1}, "a"), orchestrator.ErrRejected)
}

func TestC6_WhatMayHaveReachedTheWorkerIsUnknown(t *testing.T) {
	s := newServedWorker(t)
	p := behind(t, s.addr)
	c := communicator(t)
	w := s.as("w")
	introduce(t, c, w, p.Addr())
	_, err := c.List(t.Context(), w)
	require.NoError(t, err)
	p.Cut(netfault.Down)
	added := make(chan error, 1)
	go func() { added <- c.Add(inTerm(t, 1), w, "a") }()
	for n, next := s.worker.Changes(); n < 2; n, next = s.worker.Changes() {
		<-next
	}
	p.Reset()
	err = <-added
	require.Error(t, err)
	require.Equal(t, orchestratorv1.Outcome_OUTCOME_UNSPECIFIED, wire.OutcomeOf(err))

	p.Cut(netfault.Both)
	err = c.Add(within(inTerm(t, 1), t, time.Second/4), w, "b")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// If an earlier message took all the time, the unsent changes count against no
// worker.
func TestR1_ChangesThatAreNotSentInTime(t *testing.T) {
	atTheLastMoment := communicatorOptionFunc(func(s *option.Communicator) {
		s.Dialing = append(s.Dialing, grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			err := invoke(ctx, method, request, reply, conn, opts...)
			<-ctx.Done()
			return err
		}))
	})
	f := &grpctest.Fake{}
	c, w := impostor(t, f, atTheLastMoment)
	c.limit = 1 // one change per message
	errs := c.Apply(within(inTerm(t, 1), t, time.Second), w, adds("a", "b"))
	require.Len(t, errs, 2)
	require.NoError(t, errs[0])
	require.Len(t, f.Applied(), 1)
	require.ErrorIs(t, errs[1], orchestrator.ErrStale, "counts against neither task nor worker")
	require.ErrorIs(t, errs[1], context.DeadlineExceeded)
}

// A stop for which the first answer did not wait is asked for again. A worker that was
// asked too late to try says nothing about it: the stop stays under way.
func TestC6_AStopUnderWayStaysSoWhenTheNextCallComesTooLate(t *testing.T) {
	pending := &orchestratorv1.ApplyResponse{Results: []*orchestratorv1.Result{
		{Outcome: orchestratorv1.Outcome_OUTCOME_STOPPING, Pending: true},
	}}
	for name, x := range map[string]struct {
		second *orchestratorv1.ApplyResponse
		err    error
		want   error
	}{
		"too late":  {second: grpctest.Refused(orchestratorv1.Outcome_OUTCOME_REJECTED, nil), want: orchestrator.ErrStopping},
		"no answer": {err: status.Error(codes.Unavailable, "gone"), want: orchestrator.ErrStopping},
		"pending":   {second: pending, want: orchestrator.ErrStopping},
		"done":      {second: grpctest.Done(1)},
	} {
		t.Run(name, func(t *testing.T) {
			f := &grpctest.Fake{}
			f.OnApply = func(context.Context, *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
				if len(f.Applied()) == 1 {
					return pending, nil
				}
				return x.second, x.err
			}
			c, w := impostor(t, f)
			err := c.Remove(t.Context(), w, "t")
			require.Len(t, f.Applied(), 2)
			if x.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, x.want)
			require.NotErrorIs(t, err, orchestrator.ErrRejected)
		})
	}
}

package manager

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

const (
	notTold    = orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_UNSPECIFIED
	recorded   = orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_RECORDED
	superseded = orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_SUPERSEDED
	unknown    = orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_UNKNOWN_TASK
)

func completed(task string, version int64) worker.TaskStatus[string] {
	return worker.TaskStatus[string]{Task: task, State: worker.Completed, Version: version}
}

func running(task string) worker.TaskStatus[string] {
	return worker.TaskStatus[string]{Task: task, State: worker.Running, Version: 7}
}

type statuses = []worker.TaskStatus[string]

// Every completion is reported until it is answered, and not again after that.
func TestW3_ACompletionIsReportedUntilItIsAnswered(t *testing.T) {
	c := newCompletions(nil)
	c.look(statuses{completed("a", 1), running("b"), completed("c", 3)})
	want := []completion{{task: "a", version: 1}, {task: "c", version: 3}}
	require.Equal(t, want, c.batch())
	require.Equal(t, want, c.batch(), "no answer")
	require.False(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{notTold, recorded}))
	require.Equal(t, []completion{{task: "a", version: 1}}, c.batch())
	c.look(statuses{completed("a", 1), running("b"), completed("c", 3)})
	require.Equal(t, []completion{{task: "a", version: 1}}, c.batch())
	require.False(t, c.answered(c.batch(), nil), "too few outcomes")
	require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{unknown}))
	require.Empty(t, c.batch())
	c.look(statuses{completed("a", 1), running("b"), completed("c", 3)})
	require.Empty(t, c.batch(), "everything was answered")
}

// A completion is reported even if the worker no longer has the task.
func TestW3_ACompletionOutlivesItsTask(t *testing.T) {
	c := newCompletions(nil)
	c.look(statuses{completed("a", 1)})
	c.look(nil)
	require.Equal(t, []completion{{task: "a", version: 1}}, c.batch())
}

// A task that gets newer content completes again.
func TestW3_NewerContentIsAnotherCompletion(t *testing.T) {
	c := newCompletions(nil)
	c.look(statuses{completed("a", 1), completed("b", 1)})
	c.look(statuses{completed("a", 5), completed("b", 1)})
	require.Equal(t, []completion{{task: "a", version: 5}, {task: "b", version: 1}}, c.batch())
	require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{superseded, recorded}))
	c.look(statuses{completed("a", 5), completed("b", 1)})
	require.Empty(t, c.batch())
	c.look(statuses{running("a")})
	c.look(statuses{completed("a", 9)})
	require.Equal(t, []completion{{task: "a", version: 9}}, c.batch())
}

// A completion during a call is reported by the next call, even if it is of a task
// in the current batch.
func TestW3_CompletionsWhileOthersAreReported(t *testing.T) {
	c := newCompletions(nil)
	c.look(statuses{completed("a", 1), completed("b", 1)})
	batch := c.batch()
	c.look(statuses{completed("a", 5), completed("b", 1), completed("c", 1)})
	require.Equal(t, []completion{{task: "a", version: 1}, {task: "b", version: 1}}, batch)
	require.True(t, c.answered(batch, []orchestratorv1.CompletionOutcome{superseded, recorded}))
	require.ElementsMatch(t, []completion{{task: "a", version: 5}, {task: "c", version: 1}}, c.batch())
	c.look(statuses{completed("a", 5), completed("b", 1), completed("c", 1)})
	require.Len(t, c.batch(), 2)
	require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{recorded, recorded}))
	require.Empty(t, c.batch())
	require.Empty(t, c.latest)
}

// A job that failed, and completed when the worker got it again, is reported as
// completed.
func TestW8_ACompletionOverridesAFailure(t *testing.T) {
	failed := completed("a", 1)
	failed.State, failed.Err, failed.Attempts = worker.Failed, errors.New("no disk"), 3
	c := newCompletions(nil)
	c.look(statuses{failed})
	require.NotNil(t, c.batch()[0].failure)
	c.look(statuses{completed("a", 1)})
	require.Nil(t, c.batch()[0].failure, "before the failure was reported")
	c.look(statuses{failed})
	require.Nil(t, c.batch()[0].failure, "the task has completed")

	c = newCompletions(nil)
	c.look(statuses{failed})
	require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{recorded}))
	c.look(statuses{failed})
	require.Empty(t, c.batch())
	c.look(statuses{completed("a", 1)})
	require.Len(t, c.batch(), 1, "after the failure was reported")
}

// A manager that does not answer does not keep the worker from being watched.
// Otherwise the lease, and with it completed tasks, could be lost before the answer.
func TestW3_CompletionsWhileTheManagerHangsAreReported(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember(worker.WithCompletion(func(string) {}))
		n.after(2 * time.Second)
		n.do(silent)
		s.add("short1")
		n.after(6500 * time.Millisecond)
		s.add("short2")
		n.after(5 * time.Second)
		require.Equal(n, 1, n.said("membership lost"))
		require.Empty(n, s.worker.Status())
		n.do(nil)
		n.heard()
		n.after(time.Minute)
		told := n.heard(callComplete)
		require.Len(n, told, 1)
		require.Equal(n, []string{"short1@0", "short2@0"}, told[0].tasks)
	})
}

// Answered completions are forgotten with their tasks, so memory does not grow with
// time.
func TestW3_NothingIsRememberedOfTasksThatAreGone(t *testing.T) {
	c := newCompletions(nil)
	for i := range 100 {
		c.look(statuses{completed(fmt.Sprint(i), 1)})
		require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{recorded}))
	}
	c.look(nil)
	require.Empty(t, c.told)
	require.Empty(t, c.latest)
	require.Empty(t, c.owed)
}

// The completions of a predecessor are reported, but not its other tasks.
func TestW6_WhatAPredecessorHasCompleted(t *testing.T) {
	c := newCompletions([]worker.TaskRecord[string]{
		{Task: "a", Completed: true, Version: 4}, {Task: "b"}, {Task: strings.Repeat("x", identity.MaxName+1), Completed: true},
	})
	require.Equal(t, []completion{{task: "a", version: 4}}, c.batch())
}

// Batches are bounded, and together contain every completion.
func TestW3_CompletionsGoInBoundedBatches(t *testing.T) {
	long := strings.Repeat("x", identity.MaxName-10)
	for _, name := range []string{"", long} {
		c := newCompletions(nil)
		var all statuses
		for i := range 3 * mostCompletions {
			all = append(all, completed(fmt.Sprint(name, i), 1))
		}
		c.look(all)
		told := 0
		for len(c.owed) > 0 {
			batch := c.batch()
			size := 0
			for _, b := range batch {
				size += len(b.task)
			}
			require.NotEmpty(t, batch)
			require.LessOrEqual(t, len(batch), mostCompletions)
			require.LessOrEqual(t, size, mostCompletionBytes)
			told += len(batch)
			outcomes := make([]orchestratorv1.CompletionOutcome, len(batch))
			for i := range outcomes {
				outcomes[i] = recorded
			}
			require.True(t, c.answered(batch, outcomes))
		}
		require.Equal(t, len(all), told)
	}
}

func TestR2_WhatAnAnswerToRegisterMeans(t *testing.T) {
	for code, want := range map[codes.Code]struct {
		ended, final, mayBeMember bool
	}{
		codes.FailedPrecondition: {ended: true},
		codes.InvalidArgument:    {final: true},
		codes.AlreadyExists:      {},
		codes.Unauthenticated:    {},
		codes.PermissionDenied:   {},
		codes.Unavailable:        {mayBeMember: true},
		codes.DeadlineExceeded:   {mayBeMember: true},
		codes.Internal:           {mayBeMember: true},
	} {
		mayBeMember, verdict := registerResult(status.Error(code, "why"))
		require.ErrorContains(t, verdict, "why")
		require.Equal(t, want.mayBeMember, mayBeMember, code)
		require.Equal(t, want.ended, errors.Is(verdict, errEnded), code)
		require.Equal(t, want.final, errors.Is(verdict, orchestrator.ErrInvalid), code)
	}
	mayBeMember, verdict := registerResult(nil)
	require.NoError(t, verdict)
	require.True(t, mayBeMember)
}

func TestR6_AMembershipEndsForAReasonThatIsKnown(t *testing.T) {
	for reason, ended := range map[string]bool{"": true, wire.ReasonMembershipOver: true, "BUSY": false} {
		mayBeMember, verdict := registerResult(wire.Status(codes.FailedPrecondition, reason, "why"))
		require.False(t, mayBeMember)
		require.Equal(t, ended, errors.Is(verdict, errEnded), reason)
	}
}

func TestR2_OnlyNotFoundEndsAMembership(t *testing.T) {
	require.NoError(t, heartbeatResult(nil))
	require.ErrorIs(t, heartbeatResult(status.Error(codes.NotFound, "")), errEnded)
	for _, code := range []codes.Code{codes.FailedPrecondition, codes.Unavailable, codes.PermissionDenied, codes.Internal} {
		err := heartbeatResult(status.Error(code, ""))
		require.Error(t, err)
		require.NotErrorIs(t, err, errEnded)
	}
}

// The error contains the manager's text without gRPC's prefix, for every code.
func TestR2_ErrorsOmitThePrefixOfGRPC(t *testing.T) {
	for answer := codes.Canceled; answer <= codes.Unauthenticated; answer++ {
		err := status.Error(answer, "for a reason")
		_, verdict := registerResult(err)
		for _, told := range []error{verdict, heartbeatResult(err)} {
			require.ErrorContains(t, told, answer.String()+": for a reason")
			require.NotContains(t, told.Error(), "rpc error")
			require.Equal(t, answer, code(told))
		}
	}
	_, verdict := registerResult(&peer.Error{Text: "not over this line", Causes: []error{communicator.ErrPlaintext, status.Error(codes.Unavailable, "")}})
	require.ErrorIs(t, verdict, communicator.ErrPlaintext)
	require.NotContains(t, verdict.Error(), "rpc error")
}

// However much of its lease a worker leaves for renewal, several heartbeats are
// answered or time out in that part.
func TestW5_SeveralHeartbeatsFitIn(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		require.LessOrEqual(t, 3*heartbeatEvery(lease), lease/4)
		require.LessOrEqual(t, heartbeatTimeout(lease), lease/4)
		require.LessOrEqual(t, heartbeatTimeout(lease), beatsInThat*heartbeatEvery(lease)+beatsInThat, "no more heartbeats are under way")
	}
}

type addr string

func (addr) Network() string  { return "test" }
func (a addr) String() string { return string(a) }

func TestR2_TheAddressToBeCalledAt(t *testing.T) {
	for own, given := range map[string]string{
		"127.0.0.1:80": "", "[::1]:80": "", "host:80": "", "0.0.0.0:80": "10.0.0.1:80", "pipe": "name:1",
	} {
		got, err := advertised(addr(own), given)
		require.NoError(t, err)
		if given == "" {
			given = own
		}
		require.Equal(t, given, got)
	}
	for _, own := range []net.Addr{addr("0.0.0.0:80"), addr("[::]:80"), addr(":80"), addr("pipe"), addr("1.2.3.4:0")} {
		_, err := advertised(own, "")
		require.ErrorIs(t, err, orchestrator.ErrInvalid, own)
		require.ErrorContains(t, err, "WithAdvertise", own)
	}
}

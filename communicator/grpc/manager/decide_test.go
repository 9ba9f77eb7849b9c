package manager

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestR2_PausesGrowToASecond(t *testing.T) {
	var whole, least []time.Duration
	for failures := range 9 {
		whole = append(whole, pauseAfter(failures, 0)/time.Millisecond)
		least = append(least, pauseAfter(failures, 0.999999)/time.Millisecond)
	}
	require.Equal(t, []time.Duration{50, 50, 100, 200, 400, 800, 1000, 1000, 1000}, whole)
	require.Equal(t, []time.Duration{25, 25, 50, 100, 200, 400, 500, 500, 500}, least)
	require.Equal(t, time.Second, pauseAfter(1<<40, 0))
}

func TestR2_WhatAnAnswerToRegisterMeans(t *testing.T) {
	for code, want := range map[codes.Code]struct {
		ended, final, perhaps bool
	}{
		codes.FailedPrecondition: {ended: true},
		codes.InvalidArgument:    {final: true},
		codes.AlreadyExists:      {},
		codes.Unauthenticated:    {},
		codes.PermissionDenied:   {},
		codes.Unavailable:        {perhaps: true},
		codes.DeadlineExceeded:   {perhaps: true},
		codes.Internal:           {perhaps: true},
	} {
		perhaps, verdict := judgeRegister(status.Error(code, "why"))
		require.ErrorContains(t, verdict, "why")
		require.Equal(t, want.perhaps, perhaps, code)
		require.Equal(t, want.ended, errors.Is(verdict, errEnded), code)
		require.Equal(t, want.final, errors.Is(verdict, orchestrator.ErrInvalid), code)
	}
	perhaps, verdict := judgeRegister(nil)
	require.NoError(t, verdict)
	require.True(t, perhaps)
}

func TestR6_AMembershipEndsForAReasonThatIsKnown(t *testing.T) {
	for reason, ended := range map[string]bool{"": true, wire.ReasonMembershipOver: true, "BUSY": false} {
		perhaps, verdict := judgeRegister(wire.Status(codes.FailedPrecondition, reason, "why"))
		require.False(t, perhaps)
		require.Equal(t, ended, errors.Is(verdict, errEnded), reason)
	}
}

func TestR2_OnlyNotFoundEndsAMembership(t *testing.T) {
	require.NoError(t, judgeHeartbeat(nil))
	require.ErrorIs(t, judgeHeartbeat(status.Error(codes.NotFound, "")), errEnded)
	for _, code := range []codes.Code{codes.FailedPrecondition, codes.Unavailable, codes.PermissionDenied, codes.Internal} {
		err := judgeHeartbeat(status.Error(code, ""))
		require.Error(t, err)
		require.NotErrorIs(t, err, errEnded)
	}
}

// The error contains the manager's text without gRPC's prefix, for every code.
func TestR2_ErrorsOmitThePrefixOfGRPC(t *testing.T) {
	for answer := codes.Canceled; answer <= codes.Unauthenticated; answer++ {
		err := status.Error(answer, "for a reason")
		_, verdict := judgeRegister(err)
		for _, told := range []error{verdict, judgeHeartbeat(err)} {
			require.ErrorContains(t, told, answer.String()+": for a reason")
			require.NotContains(t, told.Error(), "rpc error")
			require.Equal(t, answer, code(told))
		}
	}
	_, verdict := judgeRegister(&peer.CallError{Status: status.New(codes.Unavailable, "not over this line"), Cause: communicator.ErrPlaintext})
	require.ErrorIs(t, verdict, communicator.ErrPlaintext)
	require.NotContains(t, verdict.Error(), "rpc error")
}

// However much of its lease a worker leaves for renewal, several heartbeats are
// answered or time out in that part.
func TestW5_SeveralHeartbeatsFitIn(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		require.LessOrEqual(t, 3*heartbeatEvery(lease), lease/4)
		require.LessOrEqual(t, heartbeatPatience(lease), lease/4)
		require.LessOrEqual(t, heartbeatPatience(lease), beatsInThat*heartbeatEvery(lease)+beatsInThat, "no more heartbeats are under way")
	}
}

func TestR2_EachErrorIsNewsOnce(t *testing.T) {
	var n seenErrors
	require.True(t, n.news(errors.New("dial 10.0.0.1:41234: refused")))
	require.False(t, n.news(errors.New("dial 10.0.0.1:41235: refused")))
	require.True(t, n.news(errors.New("no such host")))
	require.False(t, n.news(errors.New("no such host")))
	n.clear()
	require.True(t, n.news(errors.New("no such host")))
	for i := range 10 * mostNovelties {
		n.news(fmt.Errorf("%v", string(rune('a'+i))))
	}
	require.Len(t, n.seen, mostNovelties)
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

package grpc

// How a member comes to its end.

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

// A worker that is told to end keeps its lease until its tasks have stopped, and
// leaves then.
func TestW6_ThatIsToldToEndLeavesWhenEverythingHasStopped(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
		s.tasks.stop = time.Minute // far longer than the lease
		o.after(time.Second)
		s.add("a")
		o.heard()
		s.cancel(errOver)
		o.after(time.Minute - time.Second)
		require.False(o, s.ended())
		require.Empty(o, o.heard(callLeave))
		member, _ := o.registered()
		require.Equal(o, s.worker.Incarnation(), member)
		o.after(time.Second)
		require.True(o, s.ended())
		require.ErrorIs(o, s.err, errOver)
		left := o.heard(callLeave)
		require.Len(o, left, 1)
		require.False(o, left[0].at.Before(s.tasks.stopped))
	})
}

func TestW6_CloseHasTheMemberDrained(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
		o.after(time.Second)
		s.add("a", "b")
		o.heard()
		closed := make(chan error, 1)
		go func() { closed <- s.member.Close(o.Context()) }()
		o.after(0)
		require.Len(o, o.heard(callDraining), 1, "at once")
		o.after(10 * lease)
		require.Empty(o, o.heard(callHeartbeat, callLeave))
		s.remove("a")
		o.after(time.Second)
		require.False(o, s.ended())
		s.remove("b")
		require.NoError(o, <-closed)
		require.True(o, s.ended())
		require.NoError(o, s.err)
		require.Len(o, o.heard(callLeave), 1)
	})
}

// Heartbeats that wait for the manager come to it in any order, and the last one
// would have it that the member does not drain.
func TestW6_NoHeartbeatTakesBackThatItDrains(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
		o.after(0)
		s.add("a")
		ended := make(chan time.Time, beatsInThat)
		o.do(func(ctx context.Context, kind string) error {
			if kind == callHeartbeat {
				<-ctx.Done()
				ended <- time.Now()
			}
			return nil
		})
		o.after(heartbeatEvery(lease) + time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- s.member.Close(context.WithoutCancel(o.Context())) }()
		o.after(0)
		require.Len(o, ended, 1)
		require.Equal(o, time.Now(), <-ended)
		require.Len(o, o.heard(callDraining), 1)
		s.remove("a")
		require.NoError(o, <-closed)
		require.Zero(o, o.said("was not acknowledged"))
	})
}

func TestW6_CloseWaitsNoLongerThanItIsAllowedTo(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
		o.after(time.Second)
		s.add("a", "b")
		ctx, cancel := context.WithTimeout(o.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(o, s.member.Close(ctx), context.DeadlineExceeded)
		require.True(o, s.ended())
		require.NoError(o, s.err)
		require.Zero(o, s.tasks.count())
		require.Len(o, o.heard(callLeave), 1)
		require.ErrorContains(o, s.member.Close(o.Context()), "before everything had moved", "again")
	})
}

// Who has not registered has nothing to be drained of, nor to leave.
func TestW6_CloseBeforeItHasRegistered(t *testing.T) {
	inBureau(t, func(o *bureau) {
		o.shut()
		s := o.hire()
		o.after(time.Second)
		require.NoError(o, s.member.Close(o.Context()))
		require.True(o, s.ended())
		require.NoError(o, s.err)
	})
}

// While it drains, the manager goes away for good: the tasks stop with the lease,
// and that is the end.
func TestW6_TheManagerGoesAwayWhileItDrains(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
		o.after(time.Second)
		s.add("a")
		closed := make(chan error, 1)
		go func() { closed <- s.member.Close(o.Context()) }()
		o.after(time.Second)
		o.do(silent)
		_, ends := o.registered()
		require.NoError(o, <-closed)
		require.True(o, s.ended())
		require.True(o, s.tasks.stopped.Before(ends))
	})
}

func TestW6_CloseBeforeRun(t *testing.T) {
	w, err := worker.New(func(context.Context, string) error { return nil }, worker.WithLease(lease, stopping))
	require.NoError(t, err)
	m, err := NewMember("manager:1", "w", w)
	require.NoError(t, err)
	require.NoError(t, m.Close(t.Context()))
	require.NoError(t, m.Close(t.Context()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorIs(t, m.Run(t.Context(), l), orchestrator.ErrInvalid)
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

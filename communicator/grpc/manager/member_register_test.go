package manager

// R2: registration with managers that forget, restart, refuse and answer late.

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// A manager that cannot call the worker does not renew its lease (R2). The worker
// keeps trying, and stops its tasks in time if that fails.
func TestR2_AManagerThatCannotCallTheWorker(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a")
		deaf := func(_ context.Context, kind string) error {
			if kind == callHeartbeat {
				return status.Error(codes.FailedPrecondition, "the worker cannot be called: no route")
			}
			return nil
		}
		o.do(deaf)
		o.after(lease / 2)
		o.do(nil)
		o.after(lease)
		require.Equal(o, 1, s.tasks.starts, "the lease was renewed in time")
		require.Equal(o, 1, s.tasks.count())
		require.Equal(o, 1, o.said("no route"))
		o.do(deaf)
		_, ends := o.registered()
		o.after(lease / 2)
		require.Equal(o, 2, o.said("no route"))
		o.after(lease / 2)
		require.True(o, s.tasks.stopped.Before(ends))
	})
}

// For every refused call, the manager's text is logged without gRPC's prefix.
func TestR2_WhatAManagerRefusesIsLoggedInPlainWords(t *testing.T) {
	for _, kind := range []string{callRegister, callHeartbeat, callComplete, callLeave} {
		for answer := codes.Canceled; answer <= codes.Unauthenticated; answer++ {
			inMemberNet(t, func(o *memberNet) {
				o.do(func(_ context.Context, k string) error {
					if k == kind {
						return status.Error(answer, "for a reason")
					}
					return nil
				})
				s := o.startMember(worker.WithCompletion(func(string) {}))
				o.after(time.Second / 2) // before the first heartbeat
				if kind != callRegister {
					s.add("short")
				}
				o.after(2 * time.Second)
				s.cancel(errOver)
				o.after(time.Second)
				require.True(o, s.ended())
				told := o.log.String() + fmt.Sprint(s.err)
				if answer != codes.Canceled || kind != callHeartbeat { // as if the member had cancelled it
					require.Contains(o, told, answer.String()+": for a reason", kind)
				}
				require.NotContains(o, told, "rpc error", kind)
			})
		}
	}
}

// The answer to a Register is lost. The same incarnation registers again, because it
// has never known of a lease.
func TestR2_AnAnswerToRegisterIsLost(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		var n atomic.Int64
		o.do(func(ctx context.Context, kind string) error {
			if kind != callRegister || n.Add(1) > 3 {
				return nil
			}
			o.set(func(c *fakeManager) {
				c.member, c.lease, c.ends = c.calls[len(c.calls)-1].incarnation, lease, time.Now().Add(lease)
			})
			return silent(ctx, kind)
		})
		s := o.startMember()
		o.after(20 * time.Second)
		calls := o.heard(callRegister)
		require.Len(o, calls, 4)
		for _, c := range calls {
			require.Equal(o, s.worker.Incarnation(), c.incarnation)
		}
		s.add("a")
	})
}

// The answer comes so late that nothing is left of the lease. The worker registers
// again instead of losing it.
func TestR2_AnAnswerToRegisterComesLate(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		var n atomic.Int64
		o.do(func(_ context.Context, kind string) error {
			if kind == callRegister && n.Add(1) == 1 {
				<-time.After(lease / 3)
			}
			return nil
		})
		s := o.startMember()
		o.after(lease/3 + time.Second)
		require.Len(o, o.heard(callRegister), 2)
		s.add("a")
		o.after(lease)
		require.Equal(o, 1, s.tasks.starts)
		require.Equal(o, 1, s.tasks.count())
		require.Zero(o, o.said("membership lost"))
	})
}

// The answer to a Register was lost, and its lease has expired since. The manager
// requires another incarnation.
func TestR2_AnIncarnationThatEndedUnheard(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		o.shut()
		s := o.startMember()
		first := s.worker.Incarnation()
		o.set(func(c *fakeManager) { c.ended[first] = true })
		o.open()
		o.after(3 * time.Second)
		now, _ := o.registered()
		require.NotZero(o, now)
		require.NotEqual(o, first, now)
		s.add("a")
	})
}

// The name is in use for as long as a lease lasts. The worker waits, and logs it
// once.
func TestR2_TheNameIsTaken(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		o.set(func(c *fakeManager) { c.member, c.ends = 77, time.Now().Add(time.Minute) })
		s := o.startMember()
		o.after(time.Minute - time.Second)
		require.Equal(o, 1, o.said("name is taken"))
		require.ErrorIs(o, s.worker.Add(s.ofTerm(), "a"), orchestrator.ErrRejected)
		o.after(2100 * time.Millisecond)
		s.add("a")
		require.Empty(o, o.heard(callLeave), "it was not a member, so it does not leave")
	})
}

// A refusal that no other attempt can change ends Run.
func TestR2_AnInvalidRegistrationEndsRun(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		o.do(func(context.Context, string) error {
			return status.Error(codes.InvalidArgument, "a lease of 12s: must be at most 1s")
		})
		s := o.startMember()
		o.after(time.Second)
		require.True(o, s.ended())
		require.ErrorIs(o, s.err, orchestrator.ErrInvalid)
		require.ErrorContains(o, s.err, "must be at most 1s")
		require.ErrorIs(o, s.worker.Rejoin(o.Context()), worker.ErrClosed)
	})
}

// A refusal that may change is tried again without limit.
func TestR4_WhatIsForbiddenIsTriedAgain(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		o.do(func(context.Context, string) error { return status.Error(codes.PermissionDenied, "not your name") })
		s := o.startMember()
		o.after(5 * time.Minute)
		require.False(o, s.ended())
		require.Equal(o, 1, o.said("not your name"))
		o.do(nil)
		o.after(time.Second)
		s.add("a")
	})
}

// A worker uses the lease that it was made with, so it cannot use a shorter one.
func TestW5_AShorterLeaseIsNotTaken(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		o.set(func(c *fakeManager) { c.grants = durationpb.New(lease - 1) })
		s := o.startMember()
		require.True(o, s.ended())
		require.ErrorIs(o, s.err, orchestrator.ErrInvalid)
		require.ErrorContains(o, s.err, "grants a lease of 11.999999999s")
		require.Len(o, o.heard(callLeave), 1)
	})
	inMemberNet(t, func(o *memberNet) {
		o.set(func(c *fakeManager) { c.grants = durationpb.New(lease + 1) })
		s := o.startMember()
		o.after(time.Second)
		s.add("a")
		o.after(2 * lease)
		require.Equal(o, 1, s.tasks.starts)
		o.set(func(c *fakeManager) { c.grants = durationpb.New(lease - 1) })
		o.after(lease)
		require.Zero(o, s.tasks.count(), "it runs nothing without an acknowledged lease")
		require.Positive(o, o.said("grants a lease"))
	})
}

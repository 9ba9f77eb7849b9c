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
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second)
		s.add("a")
		deaf := func(_ context.Context, kind string) error {
			if kind == callHeartbeat {
				return status.Error(codes.FailedPrecondition, "the worker cannot be called: no route")
			}
			return nil
		}
		n.do(deaf)
		n.after(lease / 2)
		n.do(nil)
		n.after(lease)
		require.Equal(n, 1, s.tasks.starts, "the lease was renewed in time")
		require.Equal(n, 1, s.tasks.count())
		require.Equal(n, 1, n.said("no route"))
		n.do(deaf)
		_, ends := n.registered()
		n.after(lease / 2)
		require.Equal(n, 2, n.said("no route"))
		n.after(lease / 2)
		require.True(n, s.tasks.stopped.Before(ends))
	})
}

// For every refused call, the manager's text is logged without gRPC's prefix.
func TestR2_WhatAManagerRefusesIsLoggedInPlainWords(t *testing.T) {
	for _, kind := range []string{callRegister, callHeartbeat, callComplete, callLeave} {
		for answer := codes.Canceled; answer <= codes.Unauthenticated; answer++ {
			inMemberNet(t, func(n *memberNet) {
				n.do(func(_ context.Context, k string) error {
					if k == kind {
						return status.Error(answer, "for a reason")
					}
					return nil
				})
				s := n.startMember(worker.WithCompletion(func(string) {}))
				n.after(time.Second / 2) // before the first heartbeat
				if kind != callRegister {
					s.add("short")
				}
				n.after(2 * time.Second)
				s.cancel(errOver)
				n.after(time.Second)
				require.True(n, s.ended())
				told := n.log.String() + fmt.Sprint(s.err)
				if answer != codes.Canceled || kind != callHeartbeat { // as if the member had cancelled it
					require.Contains(n, told, answer.String()+": for a reason", kind)
				}
				require.NotContains(n, told, "rpc error", kind)
			})
		}
	}
}

// The answer to a Register is lost. The same incarnation registers again, because it
// has never known of a lease.
func TestR2_AnAnswerToRegisterIsLost(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		var attempts atomic.Int64
		n.do(func(ctx context.Context, kind string) error {
			if kind != callRegister || attempts.Add(1) > 3 {
				return nil
			}
			n.set(func(m *fakeManager) {
				m.member, m.lease, m.ends = m.calls[len(m.calls)-1].incarnation, lease, time.Now().Add(lease)
			})
			return silent(ctx, kind)
		})
		s := n.startMember()
		n.after(20 * time.Second)
		calls := n.heard(callRegister)
		require.Len(n, calls, 4)
		for _, c := range calls {
			require.Equal(n, s.worker.Incarnation(), c.incarnation)
		}
		s.add("a")
	})
}

// The answer comes so late that nothing is left of the lease. The worker registers
// again instead of losing it.
func TestR2_AnAnswerToRegisterComesLate(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		var attempts atomic.Int64
		n.do(func(_ context.Context, kind string) error {
			if kind == callRegister && attempts.Add(1) == 1 {
				<-time.After(lease / 3)
			}
			return nil
		})
		s := n.startMember()
		n.after(lease/3 + time.Second)
		require.Len(n, n.heard(callRegister), 2)
		s.add("a")
		n.after(lease)
		require.Equal(n, 1, s.tasks.starts)
		require.Equal(n, 1, s.tasks.count())
		require.Zero(n, n.said("membership lost"))
	})
}

// The answer to a Register was lost, and its lease has expired since. The manager
// requires another incarnation.
func TestR2_AnIncarnationThatEndedUnheard(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		n.shut()
		s := n.startMember()
		first := s.worker.Incarnation()
		n.set(func(m *fakeManager) { m.ended[first] = true })
		n.open()
		n.after(3 * time.Second)
		now, _ := n.registered()
		require.NotZero(n, now)
		require.NotEqual(n, first, now)
		s.add("a")
	})
}

// The name is in use for as long as a lease lasts. The worker waits, and logs it
// once.
func TestR2_TheNameIsTaken(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		n.set(func(m *fakeManager) { m.member, m.ends = 77, time.Now().Add(time.Minute) })
		s := n.startMember()
		n.after(time.Minute - time.Second)
		require.Equal(n, 1, n.said("name is taken"))
		require.ErrorIs(n, s.worker.Add(s.ofTerm(), "a"), orchestrator.ErrRejected)
		n.after(2100 * time.Millisecond)
		s.add("a")
		require.Empty(n, n.heard(callLeave), "it was not a member, so it does not leave")
	})
}

// A refusal that no other attempt can change ends Run.
func TestR2_AnInvalidRegistrationEndsRun(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		n.do(func(context.Context, string) error {
			return status.Error(codes.InvalidArgument, "a lease of 12s: must be at most 1s")
		})
		s := n.startMember()
		n.after(time.Second)
		require.True(n, s.ended())
		require.ErrorIs(n, s.err, orchestrator.ErrInvalid)
		require.ErrorContains(n, s.err, "must be at most 1s")
		require.ErrorIs(n, s.worker.Rejoin(n.Context()), worker.ErrClosed)
	})
}

// A refusal that may change is tried again without limit.
func TestR4_WhatIsForbiddenIsTriedAgain(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		n.do(func(context.Context, string) error { return status.Error(codes.PermissionDenied, "not your name") })
		s := n.startMember()
		n.after(5 * time.Minute)
		require.False(n, s.ended())
		require.Equal(n, 5, n.said("not your name"), "once a minute")
		n.do(nil)
		n.after(time.Second)
		s.add("a")
	})
}

// A worker uses the lease that it was made with, so it cannot use a shorter one.
func TestW5_AShorterLeaseIsNotTaken(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		n.set(func(m *fakeManager) { m.grants = durationpb.New(lease - 1) })
		s := n.startMember()
		require.True(n, s.ended())
		require.ErrorIs(n, s.err, orchestrator.ErrInvalid)
		require.ErrorContains(n, s.err, "grants a lease of 11.999999999s")
		require.Len(n, n.heard(callLeave), 1)
	})
	inMemberNet(t, func(n *memberNet) {
		n.set(func(m *fakeManager) { m.grants = durationpb.New(lease + 1) })
		s := n.startMember()
		n.after(time.Second)
		s.add("a")
		n.after(2 * lease)
		require.Equal(n, 1, s.tasks.starts)
		n.set(func(m *fakeManager) { m.grants = durationpb.New(lease - 1) })
		n.after(lease)
		require.Zero(n, s.tasks.count(), "it runs nothing without an acknowledged lease")
		require.Positive(n, n.said("grants a lease"))
	})
}

package manager

// R2, W3, W5, W6: a member with a manager that starts, ends, and is cut off.

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

func TestR2_AMemberRegistersAndRenewsItsLease(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second / 2)
		incarnation, _ := n.registered()
		require.Equal(n, s.worker.Incarnation(), incarnation)
		s.add("a")
		n.heard()
		for range 20 {
			n.after(lease / 4)
			require.GreaterOrEqual(n, len(n.heard(callHeartbeat)), 2)
		}
		require.Equal(n, 1, s.tasks.starts)
		require.Equal(n, 1, s.tasks.count())
		require.Equal(n, 1, n.said("level=INFO"))
		require.Zero(n, n.said("level=WARN"))
	})
}

// Once a worker has registered, it accepts nothing from earlier managers, even if it
// has had no contact with any manager before.
func TestC7_RegisteringRaisesTheFence(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second / 2)
		before := orchestrator.ContextWithTerm(n.Context(), orchestrator.Term{Epoch: 2, Number: 9})
		require.ErrorIs(n, s.worker.Add(before, "a"), orchestrator.ErrDeposed)
		s.add("a")
		n.set(func(m *fakeManager) { m.term = &orchestratorv1.Term{Epoch: 4} })
		n.after(lease / 4)
		require.ErrorIs(n, s.worker.Add(s.ofTerm(), "b"), orchestrator.ErrDeposed, "raised by a heartbeat")
	})
}

func TestR2_AManagerThatComesLate(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		n.shut()
		s := n.startMember()
		n.after(5 * time.Minute)
		require.Equal(n, 5, n.said("no listener"), "once a minute")
		n.open()
		n.after(2100 * time.Millisecond) // one second of the member's pause, and one of the connection's
		require.Len(n, n.heard(callRegister), 1)
		s.add("a")
	})
}

// A restarted manager knows its members: no task stops, and no member registers
// again.
func TestR2_AManagerThatRestarts(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second)
		s.add("a")
		for range 5 {
			n.shut()
			n.after(lease / 3)
			n.open()
			n.after(lease / 3)
		}
		n.after(lease)
		require.Equal(n, 1, s.tasks.starts)
		require.Equal(n, 1, s.tasks.count())
		require.Len(n, n.heard(callRegister), 1)
	})
}

// If the manager no longer knows its members, they register again immediately.
func TestR2_AManagerThatHasForgotten(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second)
		s.add("a")
		before := s.worker.Incarnation()
		n.set(func(m *fakeManager) { m.member = 0 })
		n.after(lease/12 + 200*time.Millisecond)
		require.Zero(n, s.tasks.count())
		after, _ := n.registered()
		require.NotZero(n, after)
		require.NotEqual(n, before, after)
		s.add("a")
		require.Equal(n, 2, s.tasks.starts)
	})
}

// The manager no longer answers, but the connections stay open. The tasks have
// stopped before the manager may start them elsewhere, and the worker comes back as
// another incarnation.
func TestW5_CutOffTasksStopBeforeTheLeaseEnds(t *testing.T) {
	for _, cut := range []func(*memberNet) (heal func()){
		func(n *memberNet) func() { n.do(silent); return func() { n.do(nil) } },
		func(n *memberNet) func() { n.shut(); return n.open },
		func(n *memberNet) func() { // only the answers are lost, so the manager renews the lease
			n.do(func(ctx context.Context, kind string) error {
				if kind == callHeartbeat {
					n.set(func(m *fakeManager) { m.ends = time.Now().Add(m.lease) })
				}
				return silent(ctx, kind)
			})
			return func() { n.do(nil) }
		},
	} {
		inMemberNet(t, func(n *memberNet) {
			s := n.startMember()
			s.tasks.stop = stopping - time.Millisecond
			n.after(time.Second)
			s.add("a", "b")
			before := s.worker.Incarnation()
			heal := cut(n)
			_, ends := n.registered()
			n.after(2 * lease)
			require.Zero(n, s.tasks.count())
			require.True(n, s.tasks.stopped.Before(ends.Add(-lease/10)), "%v, the lease ends %v", s.tasks.stopped, ends)
			n.heard()
			heal()
			n.after(8 * time.Second) // a Register without an answer must time out first
			after, _ := n.registered()
			require.NotZero(n, after)
			require.NotEqual(n, before, after)
			require.Equal(n, after, s.worker.Incarnation())
			left := n.heard(callLeave)
			require.NotEmpty(n, left, "the next incarnation need not wait")
			require.Equal(n, before, left[len(left)-1].incarnation)
			s.add("a")
		})
	}
}

// Losing two of three answers does not lose the lease.
func TestW5_SomeHeartbeatsAreLost(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second)
		s.add("a")
		var beats atomic.Int64
		n.do(func(ctx context.Context, kind string) error {
			if beats.Add(1)%3 != 0 {
				return silent(ctx, kind)
			}
			return nil
		})
		n.after(10 * lease)
		require.Equal(n, 1, s.tasks.starts)
		require.Equal(n, 1, s.tasks.count())
		require.Len(n, n.heard(callRegister), 1)
	})
}

// Every answer takes long, but the lease leaves enough time.
func TestW5_ASlowLineLosesNoLease(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second)
		s.add("a")
		n.do(func(context.Context, string) error {
			<-time.After(lease/4 - 50*time.Millisecond)
			return nil
		})
		n.after(10 * lease)
		require.Equal(n, 1, s.tasks.starts)
		require.Equal(n, 1, s.tasks.count())
	})
}

func TestR2_InvalidMembersAreRefused(t *testing.T) {
	run := func(context.Context, string) error { return nil }
	leased, err := worker.New(run, worker.WithLease(lease, stopping))
	require.NoError(t, err)
	unleased, err := worker.New(run)
	require.NoError(t, err)
	_, err = NewMember("manager", "", unleased, nil, WithAdvertise(":80"), WithAdvertise("0.0.0.0:80"), WithAdvertise("h:x"), WithDrain(-time.Second))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, what := range []string{"manager: ", "without a name", "no lease", "is nil", `":80"`, `"0.0.0.0:80"`, `"h:x"`, "WithDrain(-1s)"} {
		require.ErrorContains(t, err, what)
	}
	_, err = NewMember("manager:1", "w", nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	m, err := NewMember("127.0.0.1:1", "w", leased)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	err = m.Run(t.Context(), l)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	require.ErrorContains(t, err, "WithAdvertise")
}

func TestW3_CompletionsAreReported(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		n.set(func(m *fakeManager) { m.outcome = notTold })
		s := n.startMember(worker.WithCompletion(func(string) {}))
		n.after(time.Second)
		require.NoError(n, s.worker.AddWith(s.ofTerm(), "short1", worker.Grant{Version: 5}))
		require.NoError(n, s.worker.AddWith(s.ofTerm(), "short2", worker.Grant{Version: 6}))
		s.add("long")
		n.after(time.Minute)
		tries := n.heard(callComplete)
		require.Greater(n, len(tries), 30, "until it is answered")
		require.Less(n, len(tries), 130, "with pauses")
		require.ElementsMatch(n, []string{"short1@5", "short2@6"}, tries[len(tries)-1].tasks)
		n.set(func(m *fakeManager) { m.outcome = recorded })
		n.after(2 * time.Second)
		require.Len(n, n.heard(callComplete), 1)
		s.remove("long")
		n.after(5 * time.Minute)
		require.Empty(n, n.heard(callComplete))
		require.NoError(n, s.worker.AddWith(s.ofTerm(), "short1", worker.Grant{Version: 7}))
		n.after(time.Second)
		again := n.heard(callComplete)
		require.Len(n, again, 1)
		require.Equal(n, []string{"short1@7"}, again[0].tasks)
	})
}

// A completion without an answer is reported when the manager is back, even long
// after the lease and the task are lost.
func TestW3_CompletionsOutliveTheLease(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember(worker.WithCompletion(func(string) {}))
		n.after(time.Second)
		n.do(silent)
		s.add("short")
		n.after(3 * lease)
		n.heard()
		n.do(nil)
		n.after(7 * time.Second)
		told := n.heard(callComplete)
		require.Len(n, told, 1)
		require.Equal(n, []string{"short@0"}, told[0].tasks)
	})
}

// Completions are reported before the worker leaves, because its tasks are then
// started elsewhere.
func TestW6_CompletionsAreReportedBeforeLeaving(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember(worker.WithCompletion(func(string) {}))
		n.after(time.Second)
		n.heard()
		require.NoError(n, s.worker.Add(s.ofTerm(), "short"))
		n.do(func(_ context.Context, kind string) error {
			if kind == callComplete {
				return status.Error(codes.Unavailable, "later")
			}
			return nil
		})
		n.after(10 * time.Millisecond)
		n.do(nil)
		s.cancel(errOver)
		n.after(time.Second)
		require.True(n, s.ended())
		var kinds []string
		for _, c := range n.heard(callComplete, callLeave) {
			kinds = append(kinds, c.kind)
		}
		require.Equal(n, callLeave, kinds[len(kinds)-1])
		require.Equal(n, callComplete, kinds[len(kinds)-2])
	})
}

// A worker that leaves while a call of Complete is under way makes another one, which the
// manager refuses until the first has ended.
func TestW6_TheLastCompletionsWaitForTheCallUnderWay(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember(worker.WithCompletion(func(string) {}))
		n.after(time.Second)
		n.heard()
		require.NoError(n, s.worker.Add(s.ofTerm(), "short"))
		var calls atomic.Int32
		var over atomic.Bool // the first call
		n.do(func(_ context.Context, kind string) error {
			switch {
			case kind != callComplete || over.Load():
				return nil
			case calls.Add(1) > 1:
				return status.Error(codes.Unavailable, "another call is under way")
			}
			<-time.After(300 * time.Millisecond) // longer than the caller waits
			over.Store(true)
			return errOver
		})
		n.after(100 * time.Millisecond)
		s.cancel(errOver)
		n.after(2 * time.Second)
		require.Greater(n, calls.Load(), int32(1))
		require.True(n, s.ended())
		require.Zero(n, n.said("completions not reported"))
		told := n.heard(callComplete)
		require.Equal(n, []string{"short@0"}, told[len(told)-1].tasks)
	})
}

// The log also says when the manager is back.
func TestR2_AManagerThatIsBackIsNoted(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(2 * time.Second)
		for outages := 1; outages <= 2; outages++ {
			n.shut()
			n.after(3 * time.Second)
			require.Equal(n, outages, n.said("not acknowledged"))
			require.Equal(n, outages-1, n.said("acknowledged again"))
			n.open()
			n.after(5 * time.Second)
			require.Equal(n, outages, n.said(`level=INFO msg="heartbeats acknowledged again" worker=w`))
		}
		require.Zero(n, n.said("membership lost"))
		s.cancel(errOver)
		require.True(n, s.ended())
		require.Equal(n, 1, n.said(`msg="left manager" worker=w incarnation=`))
		require.Equal(n, 1, n.said(`reason="test is over"`))
	})
}

// A manager that is back is reached by the next heartbeat but one, however long the
// pauses of the connection have grown.
func TestR2_AManagerThatIsBackIsFoundAtOnce(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		const short = 6 * time.Second
		n.startMember(worker.WithLease(short, 100*time.Millisecond))
		n.after(time.Second)
		for range 10 {
			n.shut()
			n.after(3700 * time.Millisecond)
			n.heard()
			n.open()
			n.after(2*heartbeatEvery(short) + time.Millisecond)
			require.NotEmpty(n, n.heard(callHeartbeat))
			n.after(time.Second)
		}
		require.Zero(n, n.said("membership lost"))
	})
}

// A predecessor's completions are reported before this process is a member, and even
// if it never becomes one.
func TestW6_APredecessorsCompletionsAreReported(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		n.set(func(m *fakeManager) { m.member, m.ends = 77, time.Now().Add(time.Hour) })
		n.startMember(worker.WithRecord[string](record{{Task: "x", Completed: true, Version: 9}, {Task: "y"}}))
		n.after(time.Second)
		told := n.heard(callComplete)
		require.Len(n, told, 1)
		require.Equal(n, []string{"x@9"}, told[0].tasks)
	})
}

// record is the record of a predecessor.
type record []worker.TaskRecord[string]

func (r record) Load() ([]worker.TaskRecord[string], error)       { return r, nil }
func (r record) Save([]worker.TaskRecord[string], []string) error { return nil }
func (r record) Remove() error                                    { return nil }

// Before a worker leaves, it waits for the calls under way, for at most peer.Grace.
func TestW6_AServerWaitsForItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls callCounter
		call := func(takes time.Duration) {
			go func() {
				_, _ = calls.count(t.Context(), nil, nil, func(context.Context, any) (any, error) {
					<-time.After(takes)
					return nil, nil
				})
			}()
		}
		waited := func() time.Duration {
			synctest.Wait()
			began := time.Now()
			calls.awaitNone()
			return time.Since(began)
		}
		require.Zero(t, waited(), "no calls are under way")
		call(time.Second)
		call(time.Second / 2)
		require.Equal(t, time.Second, waited())
		require.Zero(t, waited())
		call(peer.Grace + time.Second)
		require.Equal(t, peer.Grace, waited())
		require.Equal(t, time.Second, waited())
	})
}

// An Apply that was answered while a stop was pending counts until the manager asks
// again.
func TestW6_AServerWaitsForTheNextApplyIfAStopIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls callCounter
		apply := func(pending bool) {
			_, err := calls.count(t.Context(), new(orchestratorv1.ApplyRequest), nil, func(context.Context, any) (any, error) {
				return &orchestratorv1.ApplyResponse{Results: []*orchestratorv1.Result{{}, {Pending: pending}}}, nil
			})
			require.NoError(t, err)
		}
		waited := func() time.Duration {
			began := time.Now()
			calls.awaitNone()
			return time.Since(began)
		}
		apply(true)
		apply(true)
		require.Equal(t, peer.Grace, waited())
		_, err := calls.count(t.Context(), new(orchestratorv1.ReportRequest), nil, func(context.Context, any) (any, error) { return nil, nil })
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { apply(false) })
		require.Equal(t, time.Second, waited())
		require.Zero(t, waited())
	})
}

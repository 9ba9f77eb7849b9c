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
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second / 2)
		incarnation, _ := o.registered()
		require.Equal(o, s.worker.Incarnation(), incarnation)
		s.add("a")
		o.heard()
		for range 20 {
			o.after(lease / 4)
			require.GreaterOrEqual(o, len(o.heard(callHeartbeat)), 2)
		}
		require.Equal(o, 1, s.tasks.starts)
		require.Equal(o, 1, s.tasks.count())
		require.Equal(o, 1, o.said("level=INFO"))
		require.Zero(o, o.said("level=WARN"))
	})
}

// Once a worker has registered, it accepts nothing from earlier managers, even if it
// has had no contact with any manager before.
func TestC7_RegisteringRaisesTheFence(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second / 2)
		before := orchestrator.ContextWithTerm(o.Context(), orchestrator.Term{Epoch: 2, Number: 9})
		require.ErrorIs(o, s.worker.Add(before, "a"), orchestrator.ErrDeposed)
		s.add("a")
		o.set(func(c *fakeManager) { c.term = &orchestratorv1.Term{Epoch: 4} })
		o.after(lease / 4)
		require.ErrorIs(o, s.worker.Add(s.ofTerm(), "b"), orchestrator.ErrDeposed, "raised by a heartbeat")
	})
}

func TestR2_AManagerThatComesLate(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		o.shut()
		s := o.startMember()
		o.after(5 * time.Minute)
		require.Equal(o, 1, o.said("no listener"), "only the first attempt is logged")
		o.open()
		o.after(2100 * time.Millisecond) // one second of the member's pause, and one of the connection's
		require.Len(o, o.heard(callRegister), 1)
		s.add("a")
	})
}

// A restarted manager knows its members: no task stops, and no member registers
// again.
func TestR2_AManagerThatRestarts(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a")
		for range 5 {
			o.shut()
			o.after(lease / 3)
			o.open()
			o.after(lease / 3)
		}
		o.after(lease)
		require.Equal(o, 1, s.tasks.starts)
		require.Equal(o, 1, s.tasks.count())
		require.Len(o, o.heard(callRegister), 1)
	})
}

// If the manager no longer knows its members, they register again immediately.
func TestR2_AManagerThatHasForgotten(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a")
		before := s.worker.Incarnation()
		o.set(func(c *fakeManager) { c.member = 0 })
		o.after(lease/12 + 200*time.Millisecond)
		require.Zero(o, s.tasks.count())
		after, _ := o.registered()
		require.NotZero(o, after)
		require.NotEqual(o, before, after)
		s.add("a")
		require.Equal(o, 2, s.tasks.starts)
	})
}

// The manager no longer answers, but the connections stay open. The tasks have
// stopped before the manager may start them elsewhere, and the worker comes back as
// another incarnation.
func TestW5_CutOffTasksStopBeforeTheLeaseEnds(t *testing.T) {
	for _, cut := range []func(*memberNet) (heal func()){
		func(o *memberNet) func() { o.do(silent); return func() { o.do(nil) } },
		func(o *memberNet) func() { o.shut(); return o.open },
		func(o *memberNet) func() { // only the answers are lost, so the manager renews the lease
			o.do(func(ctx context.Context, kind string) error {
				if kind == callHeartbeat {
					o.set(func(c *fakeManager) { c.ends = time.Now().Add(c.lease) })
				}
				return silent(ctx, kind)
			})
			return func() { o.do(nil) }
		},
	} {
		inMemberNet(t, func(o *memberNet) {
			s := o.startMember()
			s.tasks.stop = stopping - time.Millisecond
			o.after(time.Second)
			s.add("a", "b")
			before := s.worker.Incarnation()
			heal := cut(o)
			_, ends := o.registered()
			o.after(2 * lease)
			require.Zero(o, s.tasks.count())
			require.True(o, s.tasks.stopped.Before(ends.Add(-lease/10)), "%v, the lease ends %v", s.tasks.stopped, ends)
			o.heard()
			heal()
			o.after(8 * time.Second) // a Register without an answer must time out first
			after, _ := o.registered()
			require.NotZero(o, after)
			require.NotEqual(o, before, after)
			require.Equal(o, after, s.worker.Incarnation())
			left := o.heard(callLeave)
			require.NotEmpty(o, left, "the next incarnation need not wait")
			require.Equal(o, before, left[len(left)-1].incarnation)
			s.add("a")
		})
	}
}

// Losing two of three answers does not lose the lease.
func TestW5_SomeHeartbeatsAreLost(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a")
		var n atomic.Int64
		o.do(func(ctx context.Context, kind string) error {
			if n.Add(1)%3 != 0 {
				return silent(ctx, kind)
			}
			return nil
		})
		o.after(10 * lease)
		require.Equal(o, 1, s.tasks.starts)
		require.Equal(o, 1, s.tasks.count())
		require.Len(o, o.heard(callRegister), 1)
	})
}

// Every answer takes long, but the lease leaves enough time.
func TestW5_ASlowLineLosesNoLease(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a")
		o.do(func(context.Context, string) error {
			<-time.After(lease/4 - 50*time.Millisecond)
			return nil
		})
		o.after(10 * lease)
		require.Equal(o, 1, s.tasks.starts)
		require.Equal(o, 1, s.tasks.count())
	})
}

func TestR2_InvalidMembersAreRefused(t *testing.T) {
	run := func(context.Context, string) error { return nil }
	leased, err := worker.New(run, worker.WithLease(lease, stopping))
	require.NoError(t, err)
	unleased, err := worker.New(run)
	require.NoError(t, err)
	_, err = NewMember("manager", "", unleased, nil, WithAdvertise(":80"), WithAdvertise("0.0.0.0:80"), WithAdvertise("h:x"))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, what := range []string{"manager: ", "without a name", "no lease", "is nil", `":80"`, `"0.0.0.0:80"`, `"h:x"`} {
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
	inMemberNet(t, func(o *memberNet) {
		o.set(func(c *fakeManager) { c.outcome = notTold })
		s := o.startMember(worker.WithCompletion(func(string) {}))
		o.after(time.Second)
		require.NoError(o, s.worker.AddWith(s.ofTerm(), "short1", worker.Grant{Version: 5}))
		require.NoError(o, s.worker.AddWith(s.ofTerm(), "short2", worker.Grant{Version: 6}))
		s.add("long")
		o.after(time.Minute)
		tries := o.heard(callComplete)
		require.Greater(o, len(tries), 30, "until it is answered")
		require.Less(o, len(tries), 130, "with pauses")
		require.ElementsMatch(o, []string{"short1@5", "short2@6"}, tries[len(tries)-1].tasks)
		o.set(func(c *fakeManager) { c.outcome = recorded })
		o.after(2 * time.Second)
		require.Len(o, o.heard(callComplete), 1)
		s.remove("long")
		o.after(5 * time.Minute)
		require.Empty(o, o.heard(callComplete))
		require.NoError(o, s.worker.AddWith(s.ofTerm(), "short1", worker.Grant{Version: 7}))
		o.after(time.Second)
		again := o.heard(callComplete)
		require.Len(o, again, 1)
		require.Equal(o, []string{"short1@7"}, again[0].tasks)
	})
}

// A completion without an answer is reported when the manager is back, even long
// after the lease and the task are lost.
func TestW3_CompletionsOutliveTheLease(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember(worker.WithCompletion(func(string) {}))
		o.after(time.Second)
		o.do(silent)
		s.add("short")
		o.after(3 * lease)
		o.heard()
		o.do(nil)
		o.after(7 * time.Second)
		told := o.heard(callComplete)
		require.Len(o, told, 1)
		require.Equal(o, []string{"short@0"}, told[0].tasks)
	})
}

// Completions are reported before the worker leaves, because its tasks are then
// started elsewhere.
func TestW6_CompletionsAreReportedBeforeLeaving(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember(worker.WithCompletion(func(string) {}))
		o.after(time.Second)
		o.heard()
		require.NoError(o, s.worker.Add(s.ofTerm(), "short"))
		o.do(func(_ context.Context, kind string) error {
			if kind == callComplete {
				return status.Error(codes.Unavailable, "later")
			}
			return nil
		})
		o.after(10 * time.Millisecond)
		o.do(nil)
		s.cancel(errOver)
		o.after(time.Second)
		require.True(o, s.ended())
		var kinds []string
		for _, c := range o.heard(callComplete, callLeave) {
			kinds = append(kinds, c.kind)
		}
		require.Equal(o, callLeave, kinds[len(kinds)-1])
		require.Equal(o, callComplete, kinds[len(kinds)-2])
	})
}

// The log also says when the manager is back.
func TestR2_AManagerThatIsBackIsNoted(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(2 * time.Second)
		for outages := 1; outages <= 2; outages++ {
			o.shut()
			o.after(3 * time.Second)
			require.Equal(o, outages, o.said("not acknowledged"))
			require.Equal(o, outages-1, o.said("acknowledged again"))
			o.open()
			o.after(5 * time.Second)
			require.Equal(o, outages, o.said(`level=INFO msg="heartbeats acknowledged again" worker=w`))
		}
		require.Zero(o, o.said("membership lost"))
		s.cancel(errOver)
		require.True(o, s.ended())
		require.Equal(o, 1, o.said(`msg="left manager" worker=w incarnation=`))
		require.Equal(o, 1, o.said(`reason="test is over"`))
	})
}

// A manager that is back is reached by the next heartbeat but one, however long the
// pauses of the connection have grown.
func TestR2_AManagerThatIsBackIsFoundAtOnce(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		const short = 6 * time.Second
		o.startMember(worker.WithLease(short, 100*time.Millisecond))
		o.after(time.Second)
		for range 10 {
			o.shut()
			o.after(3700 * time.Millisecond)
			o.heard()
			o.open()
			o.after(2*heartbeatEvery(short) + time.Millisecond)
			require.NotEmpty(o, o.heard(callHeartbeat))
			o.after(time.Second)
		}
		require.Zero(o, o.said("membership lost"))
	})
}

// A predecessor's completions are reported before this process is a member, and even
// if it never becomes one.
func TestW6_APredecessorsCompletionsAreReported(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		o.set(func(c *fakeManager) { c.member, c.ends = 77, time.Now().Add(time.Hour) })
		o.startMember(worker.WithRecord[string](record{{Task: "x", Completed: true, Version: 9}, {Task: "y"}}))
		o.after(time.Second)
		told := o.heard(callComplete)
		require.Len(o, told, 1)
		require.Equal(o, []string{"x@9"}, told[0].tasks)
	})
}

// record is the record of a predecessor.
type record []worker.Previous[string]

func (r record) Load() ([]worker.Previous[string], error)       { return r, nil }
func (r record) Save([]worker.Previous[string], []string) error { return nil }
func (r record) Remove() error                                  { return nil }

// Before a worker leaves, it waits for the calls under way, for at most peer.Grace.
func TestW6_AServerSettles(t *testing.T) {
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
		settles := func() time.Duration {
			synctest.Wait()
			began := time.Now()
			calls.settle()
			return time.Since(began)
		}
		require.Zero(t, settles(), "no calls are under way")
		call(time.Second)
		call(time.Second / 2)
		require.Equal(t, time.Second, settles())
		require.Zero(t, settles())
		call(peer.Grace + time.Second)
		require.Equal(t, peer.Grace, settles())
		require.Equal(t, time.Second, settles())
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
		settled := func() time.Duration {
			began := time.Now()
			calls.settle()
			return time.Since(began)
		}
		apply(true)
		apply(true)
		require.Equal(t, peer.Grace, settled())
		_, err := calls.count(t.Context(), new(orchestratorv1.ReportRequest), nil, func(context.Context, any) (any, error) { return nil, nil })
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { apply(false) })
		require.Equal(t, time.Second, settled())
		require.Zero(t, settled())
	})
}

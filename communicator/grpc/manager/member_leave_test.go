package manager

// How a member ends.

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// A worker that is told to end keeps its lease until its tasks have stopped, and
// then leaves.
func TestW6_AWorkerLeavesWhenEverythingHasStopped(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
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

// A function for spare time that does not return does not keep the worker from
// leaving.
func TestW6_LeavesThoughSpareTimeDoesNotEnd(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		let := make(chan struct{})
		defer close(let)
		s := o.startMember(worker.WithSpareTime(time.Second, func(context.Context) { <-let }))
		o.after(2 * time.Second)
		s.add("a")
		o.heard()
		s.cancel(errOver)
		o.after(2 * time.Second)
		require.True(o, s.ended())
		require.Len(o, o.heard(callLeave), 1)
		require.Equal(o, 1, o.said("the function of WithSpareTime has not returned"))
	})
}

func TestW6_CloseHasTheMemberDrained(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a", "b")
		o.heard()
		closed := s.close(o.Context())
		o.after(0)
		require.Len(o, o.heard(callDraining), 1, "immediately")
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

// Delayed heartbeats reach the manager in any order. An earlier one without draining
// must not arrive last.
func TestW6_NoHeartbeatTakesBackThatItDrains(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
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
		closed := s.close(context.WithoutCancel(o.Context()))
		o.after(0)
		require.Len(o, ended, 1)
		require.Equal(o, time.Now(), <-ended)
		require.Len(o, o.heard(callDraining), 1)
		s.remove("a")
		require.NoError(o, <-closed)
		require.Zero(o, o.said("not acknowledged"))
	})
}

// If no other worker can take its tasks, the member does not wait.
func TestW6_TheLastMemberLeavesAtOnce(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a", "b")
		closed := s.close(o.Context())
		o.after(lease / 2)
		require.Equal(o, 2, s.tasks.count(), "the manager has not answered so yet")
		o.set(func(c *fakeManager) { c.alone = true })
		o.after(heartbeatEvery(lease))
		require.NoError(o, <-closed)
		require.True(o, s.ended())
		require.NoError(o, s.err)
		require.Zero(o, s.tasks.count())
		require.Equal(o, 1, o.said(`level=INFO msg="no other worker can take tasks, stopping the rest" worker=w tasks=2 first=a`))
		require.Len(o, o.heard(callLeave), 1)
		require.NoError(o, s.member.Close(o.Context()), "again")
	})
}

// The manager's calls are answered until the manager knows that the worker has left.
// A call that waits for a task to stop gets its answer before that.
func TestW6_ItAnswersUntilTheManagerKnowsThatItHasLeft(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		s.tasks.stop = time.Second
		o.after(time.Second)
		s.add("a")
		conn, err := grpc.NewClient("passthrough:///worker", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.wire.Dial(ctx) }))
		require.NoError(o, err)
		defer conn.Close()
		manager := orchestratorv1.NewWorkerClient(conn)
		incarnation, term := s.worker.Incarnation(), &orchestratorv1.Term{Epoch: 3, Number: 1}
		var reported error
		o.do(func(ctx context.Context, kind string) error {
			if kind == callLeave {
				var resp *orchestratorv1.ReportResponse
				resp, reported = manager.Report(ctx, &orchestratorv1.ReportRequest{Incarnation: incarnation})
				require.Empty(o, resp.GetTasks())
			}
			return nil
		})
		s.cancel(errOver)
		o.after(0)
		removed, err := manager.Apply(o.Context(), &orchestratorv1.ApplyRequest{
			Incarnation: incarnation, Term: term,
			Changes: []*orchestratorv1.Change{{Op: orchestratorv1.Op_OP_REMOVE, Task: []byte("a")}},
		})
		require.NoError(o, err)
		require.Equal(o, orchestratorv1.Outcome_OUTCOME_DONE, removed.GetResults()[0].GetOutcome())
		require.True(o, s.ended())
		require.Len(o, o.heard(callLeave), 1)
		require.NoError(o, reported)
		_, err = s.wire.Dial(o.Context())
		require.ErrorIs(o, err, net.ErrClosed, "it no longer serves")
	})
}

// notes is a record that reports its removal.
type notes struct{ removed func() }

func (notes) Load() ([]worker.Previous[string], error) { return nil, nil }

func (notes) Save([]worker.Previous[string], []string) error { return nil }

func (n notes) Remove() error { n.removed(); return nil }

// Completions stay in the record until the manager has answered.
func TestW6_LateCompletionsAreReportedBeforeTheRecordIsRemoved(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		const removed = "removed"
		s := o.startMember(worker.WithCompletion(func(string) {}),
			worker.WithRecord[string](notes{func() { assert.NoError(o, o.enter(o.Context(), removed, 0)) }}))
		o.after(2 * time.Second)
		order := make(chan string, 10)
		o.do(func(_ context.Context, kind string) error {
			switch {
			case kind == callComplete && s.tasks.count() > 0:
				return status.Error(codes.Unavailable, "not before the end")
			case kind != callHeartbeat:
				order <- kind
			}
			return nil
		})
		s.add("short", "long")
		s.tasks.stop = time.Second
		s.cancel(errOver)
		o.after(time.Second / 2)
		require.Empty(o, order, "a task has not stopped yet")
		o.after(10 * time.Second)
		require.True(o, s.ended())
		for _, want := range []string{callComplete, removed, callLeave} {
			require.Equal(o, want, <-order)
		}
		require.Empty(o, order)
	})
}

func TestW6_CloseWaitsNoLongerThanItIsAllowedTo(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a", "b")
		ctx, cancel := context.WithTimeout(o.Context(), time.Minute)
		defer cancel()
		require.EqualError(o, s.member.Close(ctx),
			"close member w: stopped before everything had moved: drain cut short: context deadline exceeded")
		require.ErrorIs(o, s.member.Close(o.Context()), context.DeadlineExceeded)
		require.True(o, s.ended())
		require.NoError(o, s.err)
		require.Zero(o, s.tasks.count())
		require.Len(o, o.heard(callLeave), 1)
		require.ErrorContains(o, s.member.Close(o.Context()), "before everything had moved", "again")
	})
}

// Completed tasks wait to be removed; they do not count as stopped.
func TestW6_CloseSaysNothingOfWhatHasCompleted(t *testing.T) {
	for name, tasks := range map[string][]string{"all": {"short"}, "not all": {"short", "long"}} {
		t.Run(name, func(t *testing.T) {
			inMemberNet(t, func(o *memberNet) {
				s := o.startMember(worker.WithCompletion(func(string) {}))
				o.after(time.Second / 2)
				s.add(tasks...)
				o.after(time.Second)
				require.Len(o, o.heard(callComplete), 1)
				ctx, cancel := context.WithTimeout(o.Context(), time.Minute)
				defer cancel()
				err := s.member.Close(ctx)
				if len(tasks) == 1 {
					require.NoError(o, err)
				} else {
					require.ErrorIs(o, err, context.DeadlineExceeded)
				}
				require.Len(o, o.heard(callLeave), 1)
			})
		})
	}
}

// A task that does not stop keeps the member. The log says so once, however often
// Close is called, and whatever else has ended by then.
func TestW6_CloseSaysWhatItStillWaitsFor(t *testing.T) {
	for name, earlier := range map[string]func(*runningMember){
		"Close alone":         func(*runningMember) {},
		"Run's context ended": func(s *runningMember) { s.cancel(errOver) },
	} {
		t.Run(name, func(t *testing.T) {
			inMemberNet(t, func(o *memberNet) {
				s := o.startMember()
				s.tasks.stop = time.Hour
				o.after(time.Second)
				s.add("a", "b")
				earlier(s)
				for range 2 {
					ctx, cancel := context.WithTimeout(context.WithoutCancel(o.Context()), time.Minute)
					defer cancel()
					s.close(ctx)
				}
				o.after(59 * time.Second)
				require.Zero(o, o.said("drain cut short, stopping"))
				o.after(time.Second)
				require.False(o, s.ended())
				require.Equal(o, 1, o.said(`level=WARN msg="drain cut short, stopping remaining tasks" worker=w tasks=2 first=a`))
				o.after(2 * time.Hour)
				require.True(o, s.ended())
				require.Equal(o, 1, o.said("drain cut short, stopping"))
			})
		})
	}
}

// A worker that has not registered has nothing to drain, and does not leave.
func TestW6_CloseBeforeItHasRegistered(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		o.shut()
		s := o.startMember()
		o.after(time.Second)
		require.NoError(o, s.member.Close(o.Context()))
		require.True(o, s.ended())
		require.NoError(o, s.err)
		require.Zero(o, o.said("left manager"), "it never was a member")
	})
}

// If all tasks have moved in time, a slow answer of the manager to Leave is not an
// error.
func TestW6_CloseSaysNothingOfASlowLeave(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a")
		ctx, cancel := context.WithTimeout(o.Context(), time.Minute)
		defer cancel()
		closed := s.close(ctx)
		o.after(59 * time.Second)
		o.do(func(ctx context.Context, kind string) error {
			if kind == callLeave {
				<-ctx.Done()
			}
			return nil
		})
		s.remove("a")
		require.NoError(o, <-closed)
		require.Zero(o, o.said("level=WARN"), "nothing is left")
		require.ErrorIs(o, ctx.Err(), context.DeadlineExceeded)
		require.True(o, s.ended())
		require.NoError(o, s.err)
	})
}

// If the end of Run's context stops tasks during a drain, they have not moved.
func TestW6_RunsContextEndsWhileItDrains(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a")
		closed := s.close(o.Context())
		o.after(time.Second)
		s.cancel(errOver)
		err := <-closed
		require.ErrorContains(o, err, "stopped before everything had moved")
		require.ErrorIs(o, err, errOver)
		require.Equal(o, err, s.member.Close(o.Context()), "again")
	})
}

// Close reports tasks that had not moved even if Run has already returned.
func TestW6_CloseAfterRunsContextHasEnded(t *testing.T) {
	for _, tasks := range [][]string{nil, {"a", "b"}} {
		inMemberNet(t, func(o *memberNet) {
			s := o.startMember()
			o.after(time.Second)
			s.add(tasks...)
			s.cancel(errOver)
			require.True(o, s.ended())
			err := s.member.Close(o.Context())
			if len(tasks) == 0 {
				require.NoError(o, err)
				return
			}
			require.ErrorContains(o, err, "stopped before everything had moved")
			require.ErrorIs(o, err, errOver)
		})
	}
}

// A lease that was lost before Close does not count, because no task is left to
// move.
func TestW6_CloseAfterTheLeaseWasLost(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a")
		o.shut()
		o.after(2 * lease)
		require.Equal(o, 1, o.said("membership lost"))
		require.NoError(o, s.member.Close(o.Context()))
		require.True(o, s.ended())
	})
}

// The manager ends the membership during a drain.
func TestW6_ItIsForgottenWhileItDrains(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a")
		closed := s.close(o.Context())
		o.after(time.Second)
		o.set(func(c *fakeManager) { c.member = 0 })
		err := <-closed
		require.ErrorContains(o, err, "stopped before everything had moved")
		require.ErrorIs(o, err, worker.ErrLeaseLost)
	})
}

// Tasks stop immediately once the manager has answered that the membership has
// ended.
func TestW5_AnEndedMembershipStopsTasksImmediately(t *testing.T) {
	for name, kind := range map[string]string{"at work": callHeartbeat, "draining": callDraining} {
		t.Run(name, func(t *testing.T) {
			inMemberNet(t, func(o *memberNet) {
				s := o.startMember()
				o.after(time.Second)
				s.add("a")
				var hangs bool
				var said time.Time
				o.do(func(ctx context.Context, k string) error {
					o.mu.Lock()
					first, over := !hangs, hangs && said.IsZero()
					if k == kind {
						hangs = true
						if over {
							said = time.Now()
						}
					}
					o.mu.Unlock()
					switch {
					case k != kind:
						return nil
					case first:
						return silent(ctx, k)
					}
					return status.Error(codes.NotFound, "no such member")
				})
				var closed <-chan error
				if kind == callDraining {
					closed = s.close(o.Context())
				}
				o.after(lease / 2)
				require.Zero(o, s.tasks.count())
				require.False(o, said.IsZero())
				require.Equal(o, said, s.tasks.stopped)
				if closed != nil {
					require.ErrorIs(o, <-closed, worker.ErrLeaseLost)
				}
			})
		})
	}
}

// The manager goes away for good during a drain. The tasks stop with the lease, Run
// ends, and Close reports it.
func TestW6_TheManagerGoesAwayWhileItDrains(t *testing.T) {
	inMemberNet(t, func(o *memberNet) {
		s := o.startMember()
		o.after(time.Second)
		s.add("a")
		closed := s.close(o.Context())
		o.after(time.Second)
		o.do(silent)
		_, ends := o.registered()
		err := <-closed
		require.ErrorContains(o, err, "close member w: stopped before everything had moved")
		require.ErrorIs(o, err, worker.ErrLeaseLost)
		require.True(o, s.ended())
		require.NoError(o, s.err)
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

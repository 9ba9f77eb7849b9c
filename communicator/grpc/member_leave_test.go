package grpc

// How a member comes to its end.

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
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

// What is no task does not keep it from leaving.
func TestW6_LeavesThoughSpareTimeDoesNotEnd(t *testing.T) {
	inBureau(t, func(o *bureau) {
		let := make(chan struct{})
		defer close(let)
		s := o.hire(worker.WithSpareTime(time.Second, func(context.Context) { <-let }))
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
	inBureau(t, func(o *bureau) {
		s := o.hire()
		o.after(time.Second)
		s.add("a", "b")
		o.heard()
		closed := s.close(o.Context())
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
		closed := s.close(context.WithoutCancel(o.Context()))
		o.after(0)
		require.Len(o, ended, 1)
		require.Equal(o, time.Now(), <-ended)
		require.Len(o, o.heard(callDraining), 1)
		s.remove("a")
		require.NoError(o, <-closed)
		require.Zero(o, o.said("was not acknowledged"))
	})
}

// Where no other worker can take its tasks, it does not wait.
func TestW6_TheLastMemberLeavesAtOnce(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
		o.after(time.Second)
		s.add("a", "b")
		closed := s.close(o.Context())
		o.after(lease / 2)
		require.Equal(o, 2, s.tasks.count(), "the manager has not said so")
		o.set(func(c *clerk) { c.alone = true })
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

// A manager that calls while the worker leaves gets an answer, as long as it does not
// know that the worker has left; and one that waits for a task to stop gets its
// answer before it hears that.
func TestW6_ItAnswersUntilTheManagerKnowsThatItHasLeft(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
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
		require.ErrorIs(o, err, net.ErrClosed, "it serves no more")
	})
}

// notes is a record that says when it is removed.
type notes struct{ removed func() }

func (notes) Load() ([]worker.Trace[string], error) { return nil, nil }

func (notes) Save([]worker.Trace[string], []string) error { return nil }

func (n notes) Remove() error { n.removed(); return nil }

// What has completed while the manager could not be told is in the record until it is.
func TestW6_LateCompletionsAreToldBeforeTheRecordGoes(t *testing.T) {
	inBureau(t, func(o *bureau) {
		const removed = "removed"
		s := o.hire(worker.WithCompletion(func(string) {}),
			worker.WithRecord[string](notes{func() { assert.NoError(o, o.enter(o.Context(), removed, 0)) }}))
		o.after(2 * time.Second)
		order := make(chan string, 10)
		o.do(func(_ context.Context, kind string) error {
			switch {
			case kind == callComplete && s.tasks.count() > 0:
				return status.Error(codes.Unavailable, "not before the very end")
			case kind != callHeartbeat:
				order <- kind
			}
			return nil
		})
		s.add("short", "long")
		s.tasks.stop = time.Second
		s.cancel(errOver)
		o.after(time.Second / 2)
		require.Empty(o, order, "a task has not stopped")
		o.after(10 * time.Second)
		require.True(o, s.ended())
		for _, want := range []string{callComplete, removed, callLeave} {
			require.Equal(o, want, <-order)
		}
		require.Empty(o, order)
	})
}

func TestW6_CloseWaitsNoLongerThanItIsAllowedTo(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
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

// What has completed waits to be removed, and is not stopped.
func TestW6_CloseSaysNothingOfWhatHasCompleted(t *testing.T) {
	for name, tasks := range map[string][]string{"all": {"short"}, "not all": {"short", "long"}} {
		t.Run(name, func(t *testing.T) {
			inBureau(t, func(o *bureau) {
				s := o.hire(worker.WithCompletion(func(string) {}))
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

// A task that does not stop keeps the member, and the log says so: once, whoever
// closes it how often, and whatever else has ended by then.
func TestW6_CloseSaysWhatItStillWaitsFor(t *testing.T) {
	for name, earlier := range map[string]func(*staff){
		"Close alone":         func(*staff) {},
		"Run's context ended": func(s *staff) { s.cancel(errOver) },
	} {
		t.Run(name, func(t *testing.T) {
			inBureau(t, func(o *bureau) {
				s := o.hire()
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

// Who has not registered has nothing to be drained of, nor to leave.
func TestW6_CloseBeforeItHasRegistered(t *testing.T) {
	inBureau(t, func(o *bureau) {
		o.shut()
		s := o.hire()
		o.after(time.Second)
		require.NoError(o, s.member.Close(o.Context()))
		require.True(o, s.ended())
		require.NoError(o, s.err)
		require.Zero(o, o.said("msg=left"), "it never was a member")
	})
}

// All has moved in time; that the manager takes its time with the rest is no reason
// to say that it has not.
func TestW6_CloseSaysNothingOfASlowLeave(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
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

// Whatever stops tasks while it drains: they have not moved.
func TestW6_RunsContextEndsWhileItDrains(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
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

// Close says what became of the tasks also where Run has ended before it.
func TestW6_CloseAfterRunsContextHasEnded(t *testing.T) {
	for _, tasks := range [][]string{nil, {"a", "b"}} {
		inBureau(t, func(o *bureau) {
			s := o.hire()
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

// What was lost before Close was called is not its concern: nothing is left that
// could move.
func TestW6_CloseAfterTheLeaseWasLost(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
		o.after(time.Second)
		s.add("a")
		o.shut()
		o.after(2 * lease)
		require.Equal(o, 1, o.said("membership lost"))
		require.NoError(o, s.member.Close(o.Context()))
		require.True(o, s.ended())
	})
}

// The manager has ended the membership while its member drains.
func TestW6_ItIsForgottenWhileItDrains(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
		o.after(time.Second)
		s.add("a")
		closed := s.close(o.Context())
		o.after(time.Second)
		o.set(func(c *clerk) { c.member = 0 })
		err := <-closed
		require.ErrorContains(o, err, "stopped before everything had moved")
		require.ErrorIs(o, err, worker.ErrLeaseLost)
	})
}

// While it drains, the manager goes away for good: the tasks stop with the lease,
// and that is the end, of which Close tells.
// Nothing is waited for once the manager has said that the membership is over.
func TestW5_ToldThatItIsOverItStopsAtOnce(t *testing.T) {
	for name, kind := range map[string]string{"at work": callHeartbeat, "draining": callDraining} {
		t.Run(name, func(t *testing.T) {
			inBureau(t, func(o *bureau) {
				s := o.hire()
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

func TestW6_TheManagerGoesAwayWhileItDrains(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire()
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

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
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		s.tasks.stop = time.Minute // far longer than the lease
		n.after(time.Second)
		s.add("a")
		n.heard()
		s.cancel(errOver)
		n.after(time.Minute - time.Second)
		require.False(n, s.ended())
		require.Empty(n, n.heard(callLeave))
		member, _ := n.registered()
		require.Equal(n, s.worker.Incarnation(), member)
		n.after(time.Second)
		require.True(n, s.ended())
		require.ErrorIs(n, s.err, errOver)
		left := n.heard(callLeave)
		require.Len(n, left, 1)
		require.False(n, left[0].at.Before(s.tasks.stopped))
	})
}

func TestW6_CloseAsksTheManagerToMoveTheTasks(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second)
		s.add("a", "b")
		n.heard()
		closed := s.close(n.Context())
		n.after(0)
		require.Len(n, n.heard(callDraining), 1, "immediately")
		n.after(10 * lease)
		require.Empty(n, n.heard(callHeartbeat, callLeave))
		s.remove("a")
		n.after(time.Second)
		require.False(n, s.ended())
		s.remove("b")
		require.NoError(n, <-closed)
		require.True(n, s.ended())
		require.NoError(n, s.err)
		require.Len(n, n.heard(callLeave), 1)
	})
}

// Delayed heartbeats reach the manager in any order. An earlier one without draining
// must not arrive last.
func TestW6_NoHeartbeatTakesBackThatItDrains(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(0)
		s.add("a")
		ended := make(chan time.Time, beatsInThat)
		n.do(func(ctx context.Context, kind string) error {
			if kind == callHeartbeat {
				<-ctx.Done()
				ended <- time.Now()
			}
			return nil
		})
		n.after(heartbeatEvery(lease) + time.Millisecond)
		closed := s.close(context.WithoutCancel(n.Context()))
		n.after(0)
		require.Len(n, ended, 1)
		require.Equal(n, time.Now(), <-ended)
		require.Len(n, n.heard(callDraining), 1)
		s.remove("a")
		require.NoError(n, <-closed)
		require.Zero(n, n.said("not acknowledged"))
	})
}

// If no other worker can take its tasks, the member does not wait.
func TestW6_TheLastMemberLeavesAtOnce(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second)
		s.add("a", "b")
		closed := s.close(n.Context())
		n.after(lease / 2)
		require.Equal(n, 2, s.tasks.count(), "the manager has not answered so yet")
		n.set(func(m *fakeManager) { m.alone = true })
		n.after(heartbeatEvery(lease))
		require.NoError(n, <-closed)
		require.True(n, s.ended())
		require.NoError(n, s.err)
		require.Zero(n, s.tasks.count())
		require.Equal(n, 1, n.said(`level=INFO msg="no other worker can take tasks, stopping the rest" worker=w tasks=2 first=a`))
		require.Len(n, n.heard(callLeave), 1)
		require.NoError(n, s.member.Close(n.Context()), "again")
	})
}

// The manager's calls are answered until the manager knows that the worker has left.
// A call that waits for a task to stop gets its answer before that.
func TestW6_ItAnswersUntilTheManagerKnowsThatItHasLeft(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		s.tasks.stop = time.Second
		n.after(time.Second)
		s.add("a")
		conn, err := grpc.NewClient("passthrough:///worker", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.wire.Dial(ctx) }))
		require.NoError(n, err)
		defer conn.Close()
		manager := orchestratorv1.NewWorkerClient(conn)
		incarnation, term := s.worker.Incarnation(), &orchestratorv1.Term{Epoch: 3, Number: 1}
		var reported error
		n.do(func(ctx context.Context, kind string) error {
			if kind == callLeave {
				var resp *orchestratorv1.ReportResponse
				resp, reported = manager.Report(ctx, &orchestratorv1.ReportRequest{Incarnation: incarnation})
				require.Empty(n, resp.GetTasks())
			}
			return nil
		})
		s.cancel(errOver)
		n.after(0)
		removed, err := manager.Apply(n.Context(), &orchestratorv1.ApplyRequest{
			Incarnation: incarnation, Term: term,
			Changes: []*orchestratorv1.Change{{Op: orchestratorv1.Op_OP_REMOVE, Task: []byte("a")}},
		})
		require.NoError(n, err)
		require.Equal(n, orchestratorv1.Outcome_OUTCOME_DONE, removed.GetResults()[0].GetOutcome())
		require.True(n, s.ended())
		require.Len(n, n.heard(callLeave), 1)
		require.NoError(n, reported)
		_, err = s.wire.Dial(n.Context())
		require.ErrorIs(n, err, net.ErrClosed, "it no longer serves")
	})
}

// notes is a record that reports its removal.
type notes struct{ removed func() }

func (notes) Load() ([]worker.TaskRecord[string], error) { return nil, nil }

func (notes) Save([]worker.TaskRecord[string], []string) error { return nil }

func (n notes) Remove() error { n.removed(); return nil }

// Completions stay in the record until the manager has answered.
func TestW6_LateCompletionsAreReportedBeforeTheRecordIsRemoved(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		const removed = "removed"
		s := n.startMember(worker.WithCompletion(func(string) {}),
			worker.WithRecord[string](notes{func() { assert.NoError(n, n.enter(n.Context(), removed, 0)) }}))
		n.after(2 * time.Second)
		order := make(chan string, 10)
		n.do(func(_ context.Context, kind string) error {
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
		n.after(time.Second / 2)
		require.Empty(n, order, "a task has not stopped yet")
		n.after(10 * time.Second)
		require.True(n, s.ended())
		for _, want := range []string{callComplete, removed, callLeave} {
			require.Equal(n, want, <-order)
		}
		require.Empty(n, order)
	})
}

// A worker that has not registered has nothing to drain, and does not leave.
func TestW6_CloseBeforeItHasRegistered(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		n.shut()
		s := n.startMember()
		n.after(time.Second)
		require.NoError(n, s.member.Close(n.Context()))
		require.True(n, s.ended())
		require.NoError(n, s.err)
		require.Zero(n, n.said("left manager"), "it never was a member")
	})
}

// If all tasks have moved in time, a slow answer of the manager to Leave is not an
// error.
func TestW6_CloseSaysNothingOfASlowLeave(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second)
		s.add("a")
		ctx, cancel := context.WithTimeout(n.Context(), time.Minute)
		defer cancel()
		closed := s.close(ctx)
		n.after(59 * time.Second)
		n.do(func(ctx context.Context, kind string) error {
			if kind == callLeave {
				<-ctx.Done()
			}
			return nil
		})
		s.remove("a")
		require.NoError(n, <-closed)
		require.Zero(n, n.said("level=WARN"), "nothing is left")
		require.ErrorIs(n, ctx.Err(), context.DeadlineExceeded)
		require.True(n, s.ended())
		require.NoError(n, s.err)
	})
}

// The manager ends the membership during a drain.
func TestW6_ItIsForgottenWhileItDrains(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second)
		s.add("a")
		closed := s.close(n.Context())
		n.after(time.Second)
		n.set(func(m *fakeManager) { m.member = 0 })
		err := <-closed
		require.ErrorContains(n, err, "stopped before everything had moved")
		require.ErrorIs(n, err, worker.ErrLeaseLost)
	})
}

// Tasks stop immediately once the manager has answered that the membership has
// ended.
func TestW5_AnEndedMembershipStopsTasksImmediately(t *testing.T) {
	for name, kind := range map[string]string{"at work": callHeartbeat, "draining": callDraining} {
		t.Run(name, func(t *testing.T) {
			inMemberNet(t, func(n *memberNet) {
				s := n.startMember()
				n.after(time.Second)
				s.add("a")
				var hangs bool
				var said time.Time
				n.do(func(ctx context.Context, k string) error {
					n.mu.Lock()
					first, over := !hangs, hangs && said.IsZero()
					if k == kind {
						hangs = true
						if over {
							said = time.Now()
						}
					}
					n.mu.Unlock()
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
					closed = s.close(n.Context())
				}
				n.after(lease / 2)
				require.Zero(n, s.tasks.count())
				require.False(n, said.IsZero())
				require.Equal(n, said, s.tasks.stopped)
				if closed != nil {
					require.ErrorIs(n, <-closed, worker.ErrLeaseLost)
				}
			})
		})
	}
}

// The manager goes away for good during a drain. The tasks stop with the lease, Run
// ends, and Close reports it.
func TestW6_TheManagerGoesAwayWhileItDrains(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		s := n.startMember()
		n.after(time.Second)
		s.add("a")
		closed := s.close(n.Context())
		n.after(time.Second)
		n.do(silent)
		_, ends := n.registered()
		err := <-closed
		require.ErrorContains(n, err, "close member w: stopped before everything had moved")
		require.ErrorIs(n, err, worker.ErrLeaseLost)
		require.True(n, s.ended())
		require.NoError(n, s.err)
		require.True(n, s.tasks.stopped.Before(ends))
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

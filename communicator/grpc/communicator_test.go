package grpc

// R1, C2, R3: reports, connections that break, and credentials.

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
)

func adds(tasks ...string) []orchestrator.Write[string] {
	var writes []orchestrator.Write[string]
	for _, task := range tasks {
		writes = append(writes, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
	}
	return writes
}

func TestC2_TheVerySameSliceMeansUnchanged(t *testing.T) {
	s := newServedWorker(t)
	c, w := connected(t, s)
	require.Nil(t, c.Tasks(w))
	require.Nil(t, c.Apply(t.Context(), w, adds("a", "b")))
	first, err := c.List(inTerm(t, 1), w)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, first)
	second, err := c.List(inTerm(t, 2), w)
	require.NoError(t, err)
	require.Same(t, &first[0], &second[0])
	var states []TaskState // with the worker's own times
	for _, own := range s.worker.Status() {
		states = append(states, TaskState{Name: own.Task, State: worker.Running, Since: own.Since.Round(0).UTC()})
	}
	require.Len(t, states, 2)
	require.Equal(t, states, c.Tasks(w))

	require.NoError(t, c.Add(inTerm(t, 2), w, "c"))
	third, err := c.List(inTerm(t, 3), w)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, third)
	require.Equal(t, []string{"a", "b"}, first)

	fresh := communicator(t)
	introduce(t, fresh, w, s.addr)
	fourth, err := fresh.List(inTerm(t, 3), w)
	require.NoError(t, err)
	require.Equal(t, third, fourth)
}

// If a worker must give up tasks, waiting ones go first, before running ones. Pinned
// and ended tasks never go, because they would run again. If ended tasks are
// recorded, they would not, so they go first.
func TestR1_WhatWaitsIsListedFirst(t *testing.T) {
	takesDown := communicatorOptionFunc(func(s *option.Communicator) {
		s.Ended = func(context.Context, state.WorkerID, []wire.Task) error { return nil }
	})
	for name, test := range map[string]struct {
		opts   []CommunicatorOption
		want   []string
		pinned int
	}{
		"ends not recorded": {nil, []string{"waits", "fails", "waits too", "runs", "stops", "completed", "failed", "job"}, 3},
		"ends recorded":     {[]CommunicatorOption{takesDown}, []string{"completed", "failed", "waits", "fails", "waits too", "runs", "stops", "job"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, w := impostor(t, &grpctest.Fake{OnReport: func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
				response := grpctest.ReportOf(1, "completed", "runs", "waits", "fails", "failed", "stops", "job", "waits too")
				for i, state := range []orchestratorv1.State{
					orchestratorv1.State_STATE_COMPLETED, orchestratorv1.State_STATE_RUNNING, orchestratorv1.State_STATE_QUEUED,
					orchestratorv1.State_STATE_BACKOFF, orchestratorv1.State_STATE_FAILED, orchestratorv1.State_STATE_STOPPING,
					orchestratorv1.State_STATE_RUNNING, orchestratorv1.State_STATE_QUEUED,
				} {
					response.Tasks[i].State = state
				}
				response.Tasks[0].Pinned, response.Tasks[4].Pinned, response.Tasks[6].Pinned = true, true, true
				return response, nil
			}}, test.opts...)
			names, err := c.List(t.Context(), w)
			require.NoError(t, err)
			require.Equal(t, test.want, names)
			require.Equal(t, test.pinned, c.links[w].last.Load().pinned)
			require.Equal(t, "completed", c.Tasks(w)[0].Name, "in the worker's order")
		})
	}
}

// again lists until a List succeeds. No call waits: without a worker it fails
// immediately.
func again(t *testing.T, c *Communicator, w WorkerID) []string {
	t.Helper()
	ctx := within(t.Context(), t, 10*time.Second)
	for {
		tasks, err := c.List(ctx, w)
		if err == nil {
			return tasks
		}
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	}
}

func TestR1_AWorkerThatIsBackIsReachedAtOnce(t *testing.T) {
	s := newServedWorker(t)
	c, w := connected(t, s)
	require.NoError(t, c.Add(t.Context(), w, "a"))
	s.stop()
	for range 20 { // long enough for any backoff to grow
		_, err := c.List(t.Context(), w)
		require.Error(t, err)
	}
	_, stop := listen(t, s, s.addr)
	defer stop()
	tasks, err := c.List(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, tasks)
}

func TestR1_BrokenConnectionsAreReplaced(t *testing.T) {
	s := newServedWorker(t)
	p := behind(t, s.addr)
	c := communicator(t)
	w := s.as("w")
	introduce(t, c, w, p.Addr())
	require.NoError(t, c.Add(t.Context(), w, "a"))
	for name, harm := range map[string]func(*netfault.Conn){
		"half closed by us":   func(c *netfault.Conn) { c.CloseHalf(netfault.Up) },
		"half closed by them": func(c *netfault.Conn) { c.CloseHalf(netfault.Down) },
		"reset":               func(c *netfault.Conn) { c.Reset() },
	} {
		t.Run(name, func(t *testing.T) {
			for _, conn := range p.Conns() {
				harm(conn)
			}
			require.Equal(t, []string{"a"}, again(t, c, w))
		})
	}
	p.Refuse()
	_, err := c.List(within(t.Context(), t, time.Minute), w)
	require.Error(t, err)
	p.Heal()
	require.Equal(t, []string{"a"}, again(t, c, w))
}

func TestR1_RubbishIsAnErrorOfTheCallAlone(t *testing.T) {
	var report *orchestratorv1.ReportResponse
	f := &grpctest.Fake{OnReport: func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) { return report, nil }}
	c, w := impostor(t, f, WithMaxMessage(2<<20))
	report = grpctest.ReportOf(2, "a", "b")
	before, err := c.List(t.Context(), w)
	require.NoError(t, err)
	several := func(n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprint("task ", i))
		}
		return names
	}
	long := grpctest.ReportOf(3)
	for range 3000 {
		long.Tasks = append(long.Tasks, &orchestratorv1.Task{Name: []byte(strings.Repeat("n", 1000))})
	}
	other := grpctest.ReportOf(3, "a")
	other.Version.Incarnation = 2
	for want, rubbish := range map[string]*orchestratorv1.ReportResponse{
		"want 1.1":               {},
		"version 2.3":            other,
		"version 1.0":            grpctest.ReportOf(0, "a"),
		"has the known version":  grpctest.ReportOf(2, "a"),
		"lists 2 tasks twice":    grpctest.ReportOf(3, "a", "b", "a", "b"),
		"name of 0 bytes":        grpctest.ReportOf(3, "a", ""),
		"name of 1025 bytes":     grpctest.ReportOf(3, strings.Repeat("x", 1025)),
		"at most 65536":          grpctest.ReportOf(3, several(70_000)...),
		"exceeds WithMaxMessage": long,
	} {
		t.Run(want, func(t *testing.T) {
			report = rubbish
			_, err := c.List(t.Context(), w)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "at 127.0.0.1:")
			report = grpctest.ReportOf(2)
			after, err := c.List(t.Context(), w)
			require.NoError(t, err)
			require.Same(t, &before[0], &after[0], "nothing of it is kept")
		})
	}
	for _, n := range []int{0, 1, 3} {
		f.OnApply = func(context.Context, *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
			return grpctest.Done(n), nil
		}
		for _, err := range c.Apply(t.Context(), w, adds("a", "b")) {
			require.ErrorContains(t, err, fmt.Sprintf("answered %d of 2", n))
			require.NotErrorIs(t, err, orchestrator.ErrRejected)
		}
	}
	f.OnApply = func(context.Context, *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
		r := grpctest.Done(2)
		r.Results[1] = &orchestratorv1.Result{Outcome: 99, Message: strings.Repeat("x", 1<<20)}
		return r, nil
	}
	errs := c.Apply(t.Context(), w, adds("a", "b"))
	require.NoError(t, errs[0])
	require.Error(t, errs[1])
	require.Less(t, len(errs[1].Error()), 1000)
}

func TestR1_FailedCallsAreObserved(t *testing.T) {
	type news struct {
		w   WorkerID
		err error
	}
	var told []news
	s := newServedWorker(t)
	c, w := connected(t, s)
	c.settings.Observe = func(w state.WorkerID, err error) { told = append(told, news{WorkerID(w), err}) }
	_, err := c.List(inTerm(t, 1), w)
	require.NoError(t, err)
	accept := s.tasks.Refuse("a")
	defer accept()
	require.Error(t, c.Add(inTerm(t, 1), w, "a"))
	s.worker.Fence(orchestrator.Term{Epoch: 9})
	_, err = c.List(inTerm(t, 1), w)
	require.ErrorIs(t, err, orchestrator.ErrDeposed)
	require.Equal(t, []news{{w, nil}, {w, nil}, {w, nil}}, told, "every answer counts")

	told = nil
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.List(canceled, w)
	require.Error(t, err)
	require.Empty(t, told, "no call was made")
	require.NoError(t, s.worker.Rejoin(t.Context()))
	_, err = c.List(t.Context(), w)
	require.Error(t, err)
	s.stop()
	require.Error(t, c.Remove(t.Context(), w, "a"))
	require.Len(t, told, 2)
	require.Error(t, told[0].err, "another process answers at the address")
	require.Error(t, told[1].err)
}

func TestR4_AnUnauthorizedCallerChangesNothing(t *testing.T) {
	ca := testca.New(t, "ours")
	s := newServedWorker(t, with(t, ca.Worker(t, "w")))
	c, w := connected(t, s, with(t, ca.Worker(t, "another")))
	err := c.Add(inTerm(t, 1), w, "a")
	require.ErrorIs(t, err, ErrCertificate)
	require.ErrorIs(t, err, orchestrator.ErrRejected)
	_, err = c.List(inTerm(t, 1), w)
	require.ErrorIs(t, err, ErrCertificate)
	tasks, err := s.worker.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, tasks)
}

func TestR1_ConnectAndDisconnect(t *testing.T) {
	s := newServedWorker(t)
	c, w := connected(t, s)
	require.NoError(t, c.Add(t.Context(), w, "a"))
	l, err := c.link(w)
	require.NoError(t, err)
	introduce(t, c, w, s.addr)
	same, err := c.link(w)
	require.NoError(t, err)
	require.Same(t, l, same, "the same address again changes nothing")
	p := behind(t, s.addr)
	introduce(t, c, w, p.Addr())
	_, err = c.List(t.Context(), w)
	require.NoError(t, err)
	require.Len(t, p.Conns(), 1)

	end := s.tasks.Lingers("a")
	defer end()
	removed := make(chan error, 1)
	go func() { removed <- c.Remove(t.Context(), w, "a") }()
	_, next := s.worker.Changes()
	for s.worker.Status()[0].State != worker.Stopping {
		<-next
		_, next = s.worker.Changes()
	}
	c.Disconnect(w)
	err = <-removed
	require.Error(t, err)
	require.Equal(t, orchestratorv1.Outcome_OUTCOME_UNSPECIFIED, wire.OutcomeOf(err), "a call under way ends without an answer")
	_, err = c.List(t.Context(), w)
	require.ErrorContains(t, err, "not connected")
	c.Disconnect(w)
	require.Nil(t, c.Tasks(w))

	require.ErrorIs(t, c.Connect(WorkerID{"", 1}, s.addr), orchestrator.ErrInvalid)
	require.ErrorIs(t, c.Connect(WorkerID{"w", 0}, s.addr), orchestrator.ErrInvalid)
	require.ErrorIs(t, c.Connect(WorkerID{"w", 1}, ""), orchestrator.ErrInvalid)
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Connect(w, s.addr), errClosed)
	_, err = c.List(t.Context(), w)
	require.ErrorIs(t, err, errClosed)

	_, err = NewCommunicator(nil, WithContents(nil), WithOptions(WithMaxMessage(0), nil))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, what := range []string{"grpc.CommunicatorOption is nil", "WithContents", "WithMaxMessage(0)", "grpc.Option is nil"} {
		require.ErrorContains(t, err, what)
	}
}

// A worker that leaves has answered all calls. Its last answers count, although they
// arrive after the worker was disconnected.
func TestW6_AnswersUnderWayCountAfterDisconnect(t *testing.T) {
	begun, answer := make(chan struct{}), make(chan struct{})
	f := &grpctest.Fake{OnApply: func(_ context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
		close(begun)
		<-answer
		return grpctest.Done(len(r.GetChanges())), nil
	}}
	c, w := impostor(t, f)
	removed := make(chan error, 1)
	go func() { removed <- c.Remove(t.Context(), w, "t") }()
	<-begun
	c.Disconnect(w)
	require.ErrorContains(t, c.Add(t.Context(), w, "u"), "not connected")
	close(answer)
	require.NoError(t, <-removed)
}

func TestR3_FilesWithoutNames(t *testing.T) {
	files := testca.New(t, "ours").Manager(t)
	for says, names := range map[string][3]string{
		`certificate ""`: {"", files.Key, files.CA},
		`key ""`:         {files.Cert, "", files.CA},
		`authorities ""`: {files.Cert, files.Key, ""},
	} {
		_, err := LoadCredentials(names[0], names[1], names[2])
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
}

// Credentials that were not loaded are an error: they must not mean plaintext.
func TestR3_CredentialsMustBeLoaded(t *testing.T) {
	for _, c := range []*Credentials{nil, {}} {
		_, err := NewCommunicator(WithCredentials(c))
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.ErrorContains(t, err, "LoadCredentials")
	}
}

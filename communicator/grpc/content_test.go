package grpc

// R1: the contents of tasks, and what is not sent again.

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// library is a set of contents.
type library struct {
	mu      sync.Mutex
	entries map[string]volume
}

type volume struct {
	content string
	version int64
}

func (b *library) Content(task string) ([]byte, int64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[task]
	return []byte(e.content), e.version, ok
}

func (b *library) put(task, content string, version int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries[task] = volume{content, version}
}

// A task that has asked to run elsewhere is not listed, and rejected until it has other content.
func TestR1_ATaskThatAsksToRunElsewhere(t *testing.T) {
	b := &library{entries: map[string]volume{"a": {"one", 1}}}
	s := &servedWorker{gate: &grpctest.Gate{}}
	var err error
	s.worker, err = worker.New(func(ctx context.Context, _ string) error {
		if _, version := worker.Content(ctx); version == 1 {
			return worker.Reschedule(ctx, "no disk")
		}
		<-ctx.Done()
		return nil
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.worker.Close(context.WithoutCancel(t.Context()))) })
	s.addr, s.stop = listen(t, s, "127.0.0.1:0")
	c, w := connected(t, s, WithContents(b))
	require.NoError(t, c.Add(inTerm(t, 1), w, "a"))
	for _, changed := s.worker.Changes(); len(s.worker.Status()) > 0; _, changed = s.worker.Changes() {
		<-changed
	}
	tasks, err := c.List(inTerm(t, 2), w)
	require.NoError(t, err)
	require.Empty(t, tasks)
	err = c.Add(inTerm(t, 2), w, "a")
	require.ErrorIs(t, err, orchestrator.ErrRejected)
	require.ErrorContains(t, err, "no disk")
	b.put("a", "two", 2)
	require.NoError(t, c.Add(inTerm(t, 2), w, "a"))
}

func TestR1_TasksAreGivenTheirContent(t *testing.T) {
	b := &library{entries: map[string]volume{"a": {"one", 1}, "b": {"two", 2}, "slow": {"three", 3}}}
	s := newServedWorker(t)
	c, w := connected(t, s, WithContents(b))
	require.Nil(t, c.Apply(inTerm(t, 1), w, adds("a", "b", "slow")))
	err := c.Add(inTerm(t, 1), w, "nobody's")
	require.ErrorIs(t, err, orchestrator.ErrStale, "counts against neither task nor worker")
	require.ErrorIs(t, err, orchestrator.ErrRejected)
	require.ErrorContains(t, err, "at "+s.addr+": not sent: task is no longer expected")

	end := s.tasks.Lingers("slow")
	defer end()
	require.Error(t, c.Remove(within(inTerm(t, 1), t, time.Second/4), w, "slow"), "it has not stopped yet")
	versions := func(ctx context.Context) (all []int64) {
		for range 2 { // the next report contains the changes of a List
			_, err := c.List(ctx, w)
			require.NoError(t, err)
		}
		for _, task := range c.Tasks(w) {
			all = append(all, task.Version)
		}
		return all
	}
	require.Equal(t, []int64{1, 2, 3}, versions(inTerm(t, 1)))
	b.put("a", "newer", 7)
	b.put("slow", "newer", 8)
	require.Equal(t, []int64{1, 2, 3}, versions(t.Context()), "a call without a term writes nothing")
	require.Equal(t, []int64{7, 2, 3}, versions(inTerm(t, 2)), "a stopping task gets no content")
}

func TestR1_AnUpdateThatFailsIsTriedAgain(t *testing.T) {
	b := &library{entries: map[string]volume{"a": {"one", 1}, "b": {"one", 1}}}
	var answer error
	var later *orchestratorv1.Term
	f := &grpctest.Fake{
		OnReport: func(r *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
			if r.GetKnown() != nil {
				return grpctest.ReportOf(1), nil
			}
			return grpctest.ReportOf(1, "a", "b"), nil
		},
		OnApply: func(_ context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
			if later != nil {
				return grpctest.Refused(orchestratorv1.Outcome_OUTCOME_DEPOSED, later), nil
			}
			return grpctest.Done(len(r.GetChanges())), answer
		},
	}
	c, w := impostor(t, f, WithContents(b))
	c.limit = 1 // one change per message
	answer = status.Error(codes.Internal, "not now")
	for range 2 {
		tasks, err := c.List(inTerm(t, 3), w)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, tasks)
	}
	requests := f.Applied()
	require.Len(t, requests, 2)
	for _, r := range requests {
		require.Equal(t, uint64(5), r.GetTerm().GetEpoch())
		require.Equal(t, uint64(3), r.GetTerm().GetNumber())
		require.Len(t, r.GetChanges(), 1, "no more than one message takes")
		require.Equal(t, orchestratorv1.Op_OP_UPDATE, r.GetChanges()[0].GetOp())
		require.Equal(t, "one", string(r.GetChanges()[0].GetContent()))
	}
	answer = status.Error(codes.Aborted, "another leader")
	_, err := c.List(inTerm(t, 3), w)
	require.NoError(t, err, "the next List tries again")
	later = &orchestratorv1.Term{Epoch: 6, Number: 1}
	_, err = c.List(inTerm(t, 3), w)
	require.ErrorIs(t, err, orchestrator.ErrDeposed)
}

// A worker that is slow to take its contents leaves time for its answer to be
// useful.
func TestR1_UpdatesTakeHalfOfTheTime(t *testing.T) {
	left := make(chan time.Duration, 1)
	f := &grpctest.Fake{
		OnReport: func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
			return grpctest.ReportOf(1, "a"), nil
		},
		OnApply: func(ctx context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
			deadline, _ := ctx.Deadline()
			left <- time.Until(deadline)
			return grpctest.Done(len(r.GetChanges())), nil
		},
	}
	c, w := impostor(t, f, WithContents(&library{entries: map[string]volume{"a": {"one", 1}}}))
	_, err := c.List(within(inTerm(t, 3), t, time.Minute), w)
	require.NoError(t, err)
	require.LessOrEqual(t, <-left, 30*time.Second)
}

func TestR1_NothingIsSentOfWhatIsKnown(t *testing.T) {
	b := &library{entries: map[string]volume{"a": {"one", 1}}}
	there := grpctest.ReportOf(1, "a", "unexpected")
	f := &grpctest.Fake{OnReport: func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
		there.Version.Counter++
		return there, nil
	}}
	c, w := impostor(t, f, WithContents(b))
	list := func(ctx context.Context) int {
		_, err := c.List(ctx, w)
		require.NoError(t, err)
		return len(f.Applied())
	}
	require.Zero(t, list(t.Context()), "a call without a term writes nothing")
	require.Equal(t, 1, list(inTerm(t, 1)))
	there.Tasks[0].ContentVersion = 1
	require.Equal(t, 1, list(inTerm(t, 2)))
	there.Tasks[0].ContentVersion = 2
	require.Equal(t, 1, list(inTerm(t, 2)), "content newer than the manager's is not replaced")
}

// counted is a library with a revision counter. It counts its look-ups.
type counted struct {
	library
	put   int64
	asked atomic.Int64
}

func (c *counted) Revision() int64 { return c.put }

func (c *counted) Content(task string) ([]byte, int64, bool) {
	c.asked.Add(1)
	return c.library.Content(task)
}

func TestR1_NothingIsLookedUpWhereNothingHasChanged(t *testing.T) {
	b := &counted{library: library{entries: map[string]volume{"a": {"one", 1}, "b": {"one", 1}}}, put: 1}
	report := grpctest.ReportOf(1, "a", "b")
	report.Tasks[0].ContentVersion, report.Tasks[1].ContentVersion = 1, 1
	var answer error
	f := &grpctest.Fake{
		OnReport: func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) { return report, nil },
		OnApply: func(_ context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
			return grpctest.Done(len(r.GetChanges())), answer
		},
	}
	c, w := impostor(t, f, WithContents(b))
	look := func() (asked int64, sent int) {
		before, requests := b.asked.Load(), len(f.Applied())
		_, err := c.List(inTerm(t, 1), w)
		require.NoError(t, err)
		if report.Tasks != nil { // from now on it is the known report
			report = &orchestratorv1.ReportResponse{Version: report.GetVersion()}
		}
		return b.asked.Load() - before, len(f.Applied()) - requests
	}
	expect := func(asked int64, sent int, why string) {
		t.Helper()
		gotAsked, gotSent := look()
		require.Equal(t, asked, gotAsked, why)
		require.Equal(t, sent, gotSent, why)
	}
	expect(2, 0, "the list is new")
	expect(0, 0, "nothing has changed")
	b.library.put("b", "two", 2)
	b.put = 2
	answer = status.Error(codes.Internal, "not now")
	expect(2, 1, "there is another content")
	expect(2, 1, "the worker has not received it")
	answer = nil
	expect(2, 1, "the worker has not confirmed it")
	report = grpctest.ReportOf(2, "a", "b")
	report.Tasks[0].ContentVersion, report.Tasks[1].ContentVersion = 1, 2
	expect(2, 0, "the list has changed")
	expect(0, 0, "nothing has changed since")
}

package manager

// R5: a worker with a valid certificate that breaks the protocol hurts only its own tasks.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// hostileWorker is a member of incarnation 1 that does what it is told, until a test
// changes its answers.
type hostileWorker struct {
	*grpctest.Fake
	o       *testNet
	manager orchestratorv1.ManagerClient

	mu      sync.Mutex
	given   map[string]*orchestratorv1.Change // by task, the last start of each
	runs    map[string]bool
	counter uint64
	// listed returns the tasks of a report, refusal the outcome of a change.
	listed  func() []*orchestratorv1.Task
	refusal func(orchestratorv1.Op) orchestratorv1.Outcome
	deaf    bool // it fails each Report of a term
}

// newHostileWorker serves a hostile worker and registers it, through the connection of
// another worker.
func (o *testNet) newHostileWorker(by *testWorker) *hostileWorker {
	o.t.Helper()
	x := &hostileWorker{
		Fake: &grpctest.Fake{}, o: o, manager: by.manager,
		given: make(map[string]*orchestratorv1.Change), runs: make(map[string]bool),
		refusal: func(orchestratorv1.Op) orchestratorv1.Outcome { return orchestratorv1.Outcome_OUTCOME_DONE },
	}
	x.listed = x.honest
	x.OnReport, x.OnApply = x.answer, x.change
	server, accepting, err := settingsOf(o.t).NewServer(o.listen("mallory.test:7000"), 0, grpc.WaitForHandlers(true))
	require.NoError(o.t, err)
	orchestratorv1.RegisterWorkerServer(server, x.Fake)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(accepting)
	}()
	o.t.Cleanup(func() {
		server.Stop()
		<-done
	})
	require.NoError(o.t, x.register())
	return x
}

func (x *hostileWorker) register() error {
	_, err := x.manager.Register(x.o.t.Context(), registering("mallory", 1, "mallory.test:7000"))
	return err
}

func (x *hostileWorker) beat() error {
	_, err := x.manager.Heartbeat(x.o.t.Context(), &orchestratorv1.HeartbeatRequest{Worker: []byte("mallory"), Incarnation: 1})
	return err
}

// now changes what it does.
func (x *hostileWorker) now(change func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change()
}

func (x *hostileWorker) answer(r *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.deaf && r.GetTerm() != nil {
		return nil, status.Error(codes.Internal, "not of a term")
	}
	x.counter++
	response := grpctest.ReportOf(x.counter)
	response.Tasks = x.listed()
	return response, nil
}

func (x *hostileWorker) change(_ context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	response := &orchestratorv1.ApplyResponse{}
	for _, c := range r.GetChanges() {
		outcome := x.refusal(c.GetOp())
		response.Results = append(response.Results, &orchestratorv1.Result{Outcome: outcome})
		switch {
		case outcome != orchestratorv1.Outcome_OUTCOME_DONE:
		case c.GetOp() == orchestratorv1.Op_OP_REMOVE:
			delete(x.runs, string(c.GetTask()))
		default:
			x.given[string(c.GetTask())], x.runs[string(c.GetTask())] = c, true
		}
	}
	return response, nil
}

// honest returns what it runs.
func (x *hostileWorker) honest() (tasks []*orchestratorv1.Task) {
	for _, task := range slices.Sorted(maps.Keys(x.runs)) {
		tasks = append(tasks, x.task(task))
	}
	return tasks
}

func (x *hostileWorker) task(name string) *orchestratorv1.Task {
	c := x.given[name]
	return &orchestratorv1.Task{
		Name: []byte(name), State: orchestratorv1.State_STATE_RUNNING,
		ContentVersion: c.GetContentVersion(), Receipt: c.GetReceipt(),
	}
}

// pass lets time pass in which it tries everything to stay a member.
func (x *hostileWorker) pass(d time.Duration, workers ...*testWorker) {
	for range int(d / time.Second) {
		_ = x.beat()
		_ = x.register()
		x.o.pass(time.Second, workers...)
	}
}

// A worker that can be called outside of terms only, and registers again and again, is
// no member for long. Until it was listed, no missing task could start.
func TestR5_RegisteringAgainRenewsNoLeaseThatAHeartbeatDoesNot(t *testing.T) {
	inTestNet(t, func(t *testing.T, o *testNet) {
		store := NewMemoryStore()
		m := o.open(store)
		one := o.newWorker("one")
		x := o.newHostileWorker(one)
		require.NoError(t, one.register())
		o.pass(2*time.Second, one)
		m.close()
		x.now(func() { x.deaf = true })
		m = o.open(store)
		m.put("a", "b", "c")
		x.pass(5*time.Second, one)
		require.Empty(t, o.where(), "it may run them")
		x.pass(time.Minute, one)
		require.Len(t, o.where(), 3)
		require.Equal(t, 1, m.MemberCount())
		m.close()
	})
}

// A receipt of a task that was stopped since is worth nothing in a report: the copy
// elsewhere runs on.
func TestR5_OldReceiptsStopNothingElsewhere(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		t.Run(fmt.Sprint("pinned ", pinned), func(t *testing.T) {
			inTestNet(t, func(t *testing.T, o *testNet) {
				m := o.open(NewMemoryStore())
				workers := []*testWorker{o.newWorker("one"), o.newWorker("two"), o.newWorker("three")}
				x := o.newHostileWorker(workers[0])
				for i := range 12 {
					m.put(fmt.Sprint("t", i))
				}
				x.pass(2 * time.Second)
				require.Len(t, x.given, 12)
				for _, h := range workers {
					require.NoError(t, h.register())
				}
				x.pass(10*time.Second, workers...)
				require.Equal(t, map[string]int{"one": 3, "two": 3, "three": 3}, o.spread())
				before := o.starts()
				x.now(func() {
					x.listed = func() (tasks []*orchestratorv1.Task) {
						for _, task := range slices.Sorted(maps.Keys(x.given)) {
							tasks = append(tasks, x.task(task))
							tasks[len(tasks)-1].Pinned = pinned
						}
						return tasks
					}
					x.refusal = func(op orchestratorv1.Op) orchestratorv1.Outcome {
						if op == orchestratorv1.Op_OP_REMOVE {
							return orchestratorv1.Outcome_OUTCOME_REJECTED
						}
						return orchestratorv1.Outcome_OUTCOME_DONE
					}
				})
				x.pass(2*time.Minute, workers...)
				require.Len(t, o.where(), 12, "its own three run elsewhere too, since its lease has run out")
				require.Equal(t, before+3, o.starts(), "none of the others was disturbed")
				m.close()
				require.Contains(t, o.logs.String(), "worker has not stopped tasks that it was not given")
			})
		})
	}
}

// A report that claims to be unchanged does not bring back a task that was stopped.
func TestR5_AnUnchangedReportKeepsNothingThatWasStopped(t *testing.T) {
	inTestNet(t, func(t *testing.T, o *testNet) {
		m := o.open(NewMemoryStore())
		one := o.newWorker("one")
		x := o.newHostileWorker(one)
		m.put("a", "b")
		x.pass(2 * time.Second)
		require.Len(t, x.given, 2)
		x.now(func() {
			x.OnReport = func(r *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
				if known := r.GetKnown(); known != nil {
					return &orchestratorv1.ReportResponse{Version: known}, nil
				}
				return x.answer(r)
			}
		})
		require.NoError(t, one.register())
		x.pass(time.Minute, one)
		require.Len(t, o.where(), 1)
		require.Equal(t, 1, o.starts(), "it runs on")
		m.close()
	})
}

// A worker that answers every start with an error that is not counted as a failure, such
// as ErrStale or ErrStopping, is still quarantined.
func TestR5_EveryRefusalCounts(t *testing.T) {
	for _, outcome := range []orchestratorv1.Outcome{
		orchestratorv1.Outcome_OUTCOME_REJECTED, orchestratorv1.Outcome_OUTCOME_STOPPING,
		orchestratorv1.Outcome_OUTCOME_STALE, orchestratorv1.Outcome_OUTCOME_DEPOSED,
	} {
		t.Run(outcome.String(), func(t *testing.T) {
			inTestNet(t, func(t *testing.T, o *testNet) {
				m := o.open(NewMemoryStore())
				workers := o.registerWorkers("one", "two", "three")
				for i := range 12 {
					m.put(fmt.Sprint("t", i))
				}
				o.pass(3*time.Second, workers...)
				require.Len(t, o.where(), 12)
				before := o.starts()
				x := o.newHostileWorker(workers[0])
				x.now(func() {
					x.refusal = func(orchestratorv1.Op) orchestratorv1.Outcome { return outcome }
				})
				x.pass(5*time.Minute, workers...)
				m.put("late")
				x.pass(5*time.Second, workers...)
				require.Len(t, o.where(), 13)
				require.Less(t, o.starts()-before, 30, "as seldom as a quarantined worker is tried")
				require.Equal(t, 1, m.LastPlan().Stats.Workers.Quarantined)
				m.close()
			})
		})
	}
}

// maxForeign is how many tasks a worker may list that are neither expected nor assigned
// to it; a constant of package grpc.
const maxForeign = 4096

// Unknown task names in a worker's list do not lengthen a term.
func TestR5_UnknownTaskNames(t *testing.T) {
	inTestNet(t, func(t *testing.T, o *testNet) {
		m := o.open(NewMemoryStore())
		one := o.newWorker("one")
		x := o.newHostileWorker(one)
		require.NoError(t, one.register())
		m.put("a", "b")
		o.pass(2*time.Second, one)
		round := 0
		x.now(func() {
			x.listed = func() (tasks []*orchestratorv1.Task) {
				round++
				for i := range maxForeign + 1 {
					tasks = append(tasks, &orchestratorv1.Task{Name: fmt.Appendf(nil, "%d-%d", round, i), State: orchestratorv1.State_STATE_RUNNING})
				}
				return tasks
			}
		})
		x.pass(3*time.Second, one)
		require.Zero(t, m.LastPlan().Stats.Instances.Unexpected)
		require.ErrorContains(t, m.LastPlan().Stats.Err, "it lists 4097 tasks that are not expected: at most 4096")
		x.pass(time.Minute, one)
		require.Equal(t, 1, m.MemberCount())
		require.Equal(t, map[string]string{"a": "one", "b": "one"}, o.where())
		m.close()
	})
}

// One worker's calls of Complete are made one after the other.
func TestR5_OneCompleteAtATime(t *testing.T) {
	inTestNet(t, func(t *testing.T, o *testNet) {
		store := &slowStore{MemoryStore: NewMemoryStore()}
		m := o.open(store)
		one := o.newWorker("one")
		require.NoError(t, one.register())
		m.put("a")
		o.pass(2*time.Second, one)
		items, err := m.Items("", 10)
		require.NoError(t, err)
		said := &orchestratorv1.CompleteRequest{Worker: []byte("one"), Completions: []*orchestratorv1.Completion{
			{Task: []byte("a"), ContentVersion: items[0].Revision, Receipt: m.receipt("one", "a", items[0].Revision)},
		}}
		gate := store.hold()
		first := make(chan error, 1)
		go func() {
			_, err := one.manager.Complete(t.Context(), said)
			first <- err
		}()
		synctest.Wait()
		_, err = one.manager.Complete(t.Context(), said)
		require.Equal(t, codes.Unavailable, code(err))
		close(gate)
		require.NoError(t, <-first)
		_, err = one.manager.Complete(t.Context(), said)
		require.NoError(t, err)
		m.close()
	})
}

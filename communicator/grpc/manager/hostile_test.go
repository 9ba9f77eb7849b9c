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
	n       *testNet
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
func (n *testNet) newHostileWorker(by *testWorker) *hostileWorker {
	n.t.Helper()
	w := &hostileWorker{
		Fake: &grpctest.Fake{}, n: n, manager: by.manager,
		given: make(map[string]*orchestratorv1.Change), runs: make(map[string]bool),
		refusal: func(orchestratorv1.Op) orchestratorv1.Outcome { return orchestratorv1.Outcome_OUTCOME_DONE },
	}
	w.listed = w.honest
	w.OnReport, w.OnApply = w.answer, w.change
	server, accepting, err := settingsOf(n.t).NewServer(n.listen("mallory.test:7000"), 0, grpc.WaitForHandlers(true))
	require.NoError(n.t, err)
	orchestratorv1.RegisterWorkerServer(server, w.Fake)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(accepting)
	}()
	n.t.Cleanup(func() {
		server.Stop()
		<-done
	})
	require.NoError(n.t, w.register())
	return w
}

func (w *hostileWorker) register() error {
	_, err := w.manager.Register(w.n.t.Context(), registering("mallory", 1, "mallory.test:7000"))
	return err
}

func (w *hostileWorker) beat() error {
	_, err := w.manager.Heartbeat(w.n.t.Context(), &orchestratorv1.HeartbeatRequest{Worker: []byte("mallory"), Incarnation: 1})
	return err
}

// now changes what it does.
func (w *hostileWorker) now(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *hostileWorker) answer(r *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deaf && r.GetTerm() != nil {
		return nil, status.Error(codes.Internal, "not of a term")
	}
	w.counter++
	response := grpctest.ReportOf(w.counter)
	response.Tasks = w.listed()
	return response, nil
}

func (w *hostileWorker) change(_ context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	response := &orchestratorv1.ApplyResponse{}
	for _, c := range r.GetChanges() {
		outcome := w.refusal(c.GetOp())
		response.Results = append(response.Results, &orchestratorv1.Result{Outcome: outcome})
		switch {
		case outcome != orchestratorv1.Outcome_OUTCOME_DONE:
		case c.GetOp() == orchestratorv1.Op_OP_REMOVE:
			delete(w.runs, string(c.GetTask()))
		default:
			w.given[string(c.GetTask())], w.runs[string(c.GetTask())] = c, true
		}
	}
	return response, nil
}

// honest returns what it runs.
func (w *hostileWorker) honest() (tasks []*orchestratorv1.Task) {
	for _, task := range slices.Sorted(maps.Keys(w.runs)) {
		tasks = append(tasks, w.task(task))
	}
	return tasks
}

func (w *hostileWorker) task(name string) *orchestratorv1.Task {
	c := w.given[name]
	return &orchestratorv1.Task{
		Name: []byte(name), State: orchestratorv1.State_STATE_RUNNING,
		ContentVersion: c.GetContentVersion(), Receipt: c.GetReceipt(),
	}
}

// pass lets time pass in which it tries everything to stay a member.
func (w *hostileWorker) pass(d time.Duration, workers ...*testWorker) {
	for range int(d / time.Second) {
		_ = w.beat()
		_ = w.register()
		w.n.pass(time.Second, workers...)
	}
}

// A worker that can be called outside of terms only, and registers again and again, is
// no member for long. Until it was listed, no missing task could start.
func TestR5_RegisteringAgainRenewsNoLeaseThatAHeartbeatDoesNot(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one := n.newWorker("one")
		x := n.newHostileWorker(one)
		require.NoError(t, one.register())
		n.pass(2*time.Second, one)
		m.close()
		x.now(func() { x.deaf = true })
		m = n.open(m.store)
		m.put("a", "b", "c")
		x.pass(5*time.Second, one)
		require.Empty(t, n.where(), "it may run them")
		x.pass(time.Minute, one)
		require.Len(t, n.where(), 3)
		require.Equal(t, 1, m.MemberCount())
		m.close()
	})
}

// A receipt of a task that was stopped since is worth nothing in a report: the copy
// elsewhere runs on.
func TestR5_OldReceiptsStopNothingElsewhere(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		t.Run(fmt.Sprint("pinned ", pinned), func(t *testing.T) {
			withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
				workers := []*testWorker{n.newWorker("one"), n.newWorker("two"), n.newWorker("three")}
				x := n.newHostileWorker(workers[0])
				for i := range 12 {
					m.put(fmt.Sprint("t", i))
				}
				x.pass(2 * time.Second)
				require.Len(t, x.given, 12)
				for _, h := range workers {
					require.NoError(t, h.register())
				}
				x.pass(10*time.Second, workers...)
				require.Equal(t, map[string]int{"one": 3, "two": 3, "three": 3}, n.spread())
				before := n.starts()
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
				require.Len(t, n.where(), 12, "its own three run elsewhere too, since its lease has run out")
				require.Equal(t, before+3, n.starts(), "none of the others was disturbed")
				m.close()
				require.Contains(t, n.logs.String(), "worker has not stopped tasks that it was not given")
			})
		})
	}
}

// A report that claims to be unchanged does not bring back a task that was stopped.
func TestR5_AnUnchangedReportKeepsNothingThatWasStopped(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one := n.newWorker("one")
		x := n.newHostileWorker(one)
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
		require.Len(t, n.where(), 1)
		require.Equal(t, 1, n.starts(), "it runs on")
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
			withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
				workers := n.registerWorkers("one", "two", "three")
				for i := range 12 {
					m.put(fmt.Sprint("t", i))
				}
				n.pass(3*time.Second, workers...)
				require.Len(t, n.where(), 12)
				before := n.starts()
				x := n.newHostileWorker(workers[0])
				x.now(func() {
					x.refusal = func(orchestratorv1.Op) orchestratorv1.Outcome { return outcome }
				})
				x.pass(5*time.Minute, workers...)
				m.put("late")
				x.pass(5*time.Second, workers...)
				require.Len(t, n.where(), 13)
				require.Less(t, n.starts()-before, 30, "as seldom as a quarantined worker is tried")
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
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one := n.newWorker("one")
		x := n.newHostileWorker(one)
		require.NoError(t, one.register())
		m.put("a", "b")
		n.pass(2*time.Second, one)
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
		require.Equal(t, map[string]string{"a": "one", "b": "one"}, n.where())
		m.close()
	})
}

// One worker's calls of Complete are made one after the other.
func TestR5_OneCompleteAtATime(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		store := &slowStore{MemoryStore: NewMemoryStore()}
		m := n.open(store)
		one := n.registerWorker("one")
		m.put("a")
		n.pass(2*time.Second, one)
		items := m.items()
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
		_, err := one.manager.Complete(t.Context(), said)
		require.Equal(t, codes.Unavailable, code(err))
		close(gate)
		require.NoError(t, <-first)
		_, err = one.manager.Complete(t.Context(), said)
		require.NoError(t, err)
		m.close()
	})
}

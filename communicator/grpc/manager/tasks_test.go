package manager

// The tasks of a manager.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

func TestR1_Completion(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		m.put("short", "long")
		item, err := m.Get("short")
		require.NoError(t, err)
		version := item.Revision
		completed := make(chan string, 10)
		one := n.registerWorker("one", worker.WithCompletion(func(task string) { completed <- task }))
		require.Equal(t, "short", <-completed)
		with := func(c *orchestratorv1.Completion) *orchestratorv1.Completion {
			c.Receipt = m.receipt("one", string(c.Task), c.ContentVersion)
			return c
		}
		short := &orchestratorv1.Completion{Task: []byte("short"), ContentVersion: version}
		now := time.Now()
		require.Equal(t, []orchestratorv1.CompletionOutcome{
			orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_SUPERSEDED,
			orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_RECORDED,
			orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_RECORDED,
			orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_UNKNOWN_TASK,
		}, one.completeAs("one", with(&orchestratorv1.Completion{Task: []byte("long"), ContentVersion: 1}), with(short), short, with(&orchestratorv1.Completion{Task: []byte("x")})))
		done := m.completed()
		require.Equal(t, []Completion{{Task: "short", Revision: version, Worker: "one", At: now.UTC()}}, done)
		single, err := m.Completion("short")
		require.NoError(t, err)
		require.Equal(t, done[0], single)
		_, err = m.Completion("long")
		require.ErrorIs(t, err, ErrNotFound)
		require.ErrorContains(t, err, `"long"`)
		_, err = m.Get("short")
		require.ErrorIs(t, err, ErrNotFound)
		n.pass(time.Second)
		tasks, err := one.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"long"}, tasks, "removed from the worker")

		m.close()
		next := n.open(m.store)
		next.put("short")
		require.NoError(t, one.beat())
		n.pass(time.Second)
		require.Equal(t, 2, n.starts(), "a completed task does not run again")
		single, err = next.Completion("short")
		require.NoError(t, err)
		require.Equal(t, done[0], single)
		require.NoError(t, next.Forget(t.Context(), "short"))
		_, err = next.Completion("short")
		require.ErrorIs(t, err, ErrNotFound)
		next.put("short")
		n.pass(time.Second, one)
		require.Equal(t, 3, n.starts())
	})
}

// A worker cannot reach the manager, but the manager can call it. Its completed
// tasks are not moved to another worker, which would run them again.
func TestR1_WhatIsReportedAsCompletedIsNotRunAgain(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		completed := make(chan string, 10)
		complete := worker.WithCompletion(func(task string) { completed <- task })
		one, two := n.newWorker("one", complete), n.newWorker("two", complete)
		require.NoError(t, one.register())
		require.NoError(t, two.register())
		m.put("short 1", "short 2", "short 3", "short 4", "short 5", "short 6")
		for range 6 {
			<-completed
		}
		// Worker two reaches the manager, so the next term sees three more tasks on one.
		req := &orchestratorv1.CompleteRequest{Worker: []byte("two")}
		for _, s := range two.Status() {
			req.Completions = append(req.Completions, &orchestratorv1.Completion{Task: []byte(s.Task), ContentVersion: s.Version, Receipt: []byte(s.Receipt)})
		}
		require.Len(t, req.Completions, 3)
		_, err := two.manager.Complete(t.Context(), req)
		require.NoError(t, err)
		n.pass(3*time.Second, one, two)
		require.Equal(t, 6, n.starts())
		done := m.completed()
		require.Len(t, done, 6)
		items := m.items()
		require.Empty(t, items)
		require.Empty(t, one.Status())
	})
}

func TestW7_NewContentReachesTheRunningTask(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		m.put("a")
		updated := make(chan string, 1)
		one := n.newWorker("one", worker.WithUpdate(func(ctx context.Context, _ string) error {
			content, _ := worker.Content(ctx)
			updated <- string(content)
			return nil
		}))
		require.NoError(t, one.register())
		n.pass(time.Second)
		began := one.Status()[0].Since.Round(0).UTC()
		stored, err := m.Put(t.Context(), Item{Name: "a", Content: []byte("other")})
		require.NoError(t, err)
		require.Equal(t, "other", <-updated)
		n.pass(time.Second)
		require.Equal(t, []communicator.TaskState{{Name: "a", State: worker.Running, Since: began, Version: stored.Revision}}, m.Tasks(one.as()))
		require.Equal(t, 1, n.starts())
	})
}

func TestR1_InvalidArgumentsAreRefused(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		n.open(NewMemoryStore(), WithLeases(time.Second, time.Minute))
		one := n.newWorker("one")
		noLease := one.asks()
		noLease.Lease = nil
		_, err := one.manager.Register(t.Context(), noLease)
		require.Equal(t, codes.InvalidArgument, code(err))
		require.ErrorContains(t, err, "grants 1s to 1m0s")

		many := make([]*orchestratorv1.Completion, wire.MaxCompletions+1)
		for i := range many {
			many[i] = &orchestratorv1.Completion{}
		}
		_, register := one.manager.Register(t.Context(), &orchestratorv1.RegisterRequest{})
		_, heartbeat := one.manager.Heartbeat(t.Context(), &orchestratorv1.HeartbeatRequest{Worker: []byte("one")})
		_, leave := one.manager.Leave(t.Context(), &orchestratorv1.LeaveRequest{Incarnation: 1})
		_, complete := one.manager.Complete(t.Context(), &orchestratorv1.CompleteRequest{})
		_, completeMany := one.manager.Complete(t.Context(), &orchestratorv1.CompleteRequest{Worker: []byte("one"), Completions: many})
		for _, err := range []error{register, heartbeat, leave, complete, completeMany} {
			require.Equal(t, codes.InvalidArgument, code(err))
		}
		one.completeAs("one", many[1:]...)
		_, err = one.manager.Complete(t.Context(), &orchestratorv1.CompleteRequest{Worker: make([]byte, maxRequest), Completions: many[1:]})
		require.Equal(t, codes.ResourceExhausted, code(err))
	})
}

func TestR1_TasksAreCheckedAtTheBorder(t *testing.T) {
	m, err := New(NewMemoryStore())
	require.NoError(t, err)
	ctx := t.Context()
	for _, bad := range []Item{
		{},
		{Name: string(make([]byte, 1025))},
		{Name: "a", Content: make([]byte, MaxContent+1)},
		{Name: "a", Revision: 1},
		{Name: "a", Settings: orchestrator.TaskSettings{Instances: -2}},
		{Name: "a", Settings: orchestrator.TaskSettings{Handoff: 3}},
	} {
		_, err := m.Put(ctx, bad)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		_, err = m.PutAll(ctx, []Item{{Name: "fine"}, bad})
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
	}
	_, err = m.PutAll(ctx, []Item{{Name: "a"}, {Name: "b"}, {Name: "a"}})
	require.ErrorContains(t, err, `task "a" is given twice, at 0 and at 2`)
	_, err = m.Items("", MaxList)
	require.NoError(t, err)
	for _, limit := range []int{0, -1, MaxList + 1} {
		_, err = m.Items("", limit)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		_, err = m.Completed("", limit)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
	}
	require.ErrorIs(t, m.Delete(ctx, "a"), ErrNotFound)

	content := []byte("x")
	stored, err := m.PutAll(ctx, []Item{{Name: "b", Content: content}, {Name: "a", Content: make([]byte, MaxContent)}})
	require.NoError(t, err)
	require.Equal(t, stored[0].Revision+1, stored[1].Revision)
	require.Equal(t, 1, stored[0].Settings.Instances)
	content[0] = 'y'
	item, err := m.Get("b")
	require.NoError(t, err)
	require.Equal(t, "x", string(item.Content))
	items, err := m.Items("", 1)
	require.NoError(t, err)
	require.Equal(t, stored[1:], items)
	items, err = m.Items("a", 10)
	require.NoError(t, err)
	require.Equal(t, stored[:1], items)
	require.NoError(t, m.Delete(ctx, "a", "b"))
	require.NoError(t, m.Forget(ctx, "a"))
}

// A task that does not stop keeps none of its neighbours stopped: they start elsewhere
// while its stop is under way, although one call carries all stops of their worker.
func TestT7_AStopThatHangsHoldsUpNoOtherMoveOfItsWorker(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one := n.newWorker("one")
		one.keeps = make(chan struct{})
		require.NoError(t, one.register())
		m.put("hangs", "prompt a", "prompt b", "prompt c", "prompt d")
		n.pass(2*time.Second, one)
		require.Len(t, n.where(), 5)
		workers := append(n.registerWorkers("two", "three", "four", "five", "six"), one)
		require.NoError(t, m.Drain(t.Context(), "one"))
		n.pass(1200*time.Millisecond, workers...)
		for task, at := range n.where() {
			require.Equal(t, task == "hangs", at == "one", "%s runs on %q", task, at)
		}
		require.Len(t, n.where(), 5)
		close(one.keeps)
		n.pass(2*time.Second, workers...)
		require.NotContains(t, n.spread(), "one")
		require.Len(t, n.where(), 5)
		m.close()
	})
}

func TestMemberState_InJSON(t *testing.T) {
	m := MemberState{
		WorkerID: communicator.WorkerID{Name: "w", Incarnation: 7},
		Address:  "host:1", Lease: 10 * time.Second, Draining: true, Heard: time.Unix(0, 0).UTC(),
		Settings: orchestrator.WorkerSettings{Zone: "east", Labels: []string{"gpu"}, Share: 2, MaxTasks: 9},
	}
	text, err := json.Marshal(m)
	require.NoError(t, err)
	require.JSONEq(t, `{"name": "w", "incarnation": 7, "address": "host:1", "lease": "10s", "draining": true,
		"zone": "east", "labels": ["gpu"], "share": 2, "max_tasks": 9, "heard": "1970-01-01T00:00:00Z"}`, string(text))
	var read MemberState
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, m, read)
}

// completeAs sends completions in the name of a worker.
func (w *testWorker) completeAs(name string, completions ...*orchestratorv1.Completion) []orchestratorv1.CompletionOutcome {
	w.n.t.Helper()
	resp, err := w.manager.Complete(w.n.t.Context(), &orchestratorv1.CompleteRequest{Worker: []byte(name), Completions: completions})
	require.NoError(w.n.t, err)
	return resp.GetOutcomes()
}

// A worker that was given no task completes none, whatever version it tries, and
// gets the same answer each time. This also holds after a restart of the manager.
func TestR5_AStrangerCompletesNothing(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		m.put("a", "b")
		one := n.registerWorker("one", worker.WithCompletion(func(string) {}))
		n.pass(time.Second, one)
		given := one.Status()
		require.Len(t, given, 2)
		try := func(m *runningManager) {
			item, err := m.Get("a")
			require.NoError(t, err)
			for version := item.Revision - 2; version <= item.Revision+2; version++ {
				for _, task := range []string{"a", "b", "nobody's"} {
					for _, receipt := range []string{"", given[0].Receipt, given[1].Receipt, "0123456789abcdef"} {
						require.Equal(t, []orchestratorv1.CompletionOutcome{orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_REFUSED},
							one.completeAs("mallory", &orchestratorv1.Completion{Task: []byte(task), ContentVersion: version, Receipt: []byte(receipt)}))
					}
				}
			}
			done := m.completed()
			require.Empty(t, done)
		}
		try(m)
		m.close()
		next := n.open(m.store)
		require.NoError(t, one.beat())
		try(next)
		require.Equal(t, []orchestratorv1.CompletionOutcome{recorded}, one.completeAs("one", &orchestratorv1.Completion{
			Task: []byte("a"), ContentVersion: given[0].Version, Receipt: []byte(given[0].Receipt),
		}), "given by the previous manager")
		next.close()
		require.Contains(t, n.logs.String(), `level=WARN msg="completion refused, worker was not given this content" worker=mallory task=a`)
	})
}

// A worker that lists tasks that it was not given gets neither their contents nor
// receipts. It is told to stop them.
func TestR5_AWorkerThatMakesTasksUpGetsNoContent(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		complete := worker.WithCompletion(func(string) {})
		one, two := n.newWorker("one", complete), n.newWorker("two", complete, worker.WithUpdate(func(_ context.Context, task string) error {
			t.Errorf("worker was given the content of %s", task)
			return nil
		}))
		require.NoError(t, one.register())
		m.put("a", "b", "short")
		n.pass(time.Second, one)
		for _, task := range []string{"a", "b", "short"} {
			madeUp := worker.Grant{Content: []byte("content of " + task), Version: 1}
			require.NoError(t, two.AddWith(t.Context(), task, madeUp))
		}
		require.NoError(t, two.register())
		n.pass(3*time.Second, one, two)
		for _, s := range append(one.Status(), two.Status()...) {
			item, err := m.Get(s.Task)
			require.NoError(t, err)
			require.Equal(t, item.Revision, s.Version, "%s was stopped, and runs on the worker that was given it", s.Task)
		}
		require.Len(t, n.where(), 2)
		m.close()
		require.Contains(t, n.logs.String(), `msg="worker lists tasks it was not given, stopping them"`)
	})
}

// Such a worker does not make the workers that run these tasks stop them, whatever
// version it claims, and even if it pins them.
func TestR5_AWorkerThatMakesTasksUpStopsNoneElsewhere(t *testing.T) {
	for _, version := range []int64{0, 1, math.MaxInt64} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
				complete := worker.WithCompletion(func(string) {})
				one, two := n.newWorker("one", complete), n.newWorker("two", complete)
				require.NoError(t, one.register())
				m.put("job a", "job b")
				n.pass(time.Second, one)
				before := one.Status()
				require.Len(t, before, 2)
				for _, s := range before {
					require.NoError(t, two.AddWith(t.Context(), s.Task, worker.Grant{Content: []byte("content of " + s.Task), Version: version}))
				}
				require.NoError(t, two.register())
				n.pass(3*time.Second, one, two)
				require.Equal(t, before, one.Status())
				require.Empty(t, two.Status())
			})
		})
	}
}

// A worker that never stops such tasks harms only its own tasks.
func TestR5_AWorkerThatKeepsTasksItMadeUpStopsNoneElsewhere(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one, two := n.newWorker("one"), n.newWorker("two")
		require.NoError(t, one.register())
		m.put("a", "b")
		n.pass(time.Second, one)
		before := one.Status()
		require.Len(t, before, 2)
		two.keeps = make(chan struct{})
		defer close(two.keeps)
		for _, s := range before {
			require.NoError(t, two.AddWith(t.Context(), s.Task, worker.Grant{Content: []byte("content of " + s.Task), Version: 1}))
		}
		require.NoError(t, two.register())
		n.pass(15*time.Second, one, two)
		require.Equal(t, before, one.Status())
		m.put("c")
		n.pass(5*time.Second, one, two)
		require.Len(t, one.Status(), 3)
		m.close()
		m = n.open(m.store)
		n.pass(15*time.Second, one, two)
		m.put("d")
		for range 45 {
			_ = two.beat() // refused in the end
			n.pass(time.Second, one)
		}
		require.Len(t, one.Status(), 4, "tasks held for the other worker are released in the end")
		m.close()
		require.Contains(t, n.logs.String(), `msg="worker's lease expired" worker=two`)
		require.Contains(t, n.logs.String(), `msg="worker lists tasks it was not given, stopping them" worker=two`)
	})
}

// The manager shows the error of a failing job. After its attempts the job is no
// longer expected, even after a restart, until Retry.
func TestW8_AFailingJobIsVisibleAndEnds(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one := n.newWorker("one", worker.WithCompletion(func(string) {}), worker.WithBackoff(10*time.Second, 10*time.Second),
			worker.WithAttempts(2, func(string, error) {}))
		n.fail(errors.New("no disk"))
		require.NoError(t, one.register())
		m.put("short", "job")
		n.pass(2*time.Second, one)
		tasks := m.Tasks(one.as())
		require.Len(t, tasks, 2)
		require.Equal(t, worker.Backoff, tasks[0].State)
		require.Equal(t, "no disk", tasks[0].Failure.Err)
		require.Equal(t, 1, tasks[0].Failure.Attempts)
		require.WithinDuration(t, time.Now(), tasks[0].Failure.First, 2*time.Second)
		require.Equal(t, tasks[0].Failure.First, tasks[0].Since)
		require.Positive(t, time.Until(tasks[0].Failure.Next))
		require.False(t, tasks[0].Pinned)
		require.Nil(t, tasks[1].Failure)
		require.True(t, tasks[1].Pinned)

		n.pass(15*time.Second, one)
		failed, err := m.Failed("", 10)
		require.NoError(t, err)
		require.Len(t, failed, 1)
		require.Equal(t, "short", failed[0].Name)
		require.Equal(t, "no disk", failed[0].Err)
		require.Equal(t, 2, failed[0].Attempts)
		require.Equal(t, "one", failed[0].Worker)
		items := m.items()
		require.Len(t, items, 1)
		require.Len(t, one.Status(), 1, "removed from the worker")

		require.Contains(t, n.logs.String(),
			`msg="jobs failed for good, not run again" jobs=1 first=short worker=one attempts=2 err="no disk"`)

		m.close()
		next := n.open(m.store)
		require.NoError(t, one.beat())
		next.put("short")
		n.pass(time.Minute, one)
		require.Equal(t, 3, n.starts(), "a failed job does not run again")
		again, err := next.Failed("", 10)
		require.NoError(t, err)
		require.Equal(t, failed, again)

		n.fail(nil)
		require.NoError(t, next.Retry(t.Context(), "short"))
		n.pass(2*time.Second, one)
		again, err = next.Failed("", 10)
		require.NoError(t, err)
		require.Empty(t, again)
		done := next.completed()
		require.Len(t, done, 1)
	})
}

// A new worker gets no running job.
func TestW8_ARunningJobStaysWhereItIs(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		complete := worker.WithCompletion(func(string) {})
		one, two := n.newWorker("one", complete, worker.WithSlots(1)), n.newWorker("two", complete, worker.WithSlots(1))
		require.NoError(t, one.register())
		m.put("job a", "job b", "job c", "job d")
		n.pass(2*time.Second, one)
		running := one.Status()[0]
		require.Equal(t, worker.Running, running.State)
		require.NoError(t, two.register())
		n.pass(3*time.Second, one, two)
		require.Len(t, one.Status(), 2)
		require.Len(t, two.Status(), 2)
		require.Equal(t, running, one.Status()[0], "only waiting jobs have moved")
		require.NoError(t, m.Drain(t.Context(), "one"))
		n.pass(3*time.Second, one, two)
		require.Len(t, one.Status(), 1)
		require.Equal(t, running, one.Status()[0], "the drain waits for it")
		waits := false
		for _, w := range m.LastPlan().Waiting {
			waits = waits || w.Task == running.Task && w.Reason == orchestrator.ReasonPinned
		}
		require.True(t, waits, "%+v", m.LastPlan().Waiting)
		require.NoError(t, m.Delete(context.WithoutCancel(t.Context()), running.Task))
		n.pass(3*time.Second, one, two)
		require.Empty(t, one.Status())
	})
}

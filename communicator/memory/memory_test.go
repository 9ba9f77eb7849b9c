package memory_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	cluster = memory.Cluster[string, string]
	event   = memory.Event[string, string]
	writes  = []orchestrator.Write[string]
)

// start returns a cluster of two workers, w1 and w2, which is closed at the end of
// the test.
func start(t *testing.T, run func(context.Context, string, string) error, opts ...memory.Option) *cluster {
	t.Helper()
	c, err := memory.New(run, opts...)
	require.NoError(t, err)
	c.Start("w1", "w2")
	t.Cleanup(func() { require.NoError(t, c.Close(context.WithoutCancel(t.Context()))) })
	return c
}

// inBubble runs a test with that cluster in a bubble of testing/synctest.
func inBubble(t *testing.T, run func(context.Context, string, string) error, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, start(t, run)) })
}

// begin makes a call in a bubble, and returns when it waits. The result is the call's.
func begin(call func() error) (result <-chan error) {
	done := make(chan error, 1)
	go func() { done <- call() }()
	synctest.Wait()
	return done
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func term(ctx context.Context, number uint64) context.Context {
	return orchestrator.ContextWithTerm(ctx, orchestrator.Term{Epoch: 5, Number: number})
}

// stubborn takes a second to stop.
func stubborn(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	<-time.After(time.Second)
	return nil
}

func TestCluster_RunsRealWorkers(t *testing.T) {
	c := start(t, nil)
	for _, communicator := range []orchestrator.Communicator[string, string]{c, c.Plain()} {
		require.NoError(t, communicator.Add(t.Context(), "w1", "a"))
		require.NoError(t, communicator.Add(t.Context(), "w2", "a"))
		require.NoError(t, communicator.Add(t.Context(), "w2", "b"))
		require.Equal(t, []string{"w1", "w2"}, c.Running("a"))
		require.Equal(t, []string{"a", "b"}, c.RunsOn("w2"))
		tasks, err := communicator.List(t.Context(), "w2")
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, tasks)

		require.NoError(t, communicator.Remove(t.Context(), "w1", "a"))
		require.Equal(t, []string{"w2"}, c.Running("a"))
		require.NoError(t, communicator.Remove(t.Context(), "w2", "a"))
		require.NoError(t, communicator.Remove(t.Context(), "w2", "b"))
		require.Empty(t, c.Running("a"))
	}
	require.Equal(t, memory.Counts{Starts: 4, Stops: 4, Most: 2}, c.Counts("a"))
	require.Zero(t, c.Counts("unheard of"))
	require.Empty(t, c.Running("unheard of"))
	require.Empty(t, c.RunsOn("unheard of"))
}

func TestPlain_IsNoApplier(t *testing.T) {
	c := start(t, nil)
	_, ok := c.Plain().(orchestrator.Applier[string, string])
	require.False(t, ok)
	_, ok = orchestrator.Communicator[string, string](c).(orchestrator.Applier[string, string])
	require.True(t, ok)
}

func TestNew_NamesBadWorkerOptions(t *testing.T) {
	_, err := memory.New[string, string](nil,
		memory.WithWorkerOptions(worker.WithSlots(-1)),
		memory.WithWorkerOptions(worker.WithBackoff(0, 0)))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	require.ErrorContains(t, err, "WithSlots(-1)")
	require.ErrorContains(t, err, "WithBackoff(0s, 0s)")
}

func TestWithReadiness_LeavesItToTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, func(ctx context.Context, _, _ string) error {
			<-time.After(time.Second)
			worker.Ready(ctx)
			<-ctx.Done()
			return nil
		}, memory.WithReadiness())
		began := time.Now()
		require.NoError(t, c.Add(t.Context(), "w1", "a"))
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestKill_ForgetsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		causes := make(chan error, 8)
		c := start(t, func(ctx context.Context, _, _ string) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			<-time.After(time.Hour) // long after the end of its process
			return nil
		})
		require.NoError(t, c.Add(term(t.Context(), 3), "w1", "a"))
		require.NoError(t, c.Add(term(t.Context(), 3), "w1", "b"))
		incarnation := c.Worker("w1").Incarnation()

		removed := make(chan error, 1)
		go func() { removed <- c.Remove(term(t.Context(), 3), "w1", "a") }()
		<-time.After(time.Second)
		c.Kill("w1", "w1", "w3")
		require.ErrorIs(t, <-removed, memory.ErrDown, "a call under way fails immediately")
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, <-causes, worker.ErrRemoved)
		require.ErrorIs(t, <-causes, worker.ErrClosed)
		require.Empty(t, c.Running("a"))
		require.Nil(t, c.Worker("w1"))
		_, err := c.List(t.Context(), "w1")
		require.ErrorIs(t, err, memory.ErrDown)
		require.NotErrorIs(t, c.Add(t.Context(), "w1", "a"), orchestrator.ErrRejected, "the outcome is unknown")
		require.Equal(t, []error{memory.ErrDown}, []error{errors.Unwrap(c.Apply(t.Context(), "w1", writes{{}})[0])})

		c.Start("w1")
		require.NotEqual(t, incarnation, c.Worker("w1").Incarnation())
		require.NoError(t, c.Add(t.Context(), "w1", "b"), "the new process has seen no term")
		c.Worker("w1").Fence(orchestrator.Term{Epoch: 5, Number: 3})
		require.ErrorIs(t, c.Add(t.Context(), "w1", "a"), orchestrator.ErrStale)
		c.Start("w1")
		require.Empty(t, c.RunsOn("w1"), "starting a running worker restarts it")
		require.NoError(t, c.Close(t.Context()))

		at := func(d time.Duration, kind memory.EventKind, name, task string) event {
			return event{Time: began.Add(d), Kind: kind, Worker: name, Task: task}
		}
		require.Equal(t, []event{
			at(0, memory.WorkerStarted, "w1", ""),
			at(0, memory.WorkerStarted, "w2", ""),
			at(0, memory.TaskStarted, "w1", "a"),
			at(0, memory.TaskStarted, "w1", "b"),
			at(time.Second, memory.WorkerKilled, "w1", ""),
			at(time.Second, memory.TaskStopped, "w1", "a"),
			at(time.Second, memory.TaskStopped, "w1", "b"),
			at(time.Second, memory.WorkerStarted, "w1", ""),
			at(time.Second, memory.TaskStarted, "w1", "b"),
			at(time.Second, memory.WorkerKilled, "w1", ""),
			at(time.Second, memory.TaskStopped, "w1", "b"),
			at(time.Second, memory.WorkerStarted, "w1", ""),
		}, c.Events()[:12])
	})
}

func TestKill_CallForTheDeadDoesNotReachItsSuccessor(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		for _, disturb := range []func(){
			func() { c.Slow(time.Second, "w1") },
			func() { c.Late(time.Second, "w1") },
			func() { c.Hang("w1") },
			func() { c.Stick("w1") },
			func() { c.HoldWrites("w1") },
			func() { c.LoseAnswers("w1") },
		} {
			disturb()
			answer := begin(func() error { return c.Add(t.Context(), "w1", "a") })
			c.Start("w1")
			require.ErrorIs(t, <-answer, memory.ErrDown)
			c.Heal()
			<-time.After(time.Minute)
			require.Empty(t, c.RunsOn("w1"))
		}
	})
}

func TestClose_WaitsForTheDead(t *testing.T) {
	inBubble(t, stubborn, func(t *testing.T, c *cluster) {
		require.NoError(t, c.Add(t.Context(), "w1", "a"))
		require.NoError(t, c.Add(t.Context(), "w2", "a"))
		c.Kill("w1")
		err := c.Close(within(t, time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "worker w1")
		require.ErrorContains(t, err, "worker w2")
		began := time.Now()
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, time.Second-time.Millisecond, time.Since(began))
	})
}

func TestRefuse_AnswersInTheWorkersStead(t *testing.T) {
	c := start(t, nil)
	full := errors.Join(orchestrator.ErrRejected, errors.New("no room"))
	c.Refuse(func(op orchestrator.Op, name, task string) error {
		if op == orchestrator.OpAdd && (name == "w2" || task == "poison") {
			return full
		}
		return nil
	})
	require.ErrorIs(t, c.Add(t.Context(), "w2", "a"), full)
	require.NoError(t, c.Remove(t.Context(), "w2", "a"))
	require.Equal(t, []error{nil, full, nil}, c.Apply(t.Context(), "w1", writes{
		{Op: orchestrator.OpAdd, Task: "a"},
		{Op: orchestrator.OpAdd, Task: "poison"},
		{Op: orchestrator.OpRemove, Task: "b"},
	}))
	require.Equal(t, []string{"a"}, c.RunsOn("w1"))

	c.Refuse(func(op orchestrator.Op, _, _ string) error {
		if op == orchestrator.OpList {
			return full
		}
		return nil
	})
	_, err := c.List(t.Context(), "w1")
	require.ErrorIs(t, err, full)
	c.Refuse(nil)
	require.Nil(t, c.Apply(t.Context(), "w1", writes{{Op: orchestrator.OpAdd, Task: "poison"}}))
}

// pin is a job that must not be moved until the channel is closed.
type pin struct {
	worker, task string
	ends         chan struct{}
}

// underTest returns a new cluster for the conformance kit. cut is the switch that
// cuts a worker off.
func underTest(plain bool, cut func(*cluster, ...string)) func(*testing.T) communicatortest.Cluster[string, string] {
	return func(t *testing.T) communicatortest.Cluster[string, string] {
		lingers := make(chan struct{}, 1) // holds a value while tasks are slow to stop
		var pinned atomic.Pointer[pin]
		c := start(t, func(ctx context.Context, name, task string) error {
			if p := pinned.Load(); p != nil && p.worker == name && p.task == task {
				select {
				case <-p.ends:
				case <-ctx.Done():
				}
			}
			worker.Movable(ctx)
			<-ctx.Done()
			lingers <- struct{}{}
			<-lingers
			return nil
		}, memory.WithWorkerOptions(worker.WithCompletion(func(string) {})))
		under := communicatortest.Cluster[string, string]{
			Communicator:   c,
			Workers:        []string{"w1", "w2"},
			Tasks:          []string{"a", "b", "c"},
			UnknownWorkers: []string{"w3"},
			Hold:           c.HoldWrites,
			Linger: func(string, string) func() {
				lingers <- struct{}{}
				return func() { <-lingers }
			},
			Pin: func(worker, task string) func() {
				ends := make(chan struct{})
				pinned.Store(&pin{worker, task, ends})
				return func() { close(ends) }
			},
			Cut: func(name string) func() {
				cut(c, name)
				return func() { c.Heal(name) }
			},
			Refuse: func(name, task string) func() {
				c.Refuse(func(op orchestrator.Op, n, tk string) error {
					if op == orchestrator.OpAdd && n == name && tk == task {
						return fmt.Errorf("%w: no %s here", orchestrator.ErrRejected, task)
					}
					return nil
				})
				return func() { c.Refuse(nil) }
			},
		}
		if plain {
			under.Communicator = c.Plain()
		}
		return under
	}
}

// Tasks that ask to leave a worker run on the other one. They are not moved back for a while,
// and no worker is quarantined. A worker that is alone gives way.
func TestReschedule(t *testing.T) {
	asks := func(ctx context.Context, name, task string) error {
		if name == "w1" && task != "stays" {
			return worker.Reschedule(ctx, "no disk")
		}
		<-ctx.Done()
		return nil
	}
	inBubble(t, asks, func(t *testing.T, c *cluster) {
		o, err := orchestrator.New(c)
		require.NoError(t, err)
		terms := func(n int) (changes int) {
			for range n {
				_ = o.NextTerm(t.Context())
				changes += len(o.LastPlan().Changes)
				for _, p := range o.LastPlan().Paused {
					require.Equal(t, orchestrator.PauseStart, p.Kind)
					require.ErrorIs(t, p.Err, orchestrator.ErrElsewhere)
					require.Equal(t, "w1", p.Worker)
				}
				time.Sleep(time.Second)
			}
			return changes
		}
		require.NoError(t, o.AddWorker("w1"))
		require.NoError(t, o.AddTask("a"))
		require.NoError(t, o.AddTask("b"))
		require.Equal(t, 2, terms(1))
		tasks, err := c.List(t.Context(), "w1")
		require.NoError(t, err)
		require.Empty(t, tasks)
		require.NoError(t, o.AddWorker("w2"))
		require.LessOrEqual(t, terms(3), 4)
		require.ElementsMatch(t, []string{"a", "b"}, c.RunsOn("w2"))
		require.Zero(t, terms(900), "w1 stays empty for a quarter of an hour")
		require.NotZero(t, terms(100), "then it is tried")
		require.ElementsMatch(t, []string{"a", "b"}, c.RunsOn("w2"))
		require.NoError(t, o.AddTask("stays"))
		require.Equal(t, 1, terms(2))
		require.Equal(t, []string{"stays"}, c.RunsOn("w1"))

		starts := c.Counts("a").Starts
		c.Kill("w2")
		o.RemoveWorker("w2")
		terms(70)
		require.Greater(t, c.Counts("a").Starts, starts)
	})
}

func TestConformance(t *testing.T) {
	for name, factory := range map[string]func(*testing.T) communicatortest.Cluster[string, string]{
		"Cut":   underTest(false, (*cluster).Cut),
		"Hang":  underTest(false, (*cluster).Hang),
		"Plain": underTest(true, (*cluster).Cut),
	} {
		t.Run(name, func(t *testing.T) {
			for name, check := range communicatortest.Checks(factory) {
				t.Run(name, func(t *testing.T) { synctest.Test(t, check) })
			}
		})
	}
}

// A task costs microseconds even in a large cluster, and in a bubble.
func TestCluster_Large(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, tasks = 2_000, 20_000
		c, err := memory.New[int, int](nil)
		require.NoError(t, err)
		all := make([][]orchestrator.Write[int], workers)
		for task := range tasks {
			name := task % workers
			all[name] = append(all[name], orchestrator.Write[int]{Op: orchestrator.OpAdd, Task: task})
		}
		for name := range workers {
			c.Start(name)
			require.Nil(t, c.Apply(t.Context(), name, all[name]))
		}
		for name := range workers {
			require.Len(t, c.RunsOn(name), tasks/workers)
		}
		require.NoError(t, c.Close(context.WithoutCancel(t.Context())))
		require.Len(t, c.Events(), 2*tasks+2*workers)
	})
}

// runJobs runs 24 jobs of 15 s on two workers with the given number of slots each.
// If joins is true, another worker joins every five seconds. It returns the time
// taken and the total number of starts.
func runJobs(t *testing.T, slots int, joins bool) (took time.Duration, starts int64) {
	t.Helper()
	const jobs, length = 24, 15 * time.Second
	var begun atomic.Int64
	done := make(chan string, 2*jobs)
	cluster, err := memory.New(func(ctx context.Context, _, _ string) error {
		begun.Add(1)
		select {
		case <-time.After(length):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, memory.WithWorkerOptions(worker.WithSlots(slots), worker.WithCompletion(func(task string) { done <- task })))
	require.NoError(t, err)
	o, err := orchestrator.New(cluster, orchestrator.WithSeed(1))
	require.NoError(t, err)
	join := func(name string) {
		cluster.Start(name)
		require.NoError(t, o.AddWorker(name))
	}
	for i := range jobs {
		require.NoError(t, o.AddTask(fmt.Sprint("job ", i)))
	}
	join("w1")
	join("w2")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	began := time.Now()
	go func() { ended <- o.Run(ctx, time.Second) }()
	more := make(<-chan time.Time)
	if joins {
		more = time.Tick(5 * time.Second)
	}
	for left, next := jobs, 3; left > 0; {
		select {
		case task := <-done:
			o.RemoveTask(task)
			left--
		case <-more:
			join(fmt.Sprint("w", next))
			next++
		}
	}
	took = time.Since(began)
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, cluster.Close(context.WithoutCancel(t.Context())))
	return took, begun.Load()
}

// Workers that join take waiting jobs, and no running job: no job is started twice.
func TestW8_JobsFinishWhileWorkersJoin(t *testing.T) {
	for _, slots := range []int{12, 4, 1} {
		t.Run(fmt.Sprint(slots, " slots"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alone, starts := runJobs(t, slots, false)
				require.EqualValues(t, 24, starts)
				took, starts := runJobs(t, slots, true)
				t.Logf("%v without joins, %v with", alone, took)
				require.EqualValues(t, 24, starts)
				require.LessOrEqual(t, took, alone*12/10)
			})
		})
	}
}

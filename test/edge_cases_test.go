package test

// T15: no tasks, no workers, and tasks that are not expected.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

func TestT15_ZeroWorkers(t *testing.T) {
	inBubble(t, given{workers: 0}, func(t *testing.T, f *fleet) {
		f.term() // nor tasks
		require.Empty(t, f.LastActual())
		f.expect(3)
		f.term()
		require.Equal(t, 3, f.LastPlan().Stats.Instances.Unplaceable)
		require.Len(t, f.waitingFor(orchestrator.ReasonNoWorker), 3)
		f.join("w1")
		f.term()
		require.Equal(t, []int{3}, f.loads())
		f.requireSettled()
	})
}

func TestT15_ZeroTasks(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.UpdateTasks(nil))
		f.term()
		f.requireSettled()
		require.Empty(t, f.LastPlan().Waiting)
		require.Empty(t, f.ListExpectedTasks())
	})
}

func TestT15_NoOpenWorker(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.DrainWorker("w1"))
		require.NoError(t, f.DrainWorker("w2"))
		f.term()
		require.Empty(t, f.writes(), "what drains is not stopped before it has somewhere to go")
		require.ElementsMatch(t, []waiting{
			{Task: f.RunsOn("w1")[0], Instances: 1, Reason: orchestrator.ReasonNoWorker, Worker: "w1", Named: true},
			{Task: f.RunsOn("w1")[1], Instances: 1, Reason: orchestrator.ReasonNoWorker, Worker: "w1", Named: true},
			{Task: f.RunsOn("w2")[0], Instances: 1, Reason: orchestrator.ReasonNoWorker, Worker: "w2", Named: true},
			{Task: f.RunsOn("w2")[1], Instances: 1, Reason: orchestrator.ReasonNoWorker, Worker: "w2", Named: true},
		}, f.LastPlan().Waiting)
		require.Zero(t, f.LastPlan().Stats.Instances.Missing, "they all run")

		f.join("w3")
		f.term()
		require.Equal(t, []int{0, 0, 4}, f.loads())
	})
}

func TestT15_TaskListedTwice(t *testing.T) {
	var removed []string
	listed := []string{"a", "b", "a", "a", "nobody's", "nobody's"}
	o, err := orchestrator.New(communicator.Func[string, string]{
		ListFunc: func(context.Context, string) ([]string, error) { return listed, nil },
		AddFunc:  func(context.Context, string, string) error { return errors.New("nothing is missing") },
		RemoveFunc: func(_ context.Context, _, task string) error {
			removed = append(removed, task)
			return nil
		},
	})
	require.NoError(t, err)
	require.NoError(t, o.AddWorker("w1"))
	require.NoError(t, o.UpdateTasks([]task{{Name: "a"}, {Name: "b"}}))
	for range 2 { // the second time it is the very same slice
		removed = nil
		require.NoError(t, o.NextTerm(t.Context()))
		require.Equal(t, []string{"nobody's"}, removed, "once")
		stats := o.LastPlan().Stats.Instances
		require.Equal(t, 3, stats.Duplicate)
		require.Equal(t, 2, stats.Running)
		require.Equal(t, []string{"a", "b"}, o.LastActual()[0].Tasks)
	}
	require.Equal(t, []string{"a", "b", "a", "a", "nobody's", "nobody's"}, listed, "the slice is the worker's too")
}

func TestT15_UnexpectedTasksAreRemoved(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.Worker("w1").Add(orchestrator.ContextWithTerm(t.Context(), f.LastPlan().Stats.Term), "stray"))
		f.freshTerm()
		require.Equal(t, []string{"remove stray w1"}, f.writes())
		require.Equal(t, orchestrator.ChangeKind{Op: orchestrator.Stop, Reason: orchestrator.ReasonUnexpected}, f.changesOf("stray")[0].Kind)
		require.Equal(t, 1, f.LastPlan().Stats.Instances.Unexpected)
		f.requireSettled()
		require.Zero(t, f.LastPlan().Stats.Instances.Unexpected)
	})
}

func TestT15_NothingIsUnexpectedBeforeTasksAreLoaded(t *testing.T) {
	for _, test := range []struct {
		name  string
		load  func(*orchestrator.Orchestrator[string, string]) error
		stays []string
	}{
		{"AddTask", func(o *orchestrator.Orchestrator[string, string]) error { return o.AddTask("t1") }, []string{"t1"}},
		{"UpdateTasks", func(o *orchestrator.Orchestrator[string, string]) error {
			return o.UpdateTasks([]task{{Name: "t2"}})
		}, []string{"t2"}},
		{"UpdateTasks(nil)", func(o *orchestrator.Orchestrator[string, string]) error { return o.UpdateTasks(nil) }, nil},
	} {
		t.Run(test.name, bubble(given{workers: 2, running: 4}, func(t *testing.T, old *fleet) {
			time.Sleep(time.Second)
			next, err := orchestrator.New(old.wire)
			require.NoError(t, err)
			for _, w := range old.workers {
				require.NoError(t, next.AddWorker(w))
			}
			for range 3 {
				next.RemoveTask("t1") // says nothing of what is expected
				require.Error(t, next.AddTask("t1", orchestrator.WithTaskInstances(-2)))
				require.NoError(t, next.NextTerm(t.Context()))
				require.Equal(t, 4, next.LastPlan().Stats.Instances.Unexpected, "it is seen, though")
			}
			require.Empty(t, old.writes())

			require.NoError(t, test.load(next))
			require.NoError(t, next.NextTerm(t.Context()))
			require.ElementsMatch(t, test.stays, slices.Concat(old.RunsOn("w1"), old.RunsOn("w2")))
		}))
	}
}

// Names that are no longer used leave nothing behind that could belong to another name.
func TestT15_NamesComeAndGo(t *testing.T) {
	inBubble(t, given{workers: 3, opts: options{hold}, applier: true}, func(t *testing.T, f *fleet) {
		for round := range 8 {
			tasks := make([]task, 1500)
			for i := range tasks {
				tasks[i].Name = fmt.Sprint("round", round/2, "-", i+round%2)
			}
			require.NoError(t, f.UpdateTasks(tasks))
			f.term()
			f.requireSettled()
			for _, load := range f.loads() {
				require.Equal(t, 500, load)
			}
		}
		f.Cut("w1") // which holds names that nobody expects any more
		require.NoError(t, f.UpdateTasks(nil))
		f.silentTerm("w1")
		f.expect(3000)
		f.silentTerm("w1")
		f.silentTerm("w1")
		require.Equal(t, []int{500, 1500, 1500}, f.loads())
		f.heal()
		f.term()
		f.term()
		f.requireSettled()
		require.Equal(t, []int{1000, 1000, 1000}, f.loads())
	})
}

// A step that takes quadratic time would take hours here.
func TestT15_AMillionUnexpectedTasks(t *testing.T) {
	listed := make([]int, 1_000_000)
	for i := range listed {
		listed[i] = i
	}
	c := &counting{}
	for _, test := range []struct {
		name string
		comm orchestrator.Communicator[string, int]
		list []int
	}{
		{"in one call", &countingApplier{c}, listed},
		{"one by one", c, listed[:100_000]},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, err := orchestrator.New(test.comm, orchestrator.WithCommunicatorTimeout(time.Hour))
			require.NoError(t, err)
			require.NoError(t, o.AddWorker("w1"))
			require.NoError(t, o.UpdateTasks(nil))
			c.list, c.removed = test.list, 0
			require.NoError(t, o.NextTerm(t.Context()))
			require.Equal(t, len(test.list), c.removed)
			require.Equal(t, len(test.list), o.LastPlan().Stats.Instances.Unexpected)
			require.Less(t, len(o.LastPlan().String()), 10_000, "for people")
			require.Empty(t, o.LastActual()[0].Tasks)

			c.list, c.removed = nil, 0
			require.NoError(t, o.NextTerm(t.Context()))
			require.Zero(t, c.removed)
			require.Empty(t, o.LastPlan().Changes)
		})
	}
}

// counting is a worker that lists given tasks, and counts the calls of Remove for each.
type counting struct {
	list    []int
	removed int
}

func (c *counting) List(context.Context, string) ([]int, error) { return c.list, nil }

func (c *counting) Add(context.Context, string, int) error { return errors.New("nothing is expected") }

func (c *counting) Remove(context.Context, string, int) error { c.removed++; return nil }

type countingApplier struct{ *counting }

func (c *countingApplier) Apply(_ context.Context, _ string, writes []orchestrator.Write[int]) []error {
	c.removed += len(writes)
	return nil
}

// An unexpected task whose stop pauses is still reported, and does not count as
// running.
func TestT15_AnUnexpectedTaskThatDoesNotStopIsReported(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
		f.RemoveTask("t1")
		f.intercept(on(orchestrator.OpRemove, "", "t1", fails(errBoom)))
		for range 10 {
			f.steadyTerm()
			in := f.LastPlan().Stats.Instances
			require.Equal(t, orchestrator.InstanceStats{Wanted: 3, Running: 3, Unexpected: 1}, in)
		}
	})
}

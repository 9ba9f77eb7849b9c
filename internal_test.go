package orchestrator

// White-box tests: the memory of a leader, and events between two steps of a term. The
// tests of the clauses are in folder test.

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slowCluster is a Communicator whose workers answer List after a delay, with the tasks
// that they ran when it began.
type slowCluster struct {
	mu   sync.Mutex
	runs map[string][]string
	slow map[string]time.Duration
}

func newSlowCluster(t *testing.T, names ...string) (*slowCluster, *Orchestrator[string, string]) {
	t.Helper()
	c := &slowCluster{runs: make(map[string][]string), slow: make(map[string]time.Duration)}
	o, err := New(c)
	require.NoError(t, err)
	for _, name := range names {
		require.NoError(t, o.AddWorker(name))
	}
	t.Cleanup(func() { time.Sleep(o.cfg.CommunicatorTimeout) }) // no call is under way then
	return c, o
}

// List implements Communicator.
func (c *slowCluster) List(ctx context.Context, worker string) ([]string, error) {
	c.mu.Lock()
	tasks, slow := slices.Clone(c.runs[worker]), c.slow[worker]
	c.mu.Unlock()
	select {
	case <-time.After(slow):
		return tasks, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Add implements Communicator.
func (c *slowCluster) Add(_ context.Context, worker, task string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[worker] = append(c.runs[worker], task)
	return nil
}

// Remove implements Communicator.
func (c *slowCluster) Remove(_ context.Context, worker, task string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[worker] = slices.DeleteFunc(c.runs[worker], func(t string) bool { return t == task })
	return nil
}

// answerAfter delays the answers of one worker by d, and those of the others by nothing.
func (c *slowCluster) answerAfter(d time.Duration, worker string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.slow)
	c.slow[worker] = d
}

// An answer that arrives after the next term has begun, but before that term calls List,
// does not replace the answer to that List: the leader keeps the tasks that it has started
// since.
func TestT4_LateAnswerIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := newSlowCluster(t, "w1", "w2")
		require.NoError(t, o.NextTerm(t.Context()))
		c.answerAfter(5*time.Second, "w2")
		require.NoError(t, o.NextTerm(t.Context()))
		require.True(t, o.LastPlan().Workers[1].Late)
		require.NoError(t, o.AddTask("t1"))
		require.NoError(t, o.AddTask("t2"))

		// A term, step by step.
		require.NoError(t, o.takeTurn(t.Context()))
		o.number++
		term := &termRun[string, string]{o: o, id: Term{Number: o.number}, fleet: o.fleet, expect: &o.expect, names: o.namesOf}
		term.update()
		time.Sleep(5 * time.Second) // the answer arrives: w2 runs nothing
		c.answerAfter(time.Second, "w1")
		require.NoError(t, term.phases(t.Context()))
		term.forgetTasks()
		term.publish(nil)
		o.endTurn()
		require.Len(t, c.runs["w1"], 1)
		require.Len(t, c.runs["w2"], 1)

		c.answerAfter(time.Hour, "w2")
		require.NoError(t, o.NextTerm(t.Context()))
		require.Len(t, c.runs["w1"], 1, "w2 runs the other one")
		require.Equal(t, 1, o.LastPlan().Stats.Instances.Held)
	})
}

// A call to a removed worker that fails late says nothing about a worker that was added
// under the same name. That worker is not lost before its own call has failed.
func TestT4_LateFailureOfAPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := newSlowCluster(t, "w1", "w2")
		o.cfg.GracePeriod = 0
		require.NoError(t, o.NextTerm(t.Context()))
		c.answerAfter(time.Hour, "w2")
		require.ErrorIs(t, o.NextTerm(t.Context()), ErrSilent)
		o.RemoveWorker("w2")
		require.NoError(t, o.AddWorker("w2"))
		require.ErrorIs(t, o.NextTerm(t.Context()), ErrSilent, "the earlier call has not returned")
		for _, state := range []State{Silent, Lost} {
			time.Sleep(o.cfg.CommunicatorTimeout) // the call under way fails
			require.ErrorIs(t, o.NextTerm(t.Context()), ErrSilent)
			require.Equal(t, state, o.LastActual()[1].State)
		}
	})
}

// While a term under way has forgotten tasks, and has not yet replaced the last snapshot, a
// plan starts from that one, and new tasks get numbers that it does not have. A forgotten
// task that is added meanwhile stays.
func TestD16_NumbersOfTheLastSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := newSlowCluster(t, "w1", "w2")
		for i := range 2000 {
			c.runs["w1"] = append(c.runs["w1"], fmt.Sprint("old", i))
		}
		require.NoError(t, o.NextTerm(t.Context()))
		starts := func() (tasks []string) {
			p, err := o.Plan(Hypothesis[string, string]{})
			require.NoError(t, err)
			for _, change := range p.Changes {
				if change.Kind.Op == Start {
					tasks = append(tasks, change.Task)
				}
			}
			return tasks
		}
		c.runs["w1"] = nil // no task is loaded, so nothing stops or starts them

		// A term, step by step.
		require.NoError(t, o.takeTurn(t.Context()))
		o.number++
		term := &termRun[string, string]{o: o, id: Term{Number: o.number}, fleet: o.fleet, expect: &o.expect, names: o.namesOf}
		require.NoError(t, term.run(t.Context()))
		require.Len(t, term.unused, 2000)
		require.NoError(t, o.AddTask("new"))
		require.Equal(t, []string{"new"}, starts())
		require.NoError(t, o.AddTask("old7"))
		require.Equal(t, []string{"new"}, starts(), "w1 ran the other one")
		term.publish(nil)
		o.endTurn()

		require.Len(t, o.tasks.free, 1999)
		require.NoError(t, o.AddTask("newer"))
		require.ElementsMatch(t, []string{"new", "old7", "newer"}, starts())
		require.NoError(t, o.NextTerm(t.Context()))
		require.ElementsMatch(t, []string{"new", "old7", "newer"}, slices.Concat(c.runs["w1"], c.runs["w2"]))
	})
}

// Snapshots, plans and the orchestrator share the definitions of the tasks. None sees a
// change of another.
func TestD17_DefinitionsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, o := newSlowCluster(t, "w1")
		require.NoError(t, o.UpdateTasks([]Task[string]{{Name: "a"}, {Name: "b"}, {Name: "c"}}))
		require.NoError(t, o.NextTerm(t.Context()))
		before, last := o.ListExpectedTasks(), o.Last()
		_, err := o.Plan(Hypothesis[string, string]{
			AddTasks: []Task[string]{{Name: "a", Instances: 3}, {Name: "d"}}, RemoveTasks: []string{"b"},
		})
		require.NoError(t, err)
		require.Equal(t, before, o.ListExpectedTasks())
		require.NoError(t, o.AddTask("e"))
		o.RemoveTask("a")
		require.Equal(t, before, slices.Collect(last.Expected()))
	})
}

// Plans and snapshots see no number of a task that was given to another one, and no change of
// the definitions that they share, while terms release numbers and tasks come and go.
func TestD17_NumbersAreReused(t *testing.T) {
	c := &slowCluster{runs: make(map[string][]string)}
	o, err := New(c, WithDryRun())
	require.NoError(t, err)
	require.NoError(t, o.UpdateWorkers([]Worker[string]{{Name: "w1"}, {Name: "w2"}}))
	var busy sync.WaitGroup
	ended := make(chan struct{})
	check := func(p Plan[string, string]) {
		for _, change := range p.Changes {
			if change.Kind.Op == Start {
				assert.Equal(t, "x", change.Task[:1], "only these are expected")
			} else {
				assert.Equal(t, change.From, change.Task[:2], "only this worker lists it")
			}
		}
	}
	repeat := func(f func(i int)) {
		busy.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ended:
					return
				default:
					f(i)
				}
			}
		})
	}
	require.NoError(t, o.NextTerm(t.Context()))
	require.NoError(t, o.AddTask("x"))
	repeat(func(i int) {
		name := fmt.Sprint("x", i%50)
		if err := o.AddTask(name, WithTaskInstances(1+i%2)); err != nil {
			t.Error(err)
		}
		o.RemoveTask(fmt.Sprint("x", (i+25)%50))
	})
	repeat(func(i int) {
		p, err := o.Plan(Hypothesis[string, string]{
			AddTasks: []Task[string]{{Name: "x new"}, {Name: fmt.Sprint("x", i%50), Instances: 2}}, RemoveTasks: []string{"x"},
		})
		if err != nil {
			t.Error(err)
		}
		check(p)
	})
	repeat(func(int) {
		last := o.Last()
		before := slices.Collect(last.Expected())
		check(last.Plan())
		assert.Equal(t, before, slices.Collect(last.Expected()))
		for _, task := range before {
			assert.Equal(t, "x", task.Name[:1])
		}
	})
	released := 0
	for i := range 15 {
		for _, w := range []string{"w1", "w2"} {
			var tasks []string
			for n := range 700 { // so many that their numbers are released in the next term
				tasks = append(tasks, fmt.Sprint(w, "-", i, "-", n))
			}
			c.mu.Lock()
			c.runs[w] = tasks
			c.mu.Unlock()
		}
		require.NoError(t, o.NextTerm(t.Context()))
		o.mu.Lock()
		released = max(released, len(o.tasks.free))
		o.mu.Unlock()
	}
	close(ended)
	busy.Wait()
	require.Greater(t, released, 700)
}

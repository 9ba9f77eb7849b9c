package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// This file holds what cannot be seen from outside: what is kept, and what
// happens between two steps of one term.

// workers is a Communicator whose workers run what they are told, and answer
// List after a while, with what they ran when it began.
type workers struct {
	mu   sync.Mutex
	runs map[string][]string
	slow map[string]time.Duration
}

func newWorkers(t *testing.T, names ...string) (*workers, *Orchestrator[string, string]) {
	t.Helper()
	c := &workers{runs: make(map[string][]string), slow: make(map[string]time.Duration)}
	o, err := New(c)
	require.NoError(t, err)
	for _, name := range names {
		require.NoError(t, o.AddWorker(name))
	}
	return c, o
}

// List implements Communicator.
func (c *workers) List(ctx context.Context, worker string) ([]string, error) {
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
func (c *workers) Add(_ context.Context, worker, task string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[worker] = append(c.runs[worker], task)
	return nil
}

// Remove implements Communicator.
func (c *workers) Remove(_ context.Context, worker, task string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[worker] = slices.DeleteFunc(c.runs[worker], func(t string) bool { return t == task })
	return nil
}

// answerAfter has one worker take its time, and the others answer at once.
func (c *workers) answerAfter(d time.Duration, worker string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.slow)
	c.slow[worker] = d
}

// An answer that arrives when the next term has begun, but has not asked yet,
// is overtaken by the answer to that term: it does not make the leader forget
// what it has started since.
func TestT4_LateAnswerIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := newWorkers(t, "w1", "w2")
		require.NoError(t, o.NextTerm(t.Context()))
		c.answerAfter(time.Hour, "w2")
		require.ErrorIs(t, o.NextTerm(t.Context()), ErrSilent)
		c.answerAfter(5*time.Second, "w2")
		require.ErrorIs(t, o.NextTerm(t.Context()), ErrSilent, "it is asked, and not waited for")
		require.NoError(t, o.AddTask("t1"))
		require.NoError(t, o.AddTask("t2"))

		// A term in slow motion.
		require.NoError(t, o.takeTurn(t.Context()))
		o.number++
		term := o.newTerm(false)
		term.begin()
		time.Sleep(6 * time.Second) // the answer is here: w2 runs nothing
		c.answerAfter(time.Second, "w1")
		require.NoError(t, term.phases(t.Context()))
		term.end()
		o.last.Store(term.publish(nil))
		o.endTurn()
		require.Len(t, c.runs["w1"], 1)
		require.Len(t, c.runs["w2"], 1)

		c.answerAfter(time.Hour, "w2")
		require.ErrorIs(t, o.NextTerm(t.Context()), ErrSilent)
		require.Len(t, c.runs["w1"], 1, "w2 runs the other one")
		require.Equal(t, 1, o.LastPlan().Stats.Instances.Held)
	})
}

// An Orchestrator that only plans keeps no more names than one that acts.
func TestPlan_KeepsNoNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks = 2000
		c, o := newWorkers(t, "w1", "w2")
		require.NoError(t, o.UpdateTasks(nil))
		for round := range 10 {
			list := make([]string, tasks)
			for i := range list {
				list[i] = fmt.Sprint("round", round, "-", i)
			}
			c.runs["w1"] = list
			plan, err := o.Plan(t.Context())
			require.NoError(t, err)
			require.Len(t, plan.Changes, tasks)
			for _, change := range plan.Changes {
				require.Contains(t, change.Task, fmt.Sprint("round", round, "-"))
			}
			require.LessOrEqual(t, len(o.tasks.ids), 2*tasks)
			require.LessOrEqual(t, len(o.tasks.defs), 2*tasks)
		}
	})
}

// Nor does it keep a line to a worker that is gone; and the others' stay.
func TestPlan_KeepsNoLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, o := newWorkers(t, "w1")
		plan := func() {
			_, err := o.Plan(t.Context())
			require.NoError(t, err)
		}
		for i := range 10 {
			name := fmt.Sprint("new", i)
			require.NoError(t, o.AddWorker(name))
			plan()
			o.RemoveWorker(name)
		}
		plan()
		require.LessOrEqual(t, len(o.lines.byName), 1)
		require.NoError(t, o.NextTerm(t.Context()))
		plan()
		require.Len(t, o.lines.byName, 1)
		require.Same(t, o.fleet.workers[0].line, o.lines.byName["w1"])
	})
}

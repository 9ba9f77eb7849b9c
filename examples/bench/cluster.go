//go:build peers

package main

// A minimal cluster, whose workers only return lists and record writes, and its leader.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/f8949c05/orchestrator"
)

// benchWorker is one worker. It returns two copies of its list in turn, which share no
// memory, as if they came over a network. If same is true, it always returns the
// same slice.
type benchWorker struct {
	copies [2][]string
	turn   int
	same   bool
	writes []orchestrator.Write[string]
}

// cluster is a Communicator. Its map does not change while a term runs, and no
// worker gets two calls at the same time.
type cluster struct {
	workers map[string]*benchWorker
	order   []string
	same    bool
}

var _ orchestrator.Communicator[string, string] = (*cluster)(nil)

func workerName(w int) string { return fmt.Sprintf("worker-%06d", w) }

// names returns the names of the tasks.
func (f fleet) names() []string {
	names := make([]string, len(f.want))
	for t := range names {
		names[t] = fmt.Sprintf("task-%08d", t)
	}
	return names
}

func newCluster(f fleet, same bool) *cluster {
	c := &cluster{make(map[string]*benchWorker, f.workers()), make([]string, f.workers()), same}
	names := f.names()
	for w, list := range f.held {
		c.order[w] = workerName(w)
		tasks := make([]string, len(list))
		for i, t := range list {
			tasks[i] = names[t]
		}
		c.join(c.order[w]).set(tasks)
	}
	return c
}

func (c *cluster) join(worker string) *benchWorker {
	w := &benchWorker{same: c.same}
	c.workers[worker] = w
	return w
}

// set replaces both copies, with separate memory for every name.
func (w *benchWorker) set(tasks []string) {
	for k := range w.copies {
		w.copies[k] = make([]string, len(tasks))
		for i, task := range tasks {
			w.copies[k][i] = strings.Clone(task)
		}
	}
}

// copies returns the lists that all workers return in one of their turns.
func (c *cluster) copies(turn int) [][]string {
	lists := make([][]string, len(c.order))
	for i, worker := range c.order {
		lists[i] = c.workers[worker].copies[turn]
	}
	return lists
}

// List returns one of the copies.
func (c *cluster) List(_ context.Context, worker string) ([]string, error) {
	w := c.workers[worker]
	if !w.same {
		w.turn = 1 - w.turn
	}
	return w.copies[w.turn], nil
}

// Add records the write.
func (c *cluster) Add(_ context.Context, worker, task string) error {
	w := c.workers[worker]
	w.writes = append(w.writes, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
	return nil
}

// Remove records the write.
func (c *cluster) Remove(_ context.Context, worker, task string) error {
	w := c.workers[worker]
	w.writes = append(w.writes, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: task})
	return nil
}

// obey applies the recorded writes, and returns their number.
func (c *cluster) obey() (writes int) {
	for _, w := range c.workers {
		if len(w.writes) == 0 {
			continue
		}
		writes += len(w.writes)
		gone := make(map[string]bool)
		tasks := slices.Clone(w.copies[0])
		for _, write := range w.writes {
			if write.Op == orchestrator.OpAdd {
				tasks = append(tasks, write.Task)
			} else {
				gone[write.Task] = true
			}
		}
		w.set(slices.DeleteFunc(tasks, func(task string) bool { return gone[task] }))
		w.writes = nil
	}
	return writes
}

// lead returns an orchestrator that expects the fleet's tasks and workers and has
// run three terms.
func lead(ctx context.Context, f fleet, c orchestrator.Communicator[string, string], names []string) (*orchestrator.Orchestrator[string, string], error) {
	o, err := orchestrator.New(c)
	if err != nil {
		return nil, err
	}
	tasks := make([]orchestrator.Task[string], len(f.want))
	for t := range tasks {
		tasks[t] = orchestrator.Task[string]{Name: names[t], Instances: int(f.want[t])}
	}
	workers := make([]orchestrator.Worker[string], f.workers())
	for w := range workers {
		workers[w].Name = workerName(w)
	}
	if err := o.UpdateTasks(tasks); err != nil {
		return nil, err
	}
	if err := o.UpdateWorkers(workers); err != nil {
		return nil, err
	}
	for range 3 {
		if err := quietTerm(ctx, o); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// quietTerm runs a term, and fails if it changes anything.
func quietTerm(ctx context.Context, o *orchestrator.Orchestrator[string, string]) error {
	if err := o.NextTerm(ctx); err != nil {
		return err
	}
	return requireQuiet(o)
}

func requireQuiet(o *orchestrator.Orchestrator[string, string]) error {
	if n := len(o.LastPlan().Changes); n > 0 {
		return fmt.Errorf("a steady term made %d changes", n)
	}
	return nil
}

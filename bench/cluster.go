package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/f8949c05/orchestrator"
)

// A minimal cluster: its workers only return lists and record writes.

// hand is one worker. It returns two copies of its list in turn, which share no
// memory, as if they came over a network. If same is true, it always returns the
// same slice.
type hand struct {
	copies [2][]string
	turn   int
	same   bool
	told   []orchestrator.Write[string]
}

// cluster is a Communicator. Its map does not change while a term runs, and no
// worker gets two calls at the same time.
type cluster struct {
	hands map[string]*hand
	order []string
	same  bool
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
	c := &cluster{make(map[string]*hand, f.workers()), make([]string, f.workers()), same}
	names := f.names()
	for w, list := range f.held {
		c.order[w] = workerName(w)
		h := c.join(c.order[w])
		tasks := make([]string, len(list))
		for i, t := range list {
			tasks[i] = names[t]
		}
		h.set(tasks)
	}
	return c
}

func (c *cluster) join(worker string) *hand {
	h := &hand{same: c.same}
	c.hands[worker] = h
	return h
}

// set replaces both copies, with separate memory for every name.
func (h *hand) set(tasks []string) {
	for k := range h.copies {
		h.copies[k] = make([]string, len(tasks))
		for i, task := range tasks {
			h.copies[k][i] = strings.Clone(task)
		}
	}
}

// copies returns the lists that all workers return in one of their turns.
func (c *cluster) copies(turn int) [][]string {
	lists := make([][]string, len(c.order))
	for i, worker := range c.order {
		lists[i] = c.hands[worker].copies[turn]
	}
	return lists
}

// List returns one of the copies.
func (c *cluster) List(_ context.Context, worker string) ([]string, error) {
	h := c.hands[worker]
	if !h.same {
		h.turn = 1 - h.turn
	}
	return h.copies[h.turn], nil
}

// Add records the write.
func (c *cluster) Add(_ context.Context, worker, task string) error {
	h := c.hands[worker]
	h.told = append(h.told, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
	return nil
}

// Remove records the write.
func (c *cluster) Remove(_ context.Context, worker, task string) error {
	h := c.hands[worker]
	h.told = append(h.told, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: task})
	return nil
}

// obey applies the recorded writes, and returns their number.
func (c *cluster) obey() (writes int) {
	for _, h := range c.hands {
		if len(h.told) == 0 {
			continue
		}
		writes += len(h.told)
		gone := make(map[string]bool)
		tasks := slices.Clone(h.copies[0])
		for _, w := range h.told {
			if w.Op == orchestrator.OpAdd {
				tasks = append(tasks, w.Task)
			} else {
				gone[w.Task] = true
			}
		}
		h.set(slices.DeleteFunc(tasks, func(task string) bool { return gone[task] }))
		h.told = nil
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

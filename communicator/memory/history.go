package memory

// The record of what runs. It is kept at the calls of the tasks' functions, so it
// does not depend on what workers report or callers believe.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Event is an event in a Cluster.
type Event[W, T comparable] struct {
	Time   time.Time
	Kind   EventKind
	Worker W
	// Task is the zero value if Kind is WorkerStarted or WorkerKilled.
	Task T
}

// EventKind is the kind of an [Event].
type EventKind uint8

const (
	// WorkerStarted is the start of a worker's process.
	WorkerStarted EventKind = iota + 1
	// WorkerKilled is the end of a worker's process. A TaskStopped follows for each
	// task that ran.
	WorkerKilled
	// TaskStarted is the call of a task's function.
	TaskStarted
	// TaskStopped is the return or panic of a task's function, or the end of its
	// worker's process.
	TaskStopped
)

// String returns the kind in lower case.
func (k EventKind) String() string {
	switch k {
	case WorkerStarted:
		return "worker started"
	case WorkerKilled:
		return "worker killed"
	case TaskStarted:
		return "task started"
	case TaskStopped:
		return "task stopped"
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Counts holds the numbers of one task so far.
type Counts struct {
	// Starts and Stops count the events of these kinds. Their difference is the
	// number of workers on which the task runs now.
	Starts, Stops int
	// Most is the largest number of workers on which the task ran at the same time.
	Most int
}

// history is the record of what runs. The Cluster's lock guards it.
type history[W, T comparable] struct {
	tasks  map[T]*taskHistory[W]
	events []Event[W, T]
	starts uint64 // of all tasks
}

// taskHistory holds the runs of one task.
type taskHistory[W comparable] struct {
	running []W // in the order of their starts
	counts  Counts
}

// event records an event that happens now. task is nil if the event has none.
func (h *history[W, T]) event(kind EventKind, name W, task *T) {
	e := Event[W, T]{Time: time.Now(), Kind: kind, Worker: name}
	if task != nil {
		e.Task = *task
	}
	h.events = append(h.events, e)
}

func (h *history[W, T]) started(p *process[W, T], task T) {
	h.starts++
	p.runs[task] = h.starts
	r := h.tasks[task]
	if r == nil {
		r = new(taskHistory[W])
		h.tasks[task] = r
	}
	r.running = append(r.running, p.name)
	r.counts.Starts++
	r.counts.Most = max(r.counts.Most, len(r.running))
	h.event(TaskStarted, p.name, &task)
}

func (h *history[W, T]) stopped(p *process[W, T], task T) {
	delete(p.runs, task)
	r := h.tasks[task]
	if i := slices.Index(r.running, p.name); i >= 0 {
		r.running = slices.Delete(r.running, i, i+1)
	}
	r.counts.Stops++
	h.event(TaskStopped, p.name, &task)
}

// killed records the end of everything that p runs, in the order of the starts.
func (h *history[W, T]) killed(p *process[W, T]) {
	h.event(WorkerKilled, p.name, nil)
	for _, task := range p.running() {
		h.stopped(p, task)
	}
}

// running returns the tasks that p runs, in the order of their starts.
func (p *process[W, T]) running() []T {
	return slices.SortedFunc(maps.Keys(p.runs), func(a, b T) int {
		return cmp.Compare(p.runs[a], p.runs[b])
	})
}

// started records that p is about to run task. It returns false if p was killed and
// must not run it.
func (c *Cluster[W, T]) started(p *process[W, T], task T) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.gone {
		return false
	}
	c.history.started(p, task)
	return true
}

// stopped records that p no longer runs task. If p was killed, that is recorded
// already.
func (c *Cluster[W, T]) stopped(p *process[W, T], task T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.gone {
		c.history.stopped(p, task)
	}
}

// Running returns the workers on which task runs now, in the order in which they
// started it. A task runs from the call of its function to its return. The caller owns
// the slice.
func (c *Cluster[W, T]) Running(task T) []W {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.history.tasks[task]; r != nil {
		return slices.Clone(r.running)
	}
	return nil
}

// RunsOn returns the tasks that run on a worker now, in the order of their starts.
// The caller owns the slice.
func (c *Cluster[W, T]) RunsOn(name W) []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.alive[name]; p != nil {
		return p.running()
	}
	return nil
}

// Counts returns the numbers of a task so far.
func (c *Cluster[W, T]) Counts(task T) Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.history.tasks[task]; r != nil {
		return r.counts
	}
	return Counts{}
}

// Events returns all events so far, in order. The caller owns the slice.
func (c *Cluster[W, T]) Events() []Event[W, T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.history.events)
}

package memory

// What really happens: the books that are kept where the tasks' functions are
// called, so that they hold whatever workers and callers say.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Event is something that happened in a Cluster.
type Event[W, T comparable] struct {
	Time   time.Time
	Kind   EventKind
	Worker W
	// Task is the zero value where Kind is WorkerStarted or WorkerKilled.
	Task T
}

// EventKind is what happened in an [Event].
type EventKind uint8

const (
	// WorkerStarted is a Start.
	WorkerStarted EventKind = iota + 1
	// WorkerKilled is a Kill; a TaskStopped follows for each task that ran.
	WorkerKilled
	// TaskStarted is when the function of a task was called.
	TaskStarted
	// TaskStopped is when it returned, panicked, or its worker was killed.
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

// Counts is what has happened to one task so far.
type Counts struct {
	// Starts and Stops count the events of these kinds. Their difference is on
	// how many workers the task runs now.
	Starts, Stops int
	// Most is on how many workers it has ever run at the same time.
	Most int
}

// truth is the books. The Cluster's lock guards them.
type truth[W, T comparable] struct {
	tasks  map[T]*record[W]
	events []Event[W, T]
	starts uint64 // of all tasks
}

// record is the page of one task.
type record[W comparable] struct {
	running []W // in the order of their starts
	counts  Counts
}

// event notes what happened just now; task is nil where there is none.
func (t *truth[W, T]) event(kind EventKind, name W, task *T) {
	e := Event[W, T]{Time: time.Now(), Kind: kind, Worker: name}
	if task != nil {
		e.Task = *task
	}
	t.events = append(t.events, e)
}

func (t *truth[W, T]) started(p *process[W, T], task T) {
	t.starts++
	p.runs[task] = t.starts
	r := t.tasks[task]
	if r == nil {
		r = new(record[W])
		t.tasks[task] = r
	}
	r.running = append(r.running, p.name)
	r.counts.Starts++
	r.counts.Most = max(r.counts.Most, len(r.running))
	t.event(TaskStarted, p.name, &task)
}

func (t *truth[W, T]) stopped(p *process[W, T], task T) {
	delete(p.runs, task)
	r := t.tasks[task]
	if i := slices.Index(r.running, p.name); i >= 0 {
		r.running = slices.Delete(r.running, i, i+1)
	}
	r.counts.Stops++
	t.event(TaskStopped, p.name, &task)
}

// killed stops everything that p runs, in the order in which it was started.
func (t *truth[W, T]) killed(p *process[W, T]) {
	t.event(WorkerKilled, p.name, nil)
	for _, task := range p.running() {
		t.stopped(p, task)
	}
}

// running returns what p runs, in the order in which it was started.
func (p *process[W, T]) running() []T {
	return slices.SortedFunc(maps.Keys(p.runs), func(a, b T) int {
		return cmp.Compare(p.runs[a], p.runs[b])
	})
}

// started takes note that p is about to run task. It reports false if it must
// not, since p was killed.
func (c *Cluster[W, T]) started(p *process[W, T], task T) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.gone {
		return false
	}
	c.truth.started(p, task)
	return true
}

// stopped takes note that p runs task no more. What p ran when it was killed is
// in the books as stopped already.
func (c *Cluster[W, T]) stopped(p *process[W, T], task T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.gone {
		c.truth.stopped(p, task)
	}
}

// Running returns the workers on which task runs now, that is, has its function
// called and not yet returned, in the order in which they started it. The slice
// is the caller's.
func (c *Cluster[W, T]) Running(task T) []W {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.truth.tasks[task]; r != nil {
		return slices.Clone(r.running)
	}
	return nil
}

// RunsOn returns the tasks that run on a worker now, in the order in which they
// were started. The slice is the caller's.
func (c *Cluster[W, T]) RunsOn(name W) []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.alive[name]; p != nil {
		return p.running()
	}
	return nil
}

// Counts returns what has happened to task so far.
func (c *Cluster[W, T]) Counts(task T) Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.truth.tasks[task]; r != nil {
		return r.counts
	}
	return Counts{}
}

// Events returns all that has happened so far, in its order. The slice is the
// caller's.
func (c *Cluster[W, T]) Events() []Event[W, T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.truth.events)
}

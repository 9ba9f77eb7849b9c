package grpc

// The tasks that a worker may list (R5).

import (
	"sync"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// assigned decides which tasks a worker may list. A receipt shows that a worker of this
// name was given a task at some time, not that it still has the task. So a worker may
// list a task only if the task was in its last report or was sent to it since, and if the
// worker has acknowledged no stop of it since.
//
// After a restart of the manager, the first report of a worker that was a member before
// is judged by its receipts alone.
type assigned struct {
	mu      sync.Mutex
	known   bool            // a report has come, or the worker runs nothing yet
	sent    map[string]bool // started, or given new content, since the last report
	stopped map[string]bool // stopped since the last report, or still listed in it after a stop
}

// send records that a start or new content is on its way.
func (a *assigned) send(changes []*orchestratorv1.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range changes {
		if c.GetOp() == orchestratorv1.Op_OP_REMOVE {
			continue
		}
		if a.sent == nil {
			a.sent = make(map[string]bool)
		}
		a.sent[string(c.GetTask())] = true
		if c.GetOp() == orchestratorv1.Op_OP_ADD {
			delete(a.stopped, string(c.GetTask()))
		}
	}
}

// stop records that the worker acknowledged a stop.
func (a *assigned) stop(task string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped == nil {
		a.stopped = make(map[string]bool)
	}
	a.stopped[task] = true
	delete(a.sent, task)
}

// examine sets Given for the tasks of a report that follows the report last. issued
// checks a task's receipt.
func (a *assigned) examine(tasks []wire.Task, last *snapshot, issued func(*wire.Task) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var before map[string]bool // Given by task, of last; nil: not needed yet
	had := func(task string) bool {
		if before == nil {
			before = make(map[string]bool, len(last.Tasks))
			for i := range last.Tasks {
				before[last.Tasks[i].Name] = last.Tasks[i].Given
			}
		}
		return before[task]
	}
	var listed map[string]bool
	for i := range tasks {
		t := &tasks[i]
		switch {
		case a.stopped[t.Name]:
			t.Given = false
			if listed == nil {
				listed = make(map[string]bool)
			}
			listed[t.Name] = true
		case !t.Given:
			t.Given = (!a.known || a.sent[t.Name] || had(t.Name)) && issued(t)
		}
		t.Pinned = t.Pinned && t.Given
	}
	a.known, a.sent, a.stopped = true, nil, listed
}

// listsStopped reports whether a report that has not changed lists a task that was
// stopped.
func (a *assigned) listsStopped(tasks []wire.Task) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.stopped) == 0 {
		a.sent = nil
		return false
	}
	for i := range tasks {
		if a.stopped[tasks[i].Name] {
			return true
		}
	}
	a.sent, a.stopped = nil, nil
	return false
}

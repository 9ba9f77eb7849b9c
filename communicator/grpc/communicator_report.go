package grpc

// How a report is asked for and read. It is read by hand, so names that stand in the
// last report too, in the same order, take no memory.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// version is how old a report is.
type version struct{ incarnation, counter uint64 }

// snapshot is a report as it is kept. Nobody changes it any more, but for what is
// found out about it.
type snapshot struct {
	version version
	tasks   []reportedTask
	names   []string // of the tasks, those first that cost least to move

	pinned int // how many at the end of names are not to be moved

	ended []reportedTask // those of tasks that have completed or failed

	// current is the revision of the contents as of which no task lacked any; 0:
	// that is not known.
	current atomic.Int64
}

// listed returns the names of the tasks.
func (s *snapshot) listed() map[string]bool {
	names := make(map[string]bool, len(s.tasks))
	for i := range s.tasks {
		names[s.tasks[i].Name] = true
	}
	return names
}

// reportedTask is a task in a report, and what the worker shows for it.
type reportedTask struct {
	TaskState
	receipt receipt
	given   bool // the worker may list it, if there are receipts; see assigned
}

// conclusion returns what the worker of a name says of a task that has ended. It is not
// called under a lock: the receipt takes microseconds.
func (t *reportedTask) conclusion(key receiptKey, from string) conclusion {
	e := conclusion{task: t.Name, version: t.Version, proven: key.issued(t.receipt, from, t.Name, t.Version)}
	if t.State == worker.Failed {
		e.failure = cmp.Or(t.Failure, &Failure{Err: "the worker does not say why"})
	}
	return e
}

// report asks the worker what it runs.
func (l *link) report(ctx context.Context) (*snapshot, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	known := l.last.Load()
	request := &orchestratorv1.ReportRequest{Term: termOf(ctx), Incarnation: l.worker.Incarnation}
	if known.version != (version{}) {
		request.Known = &orchestratorv1.Version{Incarnation: known.version.incarnation, Counter: known.version.counter}
	}
	reply := reply{known: known, most: l.settings.maxMessage / leastTask}
	_, err := l.call(ctx, orchestratorv1.Worker_Report_FullMethodName, request, &reply)
	if err == nil {
		err = l.succeeded(ctx, reply.term)
	}
	if err == nil {
		err = reply.check(l.worker)
	}
	l.observed(ctx, err)
	switch {
	case err != nil:
		return nil, err
	case reply.version == known.version && (l.assigned == nil || !l.assigned.again(known.tasks)):
		return known, nil
	case reply.version == known.version:
		reply.tasks = slices.Clone(known.tasks)
	}
	if l.assigned != nil {
		l.assigned.examine(reply.tasks, known, func(t *reportedTask) bool {
			return l.settings.receipts.issued(t.receipt, l.worker.Name, t.Name, t.Version)
		})
	}
	s := &snapshot{version: reply.version, tasks: reply.tasks}
	s.names, s.pinned = byCost(reply.tasks, l.settings.ended != nil)
	for _, t := range s.tasks {
		if t.State == worker.Completed || t.State == worker.Failed {
			s.ended = append(s.ended, t)
		}
	}
	l.remember(s)
	return s, nil
}

// remember keeps the newest report: of two calls at once, the second may be
// answered first.
func (l *link) remember(s *snapshot) {
	for {
		last := l.last.Load()
		if last.version.counter >= s.version.counter || l.last.CompareAndSwap(last, s) {
			return
		}
	}
}

// termOf returns the term of a call, nil if it is of none.
func termOf(ctx context.Context) *orchestratorv1.Term {
	t, ok := orchestrator.TermFromContext(ctx)
	if !ok {
		return nil
	}
	return &orchestratorv1.Term{Epoch: t.Epoch, Number: t.Number}
}

// leastTask is how many bytes of the longest message there are for a task, so that
// what is kept of many short ones is bounded too.
const leastTask = 32

// reply is a ReportResponse that is being read.
type reply struct {
	known *snapshot // whose names are used again
	most  int       // tasks
	after int       // the name of known that was used last: its place, and one

	version version
	tasks   []reportedTask
	term    orchestrator.Term // a successor's
}

var _ answer = (*reply)(nil)

// byCost returns the names of tasks: first those that only wait, which lose nothing
// if they have to move, then those that run, and at last those that must not be moved,
// and how many these are: jobs that the worker pins, and what has ended, which would
// run again. If the ends are taken down before a term goes on, it would not: then it
// is the first, so that no task that runs makes room for it. The order is else the
// worker's.
func byCost(tasks []reportedTask, takenDown bool) (names []string, pinned int) {
	names = make([]string, 0, len(tasks))
	for cost := range pinnedCost + 1 {
		for i := range tasks {
			if costOf(&tasks[i], takenDown) != cost {
				continue
			}
			names = append(names, tasks[i].Name)
			if cost == pinnedCost {
				pinned++
			}
		}
	}
	return names, pinned
}

// What it costs to move a task, from what waits to what must not be moved.
const pinnedCost = 3

func costOf(t *reportedTask, takenDown bool) int {
	ended := t.State == worker.Completed || t.State == worker.Failed
	switch {
	case ended && takenDown:
		return 0
	case ended, t.Pinned:
		return pinnedCost
	case t.State == worker.Queued, t.State == worker.Backoff:
		return 1
	}
	return 2
}

// check says why a report cannot be what the worker means to say.
func (r *reply) check(from Worker) error {
	switch {
	case r.version.incarnation != from.Incarnation || r.version.counter == 0:
		return fmt.Errorf("its report is of version %d.%d, want %d.1 or later", r.version.incarnation, r.version.counter, from.Incarnation)
	case r.version == r.known.version && len(r.tasks) > 0:
		return fmt.Errorf("its report is of a version that is known, and lists %d tasks", len(r.tasks))
	}
	seen := make(map[string]struct{}, len(r.tasks))
	for _, t := range r.tasks {
		seen[t.Name] = struct{}{}
	}
	if twice := len(r.tasks) - len(seen); twice > 0 {
		return fmt.Errorf("its report lists %d tasks twice", twice)
	}
	return nil
}

// decode reads a report.
func (r *reply) decode(data []byte) error {
	n, err := count(data, 2)
	if err != nil {
		return err
	}
	if n > r.most {
		return fmt.Errorf("a report of %d tasks: at most %d, which is WithMaxMessage/%d", n, r.most, leastTask)
	}
	r.tasks = make([]reportedTask, 0, n)
	return fields(data, func(f field) error {
		switch {
		case f.is(1, protowire.BytesType):
			return r.decodeVersion(f.bytes)
		case f.is(2, protowire.BytesType):
			return r.decodeTask(f.bytes)
		case f.is(3, protowire.BytesType):
			return r.decodeTerm(f.bytes)
		}
		return nil
	})
}

func (r *reply) decodeVersion(data []byte) error {
	return fields(data, func(f field) error {
		switch {
		case f.is(1, protowire.Fixed64Type):
			r.version.incarnation = f.number
		case f.is(2, protowire.VarintType):
			r.version.counter = f.number
		}
		return nil
	})
}

func (r *reply) decodeTerm(data []byte) error {
	return fields(data, func(f field) error {
		switch {
		case f.is(1, protowire.VarintType):
			r.term.Epoch = f.number
		case f.is(2, protowire.VarintType):
			r.term.Number = f.number
		}
		return nil
	})
}

func (r *reply) decodeTask(data []byte) error {
	var name []byte
	var task reportedTask
	var failure *orchestratorv1.Failure
	err := fields(data, func(f field) error {
		switch {
		case f.is(1, protowire.BytesType):
			name = f.bytes
		case f.is(2, protowire.VarintType):
			task.State = 0
			if n := int32(f.number); n >= int32(worker.Queued) && n <= int32(worker.Failed) {
				task.State = worker.State(n)
			}
		case f.is(3, protowire.VarintType):
			task.Version = int64(f.number)
		case f.is(4, protowire.BytesType):
			task.receipt = receiptOf(f.bytes)
		case f.is(5, protowire.VarintType):
			task.Pinned = f.number != 0
		case f.is(6, protowire.BytesType):
			if failure == nil {
				failure = new(orchestratorv1.Failure)
			}
			return proto.UnmarshalOptions{Merge: true}.Unmarshal(f.bytes, failure)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(name) == 0 || len(name) > maxName {
		return fmt.Errorf("a task whose name has %d bytes: must be from 1 to %d", len(name), maxName)
	}
	task.Failure = failureFrom(failure)
	if known := r.find(name); known != nil {
		task.Name = known.Name
		task.given = known.given && known.Version == task.Version && known.receipt == task.receipt
	} else {
		task.Name = string(name)
	}
	r.tasks = append(r.tasks, task)
	return nil
}

// longestFailure is how many bytes are kept of what a task failed with.
const longestFailure = 512

// failureFrom returns what a worker says of a failure; nil if it says nothing.
func failureFrom(m *orchestratorv1.Failure) *Failure {
	if m == nil {
		return nil
	}
	f := &Failure{Err: legible(m.GetError(), longestFailure), Attempts: int(m.GetAttempts())}
	if m.GetNext().IsValid() {
		f.Next = m.GetNext().AsTime()
	}
	return f
}

// lookAhead is how many tasks in a row may be gone since the last report for the names
// behind them to be found in it.
const lookAhead = 16

// find returns a task of the last report, if it stands there behind the one before;
// else nil.
func (r *reply) find(name []byte) *reportedTask {
	ahead := r.known.tasks[r.after:]
	for i := range ahead[:min(len(ahead), lookAhead)] {
		if ahead[i].Name == string(name) {
			r.after += i + 1
			return &ahead[i]
		}
	}
	return nil
}

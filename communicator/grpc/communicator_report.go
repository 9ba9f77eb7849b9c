package grpc

// How reports are requested and read. They are decoded by hand, so that names that
// are in the last report too, in the same order, take no new memory.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// version is the version of a report.
type version struct{ incarnation, counter uint64 }

// snapshot is a report as it is kept. Only current changes later.
type snapshot struct {
	version version
	tasks   []reportedTask
	names   []string // of the tasks, the cheapest to move first

	pinned int // number of names at the end that must not be moved

	ended []reportedTask // the tasks that have completed or failed

	// current is the revision of the contents at which no task lacked its newest
	// content; 0: unknown.
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

// reportedTask is a task in a report, with the receipt that the worker presents for
// it.
type reportedTask struct {
	TaskState
	receipt state.Receipt
	given   bool // the worker may list the task, if the communicator has receipts; see assigned
}

// conclusion returns what the worker of a name says of a task that has ended. It is not
// called under a lock: the receipt takes microseconds.
func (t *reportedTask) conclusion(key state.ReceiptKey, from string) state.Conclusion {
	e := state.Conclusion{Task: t.Name, Version: t.Version, Proven: key.Issued(t.receipt, from, t.Name, t.Version)}
	if t.State == worker.Failed {
		e.Failure = failureFor(cmp.Or(t.Failure, &Failure{Err: "no reason reported"}))
	}
	return e
}

// failureFor returns what the state keeps of a failure; nil without one.
func failureFor(f *Failure) *state.Failure {
	if f == nil {
		return nil
	}
	return &state.Failure{Err: f.Err, Attempts: f.Attempts}
}

// report requests the worker's tasks.
func (l *link) report(ctx context.Context) (*snapshot, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	known := l.last.Load()
	request := &orchestratorv1.ReportRequest{Term: termOf(ctx), Incarnation: l.worker.Incarnation}
	if known.version != (version{}) {
		request.Known = &orchestratorv1.Version{Incarnation: known.version.incarnation, Counter: known.version.counter}
	}
	reply := reply{known: known, most: l.settings.MaxMessage / leastTask}
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
			return l.settings.receipts.Issued(t.receipt, l.worker.Name, t.Name, t.Version)
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

// remember keeps the newest report. Of two concurrent calls, the later may be
// answered first.
func (l *link) remember(s *snapshot) {
	for {
		last := l.last.Load()
		if last.version.counter >= s.version.counter || l.last.CompareAndSwap(last, s) {
			return
		}
	}
}

// termOf returns the term of a call; nil if it has none.
func termOf(ctx context.Context) *orchestratorv1.Term {
	t, ok := orchestrator.TermFromContext(ctx)
	if !ok {
		return nil
	}
	return &orchestratorv1.Term{Epoch: t.Epoch, Number: t.Number}
}

// leastTask bounds the number of tasks: a report has at most one task for so many
// bytes of the largest message. So the memory for many short tasks is bounded too.
const leastTask = 32

// reply is a ReportResponse that is being decoded.
type reply struct {
	known *snapshot // whose names are reused
	most  int       // number of tasks
	after int       // index in known after the last reused name

	version version
	tasks   []reportedTask
	term    orchestrator.Term // a successor's
}

var _ answer = (*reply)(nil)

// byCost returns the names of tasks, the cheapest to move first, and the number of
// pinned ones at the end. Waiting tasks come first, because a move costs them
// nothing, then running ones. Pinned at the end are the jobs that the worker pins,
// and ended tasks, which would run again elsewhere. If ended tasks are recorded
// before the term continues, they come first instead, so that no running task makes
// room for them. Within each group the order is the worker's.
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

// pinnedCost is the cost of moving a task that must not be moved. All other costs
// are lower.
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

// check returns an error if a report is impossible.
func (r *reply) check(from Worker) error {
	switch {
	case r.version.incarnation != from.Incarnation || r.version.counter == 0:
		return fmt.Errorf("report has version %d.%d, want %d.1 or later", r.version.incarnation, r.version.counter, from.Incarnation)
	case r.version == r.known.version && len(r.tasks) > 0:
		return fmt.Errorf("report has the known version, but lists %d tasks", len(r.tasks))
	}
	seen := make(map[string]struct{}, len(r.tasks))
	for _, t := range r.tasks {
		seen[t.Name] = struct{}{}
	}
	if twice := len(r.tasks) - len(seen); twice > 0 {
		return fmt.Errorf("report lists %d tasks twice", twice)
	}
	return nil
}

// decode decodes a report.
func (r *reply) decode(data []byte) error {
	n, err := count(data, 2)
	if err != nil {
		return err
	}
	if n > r.most {
		return fmt.Errorf("report has %d tasks: at most %d, which is WithMaxMessage/%d", n, r.most, leastTask)
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
			task.receipt = state.ReceiptOf(f.bytes)
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
	if len(name) == 0 || len(name) > identity.MaxName {
		return fmt.Errorf("task name of %d bytes: must be from 1 to %d", len(name), identity.MaxName)
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

// longestFailure is how many bytes of a task's error are kept.
const longestFailure = 512

// failureFrom returns a reported failure; nil without one.
func failureFrom(m *orchestratorv1.Failure) *Failure {
	if m == nil {
		return nil
	}
	f := &Failure{Err: truncateUTF8(m.GetError(), longestFailure), Attempts: int(m.GetAttempts())}
	if m.GetNext().IsValid() {
		f.Next = m.GetNext().AsTime()
	}
	return f
}

// lookAhead is how many tasks in a row may have disappeared since the last report
// before find misses the names behind them.
const lookAhead = 16

// find returns the task of that name in the last report, if it comes there at most
// lookAhead tasks after the previous one; otherwise nil.
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

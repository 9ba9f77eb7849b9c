package wire

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// Version is the version of a report.
type Version struct{ Incarnation, Counter uint64 }

// Failure describes the last failed runs of a task.
type Failure struct {
	Err      string
	Attempts int
	First    time.Time
	Next     time.Time
}

// Task is a task in a report.
type Task struct {
	Name    string
	State   worker.State // 0: not reported
	Since   time.Time    // zero: not reported
	Version int64
	Pinned  bool
	Failure *Failure // nil: the last run did not fail

	Receipt state.Receipt // which the worker presents for the task
	Given   bool          // the worker may list the task, if the communicator has receipts
}

const (
	// LeastTask bounds the number of tasks: an answer has at most one task for so many
	// bytes of the largest message. So the memory for many short tasks is bounded too.
	LeastTask = 32
	// MaxPages bounds a report in pages, in the largest messages.
	MaxPages = 8
	// maxBegun is how often a report may begin anew because the worker no longer has it.
	maxBegun = 4
)

// Report is a worker's report.
type Report struct {
	Version Version
	Tasks   []Task
	Term    orchestrator.Term // a successor's; zero: none
}

// ReportReply decodes a ReportResponse, and then its further pages. Names that are in the
// last report too, in the same order, take no new memory.
type ReportReply struct {
	Known Report // the last report
	Most  int    // tasks in one answer
	after int    // index in known after the last reused name
	begun int    // reports that were begun, the present one included
	size  int    // of the present report, in bytes

	Report
	More  bool   // Report lacks the tasks of further pages
	Later uint64 // number of a later term of the call's epoch; 0: the worker has seen none
}

// Check returns an error if a report is impossible.
func (r *ReportReply) Check(incarnation uint64) error {
	switch {
	case r.Version.Incarnation != incarnation || r.Version.Counter == 0:
		return fmt.Errorf("report has version %d.%d, want %d.1 or later", r.Version.Incarnation, r.Version.Counter, incarnation)
	case r.Version == r.Known.Version && len(r.Tasks) > 0:
		return fmt.Errorf("report has the known version, but lists %d tasks", len(r.Tasks))
	case r.More:
		return nil
	}
	seen := make(map[string]struct{}, len(r.Tasks))
	for _, t := range r.Tasks {
		seen[t.Name] = struct{}{}
	}
	if twice := len(r.Tasks) - len(seen); twice > 0 {
		return fmt.Errorf("report lists %d tasks twice", twice)
	}
	return nil
}

// Decode decodes a report, or the next page of one. A page of another version begins the
// report anew.
func (r *ReportReply) Decode(data []byte) error {
	var version orchestratorv1.Version
	var term orchestratorv1.Term
	n, more, later := 0, false, uint64(0)
	merge := proto.UnmarshalOptions{Merge: true, DiscardUnknown: true}
	err := fields(data, func(f field) error {
		switch {
		case f.is(1, protowire.BytesType):
			return merge.Unmarshal(f.bytes, &version)
		case f.is(2, protowire.BytesType):
			n++
		case f.is(3, protowire.BytesType):
			return merge.Unmarshal(f.bytes, &term)
		case f.is(4, protowire.VarintType):
			more = f.number != 0
		case f.is(5, protowire.VarintType):
			later = f.number
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := r.turn(Version{version.GetIncarnation(), version.GetCounter()}, len(data), n, more); err != nil {
		return err
	}
	r.Term, r.Later = orchestrator.Term{Epoch: term.GetEpoch(), Number: term.GetNumber()}, later
	return fields(data, func(f field) error {
		if f.is(2, protowire.BytesType) {
			return r.decodeTask(f.bytes)
		}
		return nil
	})
}

// turn prepares for a page of n tasks, or returns why it must not be read.
func (r *ReportReply) turn(v Version, size, n int, more bool) error {
	if !r.More || v != r.Version {
		r.Tasks, r.after, r.size = nil, 0, 0
		r.begun++
	}
	r.Version, r.More = v, more
	r.size += max(size, n*LeastTask)
	switch largest := r.Most * LeastTask; {
	case n > r.Most:
		return fmt.Errorf("report has %d tasks: at most %d, which is WithMaxMessage/%d", n, r.Most, LeastTask)
	case r.size > MaxPages*largest:
		return fmt.Errorf("report exceeds %d times WithMaxMessage", MaxPages)
	case r.begun > maxBegun:
		return fmt.Errorf("report has begun anew %d times: the worker forgets it before it is read", maxBegun)
	case more && n == 0:
		return errors.New("page of a report has no task")
	}
	r.Tasks = slices.Grow(r.Tasks, n)
	return nil
}

func (r *ReportReply) decodeTask(data []byte) error {
	var name []byte
	var task Task
	var failure *orchestratorv1.Failure
	var since timestamppb.Timestamp
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
			task.Receipt = state.ReceiptOf(f.bytes)
		case f.is(5, protowire.VarintType):
			task.Pinned = f.number != 0
		case f.is(6, protowire.BytesType):
			if failure == nil {
				failure = new(orchestratorv1.Failure)
			}
			return proto.UnmarshalOptions{Merge: true}.Unmarshal(f.bytes, failure)
		case f.is(7, protowire.BytesType):
			return fields(f.bytes, func(f field) error {
				switch {
				case f.is(1, protowire.VarintType):
					since.Seconds = int64(f.number)
				case f.is(2, protowire.VarintType):
					since.Nanos = int32(f.number)
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(name) == 0 || len(name) > identity.MaxName {
		return fmt.Errorf("task name of %d bytes: must be from 1 to %d", len(name), identity.MaxName)
	}
	task.Failure, task.Since = FailureFrom(failure), timeFrom(&since)
	if known := r.find(name); known != nil {
		task.Name = known.Name
		task.Given = known.Given && known.Version == task.Version && known.Receipt == task.Receipt
	} else {
		task.Name = string(name)
	}
	r.Tasks = append(r.Tasks, task)
	return nil
}

// FailureFrom returns a reported failure; nil without one.
func FailureFrom(m *orchestratorv1.Failure) *Failure {
	if m == nil {
		return nil
	}
	return &Failure{
		Err: Truncate(m.GetError(), MaxErrorText), Attempts: int(m.GetAttempts()), First: timeFrom(m.GetFirst()), Next: timeFrom(m.GetNext()),
	}
}

// timeFrom returns a reported time; zero if it was not reported.
func timeFrom(m *timestamppb.Timestamp) (t time.Time) {
	if m.IsValid() && (m.GetSeconds() != 0 || m.GetNanos() != 0) {
		t = m.AsTime()
	}
	return t
}

// TimeOf returns the message for a time; nil if it is zero.
func TimeOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// lookAhead is how many tasks in a row may have disappeared since the last report
// before find misses the names behind them.
const lookAhead = 16

// find returns the task of that name in the last report, if it comes there at most
// lookAhead tasks after the previous one; otherwise nil.
func (r *ReportReply) find(name []byte) *Task {
	ahead := r.Known.Tasks[r.after:]
	for i := range ahead[:min(len(ahead), lookAhead)] {
		if ahead[i].Name == string(name) {
			r.after += i + 1
			return &ahead[i]
		}
	}
	return nil
}

// FailureOf returns the message for a failed task; nil if its last run did not fail.
func FailureOf(err error, attempts int, first, next time.Time, longest int) *orchestratorv1.Failure {
	if attempts == 0 || err == nil {
		return nil
	}
	return &orchestratorv1.Failure{Error: Truncate(err.Error(), longest), Attempts: uint32(attempts), First: TimeOf(first), Next: TimeOf(next)}
}

// ApplyReply is an ApplyResponse that is being decoded.
type ApplyReply struct {
	Want int // number of changes sent

	got      int
	Response orchestratorv1.ApplyResponse // set if got == want
}

// Decode counts the results before it decodes them.
func (v *ApplyReply) Decode(data []byte) (err error) {
	if v.got, err = count(data, 1); err != nil || v.got != v.Want {
		return err
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, &v.Response)
}

// Check returns an error if the number of results is wrong.
func (v *ApplyReply) Check() error {
	if v.got != v.Want {
		return fmt.Errorf("worker answered %d of %d changes", v.got, v.Want)
	}
	return nil
}

var (
	_ Response = (*ReportReply)(nil)
	_ Response = (*ApplyReply)(nil)
)

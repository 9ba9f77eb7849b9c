package state

// The records of a manager, as they are stored and as they change.

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
)

// Records are the stored values by name. As a change, they hold the new values, with
// nil or false for deleted ones.
type Records struct {
	Epoch    uint64     // of the running manager; 0 in a change: unchanged
	Revision int64      // highest version of any content; 0 in a change: unchanged
	Key      ReceiptKey // nil in a change: unchanged

	tasks   map[string]*Task
	done    map[string]*finished
	failed  map[string]*failedTask
	Members map[string]*Membership
	drains  map[string]bool
}

// Task is an expected task. It is immutable.
type Task struct {
	Item
	sum [sha256.Size]byte // of the content
}

// finished is a completion. It is immutable.
type finished struct {
	Completion
	sum [sha256.Size]byte // of the content
}

// failedTask is a task that has failed for good. It is immutable.
type failedTask struct {
	FailedTask
	sum [sha256.Size]byte // of the content
}

// task returns the task as it was before it failed.
func (f *failedTask) task() *Task { return &Task{Item: f.Item, sum: f.sum} }

// Membership is the stored part of a member. It is immutable.
type Membership struct {
	WorkerID
	Address  string
	Lease    time.Duration
	Draining bool // by its own request
	Settings orchestrator.WorkerSettings
}

// equal reports whether two memberships are the same.
func (m *Membership) equal(other *Membership) bool {
	return m.WorkerID == other.WorkerID && m.Address == other.Address && m.Lease == other.Lease &&
		m.Draining == other.Draining && m.Settings.Equal(other.Settings)
}

func newRecords() Records {
	return Records{
		tasks:   make(map[string]*Task),
		done:    make(map[string]*finished),
		failed:  make(map[string]*failedTask),
		Members: make(map[string]*Membership),
		drains:  make(map[string]bool),
	}
}

func (r *Records) clone() Records {
	c := newRecords()
	c.Apply(r)
	return c
}

// empty reports whether a change changes nothing.
func (r *Records) empty() bool {
	return r.Epoch == 0 && r.Revision == 0 && r.Key == nil && len(r.tasks)+len(r.done)+len(r.failed)+len(r.Members)+len(r.drains) == 0
}

// Apply applies a change.
func (r *Records) Apply(change *Records) {
	if change.Epoch != 0 {
		r.Epoch = change.Epoch
	}
	if change.Revision != 0 {
		r.Revision = change.Revision
	}
	if change.Key != nil {
		r.Key = change.Key
	}
	applyTo(r.tasks, change.tasks)
	applyTo(r.done, change.done)
	applyTo(r.failed, change.failed)
	applyTo(r.Members, change.Members)
	applyTo(r.drains, change.drains)
}

// applyTo sets the changed values, and deletes those that are zero.
func applyTo[V comparable](to, change map[string]V) {
	var gone V
	for name, v := range change {
		if v == gone {
			delete(to, name)
		} else {
			to[name] = v
		}
	}
}

// draining reports whether a member drains, by its own request or by Drain.
func (r *Records) draining(m *Membership) bool { return m.Draining || r.drains[m.Name] }

// Delta is the part of a change that the orchestrator and the communicator must
// learn, in the order of the fields. Each list is sorted by name.
type Delta struct {
	Unexpected []string
	Expected   []orchestrator.Task[string]
	Gone       []WorkerID
	Came       []Arrival
	Failed     []FailedTask
}

// Arrival is a member that is new or has changed.
type Arrival struct {
	WorkerID
	Draining bool
	Address  string
	Settings orchestrator.WorkerSettings
	Moved    bool // the address is new
	Turned   bool // draining has changed, of a member that is not new
	Reset    bool // the settings have changed, of a member that is not new
}

// delta returns the delta of a change to r. r itself is not changed.
func (r *Records) delta(change *Records) Delta {
	var n Delta
	for _, name := range sorted(change.tasks) {
		switch t, old := change.tasks[name], r.tasks[name]; {
		case t == nil && old != nil:
			n.Unexpected = append(n.Unexpected, name)
		case t != nil:
			n.Expected = append(n.Expected, orchestrator.NewTask(name, t.Settings))
		}
	}
	for _, name := range sorted(change.failed) {
		if f := change.failed[name]; f != nil && r.failed[name] == nil {
			n.Failed = append(n.Failed, f.FailedTask)
		}
	}
	touched := make(map[string]bool)
	for name := range change.Members {
		touched[name] = true
	}
	for name := range change.drains {
		touched[name] = true
	}
	for _, name := range sorted(touched) {
		old := r.Members[name]
		m, drained := changed(r.Members, change.Members, name), changed(r.drains, change.drains, name)
		moved := old == nil || m == nil || m.WorkerID != old.WorkerID
		if old != nil && moved {
			n.Gone = append(n.Gone, old.WorkerID)
		}
		if m != nil {
			draining := m.Draining || drained
			n.Came = append(n.Came, Arrival{
				WorkerID: m.WorkerID, Draining: draining, Address: m.Address, Settings: m.Settings,
				Moved:  moved || m.Address != old.Address,
				Turned: !moved && draining != r.draining(old),
				Reset:  !moved && !m.Settings.Equal(old.Settings),
			})
		}
	}
	return n
}

// changed returns the value of a name after a change.
func changed[V any](kept, change map[string]V, name string) V {
	if v, ok := change[name]; ok {
		return v
	}
	return kept[name]
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// MaxContent is the maximum length of a task's content in bytes: 1 MiB.
const MaxContent = 1 << 20

// ErrNotFound reports that no task of this name is expected, completed or failed,
// depending on the event.
var ErrNotFound = errors.New("no task of this name")

// Item, Completion and FailedTask have the fields of the types of package manager with
// these names, which documents them.

// Item is an expected task.
type Item struct {
	Name     string
	Content  []byte
	Settings orchestrator.TaskSettings
	Revision int64 // of the content
}

// Completion reports that a task has completed.
type Completion struct {
	Task     string
	Revision int64
	Worker   string
	At       time.Time
}

// FailedTask is a task that has failed for good.
type FailedTask struct {
	Item
	Worker   string
	At       time.Time
	Err      string
	Attempts int
}

// Check returns an error if a manager cannot keep the item. It wraps
// [orchestrator.ErrInvalid].
func (i Item) Check() error {
	if err := identity.CheckName("task", i.Name); err != nil {
		return err
	}
	if len(i.Content) > MaxContent {
		return fmt.Errorf("%w: content of %d bytes: at most %d", orchestrator.ErrInvalid, len(i.Content), MaxContent)
	}
	if i.Revision != 0 {
		return fmt.Errorf("%w: Revision is %d: must be 0, the manager sets it", orchestrator.ErrInvalid, i.Revision)
	}
	return i.Settings.Check()
}

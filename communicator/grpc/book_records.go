package grpc

// The stored part of the book.

import (
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// records are the stored values by name. As a change, they hold the new values, with
// nil or false for deleted ones.
type records struct {
	epoch    uint64     // of the running manager; 0 in a change: unchanged
	revision int64      // highest version of any content; 0 in a change: unchanged
	key      receiptKey // nil in a change: unchanged

	tasks   map[string]*task
	done    map[string]*finished
	failed  map[string]*failedTask
	members map[string]*membership
	drains  map[string]bool
}

// task is an expected task. It is immutable.
type task struct {
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
func (f *failedTask) task() *task { return &task{Item: f.Item, sum: f.sum} }

// membership is the stored part of a member. It is immutable.
type membership struct {
	Worker
	address  string
	lease    time.Duration
	draining bool // by its own request
}

func newRecords() records {
	return records{
		tasks:   make(map[string]*task),
		done:    make(map[string]*finished),
		failed:  make(map[string]*failedTask),
		members: make(map[string]*membership),
		drains:  make(map[string]bool),
	}
}

func (r *records) clone() records {
	c := *r
	c.tasks, c.done = maps.Clone(r.tasks), maps.Clone(r.done)
	c.failed = maps.Clone(r.failed)
	c.members, c.drains = maps.Clone(r.members), maps.Clone(r.drains)
	return c
}

// empty reports whether a change changes nothing.
func (r *records) empty() bool {
	return r.epoch == 0 && r.revision == 0 && r.key == nil && len(r.tasks)+len(r.done)+len(r.failed)+len(r.members)+len(r.drains) == 0
}

// apply applies a change.
func (r *records) apply(change *records) {
	if change.epoch != 0 {
		r.epoch = change.epoch
	}
	if change.revision != 0 {
		r.revision = change.revision
	}
	if change.key != nil {
		r.key = change.key
	}
	applyTo(r.tasks, change.tasks)
	applyTo(r.done, change.done)
	applyTo(r.failed, change.failed)
	applyTo(r.members, change.members)
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
func (r *records) draining(m *membership) bool { return m.draining || r.drains[m.Name] }

// news is the part of a change that the orchestrator and the communicator must
// learn, in the order of the fields. Each list is sorted by name.
type news struct {
	unexpected []string
	expected   []orchestrator.Task[string]
	gone       []Worker
	came       []arrival
	failed     []FailedTask
}

// arrival is a member that is new or has changed.
type arrival struct {
	Worker
	draining bool
	address  string
	moved    bool // the address is new
	turned   bool // draining has changed, of a member that is not new
}

// news returns the news of a change to r. r itself is not changed.
func (r *records) news(change *records) news {
	var n news
	for _, name := range sorted(change.tasks) {
		switch t, old := change.tasks[name], r.tasks[name]; {
		case t == nil && old != nil:
			n.unexpected = append(n.unexpected, name)
		case t != nil:
			n.expected = append(n.expected, orchestrator.Task[string]{
				Name: name, Instances: t.Settings.Instances, Handoff: t.Settings.Handoff,
			})
		}
	}
	for _, name := range sorted(change.failed) {
		if f := change.failed[name]; f != nil && r.failed[name] == nil {
			n.failed = append(n.failed, f.FailedTask)
		}
	}
	touched := make(map[string]bool)
	for name := range change.members {
		touched[name] = true
	}
	for name := range change.drains {
		touched[name] = true
	}
	for _, name := range sorted(touched) {
		old := r.members[name]
		m, drained := changed(r.members, change.members, name), changed(r.drains, change.drains, name)
		moved := old == nil || m == nil || m.Worker != old.Worker
		if old != nil && moved {
			n.gone = append(n.gone, old.Worker)
		}
		if m != nil {
			draining := m.draining || drained
			n.came = append(n.came, arrival{
				Worker: m.Worker, draining: draining,
				address: m.address, moved: moved || m.address != old.address,
				turned: !moved && draining != r.draining(old),
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

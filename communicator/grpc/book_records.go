package grpc

// What a manager must not forget: the part of its book that is on disk.

import (
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// records are what is kept of each name. As a change, they hold what is
// different afterwards, with nil, or false, for what is gone.
type records struct {
	epoch    uint64     // of the manager's run; 0 in a change: as it was
	revision int64      // the highest that a content was given; 0 in a change: as it was
	key      receiptKey // nil in a change: as it was

	tasks   map[string]*task
	done    map[string]*finished
	failed  map[string]*failedTask
	members map[string]*membership
	drains  map[string]bool
}

// task is an expected one. It is never changed.
type task struct {
	Item
	sum [sha256.Size]byte // of the content
}

// finished is never changed.
type finished struct {
	Completion
	sum [sha256.Size]byte // of the content
}

// failedTask is never changed.
type failedTask struct {
	FailedTask
	sum [sha256.Size]byte // of the content
}

// task returns the task as it was expected.
func (f *failedTask) task() *task { return &task{Item: f.Item, sum: f.sum} }

// membership is what is kept of a member. It is never changed.
type membership struct {
	Worker
	address  string
	lease    time.Duration
	draining bool // as it says itself
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

// empty reports whether records are a change of nothing.
func (r *records) empty() bool {
	return r.epoch == 0 && r.revision == 0 && r.key == nil && len(r.tasks)+len(r.done)+len(r.failed)+len(r.members)+len(r.drains) == 0
}

// apply makes a change.
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

// applyTo lets go of what has become the zero value.
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

// draining reports whether a member is to end empty.
func (r *records) draining(m *membership) bool { return m.draining || r.drains[m.Name] }

// news is what an orchestrator, and who calls the workers, are to be told of a
// change: in the order of the fields, each sorted by name.
type news struct {
	unexpected []string
	expected   []orchestrator.Task[string]
	gone       []Worker
	came       []arrival
}

// arrival is a member that came, or is not what it was.
type arrival struct {
	Worker
	draining bool
	address  string
	moved    bool // the address is new
	turned   bool // it is no new one, and draining is not what it was
}

// news returns what a change means for who knows the records as they are.
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

// changed returns what a name has after a change.
func changed[V any](kept, change map[string]V, name string) V {
	if v, ok := change[name]; ok {
		return v
	}
	return kept[name]
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

package state

// A readable copy of what is stored.

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/f8949c05/orchestrator"
)

// Committed answers from memory, and contains only what is stored, so that no crash
// can undo it. Its methods may be called from any number of goroutines.
type Committed struct {
	mu                  sync.RWMutex // guards the fields below
	kept                Records
	tasks, done, failed index // of the names in kept
}

// NewCommitted returns the copy of some records, which it then owns.
func NewCommitted(kept Records) Committed {
	return Committed{kept: kept, tasks: newIndex(kept.tasks), done: newIndex(kept.done), failed: newIndex(kept.failed)}
}

// Apply applies a saved change, and returns what to pass on.
func (c *Committed) Apply(change *Records) Delta {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.kept.delta(change)
	c.kept.Apply(change)
	touch(&c.tasks, c.kept.tasks, change.tasks)
	touch(&c.done, c.kept.done, change.done)
	touch(&c.failed, c.kept.failed, change.failed)
	return n
}

// Content returns the content of a task.
func (c *Committed) Content(name string) (content []byte, version int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := c.kept.tasks[name]
	if t == nil {
		return nil, 0, false
	}
	return t.Content, t.Revision, true
}

// Revision returns the highest version of any content.
func (c *Committed) Revision() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.kept.Revision
}

// Item returns an expected task, or ErrNotFound.
func (c *Committed) Item(name string) (Item, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := c.kept.tasks[name]
	if t == nil {
		return Item{}, fmt.Errorf("%w: %.100q", ErrNotFound, name)
	}
	return t.Item, nil
}

// Completion returns the completion of a task, or ErrNotFound.
func (c *Committed) Completion(name string) (Completion, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d := c.kept.done[name]
	if d == nil {
		return Completion{}, fmt.Errorf("%w: %.100q", ErrNotFound, name)
	}
	return d.Completion, nil
}

// Items returns up to limit expected tasks whose names come after the given one, sorted
// by name.
func (c *Committed) Items(after string, limit int) []Item {
	c.mu.Lock() // page sorts the index
	defer c.mu.Unlock()
	return page(&c.tasks, c.kept.tasks, after, limit, func(t *Task) Item { return t.Item })
}

// Completions returns completions as Items returns tasks.
func (c *Committed) Completions(after string, limit int) []Completion {
	c.mu.Lock()
	defer c.mu.Unlock()
	return page(&c.done, c.kept.done, after, limit, func(d *finished) Completion { return d.Completion })
}

// Failures returns failed tasks as Items returns expected ones.
func (c *Committed) Failures(after string, limit int) []FailedTask {
	c.mu.Lock()
	defer c.mu.Unlock()
	return page(&c.failed, c.kept.failed, after, limit, func(f *failedTask) FailedTask { return f.FailedTask })
}

// Member is a stored membership, and whether the member drains.
type Member struct {
	Membership
	Drains bool // by its own request, or because its name is drained
}

// Members returns the members, sorted by name.
func (c *Committed) Members() []Member {
	c.mu.RLock()
	defer c.mu.RUnlock()
	members := make([]Member, 0, len(c.kept.Members))
	for _, name := range sorted(c.kept.Members) {
		m := c.kept.Members[name]
		members = append(members, Member{Membership: *m, Drains: c.kept.draining(m)})
	}
	return members
}

// MemberCount returns the number of members.
func (c *Committed) MemberCount() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.kept.Members)
}

// Expected returns all tasks, sorted by name.
func (c *Committed) Expected() []orchestrator.Task[string] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	nothing := newRecords()
	return nothing.delta(&c.kept).Expected
}

// index holds the keys of a map in order. Changes are only recorded, and merged when the
// order is needed, so that many puts cost little. A name that was added and removed again
// is not kept in touched, which would otherwise grow as long as no order is needed.
type index struct {
	names   []string
	touched map[string]bool // in either names or the map, but not in both
}

func newIndex[V any](kept map[string]V) index {
	return index{names: sorted(kept), touched: make(map[string]bool)}
}

func touch[V any](x *index, kept, change map[string]V) {
	for name := range change {
		_, was := slices.BinarySearch(x.names, name)
		if _, is := kept[name]; is != was {
			x.touched[name] = true
		} else {
			delete(x.touched, name)
		}
	}
}

// merge merges the recorded changes into the order.
func merge[V any](x *index, kept map[string]V) {
	if len(x.touched) == 0 {
		return
	}
	var come []string
	for _, name := range sorted(x.touched) {
		if _, ok := kept[name]; ok {
			come = append(come, name)
		}
	}
	merged := make([]string, 0, len(kept))
	for _, name := range x.names {
		if x.touched[name] {
			continue
		}
		for len(come) > 0 && come[0] < name {
			merged, come = append(merged, come[0]), come[1:]
		}
		merged = append(merged, name)
	}
	x.names = append(merged, come...)
	clear(x.touched)
}

// page returns up to limit entries of kept whose names come after the given one.
func page[V, R any](x *index, kept map[string]V, after string, limit int, show func(V) R) []R {
	merge(x, kept)
	from, found := slices.BinarySearchFunc(x.names, after, strings.Compare)
	if found {
		from++
	}
	names := x.names[from:min(from+limit, len(x.names))]
	shown := make([]R, len(names))
	for i, name := range names {
		shown[i] = show(kept[name])
	}
	return shown
}

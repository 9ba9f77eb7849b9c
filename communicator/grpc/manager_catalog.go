package grpc

// The catalog: a readable copy of what is stored.

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/f8949c05/orchestrator"
)

// catalog answers from memory, and contains only what is stored, so that no crash
// can undo it.
type catalog struct {
	mu                  sync.RWMutex // guards the fields below
	kept                records
	tasks, done, failed index // of the names in kept
}

var (
	_ Contents = (*catalog)(nil)
	_ revised  = (*catalog)(nil)
)

func newCatalog(kept records) catalog {
	return catalog{kept: kept, tasks: newIndex(kept.tasks), done: newIndex(kept.done), failed: newIndex(kept.failed)}
}

// apply applies a saved change, and returns what to pass on.
func (c *catalog) apply(change *records) news {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.kept.news(change)
	c.kept.apply(change)
	touch(&c.tasks, c.kept.tasks, change.tasks)
	touch(&c.done, c.kept.done, change.done)
	touch(&c.failed, c.kept.failed, change.failed)
	return n
}

// Content returns the content of a task.
func (c *catalog) Content(name string) (content []byte, version int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := c.kept.tasks[name]
	if t == nil {
		return nil, 0, false
	}
	return t.Content, t.Revision, true
}

// revision returns the highest version of any content.
func (c *catalog) revision() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.kept.revision
}

func (c *catalog) item(name string) (Item, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := c.kept.tasks[name]
	if t == nil {
		return Item{}, fmt.Errorf("%w: %.100q", ErrNotFound, name)
	}
	return t.Item, nil
}

func (c *catalog) completion(name string) (Completion, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d := c.kept.done[name]
	if d == nil {
		return Completion{}, fmt.Errorf("%w: %.100q", ErrNotFound, name)
	}
	return d.Completion, nil
}

func (c *catalog) items(after string, limit int) []Item {
	c.mu.Lock() // page sorts the index
	defer c.mu.Unlock()
	return page(&c.tasks, c.kept.tasks, after, limit, func(t *task) Item { return t.Item })
}

func (c *catalog) completions(after string, limit int) []Completion {
	c.mu.Lock()
	defer c.mu.Unlock()
	return page(&c.done, c.kept.done, after, limit, func(d *finished) Completion { return d.Completion })
}

func (c *catalog) failures(after string, limit int) []FailedTask {
	c.mu.Lock()
	defer c.mu.Unlock()
	return page(&c.failed, c.kept.failed, after, limit, func(f *failedTask) FailedTask { return f.FailedTask })
}

// members returns the members, sorted by name, without Heard, Until and Failing.
func (c *catalog) members() []MemberState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	members := make([]MemberState, 0, len(c.kept.members))
	for _, name := range sorted(c.kept.members) {
		m := c.kept.members[name]
		members = append(members, MemberState{
			Worker: m.Worker, Address: m.address, Lease: m.lease, Draining: c.kept.draining(m),
		})
	}
	return members
}

func (c *catalog) memberCount() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.kept.members)
}

// expected returns all tasks, sorted by name.
func (c *catalog) expected() []orchestrator.Task[string] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	nothing := newRecords()
	return nothing.news(&c.kept).expected
}

// index holds the keys of a map in order. Changes are only recorded, and merged when
// the order is needed, so that many puts cost little. A name that was added and
// removed in between leaves no trace, because the order may never be needed.
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

// settle merges the recorded changes into the order.
func settle[V any](x *index, kept map[string]V) {
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
	settle(x, kept)
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

package orchestrator

import "slices"

// The expected workers.

// memberTable holds the workers in the order in which they were added. The
// orchestrator's mu guards it.
type memberTable[W comparable] struct {
	list    []*member[W] // includes removed ones until they are pruned
	removed int          // the number of removed ones in list
	byName  map[W]*member[W]
	serial  uint64
	version uint64
}

type member[W comparable] struct {
	name W
	// serial distinguishes the worker from removed ones of the same name. It rises
	// along the list.
	serial   uint64
	draining bool // as it was added
	drained  bool // by DrainWorker
	removed  bool
}

// set adds a worker or redefines it, and reports whether that changed
// anything.
func (t *memberTable[W]) set(name W, draining bool) bool {
	m := t.byName[name]
	if m != nil && m.draining == draining {
		return false
	}
	if m == nil {
		t.serial++
		m = &member[W]{name: name, serial: t.serial}
		t.byName[name] = m
		t.list = append(t.list, m)
	}
	m.draining = draining
	t.version++
	return true
}

// remove removes a worker. It prunes the list when half of its members are removed, so
// that removing all of them one by one takes O(1) each.
func (t *memberTable[W]) remove(name W) bool {
	m := t.byName[name]
	if m == nil {
		return false
	}
	delete(t.byName, name)
	m.removed = true
	if t.removed++; t.removed > len(t.list)/2 {
		t.prune()
	}
	t.version++
	return true
}

func (t *memberTable[W]) prune() {
	t.list = slices.DeleteFunc(t.list, func(m *member[W]) bool { return m.removed })
	t.removed = 0
}

// seats returns the members, in order.
func (t *memberTable[W]) seats() []seat[W] {
	seats := make([]seat[W], 0, len(t.byName))
	for _, m := range t.list {
		if !m.removed {
			seats = append(seats, seat[W]{m.name, m.serial, m.draining || m.drained})
		}
	}
	return seats
}

// replace makes workers the members. keep reports whether a name is among them.
func (t *memberTable[W]) replace(workers []Worker[W], keep func(W) bool) bool {
	before := t.version
	for _, m := range t.list {
		if !m.removed && !keep(m.name) {
			delete(t.byName, m.name)
			m.removed = true
			t.version++
		}
	}
	t.prune()
	for _, w := range workers {
		t.set(w.Name, w.Draining)
	}
	return t.version != before
}

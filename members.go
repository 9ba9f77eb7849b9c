package orchestrator

import "slices"

// The workers that are expected to be there.

// memberTable holds the workers in the order they were added. It is guarded by
// the orchestrator's mu.
type memberTable[W comparable] struct {
	list    []*member[W]
	byName  map[W]*member[W]
	serial  uint64
	version uint64
}

type member[W comparable] struct {
	name W
	// serial tells a worker from one of the same name that was removed before.
	// It rises along the list.
	serial   uint64
	draining bool // as it was added
	drained  bool // by DrainWorker
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

func (t *memberTable[W]) remove(name W) bool {
	m := t.byName[name]
	if m == nil {
		return false
	}
	delete(t.byName, name)
	t.list = slices.DeleteFunc(t.list, func(other *member[W]) bool { return other == m })
	t.version++
	return true
}

// replace makes workers the members. keep says whether a name is among them.
func (t *memberTable[W]) replace(workers []Worker[W], keep func(W) bool) bool {
	before := t.version
	kept := slices.DeleteFunc(t.list, func(m *member[W]) bool { return !keep(m.name) })
	if len(kept) < len(t.byName) {
		clear(t.byName)
		for _, m := range kept {
			t.byName[m.name] = m
		}
		t.version++
	}
	t.list = kept
	for _, w := range workers {
		t.set(w.Name, w.Draining)
	}
	return t.version != before
}

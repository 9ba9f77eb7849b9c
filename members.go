package orchestrator

import (
	"maps"
	"slices"
	"time"
)

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

// views returns the members, in order.
func (t *memberTable[W]) views() []memberView[W] {
	views := make([]memberView[W], 0, len(t.byName))
	for _, m := range t.list {
		if !m.removed {
			views = append(views, memberView[W]{m.name, m.serial, m.draining || m.drained})
		}
	}
	return views
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

// Workers that join and leave the fleet: pure functions, like those of fleet.go.

// memberView is a member as a term sees it.
type memberView[W comparable] struct {
	name     W
	serial   uint64
	draining bool
}

// part removes the workers that are no longer members, and returns them. Views and
// workers are in ascending order of their serials.
func (f *fleet[W, T]) part(views []memberView[W]) (gone []*worker[W, T]) {
	var stay []*worker[W, T]
	for _, w := range f.workers {
		for len(views) > 0 && views[0].serial < w.serial {
			views = views[1:]
		}
		if len(views) > 0 && views[0].serial == w.serial {
			stay = append(stay, w)
			continue
		}
		legacy := w.sinceAnswer()
		f.markLost(w)
		w.maybe = legacy
		gone = append(gone, w)
	}
	f.workers = stay
	return gone
}

// sinceAnswer returns the starts sent to w since its last answer that may have
// happened, and were not followed by an acknowledged stop.
func (w *worker[W, T]) sinceAnswer() set {
	starts := make(set)
	for i, id := range w.ackedIDs {
		if w.acked[i].Op == OpAdd {
			starts.add(id)
		} else {
			delete(starts, id)
		}
	}
	maps.Copy(starts, w.maybe) // an acknowledged stop removes its task from maybe
	return starts
}

// join adds the new members, after part has removed the others.
//
// A worker that takes the name of a removed one may run the tasks that were started on
// that one last:
//
//  1. A term has begun and lists w1.
//  2. w1 is removed, because its process is gone, and added again for a new process.
//  3. The term starts a task on w1. The new process receives the call.
//  4. The next term sees the removal. If it forgot the start together with the first
//     w1, and the new process did not answer, the task would start elsewhere too.
func (f *fleet[W, T]) join(views []memberView[W], gone []*worker[W, T], now time.Time, slotOf func(W) *callSlot[W, T]) {
	legacy := make(map[W]set, len(gone))
	for _, w := range gone {
		legacy[w.name] = w.maybe
	}
	for i, s := range views {
		if i == len(f.workers) {
			slot := slotOf(s.name)
			maybe, ok := legacy[s.name]
			if !ok {
				maybe = slot.legacy
			}
			f.workers = append(f.workers, &worker[W, T]{
				name: s.name, serial: s.serial, slot: slot, maybe: maps.Clone(maybe),
				initial: !f.started, since: now, awaited: true,
			})
		}
		f.workers[i].draining = s.draining
	}
	f.started = f.started || len(views) > 0
}

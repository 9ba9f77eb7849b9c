package orchestrator

// The expected tasks with the dense numbers that represent their names inside, and the
// expected workers.

import (
	"fmt"
	"iter"
	"reflect"
	"slices"

	"github.com/f8949c05/orchestrator/internal/term"
)

// taskTable gives a number to every task name that is expected or was listed, so that a
// term handles integers. A number is stable while its task is expected, or the orchestrator
// or its last snapshot refers to it; then it is released.
//
// The orchestrator's mu guards it.
type taskTable[T comparable] struct {
	ids    map[T]int32
	defs   []taskDef[T]
	shared bool    // others read defs, so that it must be copied before an entry changes
	free   []int32 // numbers without a name

	expected int  // how many definitions have instances
	loaded   bool // whether AddTask or UpdateTasks was ever called
	version  uint64
}

type taskDef[T comparable] struct {
	name      T
	instances int32 // 0: not expected
	handoff   Handoff
	used      bool // false: the number is free
}

// share returns the definitions, which do not change any more. It copies nothing.
func (t *taskTable[T]) share() []taskDef[T] {
	t.shared = true
	return slices.Clip(t.defs)
}

// edit returns the definition with a number, for changes. The first edit after share copies
// all definitions.
func (t *taskTable[T]) edit(id int32) *taskDef[T] {
	if t.shared {
		t.defs, t.shared = append(make([]taskDef[T], 0, cap(t.defs)), t.defs...), false
	}
	return &t.defs[id]
}

// fork returns a copy that looks up no names but some.
func (t *taskTable[T]) fork(names iter.Seq[T]) taskTable[T] {
	c := taskTable[T]{
		ids: make(map[T]int32), defs: t.share(), shared: true,
		expected: t.expected, loaded: t.loaded, version: t.version,
	}
	for name := range names {
		if id, ok := t.ids[name]; ok {
			c.ids[name] = id
		}
	}
	return c
}

// id returns the number of name, a new one if it has none. It panics if name cannot be
// compared, as a map does, or does not equal itself: no map would find it again, and
// each term would add it once more.
func (t *taskTable[T]) id(name T) int32 {
	if name != name {
		panic("a task name does not equal itself") //nolint:forbidigo // applyAnswer recovers it
	}
	if id, ok := t.ids[name]; ok {
		return id
	}
	var id int32
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
		*t.edit(id) = taskDef[T]{name: name, used: true}
	} else {
		id = int32(len(t.defs))
		t.defs = append(t.defs, taskDef[T]{name: name, used: true})
	}
	t.ids[name] = id
	return id
}

// names returns the names of n tasks, of which task returns the numbers.
func (t *taskTable[T]) names(n int, task func(i int) int32) []T {
	names := make([]T, n)
	for i := range names {
		names[i] = t.defs[task(i)].name
	}
	return names
}

// set makes name expected with n instances, or unexpected with 0, and reports
// whether that changed anything.
func (t *taskTable[T]) set(name T, n int32, h Handoff) bool {
	if n == 0 {
		if id, ok := t.ids[name]; !ok || t.defs[id].instances == 0 {
			return false
		}
	}
	id := t.id(name)
	if def := &t.defs[id]; def.instances == n && def.handoff == h {
		return false
	}
	def := t.edit(id)
	if def.instances > 0 {
		t.expected--
	}
	if n > 0 {
		t.expected++
	}
	def.instances, def.handoff = n, h
	t.version++
	return true
}

// replace makes tasks the expected ones, and reports whether that changed anything. It
// takes two look-ups for each task.
func (t *taskTable[T]) replace(tasks []Task[T]) bool {
	before := t.version
	stays := make([]bool, len(t.defs))
	for _, task := range tasks {
		if id, ok := t.ids[task.Name]; ok {
			stays[id] = true
		}
	}
	for id := range stays {
		if def := &t.defs[id]; def.instances > 0 && !stays[id] {
			t.set(def.name, 0, HandoffDefault)
		}
	}
	for _, task := range tasks {
		t.set(task.Name, int32(max(task.Instances, 1)), task.Handoff)
	}
	return t.version != before
}

// list returns the expected tasks, by number.
func (t *taskTable[T]) list() []Task[T] {
	return slices.AppendSeq(make([]Task[T], 0, t.expected), expectedOf(t.defs))
}

// expectedOf yields the expected tasks among defs.
func expectedOf[T comparable](defs []taskDef[T]) iter.Seq[Task[T]] {
	return func(yield func(Task[T]) bool) {
		for i := range defs {
			def := &defs[i]
			if def.instances > 0 && !yield(Task[T]{Name: def.name, Instances: int(def.instances), Handoff: def.handoff}) {
				return
			}
		}
	}
}

// setExpected makes the tasks of defs those of e. h is the handoff of tasks that have none of
// their own.
func setExpected[T comparable](e *term.Tasks, defs []taskDef[T], h Handoff) {
	e.Instances = slices.Grow(e.Instances[:0], len(defs))
	e.StartFirst = slices.Grow(e.StartFirst[:0], len(defs))
	e.Wanted = 0
	for i := range defs {
		def := &defs[i]
		e.Instances = append(e.Instances, def.instances)
		e.StartFirst = append(e.StartFirst, def.handoff == StartThenStop || def.handoff == HandoffDefault && h == StartThenStop)
		e.Wanted += int(def.instances)
	}
}

// unused returns the numbers of tasks that are neither expected nor marked by inUse, if
// there are many unexpected ones. While most of those are in use, such as before tasks
// are loaded, it passes over all tasks in every term.
func (t *taskTable[T]) unused(inUse func(mark func(id int32))) (ids []int32) {
	const worthwhile = 1024
	live := len(t.defs) - len(t.free)
	if unexpected := live - t.expected; unexpected < worthwhile || unexpected < t.expected/2 {
		return nil
	}
	marks := make([]bool, len(t.defs))
	inUse(func(id int32) { marks[id] = true })
	for id := range t.defs {
		if def := &t.defs[id]; def.used && def.instances == 0 && !marks[id] {
			ids = append(ids, int32(id))
		}
	}
	return ids
}

// release frees numbers that were unused, except those of tasks that are expected again.
func (t *taskTable[T]) release(ids []int32) {
	for _, id := range ids {
		if def := t.edit(id); def.instances == 0 {
			delete(t.ids, def.name)
			*def = taskDef[T]{}
			t.free = append(t.free, id)
		}
	}
}

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

// newMemberTable returns a table of members, in order. serial is the last that was given.
func newMemberTable[W comparable](members []member[W], serial uint64) memberTable[W] {
	t := memberTable[W]{byName: make(map[W]*member[W], len(members)), serial: serial}
	for i := range members {
		m := &members[i]
		t.list = append(t.list, m)
		t.byName[m.name] = m
	}
	return t
}

// copies returns copies of the members, in order.
func (t *memberTable[W]) copies() []member[W] {
	members := make([]member[W], 0, len(t.byName))
	for _, m := range t.list {
		if !m.removed {
			members = append(members, *m)
		}
	}
	return members
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

// current returns the names of the members and the members, in order.
func (t *memberTable[W]) current() (names []W, members []term.Member) {
	names, members = make([]W, 0, len(t.byName)), make([]term.Member, 0, len(t.byName))
	for _, m := range t.list {
		if !m.removed {
			names = append(names, m.name)
			members = append(members, term.Member{Serial: m.serial, Draining: m.draining || m.drained})
		}
	}
	return names, members
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

// checkTasks returns an error for the first invalid or repeated task.
func checkTasks[T comparable](tasks []Task[T]) error {
	seen := make(map[T]int, len(tasks))
	for i, task := range tasks {
		if err := checkName("task", task.Name); err != nil {
			return err
		}
		if err := (TaskSettings{task.Instances, task.Handoff}).Check(); err != nil {
			return fmt.Errorf("task %v: %w", task.Name, err)
		}
		if first, ok := seen[task.Name]; ok {
			return invalid("task %v is given twice, at %d and at %d", task.Name, first, i)
		}
		seen[task.Name] = i
	}
	return nil
}

// checkName refuses a name that cannot be compared, which an interface type may hold, and
// one that does not equal itself, such as NaN, which could be added but never be found
// again.
func checkName[N comparable](what string, name N) error {
	if v := reflect.ValueOf(name); v.IsValid() && !v.Comparable() {
		return invalid("%s name %v is of type %T, which cannot be compared", what, name, name)
	}
	if name != name {
		return invalid("%s name %v does not equal itself", what, name)
	}
	return nil
}

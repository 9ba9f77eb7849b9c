package orchestrator

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

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

	classes classTable

	// reported holds the weights of UpdateWeights, by number; it may be shorter than defs.
	reported        []int64
	reportedShared  bool // others read reported, so that it must be copied before it changes
	reportedVersion uint64
	weighed         bool // at some call of UpdateWeights, half of the expected tasks had one
}

type taskDef[T comparable] struct {
	name      T
	instances int32 // 0: not expected
	handoff   Handoff
	used      bool       // false: the number is free
	rules     *taskRules // nil: none; must not change
}

// settings returns the settings of the task. Their slices are shared.
func (d *taskDef[T]) settings() TaskSettings {
	s := TaskSettings{Instances: int(d.instances), Handoff: d.handoff}
	if r := d.rules; r != nil {
		s.Requires, s.MaxPerZone, s.Weight = r.class.requires, int(r.maxPerZone), r.weight
	}
	return s
}

// taskRules holds the settings that few tasks have.
type taskRules struct {
	class      *taskClass
	maxPerZone int32
	weight     int64
}

// equal reports whether the rules are those of s, which is normalized.
func (r *taskRules) equal(s *TaskSettings) bool {
	if r == nil {
		return len(s.Requires) == 0 && s.MaxPerZone == 0 && s.Weight == 0
	}
	return int(r.maxPerZone) == s.MaxPerZone && r.weight == s.Weight && slices.Equal(r.class.requires, s.Requires)
}

// taskClass holds the labels that the tasks of a class require.
type taskClass struct {
	id       int32
	requires []string // in order, without repetitions; must not change
}

// anyWorker is the class of the tasks that any worker may run.
var anyWorker = &taskClass{}

// classTable gives a number to each list of required labels that some task has. 0 is the
// class without any.
type classTable struct {
	byKey map[string]*taskClass
	uses  []int32 // by number, how many tasks are in the class
	free  []int32 // numbers without a class
}

// use returns the class of the tasks that require some labels, and counts one more.
func (t *classTable) use(requires []string) *taskClass {
	if len(requires) == 0 {
		return anyWorker
	}
	key := classKey(requires)
	class := t.byKey[key]
	if class == nil {
		class = &taskClass{requires: slices.Clone(requires)}
		if n := len(t.free); n > 0 {
			class.id, t.free = t.free[n-1], t.free[:n-1]
		} else {
			t.uses = append(t.uses, 0)
			class.id = int32(len(t.uses))
		}
		if t.byKey == nil {
			t.byKey = make(map[string]*taskClass)
		}
		t.byKey[key] = class
	}
	t.uses[class.id-1]++
	return class
}

// release counts one less.
func (t *classTable) release(class *taskClass) {
	if class == anyWorker {
		return
	}
	if t.uses[class.id-1]--; t.uses[class.id-1] == 0 {
		delete(t.byKey, classKey(class.requires))
		t.free = append(t.free, class.id)
	}
}

// classKey returns a text for labels, which contain no comma.
func classKey(requires []string) string { return strings.Join(requires, ",") }

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
func (t *taskTable[T]) fork(names []T) taskTable[T] {
	c := taskTable[T]{
		ids: make(map[T]int32), defs: t.share(), shared: true, expected: t.expected, loaded: t.loaded, version: t.version,
		classes:  classTable{maps.Clone(t.classes.byKey), slices.Clone(t.classes.uses), slices.Clone(t.classes.free)},
		reported: t.shareReported(), reportedShared: true, weighed: t.weighed,
	}
	for _, name := range names {
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

// set makes name expected with settings, or unexpected with 0 instances, and reports
// whether that changed anything. The settings are valid.
func (t *taskTable[T]) set(name T, s TaskSettings) bool {
	if s.Instances == 0 {
		if id, ok := t.ids[name]; !ok || t.defs[id].instances == 0 {
			return false
		}
		s = TaskSettings{}
	} else {
		s = s.Normalized()
	}
	id, n := t.id(name), int32(s.Instances)
	def := &t.defs[id]
	if def.instances == n && def.handoff == s.Handoff && def.rules.equal(&s) {
		return false
	}
	def = t.edit(id)
	if def.instances > 0 {
		t.expected--
	}
	if n > 0 {
		t.expected++
	} else {
		t.report(id, 0)
	}
	def.instances, def.handoff = n, s.Handoff
	if old := def.rules; !old.equal(&s) {
		def.rules = nil
		if len(s.Requires) > 0 || s.MaxPerZone != 0 || s.Weight != 0 {
			def.rules = &taskRules{t.classes.use(s.Requires), int32(s.MaxPerZone), s.Weight}
		}
		if old != nil {
			t.classes.release(old.class)
		}
	}
	t.version++
	return true
}

// remove makes name unexpected, and reports whether that changed anything.
func (t *taskTable[T]) remove(name T) bool { return t.set(name, TaskSettings{}) }

// add makes a task expected, and reports whether that changed anything.
func (t *taskTable[T]) add(task *Task[T]) bool {
	s, first := task.Settings(), !t.loaded
	s.Instances = max(s.Instances, 1)
	t.loaded = true
	return t.set(task.Name, s) || first
}

// replace makes tasks the expected ones, and reports whether that changed anything. It
// takes two look-ups for each task.
func (t *taskTable[T]) replace(tasks []Task[T]) bool {
	before, first := t.version, !t.loaded
	t.loaded = true
	stays := make([]bool, len(t.defs))
	for _, task := range tasks {
		if id, ok := t.ids[task.Name]; ok {
			stays[id] = true
		}
	}
	for id := range stays {
		if def := &t.defs[id]; def.instances > 0 && !stays[id] {
			t.remove(def.name)
		}
	}
	for i := range tasks {
		t.add(&tasks[i])
	}
	return t.version != before || first
}

// shareReported returns the reported weights, which do not change any more.
func (t *taskTable[T]) shareReported() []int64 {
	t.reportedShared = true
	return slices.Clip(t.reported)
}

// report sets the reported weight of the task with a number; 0 withdraws it.
func (t *taskTable[T]) report(id int32, weight int64) {
	switch {
	case int(id) < len(t.reported):
		if t.reported[id] == weight {
			return
		}
	case weight == 0:
		return
	}
	if t.reportedShared {
		t.reported, t.reportedShared = slices.Clone(t.reported), false
	}
	if more := len(t.defs) - len(t.reported); more > 0 {
		t.reported = append(t.reported, make([]int64, more)...)
	}
	t.reported[id] = weight
	t.reportedVersion++
}

// reportAll sets the reported weights of tasks. It ignores names that are not expected.
func (t *taskTable[T]) reportAll(weights map[T]int64) {
	for name, weight := range weights {
		if id, ok := t.ids[name]; ok && t.defs[id].instances > 0 {
			t.report(id, weight)
		}
	}
	if t.weighed {
		return
	}
	named := 0
	for _, weight := range t.reported { // a task that is not expected has none
		if weight > 0 {
			named++
		}
	}
	t.weighed = t.expected > 0 && 2*named >= t.expected
}

// expectedOf yields the expected tasks among defs, in their order.
func expectedOf[T comparable](defs []taskDef[T]) iter.Seq[Task[T]] {
	return func(yield func(Task[T]) bool) {
		for i := range defs {
			if def := &defs[i]; def.instances > 0 && !yield(NewTask(def.name, def.settings())) {
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
	e.Wanted, e.Class, e.Requires, e.MaxPerZone = 0, nil, nil, nil
	ruled := false
	for i := range defs {
		def := &defs[i]
		e.Instances = append(e.Instances, def.instances)
		e.StartFirst = append(e.StartFirst, def.handoff == StartThenStop || def.handoff == HandoffDefault && h == StartThenStop)
		e.Wanted += int(def.instances)
		ruled = ruled || def.rules != nil
	}
	if ruled {
		setRules(e, defs)
	}
}

// setRules makes the rules of defs those of e. A rule that no task has stays nil.
func setRules[T comparable](e *term.Tasks, defs []taskDef[T]) {
	for i := range defs {
		r := defs[i].rules
		if r == nil {
			continue
		}
		if c := r.class; c != anyWorker {
			if e.Class == nil {
				e.Class = make([]int32, len(defs))
			}
			if more := int(c.id) + 1 - len(e.Requires); more > 0 {
				e.Requires = append(e.Requires, make([][]string, more)...)
			}
			e.Class[i], e.Requires[c.id] = c.id, c.requires
		}
		if r.maxPerZone != 0 {
			if e.MaxPerZone == nil {
				e.MaxPerZone = make([]int32, len(defs))
			}
			e.MaxPerZone[i] = r.maxPerZone
		}
	}
}

// setWeights makes the weights of the tasks of defs those of e. reported holds the weights of
// UpdateWeights.
func setWeights[T comparable](e *term.Tasks, defs []taskDef[T], reported []int64) {
	var weights []int64
	for i := range defs {
		def, weight := &defs[i], int64(0)
		switch {
		case i < len(reported) && reported[i] > 0:
			weight = reported[i]
		case def.rules != nil:
			weight = def.rules.weight
		}
		if weight > 0 && def.instances > 0 {
			if weights == nil {
				weights = make([]int64, len(defs))
			}
			weights[i] = weight
		}
	}
	e.SetWeights(weights)
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
	rules    *term.WorkerRules // nil: the settings are the zero value; must not change
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
func (t *memberTable[W]) set(name W, draining bool, s WorkerSettings) bool {
	m := t.byName[name]
	if m != nil && m.draining == draining && settingsOf(m.rules).Equal(s) {
		return false
	}
	if m == nil {
		t.serial++
		m = &member[W]{name: name, serial: t.serial}
		t.byName[name] = m
		t.list = append(t.list, m)
	}
	m.draining, m.rules = draining, rulesOf(s)
	t.version++
	return true
}

// rulesOf returns the settings of a worker, nil if they are those of the zero value.
func rulesOf(s WorkerSettings) *term.WorkerRules {
	if s.Equal(WorkerSettings{}) {
		return nil
	}
	s = s.Normalized()
	return &term.WorkerRules{
		Zone: s.Zone, Labels: slices.Clone(s.Labels), Share: int32(s.Share), MaxTasks: int32(s.MaxTasks),
	}
}

// settingsOf returns the settings of a worker, with a share of 0 for 1. Their slice is shared.
func settingsOf(r *term.WorkerRules) WorkerSettings {
	if r == nil {
		return WorkerSettings{}
	}
	s := WorkerSettings{Zone: r.Zone, Labels: r.Labels, Share: int(r.Share), MaxTasks: int(r.MaxTasks)}
	if s.Share == 1 {
		s.Share = 0
	}
	return s
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
			members = append(members, term.Member{Serial: m.serial, Draining: m.draining || m.drained, Rules: m.rules})
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
		t.set(w.Name, w.Draining, w.Settings())
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
		if err := task.Settings().Check(); err != nil {
			return fmt.Errorf("task %v: %w", task.Name, err)
		}
		if first, ok := seen[task.Name]; ok {
			return invalid("task %v is given twice, at %d and at %d", task.Name, first, i)
		}
		seen[task.Name] = i
	}
	return nil
}

// checkWorkers returns an error for the first invalid worker.
func checkWorkers[W comparable](workers []Worker[W]) error {
	for _, w := range workers {
		if err := checkName("worker", w.Name); err != nil {
			return err
		}
		if err := w.Settings().Check(); err != nil {
			return fmt.Errorf("worker %v: %w", w.Name, err)
		}
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

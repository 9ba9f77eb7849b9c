package orchestrator

import (
	"cmp"
	"fmt"
	"iter"
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

	weights uint64 // counts the calls of UpdateWeights
	weighed bool   // one of them named half of the expected tasks
}

type taskDef[T comparable] struct {
	name      T
	instances int32 // 0: not expected
	handoff   Handoff
	used      bool       // false: the number is free
	measured  int64      // its weight by UpdateWeights, at least 1; 0: not measured
	rules     *taskRules // nil: none; must not change
}

// settings returns the settings of the task. Their slices are shared.
func (d *taskDef[T]) settings() TaskSettings {
	s := TaskSettings{Instances: int(d.instances), Handoff: d.handoff}
	if r := d.rules; r != nil {
		s.Requires, s.MaxPerZone, s.Weight = r.requires, int(r.maxPerZone), r.weight
	}
	return s
}

// taskRules holds the settings that few tasks have.
type taskRules struct {
	requires   []string // in order, without repetitions; must not change
	class      string   // the same for the same labels
	maxPerZone int32
	weight     int64
}

// equal reports whether the rules are those of s, which is normalized.
func (r *taskRules) equal(s *TaskSettings) bool {
	if r == nil {
		return len(s.Requires) == 0 && s.MaxPerZone == 0 && s.Weight == 0
	}
	return int(r.maxPerZone) == s.MaxPerZone && r.weight == s.Weight && slices.Equal(r.requires, s.Requires)
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
func (t *taskTable[T]) fork(names []T) taskTable[T] {
	c := taskTable[T]{
		ids: make(map[T]int32), defs: t.share(), shared: true, expected: t.expected, loaded: t.loaded, version: t.version,
		weighed: t.weighed,
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

// set makes name expected with settings, or unexpected without instances, and reports
// whether that changed anything. The settings are valid.
func (t *taskTable[T]) set(name T, s TaskSettings) bool {
	if s.Instances <= 0 {
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
		def.measured = 0
	}
	def.instances, def.handoff = n, s.Handoff
	if !def.rules.equal(&s) {
		def.rules = nil
		if len(s.Requires) > 0 || s.MaxPerZone != 0 || s.Weight != 0 { // labels contain no comma
			def.rules = &taskRules{slices.Clone(s.Requires), strings.Join(s.Requires, ","), int32(s.MaxPerZone), s.Weight}
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
	s.Instances = cmp.Or(s.Instances, 1)
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

// measure makes weights the measured ones. It ignores names that are not expected.
func (t *taskTable[T]) measure(weights map[T]int64) {
	for id := range t.defs {
		t.edit(int32(id)).measured = 0
	}
	named := 0
	for name, weight := range weights {
		if id, ok := t.ids[name]; ok && t.defs[id].instances > 0 {
			t.defs[id].measured = max(weight, 1)
			named++
		}
	}
	t.weights++
	t.weighed = t.weighed || t.expected > 0 && 2*named >= t.expected
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

// changedSince returns whether the definition of a task, by number, differs between two tables.
func changedSince[T comparable](before, after []taskDef[T]) func(task int32) bool {
	return func(task int32) bool {
		if int(task) >= min(len(before), len(after)) {
			return true
		}
		a, b := &before[task], &after[task]
		return a.instances != b.instances || a.handoff != b.handoff || a.rules != b.rules
	}
}

// setRules makes the rules of defs those of e. A rule that no task has stays nil.
func setRules[T comparable](e *term.Tasks, defs []taskDef[T]) {
	classes := make(map[string]int32)
	for i := range defs {
		r := defs[i].rules
		if r == nil {
			continue
		}
		if len(r.requires) > 0 {
			if e.Class == nil {
				e.Class, e.Requires = make([]int32, len(defs)), [][]string{nil} // 0 requires nothing
			}
			class, known := classes[r.class]
			if !known {
				class = int32(len(e.Requires))
				classes[r.class], e.Requires = class, append(e.Requires, r.requires)
			}
			e.Class[i] = class
		}
		if r.maxPerZone != 0 {
			if e.MaxPerZone == nil {
				e.MaxPerZone = make([]int32, len(defs))
			}
			e.MaxPerZone[i] = r.maxPerZone
		}
	}
}

// setWeights makes the weights of the tasks of defs those of e.
func setWeights[T comparable](e *term.Tasks, defs []taskDef[T]) {
	var weights []int64
	for i := range defs {
		def := &defs[i]
		weight := def.measured
		if weight == 0 && def.rules != nil {
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
	list    []*member[W]
	byName  map[W]*member[W]
	serial  uint64
	version uint64
}

type member[W comparable] struct {
	name W
	// serial distinguishes the worker from removed ones of the same name. It rises
	// along the list.
	serial   uint64
	draining bool              // as it was added
	drained  bool              // by DrainWorker
	rules    *term.WorkerRules // nil: the settings are the zero value; must not change
	host     string            // what falls with it: Host, or its name
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
	members := make([]member[W], len(t.list))
	for i, m := range t.list {
		members[i] = *m
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
	if m.host = s.Host; m.host == "" {
		m.host = fmt.Sprint(name)
	}
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
		Zone: s.Zone, Labels: slices.Clone(s.Labels), Share: int32(s.Share), MaxTasks: int32(s.MaxTasks), Host: s.Host,
	}
}

// settingsOf returns the settings of a worker, with a share of 0 for 1. Their slice is shared.
func settingsOf(r *term.WorkerRules) WorkerSettings {
	if r == nil {
		return WorkerSettings{}
	}
	s := WorkerSettings{Zone: r.Zone, Labels: r.Labels, Share: int(r.Share), MaxTasks: int(r.MaxTasks), Host: r.Host}
	if s.Share == 1 {
		s.Share = 0
	}
	return s
}

// remove removes a worker, and reports whether there was one.
func (t *memberTable[W]) remove(name W) bool {
	m := t.byName[name]
	if m == nil {
		return false
	}
	delete(t.byName, name)
	i := slices.Index(t.list, m)
	t.list = slices.Delete(t.list, i, i+1)
	t.version++
	return true
}

// current returns the names of the members and the members, in order.
func (t *memberTable[W]) current() (names []W, members []term.Member) {
	names, members = make([]W, len(t.list)), make([]term.Member, len(t.list))
	for i, m := range t.list {
		names[i] = m.name
		members[i] = term.Member{Serial: m.serial, Draining: m.draining || m.drained, Rules: m.rules, Host: m.host}
	}
	return names, members
}

// replace makes workers the members. keep reports whether a name is among them.
func (t *memberTable[W]) replace(workers []Worker[W], keep func(W) bool) bool {
	before := t.version
	for _, m := range slices.Clone(t.list) {
		if !keep(m.name) {
			t.remove(m.name)
		}
	}
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

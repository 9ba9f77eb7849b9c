package orchestrator

import (
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator/internal/breaker"
)

// What-if planning.

// Hypothesis holds the events that [Orchestrator.Plan] assumes to happen before the next
// term. The zero value assumes none. The slices are only read.
type Hypothesis[W, T comparable] struct {
	// Drain and Undrain name workers on which DrainWorker or UndrainWorker is called.
	Drain, Undrain []W
	// Silence names workers that do not answer.
	Silence []W
	// Lose names workers that are declared lost, whatever the grace period and
	// [WithMaxLoss] say.
	Lose []W
	// AddWorkers are added or redefined. New ones answer without tasks.
	AddWorkers []Worker[W]
	// AddTasks are added or redefined, and RemoveTasks removed.
	AddTasks    []Task[T]
	RemoveTasks []T
}

// Plan returns what the next term would do if h came true, with outcome
// [OutcomePlanned]. It calls no worker, changes nothing, and does not wait for a term
// under way. It starts from the expectations as they are now, and from the workers and
// failures as the last term left them, judged at the time of the call. Workers that were
// late, and those added since, count as answering; silent ones stay silent. Without a
// change in between, two calls return the same until a pause or a grace period ends.
//
// Plan returns [ErrNoTerm] before the first term, [ErrUnknownWorker] if h names a worker
// that was not added, and [ErrInvalid] if a name or a task in h is invalid. It takes a
// look-up for each task that a worker runs.
func (o *Orchestrator[W, T]) Plan(h Hypothesis[W, T]) (Plan[W, T], error) {
	last := o.last.Load()
	if last == nil {
		return Plan[W, T]{}, ErrNoTerm
	}
	if err := h.check(); err != nil {
		return Plan[W, T]{}, fmt.Errorf("plan: %w", err)
	}
	s := supposition[W, T]{now: time.Now(), last: last, table: newTaskTable[T]()}
	o.mu.Lock()
	tasks := o.tasks.list()
	s.table.loaded = o.tasks.loaded || len(h.AddTasks) > 0
	members, err := membersIf(&o.members, &h)
	o.mu.Unlock()
	if err != nil {
		return Plan[W, T]{}, fmt.Errorf("plan: %w", err)
	}
	s.table.replace(tasks)
	for _, name := range h.RemoveTasks {
		s.table.set(name, 0, HandoffDefault)
	}
	for _, task := range h.AddTasks {
		s.table.set(task.Name, int32(max(task.Instances, 1)), task.Handoff)
	}
	s.join(members)
	for _, task := range last.ran {
		s.ran(s.number(task))
	}
	s.apply(&h, &o.cfg, o.grace())
	return s.plan(o), nil
}

// check returns the first invalid name or task.
func (h *Hypothesis[W, T]) check() error {
	for _, names := range [][]W{h.Drain, h.Undrain, h.Silence, h.Lose} {
		for _, name := range names {
			if err := checkName("worker", name); err != nil {
				return err
			}
		}
	}
	for _, w := range h.AddWorkers {
		if err := checkName("worker", w.Name); err != nil {
			return err
		}
	}
	for _, name := range h.RemoveTasks {
		if err := checkName("task", name); err != nil {
			return err
		}
	}
	return checkTasks(h.AddTasks)
}

// membersIf returns the members if h came true. The caller holds the orchestrator's mu.
func membersIf[W, T comparable](t *memberTable[W], h *Hypothesis[W, T]) ([]memberView[W], error) {
	views := t.views()
	at := make(map[W]int, len(views))
	for i, s := range views {
		at[s.name] = i
	}
	for _, w := range h.AddWorkers {
		i, known := at[w.Name]
		if !known {
			i = len(views)
			at[w.Name] = i
			views = append(views, memberView[W]{name: w.Name, serial: t.serial + uint64(i) + 1})
		}
		m := t.byName[w.Name]
		views[i].draining = w.Draining || m != nil && m.drained
	}
	for _, names := range [][]W{h.Drain, h.Undrain, h.Silence, h.Lose} {
		for _, name := range names {
			if _, known := at[name]; !known {
				return nil, fmt.Errorf("%w: %v", ErrUnknownWorker, name)
			}
		}
	}
	for _, name := range h.Drain {
		views[at[name]].draining = true
	}
	for _, name := range h.Undrain {
		m := t.byName[name]
		views[at[name]].draining = m != nil && m.draining
	}
	for _, w := range h.AddWorkers {
		views[at[w.Name]].draining = views[at[w.Name]].draining || w.Draining
	}
	return views, nil
}

// supposition is a simulated term. It numbers the tasks itself, because the
// orchestrator may give the numbers of the last term to other tasks.
type supposition[W, T comparable] struct {
	now   time.Time
	last  *result[W, T]
	table taskTable[T]
	fleet fleet[W, T]

	massLoss bool
}

// join makes the fleet from the members and their results of the last term.
func (s *supposition[W, T]) join(members []memberView[W]) {
	results := make(map[uint64]*workerResult[W, T], len(s.last.workers))
	for i := range s.last.workers {
		results[s.last.workers[i].serial] = &s.last.workers[i]
	}
	for _, m := range members {
		w := &worker[W, T]{name: m.name, serial: m.serial, draining: m.draining, since: s.now}
		s.fleet.workers = append(s.fleet.workers, w)
		r := results[m.serial]
		if r == nil {
			w.state, w.heard = Answering, true // it answers without tasks
			continue
		}
		delete(results, m.serial)
		s.restore(w, r)
	}
	for _, r := range results { // removed since
		s.lose(r.tasks())
	}
}

// restore sets a worker's state to that of the last term.
func (s *supposition[W, T]) restore(w *worker[W, T], r *workerResult[W, T]) {
	w.state, w.heard, w.initial, w.since = r.state, r.heard, r.initial, r.since
	u := r.unsettled
	if u != nil {
		w.gain, w.limited = u.gain, u.limited
		if !u.missed.IsZero() {
			w.missed = s.now // it does not answer the next term
		}
	}
	tasks := r.tasks()
	if w.state == Lost {
		s.lose(tasks)
		return
	}
	for _, name := range tasks {
		id := s.table.id(name)
		w.ids = append(w.ids, id)
		s.ran(id)
	}
	w.runs = w.ids
	if len(r.acked) == 0 && !r.duplicates {
		w.pins = int(r.pins)
	}
	if u != nil {
		w.maybe, w.stops, w.stopPause = make(set), make(map[int32]*stop), u.stopPause
		for _, task := range u.maybe {
			w.maybe.add(s.number(task))
		}
		for task, stop := range u.stops {
			w.stops[s.number(task)] = &stop
		}
	}
}

// number returns the number here of a task of the last term.
func (s *supposition[W, T]) number(task int32) int32 { return s.table.id(s.last.names[task]) }

// lose records that tasks ran on a worker that was removed or declared lost.
func (s *supposition[W, T]) lose(tasks []T) {
	for _, name := range tasks {
		id := s.table.id(name)
		s.ran(id)
		s.fleet.flags[id] |= taskLost
	}
}

// ran records that a task ran before.
func (s *supposition[W, T]) ran(task int32) {
	s.fleet.grow(len(s.table.defs))
	s.fleet.flags[task] |= taskSeen
}

// apply applies h's losses and silences, and judges the silent workers.
func (s *supposition[W, T]) apply(h *Hypothesis[W, T], cfg *config, grace time.Duration) {
	f := &s.fleet
	f.grow(len(s.table.defs))
	named := func(names []W) map[W]bool {
		set := make(map[W]bool, len(names))
		for _, name := range names {
			set[name] = true
		}
		return set
	}
	silence, lose := named(h.Silence), named(h.Lose)
	for _, w := range f.workers {
		switch {
		case lose[w.name]:
			f.markLost(w)
		case silence[w.name] && w.state == Answering:
			w.state = Silent
			if grace == 0 {
				w.missed = s.now
			}
		}
	}
	f.massLossSince, f.massLossEnded = s.last.massLossSince, s.last.massLossEnded
	_, s.massLoss = f.judge(s.now, cfg, grace)
}

// plan decides the term.
func (s *supposition[W, T]) plan(o *Orchestrator[W, T]) Plan[W, T] {
	b := breaker.New(o.cfg.maxPause)
	if s.last.breakers != nil {
		b = s.last.breakers.Clone(s.number)
	}
	var e expectation
	s.table.version++
	s.table.snapshot(&e)
	t := &term[W, T]{
		id: Term{Epoch: o.cfg.epoch, Number: s.last.number + 1}, fleet: &s.fleet, breakers: b, expect: &e,
		names: func(tasks []int32) []T {
			names := make([]T, len(tasks))
			for i, task := range tasks {
				names[i] = s.table.defs[task].name
			}
			return names
		},
	}
	b.ForgetTasks(func(task int32) bool { return !e.expected(task) })
	b.ForgetWorkers(func(serial uint64) bool { return s.fleet.bySerial(serial) == nil })
	s.fleet.grow(len(s.table.defs))
	now := breaker.Moment{Term: t.id.Number, Time: s.now}
	for _, w := range s.fleet.workers {
		if w.state == Answering { // its answer shows that none of these was started
			s.fleet.deny(w, w.maybe, b, now)
			w.maybe = nil
		}
	}
	t.stats.Term, t.stats.Start, t.stats.MassLoss = t.id, s.now, s.massLoss
	var d decider[W, T]
	t.decision = d.decide(t.fleet, b, &e, now, &o.cfg)
	t.stats.Planning = time.Since(s.now)
	t.rows = t.begun()
	t.results()
	t.countChanges()
	t.stats.Total = time.Since(s.now)
	return t.plan()
}

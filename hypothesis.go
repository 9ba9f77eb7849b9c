package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/term"
)

// Hypothesis holds the events that [Orchestrator.Plan] assumes to happen before the next
// term. The zero value assumes none. The slices are only read.
type Hypothesis[W, T comparable] struct {
	// Drain and Undrain name workers on which DrainWorker or UndrainWorker is called.
	Drain   []W `json:"drain,omitempty"`
	Undrain []W `json:"undrain,omitempty"`
	// Silence names workers that do not answer.
	Silence []W `json:"silence,omitempty"`
	// Lose names workers that are declared lost, whatever the grace period and
	// [WithMaxLoss] say.
	Lose []W `json:"lose,omitempty"`
	// AddWorkers are added or redefined. New ones answer without tasks.
	AddWorkers []Worker[W] `json:"add_workers,omitempty"`
	// AddTasks are added or redefined, and RemoveTasks removed.
	AddTasks    []Task[T] `json:"add_tasks,omitempty"`
	RemoveTasks []T       `json:"remove_tasks,omitempty"`
}

// Plan returns what the next term would do if h came true, with outcome
// [OutcomePlanned]. It calls no worker, changes nothing, and does not wait for a term
// under way. It starts from the expectations as they are now, and from the workers and
// failures as the last term left them, judged at the time of the call. Workers that were
// late, and those added since, count as answering; silent ones stay silent. Without a
// change in between, two calls return the same until a pause or a grace period ends.
//
// Plan returns [ErrNoTerm] before the first term, [ErrUnknownWorker] if h names a worker
// that was not added, and [ErrInvalid] if a name or a task in h is invalid. It takes
// O(workers + tasks + instances), and looks up only the names in h.
func (o *Orchestrator[W, T]) Plan(h Hypothesis[W, T]) (Plan[W, T], error) {
	if o.last.Load() == nil {
		return Plan[W, T]{}, ErrNoTerm
	}
	if err := h.check(); err != nil {
		return Plan[W, T]{}, fmt.Errorf("plan: %w", err)
	}
	s := supposition[W, T]{o: o, now: time.Now()}
	tasks := slices.Clone(h.RemoveTasks)
	for i := range h.AddTasks {
		tasks = append(tasks, h.AddTasks[i].Name)
	}
	o.mu.Lock()
	// The next snapshot comes together with the release of numbers to which this one refers.
	s.last = o.last.Load()
	s.table = o.tasks.fork(tasks)
	workers := newMemberTable(o.members.copies(), o.members.serial)
	holds := o.holdsAt(s.now, s.table.weighed)
	o.mu.Unlock()
	if err := h.applyTo(&workers); err != nil {
		return Plan[W, T]{}, fmt.Errorf("plan: %w", err)
	}
	for _, name := range h.RemoveTasks {
		s.table.remove(name)
	}
	for i := range h.AddTasks {
		s.table.add(&h.AddTasks[i])
	}
	names, members := workers.current()
	s.fleet = s.last.fleet.Suppose(o.cfg.term(), members, s.now)
	for i, w := range s.fleet.Workers {
		s.workers = append(s.workers, &worker[W, T]{Worker: w, name: names[i]})
	}
	massLoss := s.apply(&h)
	return s.plan(massLoss, holds), nil
}

// check returns the first invalid name or task.
func (h *Hypothesis[W, T]) check() error {
	for _, name := range slices.Concat(h.Drain, h.Undrain, h.Silence, h.Lose) {
		if err := checkName("worker", name); err != nil {
			return err
		}
	}
	if err := checkWorkers(h.AddWorkers); err != nil {
		return err
	}
	for _, name := range h.RemoveTasks {
		if err := checkName("task", name); err != nil {
			return err
		}
	}
	return checkTasks(h.AddTasks)
}

// applyTo applies the changes of workers to t, as the methods of Orchestrator would. It
// returns an error if h names a worker that is not in t.
func (h *Hypothesis[W, T]) applyTo(t *memberTable[W]) error {
	for _, w := range h.AddWorkers {
		t.set(w.Name, w.Draining, w.Settings())
	}
	for _, name := range slices.Concat(h.Drain, h.Undrain, h.Silence, h.Lose) {
		if t.byName[name] == nil {
			return fmt.Errorf("%w: %v", ErrUnknownWorker, name)
		}
	}
	for _, name := range h.Drain {
		t.byName[name].drained = true
	}
	for _, name := range h.Undrain {
		t.byName[name].drained = false
	}
	return nil
}

// supposition is a simulated term. Its tasks have the numbers that they have in the
// orchestrator.
type supposition[W, T comparable] struct {
	o       *Orchestrator[W, T]
	now     time.Time
	last    *Snapshot[W, T]
	table   taskTable[T] // the definitions do not change after the hypothesis is applied
	fleet   *term.Fleet
	workers []*worker[W, T] // of fleet, in its order
}

// apply applies h's losses and silences, judges the silent workers, and reports whether
// there is a mass loss.
func (s *supposition[W, T]) apply(h *Hypothesis[W, T]) (massLoss bool) {
	for _, w := range s.workers {
		switch {
		case slices.Contains(h.Lose, w.name):
			s.fleet.MarkLost(w.Worker)
		case slices.Contains(h.Silence, w.name):
			s.fleet.Silence(w.Worker, s.now)
		}
	}
	_, massLoss = s.fleet.Judge(s.now, s.o.grace())
	return massLoss
}

// losers returns the names of the workers that were removed, by serial: also those that
// were members in the last term.
func (s *supposition[W, T]) losers() map[uint64]W {
	names := make(map[uint64]W, len(s.last.workers)+len(s.last.losers))
	maps.Copy(names, s.last.losers)
	for i := range s.last.workers {
		names[s.last.fleet.Workers[i].Serial] = s.last.workers[i].name
	}
	return names
}

// plan decides the term.
func (s *supposition[W, T]) plan(massLoss bool, holds []term.Hold) Plan[W, T] {
	tasks := term.Tasks{Loaded: s.table.loaded, Holds: holds}
	setExpected(&tasks, s.table.defs, s.o.cfg.Handoff)
	setWeights(&tasks, s.table.defs)
	t := &termRun[W, T]{
		id:    Term{Epoch: s.o.epoch.Load(), Number: s.last.plan.Stats.Term.Number + 1},
		fleet: s.fleet, workers: s.workers, losers: s.losers(), expect: &tasks, names: s.table.names,
	}
	now := term.Moment{Term: t.id.Number, Time: s.now}
	s.fleet.Resume(&tasks, changedSince(s.last.expected, s.table.defs), now)
	t.stats.Term, t.stats.Start, t.stats.MassLoss, t.stats.InitialWait = t.id, s.now, massLoss, s.fleet.WaitsUntil()
	t.decision = s.fleet.Decide(&tasks, now)
	t.stats.Planning = time.Since(s.now)
	t.rows = t.rowsBefore()
	t.count()
	t.countChanges()
	t.stats.Total = time.Since(s.now)
	return t.plan()
}

package orchestrator

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/breaker"
	"github.com/f8949c05/orchestrator/internal/handover"
)

// The end of a term: its result for the readers.

// publish returns the result of the term, from which LastPlan, LastActual and Plan
// start, and completes the statistics. It takes O(workers + changes + waiting) and
// O(pauses · log(pauses)). It copies no list.
func (t *term[W, T]) publish(err error) *result[W, T] {
	t.stats.Err = err
	r := &result[W, T]{
		number: t.id.Number, workers: t.results(), names: make(map[int32]T),
		massLossSince: t.fleet.massLossSince, massLossEnded: t.fleet.massLossEnded,
	}
	if !t.breakers.Empty() {
		r.breakers = t.breakers.Clone(func(task int32) int32 { return task })
	}
	t.keepNames(r)
	t.stats.Workers.Stuck = t.o.inflight.stuck(time.Now())
	switch last := t.o.last.Load(); {
	case !t.cut:
		t.countChanges()
	case last != nil:
		// What is missing is unknown, and zero would be a false all-clear.
		t.stats.Instances, t.stats.Spread = last.plan.Stats.Instances, last.plan.Stats.Spread
	default:
		t.stats.Instances = InstanceStats{Wanted: t.expect.wanted, Missing: t.expect.wanted}
	}
	r.plan = t.plan()
	t.stats.Total = time.Since(t.stats.Start)
	r.plan.Stats.Total = t.stats.Total
	return r
}

// plan returns the Plan of the term.
func (t *term[W, T]) plan() Plan[W, T] {
	return Plan[W, T]{
		Stats:   t.stats,
		Changes: t.changes(),
		Waiting: t.waiting(),
		Paused:  t.paused(),
		Workers: t.ended(),
	}
}

// results returns the result of each worker, and counts the workers.
func (t *term[W, T]) results() []workerResult[W, T] {
	results := make([]workerResult[W, T], len(t.fleet.workers))
	s := &t.stats
	least, most := -1, 0
	for i, w := range t.fleet.workers {
		r := &results[i]
		*r = workerResult[W, T]{
			name: w.name, serial: w.serial, state: w.state, draining: w.draining,
			heard: w.heard, initial: w.initial, duplicates: w.duplicates > 0, pins: int32(w.pins),
			since: w.since, list: w.list, acked: w.acked,
		}
		if len(w.maybe) > 0 || len(w.stops) > 0 || w.limited > t.id.Number || !w.missed.IsZero() {
			r.unsettled = &unsettled{
				maybe: w.maybe.sorted(), stops: make(map[int32]stop, len(w.stops)), stopPause: w.stopPause,
				gain: w.gain, limited: w.limited, missed: w.missed,
			}
			for task, stop := range w.stops {
				r.unsettled.stops[task] = *stop
			}
		}
		switch w.state {
		case Answering:
			s.Workers.Answering++
			if w.late {
				s.Workers.Late++
			} else {
				s.Instances.Running += len(w.runs)
			}
		case Silent:
			s.Workers.Silent++
		case Lost:
			s.Workers.Lost++
		}
		if w.draining {
			s.Workers.Draining++
		}
		_, quarantined := t.breakers.Quarantined(w.serial)
		if quarantined {
			s.Workers.Quarantined++
		}
		if w.state == Answering && !w.draining && !quarantined {
			most = max(most, len(w.runs))
			if least < 0 || len(w.runs) < least {
				least = len(w.runs)
			}
		}
	}
	s.Spread = most - max(least, 0)
	return results
}

// keepNames records the names of the tasks to which a result refers by number, because
// the table may give these numbers to other tasks later.
func (t *term[W, T]) keepNames(r *result[W, T]) {
	var tasks []int32
	if r.breakers != nil {
		tasks = slices.AppendSeq(tasks, r.breakers.Tasks())
	}
	for i := range r.workers {
		if u := r.workers[i].unsettled; u != nil {
			tasks = slices.AppendSeq(append(tasks, u.maybe...), maps.Keys(u.stops))
		}
	}
	if t.breakers.FailedIn(r.number) > 0 { // see findUnproven
		t.decision.mark(func(task int32) {
			if t.fleet.flags[task]&taskSeen != 0 {
				r.ran = append(r.ran, task)
			}
		})
		for task, flags := range t.fleet.flags { // a removed task may come back
			if flags&taskSeen != 0 && !t.expect.expected(int32(task)) {
				r.ran = append(r.ran, int32(task))
			}
		}
	}
	tasks = append(tasks, r.ran...)
	for i, name := range t.names(tasks) {
		r.names[tasks[i]] = name
	}
}

// countChanges counts what was planned, and what is missing after it.
func (t *term[W, T]) countChanges() {
	s, d := &t.stats, &t.decision
	s.Deferred, s.Adds, s.LowerBound = d.deferred, d.adds, d.lowerBound
	in := &s.Instances
	in.Wanted, in.Held, in.Unplaceable, in.Missing = t.expect.wanted, d.held, d.unplaced, d.missing
	if !t.expect.loaded {
		in.Unexpected, in.Running = in.Running, 0
		return
	}
	if len(d.changes) > 0 {
		s.Changes, s.Outcomes = make(map[ChangeKind]int), make(map[Outcome]int)
	}
	for i := range d.changes {
		kind := d.changes[i].kind()
		s.Changes[kind]++
		outcome, _ := t.outcomeOf(i)
		s.Outcomes[outcome]++
		net := t.net(i)
		switch {
		case kind.Reason == ReasonUnexpected:
			in.Unexpected++
			if net == 0 { // it still runs, and was counted as running
				in.Running--
			}
		case kind.Op == Start && net > 0:
			in.Missing--
		case kind.Op == Move && net < 0:
			in.Missing++
		}
	}
}

// net returns how many starts of change i were acknowledged, less the stops.
func (t *term[W, T]) net(i int) int8 {
	if t.writing == nil {
		return 0
	}
	return t.writing.net[i]
}

func (t *term[W, T]) changes() []Change[W, T] {
	d := &t.decision
	tasks := make([]int32, len(d.changes))
	for i := range d.changes {
		tasks[i] = d.changes[i].Task
	}
	names := t.names(tasks)
	changes := make([]Change[W, T], len(d.changes))
	for i := range d.changes {
		c, out := &d.changes[i], &changes[i]
		out.Kind, out.Task = c.kind(), names[i]
		out.Outcome, out.Err = t.outcomeOf(i)
		if out.Kind.Op != Start {
			out.From = t.fleet.workers[c.From].name
		}
		if out.Kind.Op != Stop {
			out.To = t.fleet.workers[c.To].name
		}
	}
	return changes
}

func (t *term[W, T]) waiting() []Waiting[W, T] {
	d := &t.decision
	tasks := make([]int32, len(d.waiting))
	for i := range d.waiting {
		tasks[i] = d.waiting[i].task
	}
	names := t.names(tasks)
	all := make([]Waiting[W, T], len(d.waiting))
	for i, w := range d.waiting {
		all[i] = Waiting[W, T]{Task: names[i], Instances: w.instances, Reason: w.reason}
		if w.worker >= 0 {
			all[i].Worker, all[i].Named = t.fleet.workers[w.worker].name, true
		}
	}
	return all
}

// paused lists the active pauses, and all those of quarantined workers and suspects.
func (t *term[W, T]) paused() []Pause[W, T] {
	all := []Pause[W, T]{}
	var tasks []int32
	add := func(kind PauseKind, w W, task int32, p breaker.Pause) {
		all = append(all, Pause[W, T]{Kind: kind, Worker: w, Until: p.Until, Failures: p.Failures, Err: p.Err})
		tasks = append(tasks, task)
	}
	now := t.now()
	for _, w := range t.fleet.workers {
		if len(w.stops) == 0 {
			continue
		}
		for _, task := range slices.Sorted(maps.Keys(w.stops)) {
			if s := w.stops[task]; s.failures > 0 {
				add(PauseStop, w.name, task, breaker.Pause{Until: w.stopPause.Until, Failures: s.failures, Err: s.err})
			}
		}
	}
	if !t.breakers.Empty() {
		names := make(map[uint64]W, len(t.fleet.workers))
		for _, w := range t.fleet.workers {
			names[w.serial] = w.name
			if p, ok := t.breakers.Quarantined(w.serial); ok {
				add(PauseWorker, w.name, handover.None, p)
			}
		}
		suspects := make(map[int32]bool)
		for _, s := range t.breakers.Suspects() {
			add(PauseTask, names[s.Last], s.Task, s.Pause)
			suspects[s.Task] = true
		}
		for pair, p := range t.breakers.Pairs() {
			if suspects[pair.Task] || !p.Active(now) {
				continue
			}
			add(PauseStart, names[pair.Worker], pair.Task, p)
		}
		if p := t.breakers.Moves(); p.Failures > 0 {
			var none W
			add(PauseMoves, none, handover.None, p)
		}
	}
	t.nameTasks(all, tasks)
	return all
}

func (t *term[W, T]) nameTasks(pauses []Pause[W, T], tasks []int32) {
	var of []*Pause[W, T]
	for i := range pauses {
		if pauses[i].hasTask() {
			of = append(of, &pauses[i])
		}
	}
	tasks = slices.DeleteFunc(tasks, func(task int32) bool { return task == handover.None })
	for i, name := range t.names(tasks) {
		of[i].Task = name
	}
}

// begun returns a row for each worker, with the number of tasks that it holds now.
func (t *term[W, T]) begun() []WorkerPlan[W] {
	rows := make([]WorkerPlan[W], len(t.fleet.workers))
	for i, w := range t.fleet.workers {
		held := 0
		if w.state != Lost {
			held = len(w.runs) + len(w.maybe)
		}
		rows[i] = WorkerPlan[W]{Name: w.name, State: w.state, Late: w.late, Draining: w.draining, Before: held, After: held}
	}
	return rows
}

// ended completes the rows with the planned changes and the quarantines.
func (t *term[W, T]) ended() []WorkerPlan[W] {
	if t.rows == nil { // the term ended before it could decide
		t.rows = t.begun()
	}
	for i := range t.decision.changes {
		c := &t.decision.changes[i]
		if c.From >= 0 {
			t.rows[c.From].After--
		}
		if c.To >= 0 {
			t.rows[c.To].After++
		}
	}
	if !t.breakers.Empty() {
		for i, w := range t.fleet.workers {
			_, t.rows[i].Quarantined = t.breakers.Quarantined(w.serial)
		}
	}
	return t.rows
}

// attrs returns the attributes of the change for the log.
func (c *Change[W, T]) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.Any("op", c.Kind.Op), slog.Any("reason", c.Kind.Reason), slog.Any("task", c.Task)}
	if c.Kind.Op != Start {
		attrs = append(attrs, slog.Any("from", c.From))
	}
	if c.Kind.Op != Stop {
		attrs = append(attrs, slog.Any("to", c.To))
	}
	attrs = append(attrs, slog.Any("outcome", c.Outcome))
	if c.Err != nil {
		attrs = append(attrs, slog.Any("err", c.Err))
	}
	return attrs
}

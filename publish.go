package orchestrator

import (
	"log/slog"
	"time"
)

// The end of a term: what it leaves for its readers, and its log.

// publish makes what LastPlan and LastActual return, and completes the
// statistics: O(workers + changes + waiting), and O(pairs · log(pairs)) for what
// is avoided. No list is copied.
func (t *term[W, T]) publish(err error) *result[W, T] {
	t.stats.Err = err
	r := &result[W, T]{workers: make([]workerResult[W, T], len(t.fleet.workers))}
	t.workers(r.workers)
	switch last := t.o.last.Load(); {
	case !t.cut:
		t.countChanges()
	case last != nil:
		// It cannot say what is missing, and zero would be a false all-clear.
		t.stats.Instances, t.stats.Spread = last.plan.Stats.Instances, last.plan.Stats.Spread
	default:
		t.stats.Instances = InstanceStats{Wanted: t.o.expect.wanted, Missing: t.o.expect.wanted}
	}
	r.plan = Plan[W, T]{
		Stats:   t.stats,
		Changes: t.changes(),
		Waiting: t.waiting(),
		Avoided: t.avoided(),
		Workers: t.ended(),
	}
	t.stats.Total = time.Since(t.stats.Start)
	r.plan.Stats.Total = t.stats.Total
	return r
}

// workers makes the result of each worker, and counts them.
func (t *term[W, T]) workers(results []workerResult[W, T]) {
	s := &t.stats
	least, most := -1, 0
	for i, w := range t.fleet.workers {
		results[i] = workerResult[W, T]{
			name: w.name, state: w.state, draining: w.draining,
			list: w.list, duplicates: w.duplicates > 0, acked: w.acked,
		}
		if w.heard {
			results[i].lastAnswer = w.since
		}
		switch w.state {
		case Answering:
			s.Workers.Answering++
			s.Instances.Running += len(w.runs)
		case Silent:
			s.Workers.Silent++
		case Lost:
			s.Workers.Lost++
		}
		if w.draining {
			s.Workers.Draining++
		}
		avoided := t.isAvoided(w)
		if avoided {
			s.Workers.Avoided++
		}
		if w.state == Answering && !w.draining && !avoided {
			most = max(most, len(w.runs))
			if least < 0 || len(w.runs) < least {
				least = len(w.runs)
			}
		}
	}
	s.Spread = most - max(least, 0)
	s.Workers.Stuck = t.o.lines.stuck(time.Now())
}

func (t *term[W, T]) isAvoided(w *worker[W, T]) bool {
	closed, _ := t.book.Closed(w.serial, 0)
	return closed
}

// countChanges counts what was planned, and what is missing after it.
func (t *term[W, T]) countChanges() {
	s, d := &t.stats, &t.decision
	s.Deferred, s.Adds, s.LowerBound = d.deferred, d.adds, d.lowerBound
	in := &s.Instances
	in.Wanted, in.Held, in.Unplaceable, in.Missing = t.o.expect.wanted, d.held, d.unplaced, d.missing
	if !t.o.expect.loaded {
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
			if net == 0 { // it goes on, and is counted among the running
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
	names := t.o.namesOf(tasks)
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
	names := t.o.namesOf(tasks)
	all := make([]Waiting[W, T], len(d.waiting))
	for i, w := range d.waiting {
		all[i] = Waiting[W, T]{Task: names[i], Instances: w.instances, Reason: w.reason}
		if w.worker >= 0 {
			all[i].Worker, all[i].Named = t.fleet.workers[w.worker].name, true
		}
	}
	return all
}

func (t *term[W, T]) avoided() []Avoided[W, T] {
	all := []Avoided[W, T]{}
	if t.book.Empty() {
		return all
	}
	names := make(map[uint64]W, len(t.fleet.workers))
	for _, w := range t.fleet.workers {
		names[w.serial] = w.name
	}
	for serial, r := range t.book.Workers() {
		all = append(all, Avoided[W, T]{Worker: names[serial], Whole: true, Until: r.Until, Failures: r.Failures, Err: r.Err})
	}
	first := len(all)
	var tasks []int32
	for pair, r := range t.book.Pairs(t.number()) {
		tasks = append(tasks, pair.Task)
		all = append(all, Avoided[W, T]{Worker: names[pair.Worker], Until: r.Until, Failures: r.Failures, Err: r.Err})
	}
	for i, name := range t.o.namesOf(tasks) {
		all[first+i].Task = name
	}
	return all
}

// begun returns a row for each worker, with how much it holds now.
func (t *term[W, T]) begun() []WorkerPlan[W] {
	rows := make([]WorkerPlan[W], len(t.fleet.workers))
	for i, w := range t.fleet.workers {
		held := 0
		if w.state != Lost {
			held = len(w.runs) + len(w.maybe)
		}
		rows[i] = WorkerPlan[W]{Name: w.name, State: w.state, Draining: w.draining, Before: held, After: held}
	}
	return rows
}

// ended completes the rows with what the term planned, and learned.
func (t *term[W, T]) ended() []WorkerPlan[W] {
	if t.rows == nil { // it ended before it could decide
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
	if !t.book.Empty() {
		for i, w := range t.fleet.workers {
			t.rows[i].Avoided = t.isAvoided(w)
		}
	}
	return t.rows
}

// attrs leaves out the end that a start or a stop does not have.
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

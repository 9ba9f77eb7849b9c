package orchestrator

// The end of a term: the snapshot that it leaves.

import (
	"cmp"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/internal/term"
)

// publish makes the snapshot of the term the last one, and returns it. It completes the
// statistics. It takes O(workers + changes + waiting) and O(pauses · log(pauses)). It copies
// no list.
func (t *termRun[W, T]) publish(err error) *Snapshot[W, T] {
	t.stats.Err = err
	t.count()
	r := &Snapshot[W, T]{
		fleet:   t.fleet.Snapshot(&t.decision, t.expect, term.Moment{Term: t.id.Number, Time: t.stats.Start}),
		workers: make([]workerResult[W, T], len(t.workers)),
		losers:  t.losers, expected: t.o.expected, undecided: t.undecided,
	}
	none := &workerRest[T]{}
	for i, w := range t.workers {
		r.workers[i] = workerResult[W, T]{name: w.name, list: w.list, workerRest: none}
		if len(w.acked) > 0 || w.err != nil {
			r.workers[i].workerRest = &workerRest[T]{acked: w.acked, err: w.err}
		}
	}
	t.stats.Workers.Stuck = t.o.inflight.stuck(time.Now())
	switch last := t.o.last.Load(); {
	case !t.undecided:
		t.countChanges()
	case last != nil:
		// What is missing is unknown, and zero would be a false all-clear.
		of := &last.plan.Stats
		t.stats.Instances, t.stats.Spread, t.stats.HighestLoad, t.stats.OutOfBand = of.Instances, of.Spread, of.HighestLoad, of.OutOfBand
	default:
		t.stats.Instances = InstanceStats{Wanted: t.expect.Wanted, Missing: t.expect.Wanted}
	}
	r.plan = t.plan()
	t.stats.Total = time.Since(t.stats.Start)
	r.plan.Stats.Total = t.stats.Total
	t.o.mu.Lock()
	defer t.o.mu.Unlock()
	t.o.last.Store(r)
	t.o.tasks.release(t.unused)
	return r
}

// plan returns the Plan of the term.
func (t *termRun[W, T]) plan() Plan[W, T] {
	changes := t.changes()
	waiting := append(t.waiting(), t.notStarted(changes)...)
	if t.stats.Observed {
		changes = nil
	}
	return Plan[W, T]{
		Stats:   t.stats,
		Changes: changes,
		Waiting: waiting,
		Paused:  t.paused(),
		Holds:   t.holdsOf(),
		Workers: t.rowsAfter(),
	}
}

// count counts the workers.
func (t *termRun[W, T]) count() {
	s, c := &t.stats, t.fleet.Count()
	s.Workers = WorkerStats{
		Answering: c.Answering, Silent: c.Silent, Lost: c.Lost,
		Draining: c.Draining, Late: c.Late, Quarantined: c.Quarantined,
	}
	for state, n := range [...]int{Silent: len(t.silenced), Answering: len(t.returned), Lost: len(t.lost)} {
		if n > 0 && s.StateChanges == nil {
			s.StateChanges = make(map[State]int)
		}
		if n > 0 {
			s.StateChanges[State(state)] = n
		}
	}
	s.Instances.Running, s.Spread = c.Running, c.Spread
}

// countChanges counts what was planned, and what is missing after it.
func (t *termRun[W, T]) countChanges() {
	s, d := &t.stats, &t.decision
	s.Deferred, s.MovesHeld, s.Adds, s.LowerBound, s.EvictionsHeld = d.Deferred, d.MovesHeld, d.Adds, d.LowerBound, d.EvictionsHeld
	s.HighestLoad, s.OutOfBand = d.HighestLoad, d.OutOfBand
	in := &s.Instances
	in.Wanted, in.Held, in.Unplaceable, in.Missing = t.expect.Wanted, d.Held, d.Unplaced, d.Missing
	if !t.expect.Loaded {
		in.Unexpected, in.Running = in.Running, 0
		return
	}
	if s.Observed {
		s.Deferred, s.MovesHeld, s.Adds, s.LowerBound = 0, 0, 0, 0
	} else if len(d.Changes) > 0 {
		s.Changes, s.Outcomes = make(map[ChangeKind]int), make(map[Outcome]int)
	}
	for i := range d.Changes {
		kind := kindOf(&d.Changes[i])
		if outcome, _ := t.outcomeOf(i); s.Changes != nil {
			s.Changes[kind]++
			s.Outcomes[outcome]++
		}
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
func (t *termRun[W, T]) net(i int) int8 {
	if t.writing == nil {
		return 0
	}
	return t.writing.Net(i)
}

// kindOf returns the kind of a change.
func kindOf(c *term.Change) ChangeKind {
	switch {
	case c.From == handover.None:
		return ChangeKind{Start, Reason(c.Reason)}
	case c.To == handover.None:
		return ChangeKind{Stop, Reason(c.Reason)}
	}
	return ChangeKind{Move, Reason(c.Reason)}
}

func (t *termRun[W, T]) changes() []Change[W, T] {
	d := &t.decision
	names := t.changeNames()
	changes := make([]Change[W, T], len(d.Changes))
	for i := range d.Changes {
		c, out := &d.Changes[i], &changes[i]
		out.Kind, out.Task = kindOf(c), names[i]
		out.Outcome, out.Err = t.outcomeOf(i)
		if t.writing != nil {
			out.Began, out.Took, out.Gap = t.writing.timesOf(i)
		}
		out.From, _ = t.workerName(c.From)
		out.To, _ = t.workerName(c.To)
		if c.Loser != 0 {
			out.Was = t.loserName(c.Loser)
		}
	}
	return changes
}

// loserName returns the name of the worker with a serial, which may have been removed.
func (t *termRun[W, T]) loserName(serial uint64) W {
	i, ok := slices.BinarySearchFunc(t.workers, serial, func(w *worker[W, T], s uint64) int { return cmp.Compare(w.Serial, s) })
	if ok {
		return t.workers[i].name
	}
	return t.losers[serial]
}

// workerName returns the name of a worker by its index, and false for None.
func (t *termRun[W, T]) workerName(i int32) (name W, ok bool) {
	if i == handover.None {
		return name, false
	}
	return t.workers[i].name, true
}

func (t *termRun[W, T]) waiting() []Waiting[W, T] {
	d := &t.decision
	names := t.names(len(d.Waiting), func(i int) int32 { return d.Waiting[i].Task })
	all := make([]Waiting[W, T], len(d.Waiting))
	for i, w := range d.Waiting {
		all[i] = Waiting[W, T]{Task: names[i], Instances: w.Instances, Reason: Reason(w.Reason), Causes: causesOf(w.Causes)}
		all[i].Worker, all[i].Named = t.workerName(w.Worker)
	}
	return all
}

// causesOf returns the public form of causes.
func causesOf(c *term.Causes) *Causes {
	if c == nil {
		return nil
	}
	out := &Causes{
		Workers: c.Workers, ZoneFull: c.ZoneFull, NoRoom: c.NoRoom, Running: c.Running,
		Quarantined: c.Quarantined, Paused: c.Paused, Free: c.Free,
	}
	for _, l := range c.Lacking {
		out.Lacking = append(out.Lacking, LabelCount(l))
	}
	return out
}

// notStarted lists the instances that are missing although the term was to start them.
func (t *termRun[W, T]) notStarted(changes []Change[W, T]) (all []Waiting[W, T]) {
	for i := range changes {
		c := &changes[i]
		if net := t.net(i); c.Kind.Op == Stop || c.Kind.Op == Start && net > 0 || c.Kind.Op == Move && net >= 0 {
			continue
		}
		w := Waiting[W, T]{Task: c.Task, Instances: 1, Reason: ReasonFailed, Worker: c.To, Named: true}
		switch c.Outcome {
		case OutcomePlanned, OutcomeDry:
			if !t.stats.Observed {
				continue
			}
			w = Waiting[W, T]{Task: c.Task, Instances: 1, Reason: ReasonObserved}
		case OutcomeSkipped:
			w.Reason = ReasonSkipped
		}
		all = append(all, w)
	}
	return all
}

// paused lists the active pauses, and all those of quarantined workers and suspects.
func (t *termRun[W, T]) paused() []Pause[W, T] {
	pauses := t.fleet.Paused(t.now())
	all := make([]Pause[W, T], len(pauses))
	var tasks []int32
	var of []*Pause[W, T]
	for i, p := range pauses {
		all[i] = Pause[W, T]{Kind: PauseKind(p.Kind), Until: p.Until, Ends: p.Ends, Failures: p.Failures, Err: p.Err}
		all[i].Worker, _ = t.workerName(p.Worker)
		if p.Task != handover.None {
			tasks, of = append(tasks, p.Task), append(of, &all[i])
		}
	}
	for i, name := range t.names(len(tasks), func(i int) int32 { return tasks[i] }) {
		of[i].Task = name
	}
	return all
}

// rowsBefore returns a row for each worker, with the number of tasks that it holds now.
func (t *termRun[W, T]) rowsBefore() []WorkerPlan[W] {
	rows := make([]WorkerPlan[W], len(t.workers))
	for i, w := range t.fleet.Workers {
		held := w.Holds() // 0 if it is lost
		row := &rows[i]
		row.Name, row.State, row.Late, row.Draining, row.Before, row.After = t.workers[i].name, State(w.State), w.Late, w.Draining, held, held
		if w.Rules != nil {
			row.Settings = settingsOf(w.Rules)
		}
	}
	return rows
}

// rowsAfter completes the rows with the planned changes and the quarantines.
func (t *termRun[W, T]) rowsAfter() []WorkerPlan[W] {
	if t.rows == nil { // the term ended before it could decide
		t.rows = t.rowsBefore()
	}
	for i := range t.decision.Changes {
		c := &t.decision.Changes[i]
		if t.stats.Observed {
			break
		}
		if c.From >= 0 {
			t.rows[c.From].After--
		}
		if c.To >= 0 {
			t.rows[c.To].After++
		}
	}
	for i, w := range t.fleet.Workers {
		t.rows[i].Quarantined = t.fleet.Quarantined(w)
		if !w.OutOfBand.IsZero() {
			t.rows[i].OutOfBand = w.OutOfBand
		}
	}
	for i, load := range t.decision.Loads {
		t.rows[i].Weight, t.rows[i].Level = load.Weight, load.Level
	}
	return t.rows
}

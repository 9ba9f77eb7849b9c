package history

import (
	"maps"
	"slices"
	"sync"

	"github.com/f8949c05/orchestrator"
)

// Source runs terms. [orchestrator.Orchestrator] is one.
type Source[W, T comparable] interface {
	Last() *orchestrator.Snapshot[W, T]
	OnTerm(f func(*orchestrator.Snapshot[W, T])) (stop func())
}

// Record records the terms of a source from now on, until stop is called. If the source
// has had a term, the recording begins with it. A second call of stop does nothing.
//
// A term in which nothing changed takes a step for each worker, and allocates nothing.
// Another one also takes a step for each instance that waits, and for up to 10,000 changes.
func Record[W, T comparable](r *Ring, s Source[W, T]) (stop func()) {
	rec := newRecorder[W, T](r)
	stop = s.OnTerm(rec.observe)
	if last := s.Last(); last != nil {
		rec.observe(last)
	}
	return stop
}

// recorder turns the terms of a source into those of a ring.
type recorder[W, T comparable] struct {
	ring *Ring

	mu      sync.Mutex // guards the rest, and is held for a term
	last    orchestrator.Term
	before  *Term // the last one that was recorded; nil before the first
	rows    []row[W]
	waiting map[orchestrator.Reason]int // of the term under way, as are the following
	paused  map[orchestrator.PauseKind]int
	changed []WorkerRow
	events  []WorkerEvent
	more    int // events
}

// row is a worker as the recorder has seen it last.
type row[W comparable] struct {
	WorkerRow
	name W
	// known: the worker was in an earlier term. hidden: it has the name of another one.
	known, hidden bool
}

func newRecorder[W, T comparable](r *Ring) *recorder[W, T] {
	return &recorder[W, T]{ring: r, waiting: make(map[orchestrator.Reason]int), paused: make(map[orchestrator.PauseKind]int)}
}

// observe records a term.
func (r *recorder[W, T]) observe(s *orchestrator.Snapshot[W, T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := s.Plan()
	if p.Stats.Observed || p.Stats.Term.Compare(r.last) <= 0 {
		return // Record read it from Last and OnTerm at the same time
	}
	r.last = p.Stats.Term
	r.changed, r.events, r.more = nil, nil, 0
	r.observeWorkers(s, &p)
	r.count(&p)
	if r.isQuiet(&p) {
		r.ring.recordQuiet(p.Stats.Term, plain(p.Stats.Start))
		return
	}
	r.before = r.term(&p)
	r.ring.record(r.before, r.changed)
}

// observeWorkers compares the workers with those of the term before.
func (r *recorder[W, T]) observeWorkers(s *orchestrator.Snapshot[W, T], p *orchestrator.Plan[W, T]) {
	begun := true
	if !r.sameMembers(p.Workers) || r.before == nil {
		begun = r.updateMembers(p.Workers)
	}
	i := 0
	for tasks := range s.Loads() {
		row, w := &r.rows[i], &p.Workers[i]
		i++
		is := Condition{w.State, w.Draining, w.Quarantined}
		if row.hidden || row.known && row.Tasks == tasks && row.Condition == is {
			continue
		}
		if begun && (!row.known || row.Condition != is) {
			r.event(WorkerEvent{Worker: row.Name, Before: row.condition(), After: new(is), Tasks: tasks})
		}
		row.Condition, row.Tasks, row.known = is, tasks, true
		r.changed = append(r.changed, row.WorkerRow)
	}
	if len(r.events) > 0 {
		r.explain(s)
	}
}

// explain adds to the events why workers did not answer. It takes a step for each worker,
// and for each task of those that were written to.
func (r *recorder[W, T]) explain(s *orchestrator.Snapshot[W, T]) {
	silent := make(map[string]*WorkerEvent)
	for i := range r.events {
		if e := &r.events[i]; e.After != nil && e.After.State != orchestrator.Answering {
			silent[e.Worker] = e
		}
	}
	if len(silent) == 0 {
		return
	}
	i := 0
	for w := range s.Workers() {
		if e := silent[r.rows[i].Name]; e != nil && !r.rows[i].hidden && w.Err != nil {
			e.Err = Printable(w.Err.Error())
		}
		i++
	}
}

// condition returns the worker's condition before the term, or nil if it joined.
func (r *row[W]) condition() *Condition {
	if !r.known {
		return nil
	}
	return new(r.Condition)
}

func (r *recorder[W, T]) event(e WorkerEvent) {
	if len(r.events) == keptChanges {
		r.more++
		return
	}
	r.events = append(r.events, e)
}

func (r *recorder[W, T]) sameMembers(workers []orchestrator.WorkerPlan[W]) bool {
	return slices.EqualFunc(workers, r.rows, func(w orchestrator.WorkerPlan[W], known row[W]) bool { return w.Name == known.name })
}

// updateMembers makes a row for each worker, with the condition that it had before, and
// records which workers were removed. The first call begins with what the ring has from
// another leader; it returns false if that is nothing.
func (r *recorder[W, T]) updateMembers(workers []orchestrator.WorkerPlan[W]) (begun bool) {
	var last []WorkerRow
	if begun = true; r.before == nil {
		last, begun = r.ring.begun()
	}
	for i := range r.rows {
		if !r.rows[i].hidden {
			last = append(last, r.rows[i].WorkerRow)
		}
	}
	gone := make(map[string]*WorkerRow, len(last))
	for i := range last {
		gone[last[i].Name] = &last[i]
	}
	r.rows = make([]row[W], len(workers))
	taken := make(map[string]bool, len(workers))
	for i := range workers {
		name := NameText(workers[i].Name)
		r.rows[i] = row[W]{name: workers[i].Name, WorkerRow: WorkerRow{Name: name}, hidden: taken[name]}
		if was := gone[name]; was != nil {
			r.rows[i].WorkerRow, r.rows[i].known = *was, true
			delete(gone, name)
		}
		taken[name] = true
	}
	for i := range last {
		if was := &last[i]; gone[was.Name] != nil {
			r.event(WorkerEvent{Worker: was.Name, Before: new(was.Condition)})
			r.changed = append(r.changed, WorkerRow{Name: was.Name, Removed: true})
		}
	}
	return begun
}

// count counts what waits and what pauses.
func (r *recorder[W, T]) count(p *orchestrator.Plan[W, T]) {
	clear(r.waiting)
	clear(r.paused)
	for i := 0; i < len(p.Waiting); { // one look-up for a run of the same reason
		reason, n := p.Waiting[i].Reason, 0
		for ; i < len(p.Waiting) && p.Waiting[i].Reason == reason; i++ {
			n += p.Waiting[i].Instances
		}
		r.waiting[reason] += n
	}
	for i := range p.Paused {
		r.paused[p.Paused[i].Kind]++
	}
}

// isQuiet reports whether the term did nothing and found the fleet as the term before.
func (r *recorder[W, T]) isQuiet(p *orchestrator.Plan[W, T]) bool {
	if r.before == nil || len(p.Changes) > 0 || len(r.changed) > 0 {
		return false
	}
	is, was := &p.Stats, &r.before.Stats
	return is.Workers == was.Workers && is.Instances == was.Instances && is.Deferred == was.Deferred && is.MovesHeld == was.MovesHeld &&
		is.EvictionsHeld == was.EvictionsHeld && slices.EqualFunc(p.Holds[:min(len(p.Holds), keptList)], r.before.Holds, sameHold) &&
		is.MassLoss == was.MassLoss && is.Cut == was.Cut && (is.Err == nil) == (was.Err == nil) &&
		maps.Equal(r.waiting, r.before.WaitingInstances) && maps.Equal(r.paused, r.before.PausedKinds)
}

// sameHold reports whether a hold is one that was recorded.
func sameHold(is, was orchestrator.Hold) bool {
	is = HoldText(&is)
	return is.Why == was.Why && is.Until.Equal(was.Until)
}

// term returns the term with text for names.
func (r *recorder[W, T]) term(p *orchestrator.Plan[W, T]) *Term {
	t := &Term{Stats: p.Stats, Events: r.events, EventsMore: r.more}
	t.Stats.Start, t.Stats.Err = plain(t.Stats.Start), errorOf(t.Stats.Err)
	if len(r.waiting) > 0 {
		t.WaitingInstances = maps.Clone(r.waiting)
	}
	if len(r.paused) > 0 {
		t.PausedKinds = maps.Clone(r.paused)
	}
	t.Changes, t.ChangesMore = convert(p.Changes, keptChanges, ChangeText)
	t.Waiting, t.WaitingMore = convert(p.Waiting, keptList, WaitingText)
	t.Paused, t.PausedMore = convert(p.Paused, keptList, PauseText)
	t.Holds, _ = convert(p.Holds, keptList, HoldText)
	return t
}

// convert converts the first of some values, at most n, and returns the number of others.
func convert[From, To any](all []From, n int, one func(*From) To) (some []To, more int) {
	if len(all) == 0 {
		return nil, 0
	}
	some = make([]To, min(n, len(all)))
	for i := range some {
		some[i] = one(&all[i])
	}
	return some, len(all) - len(some)
}

package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/internal/term"
)

// The reasons of an [Explanation] that are not those of a change or of waiting.
const (
	// ReasonStays: the worker ran the instance before the term, and keeps it.
	ReasonStays Reason = "stays"
	// ReasonSilent: the worker is silent and is not known to run the task.
	ReasonSilent Reason = "silent"
	// ReasonQuarantined: the worker receives no tasks, because it failed to start some.
	ReasonQuarantined Reason = "quarantined"
	// ReasonEnough: other workers run or hold as many instances as wanted.
	ReasonEnough Reason = "enough"
	// ReasonElsewhere: instances are missing, and the term had a place for each on another
	// worker.
	ReasonElsewhere Reason = "elsewhere"
	// ReasonCut: instances are missing, and the term ended before it could plan.
	ReasonCut Reason = "cut"
	// ReasonLate: the worker had not answered when the term continued.
	ReasonLate Reason = "late"
	// ReasonStopping: the instance is to leave the worker that has it, and has not left yet. Of
	// another worker, it is where the instance moves once it has stopped.
	ReasonStopping Reason = "stopping"
)

// Explanation says of each worker why it has a task or not, as a term left it.
type Explanation[W comparable] struct {
	// Instances is how many were wanted, 0 if the task was not expected, and Missing how
	// many of them no worker has.
	Instances int `json:"instances"`
	Missing   int `json:"missing"`
	// Requires, MaxPerZone and Weight are those of the task.
	Requires   []string `json:"requires,omitempty"`
	MaxPerZone int      `json:"max_per_zone,omitempty"`
	Weight     int64    `json:"weight,omitempty"`
	// Causes says why no worker takes the missing instances; nil as in [Waiting].
	Causes *Causes `json:"causes,omitempty"`
	// Holds is why the task would not move for an even spread.
	Holds []Hold `json:"holds,omitempty"`
	// Workers has all workers, in the order in which they were added.
	Workers []WorkerReason[W] `json:"workers"`
}

// WorkerReason is a worker's row in an [Explanation].
type WorkerReason[W comparable] struct {
	Worker W `json:"worker"`
	// Has reports whether the worker runs the task, or is silent or late and may run it.
	Has bool `json:"has"`
	// Reason is why it has the task: that of the change that brought it, of its waiting,
	// ReasonStopping, or ReasonStays. Or it is why it has not: the worker's state, the reason of the change
	// that took it away, a start that failed or pauses, ReasonStopping, ReasonRequires, ReasonLimit,
	// ReasonZone, ReasonEnough, ReasonElsewhere, ReasonCut, or why the task waits.
	Reason Reason `json:"reason"`
	// Until is the number of the first term that tries again, and Failure the text of the
	// last failure, if a start failed or the reason is a pause. Of a worker that fell, Ends is
	// the end of the pause ([PauseFallen]).
	Until   uint64    `json:"until_term,omitempty"`
	Ends    time.Time `json:"ends,omitzero"`
	Failure string    `json:"failure,omitempty"`
	// Label is the first required label that the worker does not fulfil, if the reason is
	// ReasonRequires.
	Label string `json:"label,omitempty"`
}

// Explain returns why each worker has a task or not. It returns false if the task was
// neither expected nor on any worker. It takes a step for each task of each worker.
func (s *Snapshot[W, T]) Explain(task T) (Explanation[W], bool) {
	if checkName("task", task) != nil {
		return Explanation[W]{}, false
	}
	e := Explanation[W]{Holds: s.plan.Holds, Workers: make([]WorkerReason[W], len(s.workers))}
	for t := range s.Expected() {
		if t.Name == task {
			e.Instances, e.Requires, e.MaxPerZone, e.Weight = t.Instances, t.Requires, t.MaxPerZone, t.Weight
			break
		}
	}
	why := s.reasonsFor(task)
	has := 0
	for i := range s.workers {
		row := &e.Workers[i]
		*row = WorkerReason[W]{Worker: s.workers[i].name, Has: s.has(i, task)}
		w := why.waiting[row.Worker]
		row.Has = row.Has || w != nil && w.Kind() == WaitingHeld
		if row.Has {
			has++
		}
	}
	e.Missing = max(0, e.Instances-has)
	why.fullZones = s.fullZones(&e)
	if why.noPlace != nil {
		e.Causes = why.noPlace.Causes
	}
	for i := range e.Workers {
		if row := &e.Workers[i]; row.Has {
			row.Reason = why.has(row.Worker)
		} else {
			row.Label = term.Lacks(s.fleet.Workers[i].Rules, e.Requires)
			why.hasNot(row, &s.plan.Workers[i], &e, s.undecided)
			if row.Reason != ReasonRequires {
				row.Label = ""
			}
		}
	}
	return e, e.Instances > 0 || has > 0
}

// fullZones returns the zones with as many instances as one zone may have.
func (s *Snapshot[W, T]) fullZones(e *Explanation[W]) map[string]bool {
	if e.MaxPerZone <= 0 {
		return nil
	}
	counts, full := make(map[string]int), make(map[string]bool)
	for i := range e.Workers {
		if e.Workers[i].Has {
			zone := s.plan.Workers[i].Settings.Zone
			counts[zone]++
			full[zone] = counts[zone] >= e.MaxPerZone
		}
	}
	return full
}

// has reports whether the worker at an index runs a task, or ran it when it last answered
// if it is silent.
func (s *Snapshot[W, T]) has(i int, task T) bool {
	w := &s.workers[i]
	if State(s.fleet.Workers[i].State) == Lost {
		return false
	}
	for _, write := range slices.Backward(w.acked) {
		if write.Task == task {
			return write.Op == OpAdd
		}
	}
	return slices.Contains(w.list, task)
}

// taskReasons is what a plan says of one task, by worker.
type taskReasons[W, T comparable] struct {
	to, from    map[W]*Change[W, T]
	waiting     map[W]*Waiting[W, T] // held and staying
	noPlace     *Waiting[W, T]       // the first instance for which the term had no place
	paused      map[W]*Pause[W, T]   // starts
	quarantined map[W]*Pause[W, T]
	stops       map[W]bool   // where its stop has failed
	suspect     *Pause[W, T] // nil if the task is not suspect
	fullZones   map[string]bool
	observed    bool // the term is one of Observe
}

func (s *Snapshot[W, T]) reasonsFor(task T) taskReasons[W, T] {
	r := taskReasons[W, T]{
		to: make(map[W]*Change[W, T]), from: make(map[W]*Change[W, T]), waiting: make(map[W]*Waiting[W, T]),
		paused: make(map[W]*Pause[W, T]), quarantined: make(map[W]*Pause[W, T]), stops: make(map[W]bool), observed: s.plan.Stats.Observed,
	}
	for i := range s.plan.Changes {
		c := &s.plan.Changes[i]
		if c.Task != task {
			continue
		}
		if c.Kind.Op != Stop {
			r.to[c.To] = c
		}
		if c.Kind.Op != Start {
			r.from[c.From] = c
		}
	}
	for i := range s.plan.Waiting {
		w := &s.plan.Waiting[i]
		if w.Task != task {
			continue
		}
		switch kind := w.Kind(); {
		case kind == WaitingHeld, kind == WaitingStaying:
			r.waiting[w.Worker] = w
		case w.Reason != ReasonFailed && w.Reason != ReasonSkipped && r.noPlace == nil:
			r.noPlace = w
		}
	}
	for i := range s.plan.Paused {
		p := &s.plan.Paused[i]
		switch {
		case p.Kind == PauseWorker, p.Kind == PauseFallen && r.quarantined[p.Worker] == nil:
			r.quarantined[p.Worker] = p
		case p.Kind == PauseStart && p.Task == task:
			r.paused[p.Worker] = p
		case p.Kind == PauseTask && p.Task == task:
			r.suspect = p
		case p.Kind == PauseStop && p.Task == task:
			r.stops[p.Worker] = true
		}
	}
	return r
}

// has returns why a worker has the task.
func (r *taskReasons[W, T]) has(worker W) Reason {
	if w := r.waiting[worker]; w != nil && (w.Reason != ReasonPaused || !r.stops[worker]) {
		return w.Reason
	}
	if c := r.to[worker]; c != nil {
		return c.Kind.Reason
	}
	if r.from[worker] != nil || r.stops[worker] {
		return ReasonStopping
	}
	if r.observed {
		return ReasonObserved
	}
	return ReasonStays
}

// hasNot completes the row of a worker that does not have the task.
func (r *taskReasons[W, T]) hasNot(row *WorkerReason[W], state *WorkerPlan[W], e *Explanation[W], undecided bool) {
	paused := func(reason Reason, p *Pause[W, T]) {
		row.Reason, row.Until, row.Ends, row.Failure = reason, p.Until, p.Ends, errText(p.Err)
	}
	to, from := r.to[row.Worker], r.from[row.Worker]
	pause, quarantine := r.paused[row.Worker], r.quarantined[row.Worker]
	switch {
	case state.State == Lost:
		row.Reason = ReasonLost
	case to != nil && to.Kind.Op == Move && (to.Outcome == OutcomeStopping || r.stops[to.From]):
		row.Reason = ReasonStopping
	case to != nil:
		row.Reason, row.Failure = ReasonFailed, errText(to.Err)
		if to.Outcome == OutcomeSkipped || to.Outcome == OutcomeDry {
			row.Reason = ReasonSkipped
		}
		if pause != nil {
			row.Until = pause.Until
		}
	case state.State == Silent:
		row.Reason = ReasonSilent
	case from != nil:
		row.Reason = from.Kind.Reason
	case e.Instances == 0:
		row.Reason = ReasonUnexpected
	case state.Draining:
		row.Reason = ReasonDrain
	case row.Label != "":
		row.Reason = ReasonRequires
	case pause != nil:
		paused(ReasonPaused, pause)
	case quarantine != nil:
		if paused(ReasonQuarantined, quarantine); quarantine.Kind == PauseFallen {
			row.Reason = ReasonPaused
		}
	case state.Late:
		row.Reason = ReasonLate
	case e.Missing == 0:
		row.Reason = ReasonEnough
	case undecided:
		row.Reason = ReasonCut
	case r.suspect != nil:
		paused(ReasonPaused, r.suspect)
	case r.noPlace != nil && r.noPlace.Causes != nil && r.fullZones[state.Settings.Zone]:
		row.Reason = ReasonZone
	case r.noPlace != nil && r.noPlace.Causes != nil && state.Settings.MaxTasks > 0 && state.After >= state.Settings.MaxTasks:
		row.Reason = ReasonLimit
	case r.noPlace != nil:
		row.Reason = r.noPlace.Reason
	default:
		row.Reason = ReasonElsewhere
	}
}

// Causes says why no open worker takes an instance. It counts each open worker under the first
// cause that applies, in the order of the fields, so that the counts add up to Workers. String
// returns a sentence.
type Causes struct {
	// Workers is how many workers are open: they answer and do not drain.
	Workers int `json:"workers"`
	// Lacking counts the workers whose labels do not fit, by the first required label that
	// they do not fulfil.
	Lacking []LabelCount `json:"lacking,omitempty"`
	// ZoneFull counts the workers in a zone with MaxPerZone instances of the task.
	ZoneFull int `json:"zone_full,omitempty"`
	// NoRoom counts the workers with MaxTasks tasks.
	NoRoom int `json:"no_room,omitempty"`
	// Running counts the workers that run an instance of the task already.
	Running int `json:"running,omitempty"`
	// Quarantined counts the workers that receive no tasks because they failed to start some,
	// and Paused those on which the task pauses because it failed to start.
	Quarantined int `json:"quarantined,omitempty"`
	Paused      int `json:"paused,omitempty"`
	// Free counts the workers that may take the instance in a later term, such as when
	// moves that wait have made room.
	Free int `json:"free,omitempty"`
}

// LabelCount is a label as a task requires it, and the number of workers that do not fulfil it.
type LabelCount struct {
	Label   string `json:"label"`
	Workers int    `json:"workers"`
}

// String returns a sentence such as
//
//	of 12 open workers 8 lack "gpu", 3 are in a full zone, 1 runs an instance already
func (c Causes) String() string {
	if c.Workers == 0 {
		return "no worker is open"
	}
	var parts []string
	add := func(n int, one, many string) {
		if n == 1 {
			parts = append(parts, "1 "+one)
		} else if n > 1 {
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	for _, l := range c.Lacking {
		if label, not := strings.CutPrefix(l.Label, "!"); not {
			add(l.Workers, fmt.Sprintf("has %q", label), fmt.Sprintf("have %q", label))
		} else {
			add(l.Workers, fmt.Sprintf("lacks %q", label), fmt.Sprintf("lack %q", label))
		}
	}
	add(c.ZoneFull, "is in a full zone", "are in a full zone")
	add(c.NoRoom, "has no room", "have no room")
	add(c.Running, "runs an instance already", "run an instance already")
	add(c.Quarantined, "is quarantined", "are quarantined")
	add(c.Paused, "is paused for the task", "are paused for the task")
	add(c.Free, "may take it later", "may take it later")
	open := fmt.Sprintf("of %d open workers ", c.Workers)
	if c.Workers == 1 {
		open = "of 1 open worker "
	}
	return open + strings.Join(parts, ", ")
}

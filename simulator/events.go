package simulator

// Faults other than those of single calls, by name.

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Event is a fault or a change in the world.
type Event int

// The events.
const (
	// Crash ends a worker's process.
	Crash Event = iota
	// RestartEmpty starts the process of a worker that has crashed.
	RestartEmpty
	// RestartWithTasks does the same, and the process runs its former tasks again.
	RestartWithTasks
	// SelfFencing is a worker that stops everything because it could not renew its
	// lease. It follows from LeaseCut and LeaseOneWay.
	SelfFencing
	// LeaseCut cuts a worker off from the coordinator.
	LeaseCut
	// LeaseOneWay loses the coordinator's answers to a worker.
	LeaseOneWay
	// Partition loses everything that leaders send to a worker.
	Partition
	// OneWayPartition loses everything that a worker answers to leaders.
	OneWayPartition
	// Isolation loses everything that the leader sends.
	Isolation
	// Slowness delays all calls to a worker.
	Slowness
	// SlowLists delays List calls to a worker, by less than a timeout.
	SlowLists
	// FalseLists makes a worker omit tasks from its List, or add some.
	FalseLists
	// BrokenWorker makes a worker refuse every start.
	BrokenWorker
	// HangingWorker makes every start on a worker hang.
	HangingWorker
	// PoisonTask makes every worker refuse a task.
	PoisonTask
	// HangingTask makes every start of a task hang.
	HangingTask
	// StuckTask makes every stop of a task fail: the task ignores it, or the call
	// hangs or is refused.
	StuckTask
	// Outage makes all workers refuse every start.
	Outage
	// Deposition elects a new leader while the old one continues for a while.
	Deposition
	// LeaderCrash ends a leader immediately; its successor comes some time later.
	LeaderCrash
	// Deploy ends a leader's context; its successor comes some time later.
	Deploy
	// Join adds a worker.
	Join
	// Leave removes a worker, immediately or after it was drained.
	Leave
	// Drain drains or undrains a worker.
	Drain
	// NewTask adds a task.
	NewTask
	// DropTask removes a task.
	DropTask
	// Redefinition changes the number of instances of a task, its handoff, or its rules.
	Redefinition
	// Relabel makes a worker register again with another zone, other labels, another share
	// or another limit.
	Relabel
	// LabelLoss makes most workers register again without labels, for a while.
	LabelLoss
	// ZoneChange moves some workers to one zone, which may be new.
	ZoneChange

	events // the number of events
)

// firstRuleEvent is the first of the events that need rules of placement. Their weights are
// drawn separately, so that other draws stay the same.
const firstRuleEvent = Relabel

// String returns the name of the constant.
func (e Event) String() string {
	names := [events]string{
		"Crash", "RestartEmpty", "RestartWithTasks", "SelfFencing", "LeaseCut", "LeaseOneWay", "Partition",
		"OneWayPartition", "Isolation", "Slowness", "SlowLists", "FalseLists", "BrokenWorker", "HangingWorker",
		"PoisonTask", "HangingTask", "StuckTask", "Outage", "Deposition", "LeaderCrash", "Deploy", "Join", "Leave", "Drain", "NewTask", "DropTask", "Redefinition",
		"Relabel", "LabelLoss", "ZoneChange",
	}
	if e >= 0 && e < events {
		return names[e]
	}
	return fmt.Sprintf("Event(%d)", int(e))
}

// weight returns the relative frequency of an event.
func (e Event) weight() float64 {
	switch e {
	case RestartEmpty, RestartWithTasks, SelfFencing:
		return 0 // they follow from others
	case Isolation, FalseLists, LeaderCrash, Deploy, PoisonTask, HangingTask, StuckTask, SlowLists, HangingWorker:
		return 0.5
	case Outage:
		return 0.2
	case LabelLoss, ZoneChange:
		return 0.3
	case Crash, Deposition, Redefinition:
		return 1.5
	}
	return 1
}

// possible reports whether an event can happen in a setup.
func (e Event) possible(s *setup) bool {
	switch e {
	case LeaseCut, LeaseOneWay:
		return s.Membership != Grace
	case FalseLists:
		return !s.truthful
	case Relabel:
		return s.rules.some()
	case LabelLoss:
		return s.rules.labels
	case ZoneChange:
		return s.rules.zones > 0
	}
	return true
}

// inject causes a random event, and schedules the next one.
func (w *world) inject(step uint64) {
	if w.settling {
		return
	}
	rnd := newRandom(w.seed, "weather", step)
	w.schedule.in(rnd.between(w.eventEvery/5, 2*w.eventEvery), func() { w.inject(step + 1) })
	total := 0.0
	for _, weight := range w.weights {
		total += weight
	}
	x := rnd.unit() * total
	for i, weight := range w.weights {
		if x < weight {
			w.trigger(Event(i), &rnd)
			return
		}
		x -= weight
	}
}

// trigger causes one event, if it is possible now.
func (w *world) trigger(kind Event, rnd *random) {
	m := w.workers[w.names[rnd.upTo(w.Workers+2)%len(w.names)]]
	lasts := rnd.between(w.eventLasts/5, 2*w.eventLasts)
	switch kind {
	case LeaseCut, LeaseOneWay:
		w.loseCoordinator(kind, m, lasts, rnd)
	case Partition, OneWayPartition, Slowness, SlowLists, FalseLists, BrokenWorker, HangingWorker:
		w.impair(kind, m, lasts, rnd)
	case Crash:
		w.crashSome(m, lasts, rnd)
	case Deposition, LeaderCrash, Deploy, Isolation:
		w.disturbLeader(kind, lasts, rnd)
	case Join, Leave, Drain:
		w.changeMembers(kind, m, lasts, rnd)
	case PoisonTask, HangingTask, StuckTask, NewTask, DropTask, Redefinition:
		w.changeTasks(kind, lasts, rnd)
	case Relabel, LabelLoss, ZoneChange:
		w.changeSettings(kind, m, lasts, rnd)
	case Outage:
		w.recordEvent(kind, "for %v", lasts)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.outage = time.Now().Add(lasts)
	}
}

// recordEvent is countEvent for callers that do not hold mu.
func (w *world) recordEvent(kind Event, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.countEvent(kind, format, args...)
}

func (w *world) loseCoordinator(kind Event, m *member, lasts time.Duration, rnd *random) {
	if m.coordinator != connected || !m.alive || !m.registered {
		return
	}
	how := cut
	if kind == LeaseOneWay {
		how = oneWay
	}
	lasts = rnd.between(lasts/2, lasts+w.lease)
	w.recordEvent(kind, "%s, for %v", m.name, lasts)
	w.disconnect(m, how)
	w.schedule.in(lasts, func() { w.reconnect(m) })
}

// impair disturbs a worker, or its connection to leaders, for a while.
func (w *world) impair(kind Event, m *member, lasts time.Duration, rnd *random) {
	w.recordEvent(kind, "%s, for %v", m.name, lasts)
	w.mu.Lock()
	defer w.mu.Unlock()
	until := time.Now().Add(lasts)
	switch kind {
	case FalseLists, BrokenWorker, HangingWorker, SlowLists:
		w.breakWorker(kind, m, until, rnd)
	case Slowness:
		m.latency = rnd.between(w.Timeout/20, w.Timeout*3/2)
		m.slowEnds++
		this := m.slowEnds
		w.schedule.in(lasts, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if m.slowEnds == this {
				m.latency = 0
			}
		})
	default:
		m.network = cut
		if kind == OneWayPartition {
			m.network = oneWay
		}
		m.pathEnds++
		this := m.pathEnds
		w.schedule.in(lasts, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if m.pathEnds == this {
				m.network = connected
			}
		})
	}
}

// crashSome crashes one worker, or several one time in ten. Most of them come back.
func (w *world) crashSome(m *member, lasts time.Duration, rnd *random) {
	victims := []*member{m}
	if rnd.chance(0.1) {
		victims = victims[:0]
		for _, name := range w.names {
			if rnd.chance(0.6) {
				victims = append(victims, w.workers[name])
			}
		}
	}
	for _, m := range victims {
		if !m.alive {
			continue
		}
		w.recordEvent(Crash, "%s", m.name)
		w.crash(m)
		m.rejoins = false
		if rnd.chance(0.85) {
			rest := rnd.between(0, choose(rnd, period, w.Timeout/2, lasts, 2*w.lease))
			fate := newRandom(w.seed, "comeback", uint64(time.Since(w.began)), uint64(m.index))
			w.schedule.in(rest, func() {
				if !w.settling {
					w.restart(m, &fate)
				}
			})
		}
	}
}

// disturbLeader isolates, deposes, crashes or stops the leader.
func (w *world) disturbLeader(kind Event, lasts time.Duration, rnd *random) {
	l := w.leader()
	if l.retiring {
		return // a successor is scheduled
	}
	w.recordEvent(kind, "leader %d", l.number)
	switch kind {
	case Isolation:
		w.mu.Lock()
		l.isolated = true
		w.mu.Unlock()
		w.schedule.in(lasts, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			l.isolated = false
		})
		return
	case Deposition:
		// The leader learns of it immediately, later, or only from a worker.
		w.schedule.in(rnd.between(0, choose(rnd, period, w.Timeout, 3*lasts)), func() { l.end(orchestrator.ErrDeposed) })
		if next := w.elect(); next != nil {
			w.lead(next)
		}
		return
	case LeaderCrash:
		w.mu.Lock()
		l.crashed = true
		w.mu.Unlock()
		l.end(errCrashed)
	default:
		l.end(errors.New("a new version is being deployed"))
	}
	w.schedule.in(rnd.between(0, choose(rnd, period, w.Timeout, lasts)), func() {
		if w.settling || w.leader() != l {
			return
		}
		if next := w.elect(); next != nil {
			w.lead(next)
		}
	})
}

// leader returns the latest leader.
func (w *world) leader() *leader { return w.leaders[len(w.leaders)-1] }

func (w *world) changeMembers(kind Event, m *member, lasts time.Duration, rnd *random) {
	switch kind {
	case Join:
		if m.registered || m.coordinator != connected {
			return
		}
		w.recordEvent(kind, "%s", m.name)
		w.join(m)
	case Leave:
		if !m.registered {
			return
		}
		w.recordEvent(kind, "%s", m.name)
		if !rnd.chance(0.6) {
			w.leave(m)
			return
		}
		w.drain(m, true)
		w.schedule.in(lasts, func() {
			if !w.settling {
				w.leave(m)
			}
		})
	case Drain:
		if !m.registered {
			return
		}
		w.recordEvent(kind, "%s: %v", m.name, !m.draining)
		w.drain(m, !m.draining)
	}
}

// leave stops a worker and removes it from the members.
func (w *world) leave(m *member) {
	if m.alive {
		w.kill(m)
	}
	m.rejoins = false
	w.unregister(m)
}

func (w *world) drain(m *member, yes bool) {
	if !m.registered {
		return
	}
	m.draining = yes
	w.publish(change{worker: m.name, drains: yes, undrains: !yes})
}

func (w *world) changeTasks(kind Event, lasts time.Duration, rnd *random) {
	names := slices.Sorted(maps.Keys(w.tasks))
	if kind == NewTask {
		task := w.newTask(fmt.Sprint("t", rnd.oneTo(w.Tasks+5)), rnd)
		w.recordEvent(kind, "%s", describe(task))
		w.define(task)
		return
	}
	if len(names) == 0 {
		return
	}
	name := choose(rnd, names...)
	switch kind {
	case PoisonTask, HangingTask, StuckTask:
		w.recordEvent(kind, "%s, for %v", name, lasts)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.breakTask(kind, name, time.Now().Add(lasts), rnd)
	case DropTask:
		w.recordEvent(kind, "%s", name)
		w.mu.Lock()
		delete(w.tasks, name)
		w.mu.Unlock()
		w.publish(change{task: orchestrator.Task[string]{Name: name}, undefines: true})
	case Redefinition:
		task := w.newTask(name, rnd)
		w.recordEvent(kind, "%s", describe(task))
		w.define(task)
	}
}

// breakTask makes starts or stops of a task fail until then. The caller holds mu.
func (w *world) breakTask(kind Event, task string, until time.Time, rnd *random) {
	switch kind {
	case PoisonTask:
		w.poisonTasks[task] = until
	case HangingTask:
		w.hangingTasks[task] = until
	default:
		w.stuckTasks[task] = stuck{until, choose(rnd, stopIgnored, stopIgnored, stopHangs, stopRefused)}
	}
}

// stuck describes how a task resists being stopped, and until when.
type stuck struct {
	until time.Time
	how   resistance
}

type resistance uint8

const (
	stopIgnored resistance = 1 + iota // the task keeps running
	stopHangs                         // the call is lost
	stopRefused
)

// resistanceOf returns how a task resists being stopped now, 0 if it does not. The caller
// holds mu.
func (w *world) resistanceOf(task string) resistance {
	if s := w.stuckTasks[task]; w.isActive(s.until) {
		return s.how
	}
	return 0
}

// isActive reports whether a fault that ends at until is active. Once the world settles, only
// lasting faults are. The caller holds mu.
func (w *world) isActive(until time.Time) bool {
	if w.settling {
		return !w.healed && until.Equal(w.forever)
	}
	return time.Now().Before(until)
}

// newTask draws the instances and the handoff of a task.
func (w *world) newTask(name string, rnd *random) orchestrator.Task[string] {
	task := orchestrator.Task[string]{Name: name, Instances: choose(rnd, 1, 1, 1, 1, 2, 2, 3, 4)}
	if w.overlaps {
		task.Handoff = choose(rnd, orchestrator.HandoffDefault, orchestrator.StopThenStart, orchestrator.StartThenStop)
	}
	w.addTaskRules(&task)
	return task
}

func (w *world) define(task orchestrator.Task[string]) {
	w.mu.Lock()
	w.tasks[task.Name] = task
	w.mu.Unlock()
	w.publish(change{task: task, defines: true})
}

func describe(task orchestrator.Task[string]) string {
	text := fmt.Sprintf("%s is expected %d times, handoff %v", task.Name, cmp.Or(task.Instances, 1), task.Handoff)
	if len(task.Requires) > 0 {
		text += fmt.Sprintf(", requires %v", task.Requires)
	}
	if task.MaxPerZone != 0 {
		text += fmt.Sprintf(", at most %d in a zone", task.MaxPerZone)
	}
	return text
}

package simulator

// Faults other than those of single calls, by name.

import (
	"fmt"
	"time"
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

// hangs reports whether calls may hang because of a fault.
func (e Event) hangs() bool { return e == HangingWorker || e == HangingTask || e == StuckTask }

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
	rnd := newRandom(w.seed, "weather", step)
	w.unlessSettling(rnd.between(w.eventEvery/5, 2*w.eventEvery), func() { w.inject(step + 1) })
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
		w.begin(kind, m.name, lasts, rnd)
	case Outage:
		w.begin(kind, "", lasts, rnd)
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
	}
}

// fault is a fault with an end. Its subject is a worker, a task, a leader's number, or "".
type fault struct {
	kind    Event
	subject string
}

// begin begins a fault that ends by itself.
func (w *world) begin(kind Event, subject string, lasts time.Duration, rnd *random) {
	w.countEvent(kind, "%s, for %v", subject, lasts)
	w.beginUntil(kind, subject, time.Now().Add(lasts), rnd)
}

// beginUntil begins a fault, which lasts until then. A partition replaces the one before. The
// caller holds mu.
func (w *world) beginUntil(kind Event, subject string, until time.Time, rnd *random) {
	m := w.workers[subject]
	switch kind {
	case SlowLists:
		m.listDelay = rnd.between(w.Timeout/10, w.Timeout*9/10)
	case Slowness:
		m.latency = rnd.between(w.Timeout/20, w.Timeout*3/2)
	case StuckTask:
		w.resistance[subject] = choose(rnd, stopIgnored, stopIgnored, stopHangs, stopRefused)
	case Partition, OneWayPartition:
		m.oneWay = kind == OneWayPartition
		kind = Partition
	}
	w.faults[fault{kind, subject}] = until
}

// isActive reports whether a fault lasts. Once the world settles, only lasting faults do. The
// caller holds mu, or is the goroutine of Run.
func (w *world) isActive(kind Event, subject string) bool {
	until := w.faults[fault{kind, subject}]
	if w.settling {
		return !w.healed && until.Equal(w.forever)
	}
	return time.Now().Before(until)
}

// resistance is how a task resists being stopped.
type resistance uint8

const (
	stopIgnored resistance = 1 + iota // the task keeps running
	stopHangs                         // the call is lost
	stopRefused
)

// resistanceOf returns how a task resists being stopped now, 0 if it does not. The caller
// holds mu.
func (w *world) resistanceOf(task string) resistance {
	if w.isActive(StuckTask, task) {
		return w.resistance[task]
	}
	return 0
}

// beginLastingFaults begins the lasting faults, once. At most five workers are faulty, and
// at most a third of the workers and of the tasks.
func (w *world) beginLastingFaults() {
	if w.lastingBegan || len(w.lasting) == 0 {
		return
	}
	w.lastingBegan = true
	rnd := newRandom(w.seed, "for good")
	tasks := w.taskNames()
	kinds := 0
	for _, kind := range w.lasting {
		if kind == PoisonTask || kind == HangingTask || kind == StuckTask {
			kinds++
		}
	}
	begin := func(kind Event, subject string) {
		w.note(worldLane, "from now on: %v %s", kind, subject)
		w.beginUntil(kind, subject, w.forever, &rnd)
	}
	for _, kind := range w.lasting {
		w.report.Faults["lasting "+kind.String()]++
		switch kind {
		case Outage:
			begin(kind, "")
		case PoisonTask, HangingTask, StuckTask:
			for range min(len(tasks)/max(6, 3*kinds), 10) {
				begin(kind, choose(&rnd, tasks...))
			}
		default:
			for _, name := range w.names[:min(w.Workers/3, 5)] {
				if !rnd.chance(0.4) {
					begin(kind, name)
				}
			}
		}
	}
}

package simulator

// Changes of workers, leaders, members, tasks, and of the rules of placement: zones, labels,
// shares and limits.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
)

// loseCoordinator disconnects a worker from the coordinator for a while.
func (w *world) loseCoordinator(kind Event, m *member, lasts time.Duration, rnd *random) {
	if m.coordinator != connected || !m.alive || !m.registered {
		return
	}
	how := cut
	if kind == LeaseOneWay {
		how = oneWay
	}
	lasts = rnd.between(lasts/2, lasts+w.lease)
	w.countEvent(kind, "%s, for %v", m.name, lasts)
	w.disconnect(m, how)
	w.schedule.in(lasts, func() { w.reconnect(m) })
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
		w.countEvent(Crash, "%s", m.name)
		w.crash(m)
		m.rejoins = false
		if rnd.chance(0.85) {
			rest := rnd.between(0, choose(rnd, period, w.Timeout/2, lasts, 2*w.lease))
			fate := newRandom(w.seed, "comeback", uint64(time.Since(w.began)), uint64(m.index))
			w.unlessSettling(rest, func() { w.restart(m, &fate) })
		}
	}
}

// disturbLeader isolates, deposes, crashes or stops the leader.
func (w *world) disturbLeader(kind Event, lasts time.Duration, rnd *random) {
	l := w.leader()
	if l.retiring {
		return // a successor is scheduled
	}
	if kind == Isolation {
		w.begin(kind, fmt.Sprint(l.number), lasts, rnd)
		return
	}
	w.countEvent(kind, "leader %d", l.number)
	switch kind {
	case Deposition:
		// The leader learns of it immediately, later, or only from a worker.
		w.schedule.in(rnd.between(0, choose(rnd, period, w.Timeout, 3*lasts)), func() { l.end(orchestrator.ErrDeposed) })
		w.lead(w.elect())
		return
	case LeaderCrash:
		l.crashed.Store(true)
		l.end(errCrashed)
	default:
		l.end(errors.New("a new version is being deployed"))
	}
	w.unlessSettling(rnd.between(0, choose(rnd, period, w.Timeout, lasts)), func() {
		if w.leader() == l {
			w.lead(w.elect())
		}
	})
}

// leader returns the latest leader.
func (w *world) leader() *leader { return w.leaders[len(w.leaders)-1] }

func (w *world) changeMembers(kind Event, m *member, lasts time.Duration, rnd *random) {
	switch {
	case kind == Join && !m.registered && m.coordinator == connected:
		w.countEvent(kind, "%s", m.name)
		w.join(m)
	case kind == Leave && m.registered:
		w.countEvent(kind, "%s", m.name)
		if !rnd.chance(0.6) {
			w.leave(m)
			return
		}
		w.drain(m, true)
		w.unlessSettling(lasts, func() { w.leave(m) })
	case kind == Drain && m.registered:
		w.countEvent(kind, "%s: %v", m.name, !m.draining)
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
	m.draining = yes
	w.publishWorker(m, false)
}

func (w *world) changeTasks(kind Event, lasts time.Duration, rnd *random) {
	name, names := "", w.taskNames()
	switch {
	case kind == NewTask:
		name = fmt.Sprint("t", rnd.oneTo(w.Tasks+5))
	case len(names) == 0:
		return
	default:
		name = choose(rnd, names...)
	}
	switch kind {
	case PoisonTask, HangingTask, StuckTask:
		w.begin(kind, name, lasts, rnd)
	case DropTask:
		w.countEvent(kind, "%s", name)
		delete(w.tasks, name)
		w.publish(change{task: orchestrator.Task[string]{Name: name}, gone: true})
	default:
		task := w.newTask(name, rnd)
		w.countEvent(kind, "%+v", task)
		w.define(task)
	}
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
	w.tasks[task.Name] = task
	w.publish(change{task: task})
}

// ruleKinds holds the kinds of rules in a run.
type ruleKinds struct {
	labels bool
	zones  int  // how many names of zones there are; 0: none
	caps   bool // tasks may have MaxPerZone
	shares bool
	limits bool // workers may have MaxTasks
}

func (k ruleKinds) some() bool { return k != ruleKinds{} }

// drawRules draws the kinds of rules, and the odds of the events that change settings.
func (s *setup) drawRules() {
	rnd := newRandom(s.seed, "rules")
	some := rnd.chance(0.4)
	if s.Rules == NoRules || s.Rules == RulesDrawn && !some {
		return
	}
	k := &s.rules
	k.labels, k.shares, k.limits = rnd.chance(0.7), rnd.chance(0.3), rnd.chance(0.4)
	if rnd.chance(0.6) {
		k.zones, k.caps = 1+rnd.oneTo(3), rnd.chance(0.6)
	}
	k.labels = k.labels || !k.some()
	for kind := firstRuleEvent; kind < events; kind++ {
		weight := kind.weight() * choose(&rnd, 0.0, 0.3, 1, 1, 3)
		if !slices.Contains(s.Without, kind) && kind.possible(s) {
			s.weights[kind] = weight
		}
	}
}

// zoneNames are the names of zones. The empty name is one too.
var zoneNames = []string{"", "a", "b", "c"}

// drawSettings draws the settings with which a worker registers next.
func (w *world) drawSettings(m *member) {
	k := &w.rules
	if !k.some() {
		return
	}
	rnd := newRandom(w.seed, "settings", uint64(m.index), uint64(time.Since(w.began)))
	m.settings = orchestrator.WorkerSettings{}
	if rnd.chance(0.1) {
		return
	}
	for i, label := range []string{"gpu", "spot", "ssd"} {
		if k.labels && rnd.chance([]float64{0.6, 0.3, 0.6}[i]) {
			m.settings.Labels = append(m.settings.Labels, label)
		}
	}
	if k.zones > 0 {
		m.settings.Zone = choose(&rnd, zoneNames[:k.zones]...)
	}
	if k.shares {
		m.settings.Share = choose(&rnd, 0, 1, 1, 2, 3)
	}
	if k.limits {
		m.settings.MaxTasks = choose(&rnd, 0, 0, rnd.oneTo(5), rnd.oneTo(15))
	}
}

// addTaskRules draws the rules of a task. They are drawn separately, so that other draws stay
// the same.
func (w *world) addTaskRules(task *orchestrator.Task[string]) {
	k := &w.rules
	if !k.some() {
		return
	}
	rnd := newRandom(w.seed, "task rules", uint64(time.Since(w.began)))
	rnd.text(task.Name)
	if k.labels {
		task.Requires = choose(&rnd, nil, nil, nil, []string{"gpu"}, []string{"ssd"}, []string{"!spot"},
			[]string{"gpu", "ssd"}, []string{"!spot", "gpu"})
		if rnd.chance(0.05) {
			task.Requires = []string{"tpu"} // which no worker has
		}
	}
	if k.caps {
		task.MaxPerZone = choose(&rnd, 0, 0, 1, 2, -1)
	}
}

// changeSettings makes workers register again with other settings.
func (w *world) changeSettings(kind Event, m *member, lasts time.Duration, rnd *random) {
	if kind == Relabel {
		if m.registered {
			w.countEvent(kind, "%s", m.name)
			w.drawSettings(m)
			w.publishWorker(m, false)
		}
		return
	}
	zone, odds := choose(rnd, zoneNames...), 0.4
	if kind == LabelLoss {
		odds = 0.85
	}
	everything := rnd.chance(0.3)
	w.countEvent(kind, "zone %q, all settings: %v", zone, everything)
	for _, name := range w.names {
		m := w.workers[name]
		if !m.registered || !rnd.chance(odds) {
			continue
		}
		before := m.settings
		switch {
		case kind == ZoneChange:
			m.settings.Zone = zone
		case everything:
			m.settings = orchestrator.WorkerSettings{}
		default:
			m.settings.Labels = nil
		}
		w.publishWorker(m, false)
		if kind == LabelLoss && rnd.chance(0.7) {
			w.unlessSettling(lasts, func() {
				if m.registered {
					m.settings = before
					w.publishWorker(m, false)
				}
			})
		}
	}
}

// lacking returns the first required label that a worker does not fulfil, or "".
func lacking(s *orchestrator.WorkerSettings, requires []string) string {
	for _, label := range requires {
		name, not := strings.CutPrefix(label, "!")
		if slices.Contains(s.Labels, name) == not {
			return label
		}
	}
	return ""
}

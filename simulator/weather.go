package simulator

// The weather: what goes wrong in the world, step by step.

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// weather has something happen, and enters the next step into the agenda.
func (w *world) weather(step uint64) {
	if w.calm {
		return
	}
	d := throw(w.seed, "weather", step)
	w.agenda.in(d.between(w.pace/5, 2*w.pace), func() { w.weather(step + 1) })
	total := 0.0
	for _, weight := range w.odds {
		total += weight
	}
	x := d.unit() * total
	for i, weight := range w.odds {
		if x < weight {
			w.happen(Trouble(i), &d)
			return
		}
		x -= weight
	}
}

// happen brings one trouble about, where it can be.
func (w *world) happen(kind Trouble, d *dice) {
	m := w.workers[w.names[d.upTo(w.Workers+2)%namesOfWorkers]]
	lasts := d.between(w.span/5, 2*w.span)
	switch kind {
	case LeaseCut, LeaseDeaf:
		w.loseCoordinator(kind, m, lasts, d)
	case Partition, OneWayPartition, Slowness, Lies, BrokenWorker:
		w.impair(kind, m, lasts, d)
	case Crash:
		w.crashSome(m, lasts, d)
	case Deposition, LeaderCrash, Deploy, Isolation:
		w.unseat(kind, lasts, d)
	case Join, Leave, Drain:
		w.changeMembers(kind, m, lasts, d)
	case PoisonTask, NewTask, DropTask, Redefinition:
		w.changeTasks(kind, lasts, d)
	}
}

// say takes note of a trouble.
func (w *world) say(kind Trouble, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble(kind, format, args...)
}

func (w *world) loseCoordinator(kind Trouble, m *member, lasts time.Duration, d *dice) {
	if m.coordinator != up || !m.alive || !m.registered {
		return
	}
	how := cut
	if kind == LeaseDeaf {
		how = deaf
	}
	lasts = d.between(lasts/2, lasts+w.lease)
	w.say(kind, "%s, for %v", m.name, lasts)
	w.sever(m, how)
	w.agenda.in(lasts, func() { w.mend(m) })
}

// impair disturbs a worker, or the way to it, for a while.
func (w *world) impair(kind Trouble, m *member, lasts time.Duration, d *dice) {
	w.say(kind, "%s, for %v", m.name, lasts)
	w.mu.Lock()
	defer w.mu.Unlock()
	until := time.Now().Add(lasts)
	switch kind {
	case Lies:
		m.lying = until
	case BrokenWorker:
		m.broken = until
	case Slowness:
		m.slow = d.between(w.Timeout/20, w.Timeout*3/2)
		m.slowEnds++
		this := m.slowEnds
		w.agenda.in(lasts, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if m.slowEnds == this {
				m.slow = 0
			}
		})
	default:
		m.path = cut
		if kind == OneWayPartition {
			m.path = deaf
		}
		m.pathEnds++
		this := m.pathEnds
		w.agenda.in(lasts, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if m.pathEnds == this {
				m.path = up
			}
		})
	}
}

// crashSome has a worker crash, or now and then a few at once, and most of them
// come back.
func (w *world) crashSome(m *member, lasts time.Duration, d *dice) {
	victims := []*member{m}
	if d.chance(0.1) {
		victims = victims[:0]
		for _, name := range w.names {
			if d.chance(0.6) {
				victims = append(victims, w.workers[name])
			}
		}
	}
	for _, m := range victims {
		if !m.alive {
			continue
		}
		w.say(Crash, "%s", m.name)
		w.crash(m)
		m.back = false
		if d.chance(0.85) {
			rest := d.between(0, among(d, period, w.Timeout/2, lasts, 2*w.lease))
			fate := throw(w.seed, "comeback", uint64(time.Since(w.began)), uint64(m.index))
			w.agenda.in(rest, func() {
				if !w.calm {
					w.comeback(m, &fate)
				}
			})
		}
	}
}

// unseat does something to the leader.
func (w *world) unseat(kind Trouble, lasts time.Duration, d *dice) {
	l := w.leader()
	if l.retired {
		return // a successor is on its way
	}
	w.say(kind, "leader %d", l.number)
	switch kind {
	case Isolation:
		w.mu.Lock()
		l.isolated = true
		w.mu.Unlock()
		w.agenda.in(lasts, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			l.isolated = false
		})
		return
	case Deposition:
		// It may hear of it at once, later, or only from a worker.
		w.agenda.in(d.between(0, among(d, period, w.Timeout, 3*lasts)), func() { l.end(orchestrator.ErrDeposed) })
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
		l.end(errors.New("a new version is deployed"))
	}
	w.agenda.in(d.between(0, among(d, period, w.Timeout, lasts)), func() {
		if w.calm || w.leader() != l {
			return
		}
		if next := w.elect(); next != nil {
			w.lead(next)
		}
	})
}

// leader returns the latest one.
func (w *world) leader() *leader { return w.leaders[len(w.leaders)-1] }

func (w *world) changeMembers(kind Trouble, m *member, lasts time.Duration, d *dice) {
	switch kind {
	case Join:
		if m.registered || m.coordinator != up {
			return
		}
		w.say(kind, "%s", m.name)
		w.join(m)
	case Leave:
		if !m.registered {
			return
		}
		w.say(kind, "%s", m.name)
		if !d.chance(0.6) {
			w.leave(m)
			return
		}
		w.drain(m, true)
		w.agenda.in(lasts, func() {
			if !w.calm {
				w.leave(m)
			}
		})
	case Drain:
		if !m.registered {
			return
		}
		w.say(kind, "%s: %v", m.name, !m.draining)
		w.drain(m, !m.draining)
	}
}

// leave stops a worker, and takes it off the list of members.
func (w *world) leave(m *member) {
	if m.alive {
		w.kill(m)
	}
	m.back = false
	w.dismiss(m)
}

func (w *world) drain(m *member, yes bool) {
	if !m.registered {
		return
	}
	m.draining = yes
	w.publish(change{worker: m.name, drains: yes, undrains: !yes})
}

func (w *world) changeTasks(kind Trouble, lasts time.Duration, d *dice) {
	names := slices.Sorted(maps.Keys(w.tasks))
	if kind == NewTask {
		task := w.newTask(fmt.Sprint("t", d.oneTo(w.Tasks+5)), d)
		w.say(kind, "%s", describe(task))
		w.define(task)
		return
	}
	if len(names) == 0 {
		return
	}
	name := among(d, names...)
	switch kind {
	case PoisonTask:
		w.say(kind, "%s, for %v", name, lasts)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.poison[name] = time.Now().Add(lasts)
	case DropTask:
		w.say(kind, "%s", name)
		w.mu.Lock()
		delete(w.tasks, name)
		w.mu.Unlock()
		w.publish(change{task: orchestrator.Task[string]{Name: name}, undefines: true})
	case Redefinition:
		task := w.newTask(name, d)
		w.say(kind, "%s", describe(task))
		w.define(task)
	}
}

// newTask draws how a task is to be run.
func (w *world) newTask(name string, d *dice) orchestrator.Task[string] {
	task := orchestrator.Task[string]{Name: name, Instances: among(d, 1, 1, 1, 1, 2, 2, 3, 4)}
	if w.overlaps {
		task.Handoff = among(d, orchestrator.HandoffDefault, orchestrator.StopThenStart, orchestrator.StartThenStop)
	}
	return task
}

func (w *world) define(task orchestrator.Task[string]) {
	w.mu.Lock()
	w.tasks[task.Name] = task
	w.mu.Unlock()
	w.publish(change{task: task, defines: true})
}

func describe(task orchestrator.Task[string]) string {
	return fmt.Sprintf("%s is expected %d times, handoff %v", task.Name, cmp.Or(task.Instances, 1), task.Handoff)
}

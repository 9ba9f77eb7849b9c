package simulator

// Workers: their processes, their leases and their membership.

import (
	"context"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// connection is the connection between two parties, such as a worker and the coordinator.
type connection uint8

const (
	connected connection = iota
	cut                  // no message arrives
	oneWay               // answers do not arrive
)

// member is a worker, present or not, with its true state.
type member struct {
	name  string
	index int

	alive      bool
	process    int // counts the worker's processes
	session    int // counts its memberships
	registered bool
	draining   bool
	settings   orchestrator.WorkerSettings // of its next registration too
	highest    orchestrator.Term           // the highest term that reached this process
	restoring  bool                        // it is starting the tasks in memory
	joined     time.Time
	crashed    time.Time
	lastRan    []string   // the tasks that ran when it crashed
	arrivals   []*arrival // the writes under way at this process
	rejoins    bool       // it rejoins as soon as it can

	coordinator connection
	renewing    time.Time // when the present series of renewals began; zero if the lease is not renewed
	renewed     time.Time // the last renewal, if the lease is no longer renewed
	lease       int       // changes whenever a scheduled end of the lease becomes void

	network connection // to leaders
	latency time.Duration
	// Each lasts until the time given: false lists, refused starts, starts that
	// hang, slow lists.
	falseListsUntil, brokenUntil, hangingUntil, slowListsUntil time.Time

	listDelay          time.Duration // the delay of a slow List
	pathEnds, slowEnds int           // count the changes, so that an outdated end is ignored
}

// lastRenewal returns when a worker's lease was last renewed.
func (w *world) lastRenewal(m *member) time.Time {
	if m.renewing.IsZero() {
		return m.renewed
	}
	every := w.lease / 4
	return m.renewing.Add(time.Since(m.renewing) / every * every)
}

// hasLeases reports whether workers have leases.
func (w *world) hasLeases() bool { return w.Membership != Grace }

// start starts a worker's process. The process first learns the current epoch.
func (w *world) start(m *member) {
	w.cluster.Start(m.name)
	w.mu.Lock()
	known := orchestrator.Term{Epoch: w.epoch}
	if w.knowsTerms {
		known.Number = w.number
	}
	w.mu.Unlock()
	w.cluster.Worker(m.name).Fence(known)
	w.mu.Lock()
	defer w.mu.Unlock()
	m.alive, m.highest, m.arrivals, m.rejoins = true, known, nil, false
	m.process++
	m.renewing = time.Now()
	m.lease++
	w.note(worldLane, "%s starts, and knows epoch %d, term %d", m.name, known.Epoch, known.Number)
}

// kill ends a worker's process.
func (w *world) kill(m *member) {
	w.mu.Lock()
	m.renewed = w.lastRenewal(m)
	m.renewing = time.Time{}
	m.alive, m.crashed = false, time.Now()
	m.lastRan = w.cluster.RunsOn(m.name)
	slices.Sort(m.lastRan)
	w.endRuns(m)
	w.note(worldLane, "%s has ended, and ran %v", m.name, m.lastRan)
	w.mu.Unlock()
	w.cluster.Kill(m.name)
}

// join makes a worker a member. If it has no process, it starts one.
func (w *world) join(m *member) {
	if !m.alive {
		w.start(m)
	}
	w.register(m)
}

// register makes a worker with a process a member.
func (w *world) register(m *member) {
	w.mu.Lock()
	m.registered, m.draining = true, false
	m.session++
	m.joined, m.renewing = time.Now(), time.Now()
	m.lease++
	w.members = append(w.members, m.name)
	w.mu.Unlock()
	w.publish(change{worker: m.name, joins: true, session: m.session, settings: m.settings})
}

// unregister removes a worker from the members.
func (w *world) unregister(m *member) {
	w.mu.Lock()
	if !m.registered {
		w.mu.Unlock()
		return
	}
	m.registered = false
	m.lease++
	w.members = slices.DeleteFunc(w.members, func(name string) bool { return name == m.name })
	w.loseTrack(m)
	w.mu.Unlock()
	w.publish(change{worker: m.name, leaves: true})
}

// disconnect disconnects a worker from the coordinator, so that its lease will end.
func (w *world) disconnect(m *member, how connection) {
	w.mu.Lock()
	last := w.lastRenewal(m)
	if how == cut {
		m.renewed, m.renewing = last, time.Time{}
	}
	m.coordinator = how
	m.lease++
	w.mu.Unlock()
	lease := m.lease
	if w.Membership == Leases {
		w.schedule.in(time.Until(last)+w.lease-w.margin, func() {
			if m.lease == lease && m.alive {
				w.selfFence(m)
			}
		})
	}
	if how == cut {
		w.expire(m, last)
	}
}

// expire makes the coordinator end a worker's lease when it runs out, unless the
// lease changes first.
func (w *world) expire(m *member, renewed time.Time) {
	lease := m.lease
	w.schedule.in(time.Until(renewed)+w.lease, func() {
		if m.lease == lease {
			w.unregister(m)
		}
	})
}

// selfFence stops everything on a worker, because its lease may end.
func (w *world) selfFence(m *member) {
	w.mu.Lock()
	w.countEvent(SelfFencing, "%s stops everything, because its lease may end", m.name)
	how := m.coordinator
	w.mu.Unlock()
	w.kill(m)
	m.rejoins = true
	if how == oneWay {
		w.expire(m, m.renewed)
	}
}

// reconnect reconnects a worker with the coordinator.
func (w *world) reconnect(m *member) {
	if m.coordinator == connected {
		return
	}
	m.coordinator = connected
	switch {
	case m.alive && m.registered:
		w.mu.Lock()
		m.renewing = time.Now()
		m.lease++
		w.mu.Unlock()
	case m.alive: // unfenced: it has kept running
		w.cluster.Worker(m.name).Fence(orchestrator.Term{Epoch: w.epoch})
		w.mu.Lock()
		m.highest = later(m.highest, orchestrator.Term{Epoch: w.epoch})
		w.mu.Unlock()
		w.register(m)
	case m.rejoins:
		w.unregister(m) // it revokes its old lease
		w.join(m)
	}
}

// crash ends a worker's process without notice.
func (w *world) crash(m *member) {
	w.kill(m)
	if w.hasLeases() && m.registered && m.coordinator != cut {
		m.lease++
		w.expire(m, m.renewed)
	}
}

// restart restarts the process of a crashed worker.
func (w *world) restart(m *member, rnd *random) {
	if m.alive {
		return
	}
	if m.coordinator != connected {
		m.rejoins = true
		return
	}
	mine := m.registered && (!w.hasLeases() || time.Until(m.renewed.Add(w.lease-w.margin)) > 0)
	switch {
	case !m.registered:
		w.join(m)
	case mine && rnd.chance(0.5):
		w.mu.Lock()
		w.countEvent(RestartWithTasks, "%s runs %v again", m.name, m.lastRan)
		w.mu.Unlock()
		w.restore(m)
	case w.hasLeases() && rnd.chance(0.5):
		w.mu.Lock()
		w.countEvent(RestartEmpty, "%s revokes its lease", m.name)
		w.mu.Unlock()
		w.unregister(m)
		w.join(m)
	default:
		w.mu.Lock()
		w.countEvent(RestartEmpty, "%s keeps its membership", m.name)
		w.mu.Unlock()
		w.start(m)
	}
}

// restore starts a process that runs its predecessor's tasks again.
func (w *world) restore(m *member) {
	tasks := m.lastRan
	w.start(m)
	w.mu.Lock()
	m.restoring = true
	w.mu.Unlock()
	worker := w.cluster.Worker(m.name)
	ctx := orchestrator.ContextWithTerm(context.Background(), m.highest)
	for _, task := range tasks {
		_ = worker.Add(ctx, task) // not on a leader's order
	}
	w.mu.Lock()
	m.restoring = false
	w.mu.Unlock()
}

func later(a, b orchestrator.Term) orchestrator.Term {
	if a.Compare(b) < 0 {
		return b
	}
	return a
}

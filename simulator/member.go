package simulator

// Workers: their processes, their leases and their membership.

import (
	"cmp"
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
	expectedWorker // as the leaders should know it; its settings are those of its next registration too
	index          int

	alive      bool
	process    int // counts the worker's processes
	registered bool
	highest    orchestrator.Term            // the highest term that reached this process
	restoring  []*run                       // it is starting the tasks of these runs again
	crashed    []*run                       // these, as long as it may come back and run them again
	ordered    map[string]orchestrator.Term // by task, the latest term of a start that is under way
	rejoins    bool                         // it rejoins as soon as it can

	coordinator connection
	renewing    time.Time // when the present series of renewals began; zero if the lease is not renewed
	renewed     time.Time // the last renewal, if the lease is no longer renewed
	lease       int       // changes whenever a scheduled end of the lease becomes void

	oneWay    bool          // a partition from the leaders lets calls through, but no answers
	latency   time.Duration // of all calls while it is slow
	listDelay time.Duration // of a slow List
}

// lastRenewal returns when a worker's lease was last renewed.
func (w *world) lastRenewal(m *member) time.Time {
	if m.renewing.IsZero() {
		return m.renewed
	}
	every := w.lease / 4
	return m.renewing.Add(time.Since(m.renewing) / every * every)
}

// start starts a worker's process. The process first learns the current epoch.
func (w *world) start(m *member) {
	w.unlocked(func() { w.cluster.Start(m.name) })
	known := orchestrator.Term{Epoch: w.epoch}
	if w.knowsTerms {
		known.Number = w.number
	}
	w.unlocked(func() { w.cluster.Worker(m.name).Fence(known) })
	m.alive, m.highest, m.crashed, m.rejoins = true, known, nil, false
	m.process++
	m.renewing = time.Now()
	m.lease++
	w.note(worldLane, "%s starts, and knows epoch %d, term %d", m.name, known.Epoch, known.Number)
}

// kill ends a worker's process.
func (w *world) kill(m *member) {
	m.renewed = w.lastRenewal(m)
	m.renewing = time.Time{}
	m.alive = false
	w.note(worldLane, "%s has ended, and ran %v", m.name, w.runsOn(m.name))
	m.crashed = nil
	clear(m.ordered)
	for _, runs := range w.running {
		for _, r := range slices.Clone(runs) {
			if r.worker == m {
				w.end(r)
				m.crashed = append(m.crashed, r)
			}
		}
	}
	w.unlocked(func() { w.cluster.Kill(m.name) })
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
	m.registered, m.draining = true, false
	m.session++
	m.renewing = time.Now()
	m.lease++
	w.members = append(w.members, m.name)
	w.publishWorker(m, true)
}

// unregister removes a worker from the members.
func (w *world) unregister(m *member) {
	if !m.registered {
		return
	}
	m.registered = false
	m.lease++
	w.members = slices.DeleteFunc(w.members, func(name string) bool { return name == m.name })
	m.crashed = nil
	w.forget(m.name, "", UnfencedLost)
	w.publish(change{worker: expectedWorker{name: m.name}, gone: true})
}

// disconnect disconnects a worker from the coordinator, so that its lease will end.
func (w *world) disconnect(m *member, how connection) {
	last := w.lastRenewal(m)
	if how == cut {
		m.renewed, m.renewing = last, time.Time{}
	}
	m.coordinator = how
	m.lease++
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
	w.countEvent(SelfFencing, "%s stops everything, because its lease may end", m.name)
	how := m.coordinator
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
		m.renewing = time.Now()
		m.lease++
	case m.alive: // unfenced: it has kept running
		known := orchestrator.Term{Epoch: w.epoch}
		w.unlocked(func() { w.cluster.Worker(m.name).Fence(known) })
		m.highest = later(m.highest, known)
		w.register(m)
	case m.rejoins:
		w.unregister(m) // it revokes its old lease
		w.join(m)
	}
}

// crash ends a worker's process without notice.
func (w *world) crash(m *member) {
	w.kill(m)
	if w.hold && m.registered && m.coordinator != cut {
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
	mine := m.registered && (!w.hold || time.Until(m.renewed.Add(w.lease-w.margin)) > 0)
	switch {
	case !m.registered:
		w.join(m)
	case mine && rnd.chance(0.5):
		w.countEvent(RestartWithTasks, "%s", m.name)
		w.restore(m)
	case w.hold && rnd.chance(0.5):
		w.countEvent(RestartEmpty, "%s revokes its lease", m.name)
		w.unregister(m)
		w.join(m)
	default:
		w.countEvent(RestartEmpty, "%s keeps its membership", m.name)
		w.start(m)
	}
}

// restore starts a process that runs its predecessor's tasks again.
func (w *world) restore(m *member) {
	crashed := slices.SortedFunc(slices.Values(m.crashed), func(a, b *run) int { return cmp.Compare(a.task, b.task) })
	w.start(m)
	m.restoring = crashed
	ctx := orchestrator.ContextWithTerm(context.Background(), m.highest)
	w.unlocked(func() {
		for _, r := range crashed {
			_ = w.cluster.Worker(m.name).Add(ctx, r.task) // not on a leader's order
		}
	})
	m.restoring = nil
}

func later(a, b orchestrator.Term) orchestrator.Term {
	return slices.MaxFunc([]orchestrator.Term{a, b}, orchestrator.Term.Compare)
}

package simulator

// Workers: their processes, their leases, and how they come and go.

import (
	"context"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// link is the way between a worker and the coordinator.
type link uint8

const (
	up   link = iota
	cut       // nothing gets through
	deaf      // the coordinator's answers do not
)

// member is a worker, there or not, and as the world knows it.
type member struct {
	name  string
	index int

	alive      bool
	gen        int // of its process; each start is a new one
	session    int // of its membership; each time it joins is a new one
	registered bool
	draining   bool
	seen       orchestrator.Term // the highest that reached this process
	restoring  bool              // it starts what it remembers
	joined     time.Time
	crashed    time.Time
	memory     []string   // what ran when it crashed
	adds       []*arrival // writes under way at this process
	back       bool       // it wants to rejoin as soon as it can

	coordinator link
	renewing    time.Time // since when it renews its lease, again and again
	renewed     time.Time // the last time, if it no longer does
	lease       int       // changes whenever an end that was foreseen is off

	path link // between it and leaders
	slow time.Duration
	// Until when it lies in List, refuses starts, lets them hang, and is slow to list.
	lying, broken, hanging, slowLists time.Time

	listing            time.Duration // how slow
	pathEnds, slowEnds int           // count changes, so that an old end is known
}

// lastRenewal returns when a worker's lease was last renewed.
func (w *world) lastRenewal(m *member) time.Time {
	if m.renewing.IsZero() {
		return m.renewed
	}
	every := w.lease / 4
	return m.renewing.Add(time.Since(m.renewing) / every * every)
}

// leases reports whether workers have leases.
func (w *world) leases() bool { return w.Membership != Grace }

// start starts a worker's process, which learns the current epoch first.
func (w *world) start(m *member) {
	w.cluster.Start(m.name)
	w.mu.Lock()
	known := orchestrator.Term{Epoch: w.epoch}
	if w.knowing {
		known.Number = w.number
	}
	w.mu.Unlock()
	w.cluster.Worker(m.name).Fence(known)
	w.mu.Lock()
	defer w.mu.Unlock()
	m.alive, m.seen, m.adds, m.back = true, known, nil, false
	m.gen++
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
	m.memory = w.cluster.RunsOn(m.name)
	slices.Sort(m.memory)
	w.allStopped(m)
	w.note(worldLane, "%s is gone, with %v", m.name, m.memory)
	w.mu.Unlock()
	w.cluster.Kill(m.name)
}

// join makes a worker a member, with a process that runs nothing.
func (w *world) join(m *member) {
	if !m.alive {
		w.start(m)
	}
	w.enlist(m)
}

// enlist makes a worker with a process a member.
func (w *world) enlist(m *member) {
	w.mu.Lock()
	m.registered, m.draining = true, false
	m.session++
	m.joined, m.renewing = time.Now(), time.Now()
	m.lease++
	w.members = append(w.members, m.name)
	w.mu.Unlock()
	w.publish(change{worker: m.name, joins: true, session: m.session})
}

// dismiss removes a worker from the members.
func (w *world) dismiss(m *member) {
	w.mu.Lock()
	if !m.registered {
		w.mu.Unlock()
		return
	}
	m.registered = false
	m.lease++
	w.members = slices.DeleteFunc(w.members, func(name string) bool { return name == m.name })
	w.astray(m)
	w.mu.Unlock()
	w.publish(change{worker: m.name, leaves: true})
}

// sever cuts a worker off from the coordinator, so that its lease will end.
func (w *world) sever(m *member, how link) {
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
		w.agenda.in(time.Until(last)+w.lease-w.margin, func() {
			if m.lease == lease && m.alive {
				w.fence(m)
			}
		})
	}
	if how == cut {
		w.expire(m, last)
	}
}

// expire has the coordinator end a worker's lease in time, unless something
// happens to it before.
func (w *world) expire(m *member, renewed time.Time) {
	lease := m.lease
	w.agenda.in(time.Until(renewed)+w.lease, func() {
		if m.lease == lease {
			w.dismiss(m)
		}
	})
}

// fence stops everything on a worker, because its lease may end.
func (w *world) fence(m *member) {
	w.mu.Lock()
	w.trouble(SelfFencing, "%s stops everything, for its lease may end", m.name)
	how := m.coordinator
	w.mu.Unlock()
	w.kill(m)
	m.back = true
	if how == deaf {
		w.expire(m, m.renewed)
	}
}

// mend reconnects a worker with the coordinator.
func (w *world) mend(m *member) {
	if m.coordinator == up {
		return
	}
	m.coordinator = up
	switch {
	case m.alive && m.registered:
		w.mu.Lock()
		m.renewing = time.Now()
		m.lease++
		w.mu.Unlock()
	case m.alive: // unfenced: it has gone on all the time
		w.cluster.Worker(m.name).Fence(orchestrator.Term{Epoch: w.epoch})
		w.mu.Lock()
		m.seen = later(m.seen, orchestrator.Term{Epoch: w.epoch})
		w.mu.Unlock()
		w.enlist(m)
	case m.back:
		w.dismiss(m) // it gives its old lease back
		w.join(m)
	}
}

// crash ends a worker's process unforeseen.
func (w *world) crash(m *member) {
	w.kill(m)
	if w.leases() && m.registered && m.coordinator != cut {
		m.lease++
		w.expire(m, m.renewed)
	}
}

// comeback starts the process of a worker again that has crashed.
func (w *world) comeback(m *member, d *dice) {
	if m.alive {
		return
	}
	if m.coordinator != up {
		m.back = true
		return
	}
	mine := m.registered && (!w.leases() || time.Until(m.renewed.Add(w.lease-w.margin)) > 0)
	switch {
	case !m.registered:
		w.join(m)
	case mine && d.chance(0.5):
		w.mu.Lock()
		w.trouble(RestartWithTasks, "%s runs %v again", m.name, m.memory)
		w.mu.Unlock()
		w.restore(m)
	case w.leases() && d.chance(0.5):
		w.mu.Lock()
		w.trouble(RestartEmpty, "%s gives its lease back", m.name)
		w.mu.Unlock()
		w.dismiss(m)
		w.join(m)
	default:
		w.mu.Lock()
		w.trouble(RestartEmpty, "%s keeps its place", m.name)
		w.mu.Unlock()
		w.start(m)
	}
}

// restore starts a process that runs again what the one before ran.
func (w *world) restore(m *member) {
	tasks := m.memory
	w.start(m)
	w.mu.Lock()
	m.restoring = true
	w.mu.Unlock()
	worker := w.cluster.Worker(m.name)
	ctx := orchestrator.ContextWithTerm(context.Background(), m.seen)
	for _, task := range tasks {
		_ = worker.Add(ctx, task) // without any leader's order
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

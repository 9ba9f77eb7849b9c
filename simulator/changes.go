package simulator

// What leaders are told to expect, and how changes of that reach them.

import (
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// view is what a leader has been told to expect, from a moment on.
type view struct {
	at    time.Time
	seats []place
	tasks map[string]orchestrator.Task[string]
	// different says that something is not as it was before.
	different bool
}

// place returns that of a worker, or nil where it is no member.
func (v *view) place(name string) *place {
	for i := range v.seats {
		if v.seats[i].name == name {
			return &v.seats[i]
		}
	}
	return nil
}

// place is a worker's place among the members.
type place struct {
	name     string
	serial   uint64
	draining bool
}

// viewAt returns what the leader was to expect at a moment.
func (l *leader) viewAt(at time.Time) view {
	v := l.views[0]
	for _, other := range l.views {
		if !other.at.After(at) {
			v = other
		}
	}
	return v
}

// parted returns when a worker lost its place, which it had in the last term.
func (l *leader) parted(s *seat) time.Time {
	for _, v := range l.views {
		if p := v.place(s.name); p == nil || p.serial != s.serial {
			return v.at
		}
	}
	return time.Time{}
}

// change is a change of what is expected.
type change struct {
	worker             string
	session            int // with joins
	joins, leaves      bool
	drains, undrains   bool
	task               orchestrator.Task[string]
	defines, undefines bool
}

// publish has every leader hear of a change, in due time and in due order.
func (w *world) publish(c change) {
	for _, l := range w.leaders {
		if l.retired {
			continue
		}
		d := throw(w.seed, "lag", uint64(l.number), uint64(time.Since(w.began)))
		at := time.Now().Add(d.between(0, w.lag))
		if at.Before(l.heard) {
			at = l.heard
		}
		l.heard = at
		w.agenda.in(time.Until(at), func() { l.apply(c) })
	}
}

// apply takes over a change.
func (l *leader) apply(c change) {
	w := l.w
	w.mu.Lock()
	if l.gone {
		w.mu.Unlock()
		return
	}
	v := view{at: time.Now(), different: true}
	if last := l.views[len(l.views)-1]; true {
		v.seats, v.tasks = slices.Clone(last.seats), maps.Clone(last.tasks)
	}
	at := slices.IndexFunc(v.seats, func(p place) bool { return p.name == c.worker })
	switch {
	case c.joins && at < 0:
		l.serial++
		v.seats = append(v.seats, place{name: c.worker, serial: l.serial})
		l.sessions[c.worker] = c.session
	case c.leaves && at >= 0:
		was := v.seats[at]
		v.seats = slices.Delete(v.seats, at, at+1)
		if w.workers[c.worker].alive {
			l.lost[c.worker] = append(l.lost[c.worker], spell{since: v.at, serial: was.serial})
		}
	case (c.drains || c.undrains) && at >= 0:
		v.different = v.seats[at].draining != c.drains
		v.seats[at].draining = c.drains
	case c.defines:
		v.different = v.tasks[c.task.Name] != c.task
		v.tasks[c.task.Name] = c.task
	case c.undefines:
		_, v.different = v.tasks[c.task.Name]
		delete(v.tasks, c.task.Name)
	default:
		v.different = false
	}
	l.views = append(l.views, v)
	w.note(worldLane, "leader %d hears: %s", l.number, c)
	w.mu.Unlock()
	l.hear(c)
}

// hear tells the orchestrator.
func (l *leader) hear(c change) {
	switch {
	case c.joins:
		l.must(l.o.AddWorker(c.worker))
	case c.leaves:
		l.o.RemoveWorker(c.worker)
	case c.drains:
		_ = l.o.DrainWorker(c.worker) // it may have left
	case c.undrains:
		_ = l.o.UndrainWorker(c.worker)
	case c.defines:
		l.must(l.o.AddTask(c.task.Name, orchestrator.WithTaskInstances(c.task.Instances), orchestrator.WithHandoff(c.task.Handoff)))
	case c.undefines:
		l.o.RemoveTask(c.task.Name)
	}
}

// String returns a change as the end of a sentence.
func (c change) String() string {
	switch {
	case c.joins:
		return c.worker + " joins"
	case c.leaves:
		return c.worker + " leaves"
	case c.drains:
		return c.worker + " drains"
	case c.undrains:
		return c.worker + " drains no more"
	case c.defines:
		return describe(c.task)
	}
	return c.task.Name + " is expected no more"
}

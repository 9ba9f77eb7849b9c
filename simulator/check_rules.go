package simulator

// Checks of the rules of placement: starts keep them (P10), evictions have a place and a
// guard (P11), and instances without a place have causes (P12).

import (
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// evictionsHeldFor is how long changed labels evict nothing if they would evict too much.
const evictionsHeldFor = 5 * time.Minute

// settings returns the settings of a worker as the term knows them.
func (r *review) settings(worker string) *orchestrator.WorkerSettings {
	return &r.view.worker(worker).settings
}

// checkRules checks a start that is not a give-back, when it is sent.
func (r *review) checkRules(c *call, wb *workerBelief, change *orchestrator.Change[string, string]) {
	task, s := r.view.tasks[c.task], r.settings(c.worker)
	if label := lacking(s, task.Requires); label != "" {
		r.fail(Ruled, "%s was started on %s, which does not fulfil %q", c.task, c.worker, label)
	}
	others := len(wb.mayRun)
	if wb.mayRun[c.task] {
		others--
	}
	if s.MaxTasks > 0 && others >= s.MaxTasks {
		r.fail(Ruled, "%s was started on %s by %v, which may run %d other tasks: %v; its limit is %d",
			c.task, c.worker, change.Kind, others, slices.Sorted(maps.Keys(wb.mayRun)), s.MaxTasks)
	}
	inside := change.From != "" && r.listedOn[change.From][c.task] && r.settings(change.From).Zone == s.Zone
	if task.MaxPerZone <= 0 || inside {
		return // a move inside a zone does not raise the number of copies there
	}
	var in []string
	for _, name := range r.l.belief.workerNames() {
		if other := r.l.belief.workers[name]; name != c.worker && other.mayRun[c.task] && r.settings(name).Zone == s.Zone {
			in = append(in, name)
		}
	}
	if n := len(in) - r.countedTwice(c.task, s.Zone); n >= task.MaxPerZone {
		r.fail(Ruled, "%s was started on %s by %v, and in zone %q these may run it too: %v; the limit is %d",
			c.task, c.worker, change.Kind, s.Zone, in, task.MaxPerZone)
	}
}

// countedTwice counts the moves inside a zone that start a task at its new place first, and
// have not stopped it at its old one.
func (r *review) countedTwice(task, zone string) int {
	if !r.startsFirst(r.view.tasks[task]) {
		return 0
	}
	n := 0
	for i := range r.plan.Changes {
		p := &r.plan.Changes[i]
		if p.Task != task || p.Kind.Op != orchestrator.Move || r.settings(p.From).Zone != zone || r.settings(p.To).Zone != zone {
			continue
		}
		if r.l.belief.workers[p.To].mayRun[task] && r.l.belief.workers[p.From].mayRun[task] {
			n++
		}
	}
	return n
}

// checkPlacement compares the plan with the rules.
func (r *review) checkPlacement() {
	if r.incomplete() || !r.w.rules.some() {
		return
	}
	for i := range r.plan.Changes {
		c := &r.plan.Changes[i]
		if c.Kind.Op == orchestrator.Stop {
			continue
		}
		if label := lacking(r.settings(c.To), r.view.tasks[c.Task].Requires); label != "" {
			r.fail(Ruled, "the plan has the %v of %s to %s, which does not fulfil %q", c.Kind, c.Task, c.To, label)
		}
	}
	r.checkEvictions()
	r.checkCauses()
}

// checkEvictions checks that the plan mentions every copy that breaks the rule of labels, and
// that it evicts none for that during a storm.
func (r *review) checkEvictions() {
	mentioned := make(map[writeKey]bool)
	stops := make(map[string]bool) // it may stop at another place than planned, where its stop is under way
	for i := range r.plan.Changes {
		c := &r.plan.Changes[i]
		mentioned[writeKey{c.Task, c.From}] = true
		stops[c.Task] = stops[c.Task] || c.Kind.Op == orchestrator.Stop
	}
	for i := range r.plan.Waiting {
		p := &r.plan.Waiting[i]
		mentioned[writeKey{p.Task, p.Worker}] = p.Named || mentioned[writeKey{p.Task, p.Worker}]
		if p.Reason == orchestrator.ReasonEvictionHeld {
			r.w.report.EvictionsHeld++
		}
	}
	suspect, stopFails := make(map[string]bool), make(map[string]bool)
	for key := range r.l.pauses {
		if key.kind == orchestrator.PauseStop {
			stopFails[key.worker] = true // its stops take turns
		}
	}
	for _, p := range r.plan.Paused {
		switch p.Kind {
		case orchestrator.PauseStop:
			stopFails[p.Worker] = true
		case orchestrator.PauseTask:
			suspect[p.Task] = true
		}
	}
	running, evicted := 0, 0
	for _, name := range r.l.belief.workerNames() {
		wb := r.l.belief.workers[name]
		if wb.state == orchestrator.Lost {
			continue
		}
		tasks := wb.planned
		for _, task := range slices.Sorted(maps.Keys(tasks)) {
			def, expected := r.view.tasks[task]
			if !expected {
				continue
			}
			running++
			if wb.draining || lacking(r.settings(name), def.Requires) == "" {
				continue
			}
			evicted++
			_, paused := r.l.pauses[pauseKey{orchestrator.PauseTask, "", task}]
			paused = paused || suspect[task]
			if wb.answers() && r.plan.Stats.Deferred == 0 && !paused && !stopFails[name] && !stops[task] && !mentioned[writeKey{task, name}] {
				r.fail(Explained, "%s runs %s, which requires %v, and the plan does not mention it", name, task, def.Requires)
			}
		}
	}
	r.checkStorm(evicted, running)
}

// checkStorm checks that labels evict no copy for five minutes after they changed, if they
// would evict more than the part of the running copies that WithMaxLoss allows.
func (r *review) checkStorm(evicted, running int) {
	l := r.l
	changed := l.stormChecked.IsZero() || slices.ContainsFunc(l.views, func(v view) bool {
		return v.changed && v.at.After(l.stormChecked) && !v.at.After(r.began)
	})
	l.stormChecked = r.began
	switch {
	case float64(evicted) <= r.w.maxLoss*float64(running):
		l.storm = time.Time{}
		return
	case !changed && l.storm.IsZero():
		return
	case l.storm.IsZero():
		l.storm = r.listed
	}
	if r.listed.Sub(l.storm) >= evictionsHeldFor {
		return
	}
	for i := range r.plan.Changes {
		if c := &r.plan.Changes[i]; c.Kind.Reason == orchestrator.ReasonRequires {
			r.fail(Ruled, "the plan evicts %s from %s, though labels changed %v ago and would evict %d of %d copies",
				c.Task, c.From, r.listed.Sub(l.storm), evicted, running)
		}
	}
}

// checkCauses checks that the causes of each instance without a place add up to the open
// workers.
func (r *review) checkCauses() {
	open := make([]string, 0, len(r.view.workers))
	for _, name := range r.l.belief.workerNames() {
		if wb := r.l.belief.workers[name]; wb.answers() && !wb.draining {
			open = append(open, name)
		}
	}
	rows := make(map[string]bool)
	for i := range r.plan.Waiting {
		p := &r.plan.Waiting[i]
		c := p.Causes
		if c == nil {
			if p.Reason == orchestrator.ReasonNoPlace && r.view.hasRules() {
				r.fail(Explained, "%d of %s have no place, and the plan names no causes", p.Instances, p.Task)
			}
			continue
		}
		if p.Kind() == orchestrator.WaitingUnplaced && !ofOutcome(*p) {
			if rows[p.Task] {
				r.fail(Explained, "%s waits in two rows", p.Task)
			}
			rows[p.Task] = true
		}
		lack := make(map[string]int)
		for _, name := range open {
			if label := lacking(r.settings(name), r.view.tasks[p.Task].Requires); label != "" {
				lack[label]++
			}
		}
		sum := c.ZoneFull + c.NoRoom + c.Running + c.Quarantined + c.Paused + c.Free
		for _, l := range c.Lacking {
			sum += l.Workers
			if lack[l.Label] != l.Workers {
				r.fail(Explained, "%s waits since %d workers lack %q, the plan says %d", p.Task, lack[l.Label], l.Label, l.Workers)
			}
			delete(lack, l.Label)
		}
		if len(lack) > 0 || sum != c.Workers || c.Workers != len(open) ||
			min(c.ZoneFull, c.NoRoom, c.Running, c.Quarantined, c.Paused, c.Free) < 0 {
			r.fail(Explained, "%s waits, and the causes %+v do not add up to %d open workers", p.Task, *c, len(open))
		}
		r.w.report.CausesChecked++
	}
}

// reasonableEviction reports whether the reason of an eviction is true.
func (r *review) reasonableEviction(c *orchestrator.Change[string, string]) bool {
	task, s := r.view.tasks[c.Task], r.settings(c.From)
	r.w.report.Evictions++
	switch c.Kind.Reason {
	case orchestrator.ReasonRequires:
		return lacking(s, task.Requires) != ""
	case orchestrator.ReasonLimit:
		return s.MaxTasks > 0 && len(r.listedOn[c.From]) > s.MaxTasks
	case orchestrator.ReasonZone:
		copies := 0
		for name, wb := range r.l.belief.workers {
			if wb.held[c.Task] && r.settings(name).Zone == s.Zone {
				copies++
			}
		}
		return task.MaxPerZone >= 0 && copies > max(task.MaxPerZone, 1)
	}
	return false
}

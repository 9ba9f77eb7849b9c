package simulator

// Rules of placement: the zones, labels, shares and limits of workers, and the rules of tasks
// that refer to them.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
)

// ruleKinds holds the kinds of rules in a run.
type ruleKinds struct {
	labels bool
	zones  int  // how many names of zones there are; 0: none
	caps   bool // tasks may have MaxPerZone
	shares bool
	limits bool // workers may have MaxTasks
}

func (k ruleKinds) some() bool { return k != ruleKinds{} }

// ruledRuns is the part of the runs with rules, unless they are fixed.
const ruledRuns = 0.4

// drawRules draws the kinds of rules, and the odds of the events that change settings.
func (s *setup) drawRules() {
	rnd := newRandom(s.seed, "rules")
	some := rnd.chance(ruledRuns)
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
	for _, label := range []struct {
		name string
		odds float64
	}{{"gpu", 0.6}, {"spot", 0.3}, {"ssd", 0.6}} {
		if k.labels && rnd.chance(label.odds) {
			m.settings.Labels = append(m.settings.Labels, label.name)
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
			w.recordEvent(kind, "%s", m.name)
			w.drawSettings(m)
			w.registerAgain(m)
		}
		return
	}
	zone, odds := choose(rnd, zoneNames...), 0.4
	if kind == LabelLoss {
		odds = 0.85
	}
	everything := rnd.chance(0.3)
	w.recordEvent(kind, "zone %q, all settings: %v", zone, everything)
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
		w.registerAgain(m)
		if kind == LabelLoss && rnd.chance(0.7) {
			w.schedule.in(lasts, func() {
				if !w.settling && m.registered {
					m.settings = before
					w.registerAgain(m)
				}
			})
		}
	}
}

// registerAgain tells the leaders the settings of a member.
func (w *world) registerAgain(m *member) {
	w.publish(change{worker: m.name, redefines: true, settings: m.settings})
}

// describeSettings describes settings after the name of their worker.
func describeSettings(s orchestrator.WorkerSettings) string {
	if s.Equal(orchestrator.WorkerSettings{}) {
		return ""
	}
	return fmt.Sprintf(", zone %q, labels %v, share %d, at most %d tasks", s.Zone, s.Labels, max(s.Share, 1), s.MaxTasks)
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

// hasRules reports whether some worker or task that a leader expects has rules, so that plans
// name the causes of what they do not place.
func (v *view) hasRules() bool {
	for i := range v.workers {
		s, first := &v.workers[i].settings, &v.workers[0].settings
		if s.MaxTasks > 0 || s.Zone != first.Zone || max(s.Share, 1) != max(first.Share, 1) {
			return true
		}
	}
	for _, task := range v.tasks {
		if len(task.Requires) > 0 || task.MaxPerZone != 0 {
			return true
		}
	}
	return false
}

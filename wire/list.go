package wire

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// The brake: an answer that lacks more than half of a list of brakeFrom tasks or more
// deletes them only when every answer of brakeTime has lacked them.
const (
	brakeFrom = 10
	brakeTime = time.Minute
)

// list compares the answers of a Source with the list in force. It makes no call.
type list struct {
	bad     map[string]string // name → reason, of the last answer
	lacking map[string]bool   // the tasks that every answer since has lacked
	since   time.Time         // of lacking; zero: there is no brake
}

// compare returns the list in force after an answer. The Generation of a task stays.
func (l *list) compare(inForce map[string]Task, answer []Task, now time.Time) map[string]Task {
	goal := l.check(answer)
	missing := make(map[string]bool)
	for name, was := range inForce {
		t, ok := goal[name]
		switch {
		case ok:
			t.Generation = was.Generation
			goal[name] = t
		case l.bad[name] != "":
			goal[name] = was
		default:
			missing[name] = true
		}
	}
	again := false
	for name := range l.brake(len(inForce), missing, now) {
		goal[name], again = inForce[name], l.since.IsZero()
	}
	if again { // the brake has ended, and these were not missing for all of its time
		return l.compare(goal, answer, now)
	}
	return goal
}

// check returns the rows that count, by name, and records the others. Equal rows are one
// task. Rows of one name that differ are all bad.
func (l *list) check(answer []Task) map[string]Task {
	rows := make(map[string]Task, len(answer))
	l.bad = make(map[string]string)
	for _, t := range answer {
		t.Generation = 0
		why := t.problem()
		if was, ok := rows[t.Name]; ok && why == "" && !sameTask(was, t) {
			why = "rows of this name differ"
		}
		if why != "" {
			l.bad[t.Name] = why
		} else {
			rows[t.Name] = t
		}
	}
	for name := range l.bad {
		delete(rows, name)
	}
	return rows
}

// problem returns why a row cannot be a task, or "".
func (t *Task) problem() string {
	settings := t.settings()
	settings.Instances = max(t.Instances, 0)
	switch {
	case t.Name == "":
		return "it has no name"
	case len(t.Name) > maxText:
		return fmt.Sprintf("its name has %d bytes: at most %d", len(t.Name), maxText)
	case t.Instances < -1:
		return fmt.Sprintf("instances is %d: must be at least -1", t.Instances)
	}
	if err := settings.Check(); err != nil {
		return err.Error()
	}
	return ""
}

// settings returns the settings for the orchestrator.
func (t *Task) settings() orchestrator.TaskSettings {
	return orchestrator.TaskSettings{
		Instances: t.Instances, Handoff: t.Handoff, Requires: t.Requires, MaxPerZone: t.MaxPerZone, Weight: t.Weight,
	}
}

func sameTask(a, b Task) bool {
	return a.Input == b.Input && a.Generation == b.Generation && a.Instances == b.Instances && a.Handoff == b.Handoff &&
		slices.Equal(a.Requires, b.Requires) && a.MaxPerZone == b.MaxPerZone && a.Weight == b.Weight
}

// brake returns which of the missing tasks stay.
func (l *list) brake(inForce int, missing map[string]bool, now time.Time) map[string]bool {
	switch {
	case inForce < brakeFrom || 2*len(missing) <= inForce:
		l.lacking, l.since = nil, time.Time{}
		return nil
	case l.since.IsZero():
		l.lacking, l.since = maps.Clone(missing), now
	}
	maps.DeleteFunc(l.lacking, func(name string, _ bool) bool { return !missing[name] })
	if now.Sub(l.since) < brakeTime {
		return missing
	}
	maps.DeleteFunc(missing, func(name string, _ bool) bool { return l.lacking[name] })
	l.lacking, l.since = nil, time.Time{}
	return missing
}

// isDue reports whether the time of the brake has passed.
func (l *list) isDue(now time.Time) bool { return !l.since.IsZero() && now.Sub(l.since) >= brakeTime }

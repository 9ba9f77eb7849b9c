package wire

import (
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// The brake: an answer that lacks more than half of a list of brakeFrom tasks or more
// deletes each of them only when every answer of brakeTime has lacked it.
const (
	brakeFrom = 10
	brakeTime = time.Minute
)

// list compares the answers of a Source with the list in force. It makes no call.
type list struct {
	bad map[string]string // name → reason, of the last answer
	// lacking has the tasks that the brake keeps, and since when every answer lacks them.
	lacking map[string]time.Time
}

// compare returns the list in force after an answer. The Generation of a task stays.
func (l *list) compare(inForce map[string]Task, answer []Task, now time.Time) map[string]Task {
	goal, lacked := l.check(answer), l.lacking
	var missing []string
	for name, was := range inForce {
		t, ok := goal[name]
		switch {
		case ok:
			t.Generation = was.Generation
			goal[name] = t
		case l.bad[name] != "":
			goal[name] = was
		default:
			missing = append(missing, name)
		}
	}
	l.lacking = make(map[string]time.Time)
	if len(inForce) < brakeFrom || 2*len(missing) <= len(inForce) {
		return goal
	}
	for _, name := range missing {
		since, ok := lacked[name]
		if !ok {
			since = now
		}
		if now.Sub(since) < brakeTime {
			goal[name], l.lacking[name] = inForce[name], since
		}
	}
	return goal
}

// isDue reports whether the brake ends for a task.
func (l *list) isDue(now time.Time) bool {
	for _, since := range l.lacking {
		if now.Sub(since) >= brakeTime {
			return true
		}
	}
	return false
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

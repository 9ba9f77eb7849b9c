package model

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// transcript returns the way to the finding of a search, a line for each step.
func (c *config) transcript(r result) []string {
	var lines []string
	w := writer{config: c}
	m := moves{config: c}
	s := state{confirmed: 1}
	for _, want := range r.path[min(1, len(r.path)):] {
		for _, move := range m.steps(&s) {
			// The members keep their numbers here. Only the hash is of the sorted state.
			to := move.to
			c.reduce(&to)
			sorted := to
			c.sort(&sorted)
			if maphash.Comparable(r.seed, sorted) == want {
				lines = append(lines, fmt.Sprintf("%2d. %s", len(lines)+1, w.line(move.step, &s, &move.to)))
				s = to
				break
			}
		}
	}
	return append(lines, "    "+string(r.finding))
}

// writer writes steps as text. IDs are letters, and none is used twice.
type writer struct {
	*config
	names [maxMembers]string
	used  rune
}

// line returns the text of a step from one state to another.
func (w *writer) line(st step, from, to *state) string {
	k, i := 0, int(st.who)
	switch {
	case st.kind >= copied: // of the table
		i = 0
	case st.kind >= prepares: // of a leader
		k, i = i, int(st.arg)
	case from.members[i].phase == free:
		w.names[i] = "member " + string('A'+w.used)
		w.used++
	}
	x, y := &from.members[i], &to.members[i]
	answered := ", which is answered"
	if w.has(slowSyncs) {
		answered = ""
	}
	var orders, gone string
	for j := range w.ids {
		if b := to.members[j].intents[k].pending; b != from.members[j].intents[k].pending {
			orders += fmt.Sprintf(", order %s for %s", b.order, w.names[j])
		}
		if st.arg>>j&1 != 0 {
			gone += ", and " + w.names[j]
		}
	}
	r := w.present(x)
	text := strings.NewReplacer(
		"{m}", w.names[i], "{l}", fmt.Sprint("leader ", k+1), "{task}", string(taskNames[st.arg%maxTasks]), "{answered}", answered,
		"{report}", fmt.Sprintf("Applied %s, Also %s, Refused %s", versionText(r.applied), tasksText(r.also), tasksText(r.refused)),
		"{order}", x.order.String(), "{reading}", x.reading.String(), "{epoch}", fmt.Sprint(from.epoch),
		"{alive}", fmt.Sprint(y.alive()), "{recorded}", fmt.Sprint(y.has(recorded)),
		"{sent}", y.intents[k].newest.String(), "{batch}", orders,
		"{pending}", x.intents[k].pending.order.String(), "{late}", x.intents[k].late.order.String(),
		"{gone}", gone, "{server}", fmt.Sprint(to.server),
	).Replace(texts[st.kind])
	if x.accepted != y.accepted && y.alive() {
		text += ", and accepts " + y.accepted.String()
	}
	return text
}

const taskNames = "xy"

func tasksText(tasks uint8) string {
	var text strings.Builder
	for t, name := range taskNames {
		if tasks>>t&1 != 0 {
			text.WriteRune(name)
		}
	}
	return "{" + text.String() + "}"
}

// versionText returns epoch.batch.
func versionText(v uint8) string {
	if v == 0 {
		return "none"
	}
	return fmt.Sprintf("%d.%d", epochOf(v), v&0xf)
}

// String returns the version and the tasks to run: 1.2 {x}.
func (o order) String() string {
	if o.version == 0 {
		return "none"
	}
	return versionText(o.version) + " " + tasksText(o.tasks)
}

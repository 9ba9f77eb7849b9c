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
			// Members keep their numbers here: the hash alone is that of the sorted state.
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
	names [maxMembers]byte
	used  byte
}

// line returns the text of a step from one state to another.
func (w *writer) line(st step, from, to *state) string {
	switch st.kind {
	case prepares, claims, sendsOrder, sendsFirstBatch, batchWritten, lateBatch, batchFails, stopsLeading, readsRecords:
		return w.leaderLine(st, from, to)
	case copied:
		return "(the table may fall back to what it is now)"
	case tableLost:
		return w.lossLine(st, from)
	case tableConfirmed:
		return "Confirm takes effect"
	}
	i := int(st.who)
	if from.members[i].phase == free {
		w.names[i] = 'A' + w.used
		w.used++
	}
	name := "member " + w.name(i) + " "
	x, y := &from.members[i], &to.members[i]
	switch st.kind {
	case startsTask, stopsTask, refusesTask:
		verb := map[kind]string{startsTask: "starts ", stopsTask: "has stopped ", refusesTask: "refuses "}[st.kind]
		return name + verb + taskName(int(st.arg))
	case readsOrder, readsTable, actsOnReading:
		return name + w.readingLine(st, from, x, y)
	case ends:
		return name + "ends: all its tasks have stopped"
	case isRemoved:
		return "the record of " + name + "is removed"
	case isObserved:
		if x.alive() && !y.alive() || y.phase == lapsed {
			return name + "is dead by observation, and has stopped all its tasks"
		}
		return name + "is dead by observation"
	case isEvicted:
		return "the eviction of " + name + outcome(!y.has(recorded))
	default:
		return name + w.syncLine(st.kind, x)
	}
}

func (w *writer) syncLine(k kind, x *member) string {
	answer := ", which is answered"
	if w.has(slowSyncs) {
		answer = ""
	}
	r := w.present(x)
	switch k {
	case joins:
		return "joins and sends its first Sync" + answer
	case sendsReport:
		return fmt.Sprintf("sends a Sync: Applied %s, Also %s, Refused %s%s", versionText(r.applied), tasksText(r.also), tasksText(r.refused), answer)
	case sendsBare:
		return "sends a Sync without a report" + answer
	case syncAnswered:
		return "gets the answer of its Sync"
	case syncUnanswered:
		return "gets no answer to its Sync, which took effect"
	case syncLost:
		return "gets no answer to its Sync, which was lost"
	case syncGivenUp:
		return "gives up its Sync, which may arrive late"
	default:
		return "has a late Sync, which arrives"
	}
}

func (w *writer) readingLine(st step, from *state, x, y *member) string {
	var text string
	switch {
	case st.kind == readsTable:
		text = fmt.Sprintf("reads that the epoch is %d", from.epoch)
	case st.kind == actsOnReading:
		text = "gets the answer of an earlier reading: order " + x.reading.String()
	case st.arg == 1:
		return "reads, with an answer that comes late: order " + x.order.String()
	default:
		text = "reads its order " + x.order.String()
	}
	if x.accepted != y.accepted {
		return text + ", and accepts " + y.accepted.String()
	}
	return text
}

func (w *writer) leaderLine(st step, from, to *state) string {
	k, i := int(st.who), int(st.arg)
	name := fmt.Sprintf("leader %d ", k+1)
	intentOf := func(s *state) *intent { return &s.members[i].intents[k] }
	switch st.kind {
	case prepares:
		return name + "reads the table, and has not claimed it"
	case claims:
		return name + "claims the table"
	case stopsLeading:
		return name + "stops leading"
	case readsRecords:
		return name + "reads one kind of records"
	case sendsFirstBatch:
		list := "sends its first batch:"
		for j := range w.ids {
			if b := to.members[j].intents[k].pending; b != from.members[j].intents[k].pending {
				list += fmt.Sprintf(" order %s for member %s,", b.order, w.name(j))
			}
		}
		return name + strings.TrimRight(list, ":,")
	case sendsOrder:
		return fmt.Sprintf("%ssends order %s for member %s", name, intentOf(to).newest, w.name(i))
	case batchWritten:
		return fmt.Sprintf("order %s for member %s takes effect", intentOf(from).pending.order, w.name(i))
	case lateBatch:
		return fmt.Sprintf("a late copy of order %s for member %s takes effect", intentOf(from).late.order, w.name(i))
	default:
		return fmt.Sprintf("order %s for member %s fails", intentOf(from).pending.order, w.name(i))
	}
}

func (w *writer) lossLine(st step, from *state) string {
	text := "the table falls back to the saved copy"
	if w.store == piecewise {
		text = "the table's record is lost"
	}
	for i := range w.ids {
		if st.arg>>i&1 != 0 {
			text += ", without member " + w.name(i)
		}
	}
	return fmt.Sprintf("%s: Server %d", text, from.server+1)
}

func (w *writer) name(i int) string { return string(w.names[i]) }

func outcome(ok bool) string {
	if ok {
		return "takes effect"
	}
	return "fails"
}

func taskName(t int) string { return string(rune('x' + t)) }

func tasksText(tasks uint8) string {
	var names []string
	for t := range maxTasks {
		if tasks>>t&1 != 0 {
			names = append(names, taskName(t))
		}
	}
	return "{" + strings.Join(names, " ") + "}"
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

package dashboard

// What the templates call: numbers, times and sentences.

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// pageFuncs returns the functions of the templates.
func pageFuncs() template.FuncMap {
	return template.FuncMap{
		"ago": agoOf, "because": reasonOf, "changes": changesOf, "clock": utc, "condition": conditionOf, "count": grouped, "decimal": decimal,
		"fell": fell, "held": api.HeldText,
		"isLink": isLink, "item": itemOf, "linked": linked, "list": listOf, "merge": mergeQuery, "minus": minus, "name": nameOf,
		"names": namesOf, "percent": percent, "placed": isPlaced, "placement": placementOf, "plural": plural, "urgency": urgency, "stamp": stamp, "states": statesOf,
		"refused": refused, "remarks": remarksOf, "remarksBesides": remarksBesides, "repeats": repeats, "rules": rulesOf, "sum": sum, "tries": triesOf, "text": textOf, "took": took, "unlimited": unlimited, "waits": waits,
		"assumed": assumedOf, "waitingKinds": waitingKinds, "workerStates": workerStates, "workerOrders": workerOrders,

		"bars": barsOf, "calls": callsOf, "cells": cellsOf, "difference": differenceOf, "figures": figuresOf,
		"histogram": histogramOf, "load": loadOf, "timeline": timelineOf,
	}
}

// The choices of the forms.
func workerStates() []string {
	return []string{"answering", "silent", "lost", "late", "draining", "quarantined", "stuck"}
}
func workerOrders() []string { return []string{"name", "tasks"} }
func waitingKinds() []orchestrator.WaitingKind {
	return []orchestrator.WaitingKind{"any", "missing", orchestrator.WaitingUnplaced, orchestrator.WaitingFailing, orchestrator.WaitingHeld, orchestrator.WaitingStaying}
}

// grouped returns a whole number with separators between the thousands.
func grouped(n any) string {
	digits := fmt.Sprint(n)
	start := 3
	if strings.HasPrefix(digits, "-") {
		start++
	}
	for i := len(digits) - 3; i > start-3; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// plural returns a number with its noun: "1 task", "2 tasks".
func plural(n int, noun string) string { return count(n, noun, noun+"s") }

// textOf returns a name or an error as text that is safe to show.
func textOf(v any) string {
	if text := printable(fmt.Sprint(v)); text != "" {
		return text
	}
	return `""`
}

// took returns a duration with two or three digits.
func took(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + took(-d)
	case d < time.Millisecond:
		return short(d, time.Microsecond) + " µs"
	case d < time.Second:
		return short(d, time.Millisecond) + " ms"
	case d < time.Minute:
		return short(d, time.Second) + " s"
	case d < time.Hour:
		return two(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return two(d, time.Hour, "h", time.Minute, "min")
	}
	return two(d, 24*time.Hour, "d", time.Hour, "h")
}

// short returns a duration in a unit, with a decimal if it is below ten.
func short(d, unit time.Duration) string {
	n := float64(d) / float64(unit)
	if n < 9.95 && d%unit != 0 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(math.Floor(n), 'f', 0, 64)
}

// two returns a duration in two units.
func two(d, unit time.Duration, name string, lower time.Duration, lowerName string) string {
	text := fmt.Sprintf("%d %s", d/unit, name)
	if rest := d % unit / lower; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, lowerName)
	}
	return text
}

// stamp returns a time for the attribute datetime, and utc one for readers.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
func utc(t time.Time) string   { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }

// age is a time in the past. The script keeps its text current.
type age struct {
	Time time.Time
	Ago  string
}

func agoOf(t, now time.Time) age {
	a := age{t, "just now"}
	switch d := now.Sub(t); {
	case d >= 48*time.Hour:
		a.Ago = fmt.Sprintf("%d d ago", d/(24*time.Hour))
	case d >= 2*time.Hour:
		a.Ago = fmt.Sprintf("%d h ago", d/time.Hour)
	case d >= 2*time.Minute:
		a.Ago = fmt.Sprintf("%d min ago", d/time.Minute)
	case d >= time.Second:
		a.Ago = fmt.Sprintf("%d s ago", d/time.Second)
	}
	return a
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }
func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', -1, 64) + " %" }
func minus(a, b int) int       { return a - b }

// triesOf returns the counters of a problem.
func triesOf(p api.Problem, now time.Time) string { return api.TriesText(&p, now) }

// sum returns how many changes there are of all kinds.
func sum(changes map[orchestrator.ChangeKind]int) int {
	n := 0
	for _, of := range changes {
		n += of
	}
	return n
}

// refused returns how many calls failed for a reason that has no column.
func refused(c callRow) int { return c.Deposed + c.Failed }

// unlimited reports whether a grace period never ends.
func unlimited(d time.Duration) bool { return d == orchestrator.HoldUntilRemoved }

// isLink reports whether an address can be opened in a browser.
func isLink(address string) bool {
	return strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://")
}

// nameOf returns a text as a name.
func nameOf(name string) api.Name { return api.Name{Name: name} }

func listOf(w api.Waiting) []api.Waiting { return []api.Waiting{w} }

// nameList is the first names of a list, and the number of the others.
type nameList struct {
	Names []api.Name
	More  int
}

func namesOf(names []api.Name, total int) nameList {
	return nameList{names, max(total-len(names), 0)}
}

// changeTable is a table of changes. Terms reports whether they are of several terms. More of
// Total changes are not in the rows.
type changeTable struct {
	Caption     string
	Rows        []api.RepeatedChange
	Total, More int
	Now         time.Time
	Terms       bool
}

// repeats makes rows of the changes of one term.
func repeats(changes []api.Change) []api.RepeatedChange {
	rows := make([]api.RepeatedChange, len(changes))
	for i, c := range changes {
		rows[i] = api.RepeatedChange{Change: c, Times: 1}
	}
	return rows
}

func changesOf(caption string, rows []api.RepeatedChange, total int, now time.Time, terms bool) changeTable {
	more := total
	for i := range rows {
		more -= rows[i].Times
	}
	return changeTable{caption, rows, total, max(more, 0), now, terms}
}

// conditionOf returns the words for a worker's condition in a term, as statesOf does.
func conditionOf(c *history.Condition) []string {
	return statesOf(api.Worker{State: c.State, Draining: c.Draining, Quarantined: c.Quarantined})
}

// remarks is what there is to say of a term. Bad reports whether the term did not end as it
// should.
type remarks struct {
	Text string
	Bad  bool
}

func remarksOf(row api.TermRow) remarks {
	var parts []string
	s := &row.Stats
	if s.Cut {
		parts = append(parts, "ended early")
	}
	if s.MassLoss {
		parts = append(parts, "too many workers silent to declare any lost")
	}
	if s.Err != nil {
		parts = append(parts, shorten(strings.TrimPrefix(textOf(s.Err), fmt.Sprintf("term %d: ", s.Term.Number)), 120))
	}
	bad := len(parts) > 0
	if s.EvictionsHeld > 0 {
		parts = append(parts, plural(s.EvictionsHeld, "eviction")+" held, because changed labels would evict too many")
	}
	if s.Deferred > 0 {
		parts = append(parts, plural(s.Deferred, "move")+" deferred")
	}
	if s.MovesHeld > 0 {
		parts = append(parts, api.HeldText(s.MovesHeld, row.Holds))
	}
	if row.Quiet > 0 {
		parts = append(parts, "then "+plural(row.Quiet, "quiet term"))
	}
	return remarks{strings.Join(parts, ", "), bad}
}

// remarksBesides returns the remarks without the failures of the term.
func remarksBesides(row api.TermRow) remarks {
	row.Stats.Err = nil
	return remarksOf(row)
}

// item is an entry of the menu.
type item struct {
	Root, Path, Text string
	Current, Here    bool
}

func itemOf(f *frame, path, text string) item {
	return item{f.Root(), path, text, f.Section() == path, f.Path == path}
}

// mergeQuery returns the relative link to a page with a parameter added to the query.
func mergeQuery(path string, query url.Values, key, value string) string {
	merged := maps.Clone(query)
	merged.Set(key, value)
	return path + "?" + merged.Encode()
}

// statesOf returns the words for a worker's state, the most important first.
func statesOf(w api.Worker) []string {
	words := make([]string, 0, 4)
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	late := w.Late && w.State == orchestrator.Answering
	add(!late, w.State.String())
	add(late, "late")
	add(w.Stuck, "stuck")
	add(w.Quarantined, "quarantined")
	add(w.Draining, "draining")
	return words
}

// tone returns the state that gives a worker its colour and form in a plot.
func tone(w api.Worker) string {
	switch {
	case w.State != orchestrator.Answering:
		return w.State.String()
	case w.Quarantined:
		return "quarantined"
	case w.Draining:
		return "draining"
	case w.Late:
		return "late"
	}
	return "answering"
}

// fell returns what follows from the falls of a worker.
func fell(p *api.Pause) string { return api.FellText(errText(p.Err), p.Ends) }

// reasonOf returns why a worker has a task or not, as a sentence without its end. changes are
// the last ones of the task, the newest first: if the worker keeps the task, one of them may
// have brought it.
func reasonOf(r api.WorkerReason, changes []api.RepeatedChange) string {
	text := cmp.Or(whyNotHere[r.Reason], string(r.Reason))
	if r.Has {
		text = cmp.Or(whyHere[r.Reason], string(r.Reason))
	}
	if r.Label != "" {
		text = lacks(r.Label)
	}
	if broughtBy := r.Reason == orchestrator.ReasonStays || evictions[r.Reason] != ""; r.Has && broughtBy {
		for i := range changes {
			if c := &changes[i].Change; c.Kind.Op != orchestrator.Stop && c.To == r.Worker.Name && c.Outcome == orchestrator.OutcomeDone {
				text = cmp.Or(evictions[c.Kind.Reason], whyHere[c.Kind.Reason], string(c.Kind.Reason)) + " in term " + grouped(changes[i].Term.Number)
				break
			}
		}
	}
	if r.Until > 0 {
		text += "; tried again in term " + grouped(r.Until)
	}
	if !r.Ends.IsZero() {
		text = "the worker " + api.FellText(r.Failure, r.Ends)
	}
	return text
}

// The reasons as sentences without their ends: why a worker has a task, why it does not, and
// why instances wait.
var (
	whyHere = map[orchestrator.Reason]string{
		orchestrator.ReasonStays:         "it ran here before, and nothing moves it",
		orchestrator.ReasonObserved:      "it runs here, and the leader knows why",
		orchestrator.ReasonMissing:       "started here, because no worker ran it",
		orchestrator.ReasonLost:          "started here, because its worker was lost",
		orchestrator.ReasonVanished:      "started here, because it vanished from its worker",
		orchestrator.ReasonRebalance:     "moved here for an even spread",
		orchestrator.ReasonDrain:         "moved here from a draining worker",
		orchestrator.ReasonRoom:          "moved here, because it makes room for another one",
		orchestrator.ReasonHeld:          "the worker does not answer, and may still run it",
		orchestrator.ReasonUnexpected:    "it is not expected, and its stop has not ended",
		orchestrator.ReasonSurplus:       "it is one too many, and its stop has not ended",
		orchestrator.ReasonNoWorker:      "the worker drains, and no worker is open to new tasks",
		orchestrator.ReasonNoOtherWorker: "the worker drains, and every other worker that could take it runs one already",
		orchestrator.ReasonPaused:        "the worker drains, and the task pauses: its stop failed here, or its start elsewhere",
		orchestrator.ReasonPinned:        "the worker drains, and has pinned the task",
		orchestrator.ReasonNoPlace:       "the worker drains, and labels, zones or limits leave no other place",
		orchestrator.ReasonRequires:      "the worker does not have the labels that it requires, and it has no other place",
		orchestrator.ReasonZone:          "the zone has more instances than it may have, and there is no other place",
		orchestrator.ReasonLimit:         "the worker has more tasks than its limit, and there is no other place",
		orchestrator.ReasonEvictionHeld:  "the worker does not have the labels that it requires; evictions wait, because changed labels would evict too many",
	}
	// evictions says where an instance came from that a rule has moved.
	evictions = map[orchestrator.Reason]string{
		orchestrator.ReasonRequires: "moved here from a worker without the labels that it requires",
		orchestrator.ReasonZone:     "moved here from a zone with too many instances",
		orchestrator.ReasonLimit:    "moved here from a worker with more tasks than its limit",
	}
	whyNotHere = map[orchestrator.Reason]string{
		orchestrator.ReasonLost:          "the worker is lost",
		orchestrator.ReasonSilent:        "the worker is silent, and is not known to run it",
		orchestrator.ReasonNeverAnswered: "a worker has not answered since this leader started, and may run it",
		orchestrator.ReasonInitialWait:   "the leader waits for workers to register, and one of them may run it",
		orchestrator.ReasonDrain:         "the worker drains, and takes no tasks",
		orchestrator.ReasonQuarantined:   "the worker is quarantined: it failed to start tasks",
		orchestrator.ReasonPaused:        "starts pause, because the last ones failed",
		orchestrator.ReasonLate:          "the worker answered too late for the term",
		orchestrator.ReasonEnough:        "other workers run as many as are wanted",
		orchestrator.ReasonUnexpected:    "the task is not expected",
		orchestrator.ReasonSurplus:       "stopped here, because it was one too many",
		orchestrator.ReasonRebalance:     "moved away for an even spread",
		orchestrator.ReasonRoom:          "moved away, because it makes room for another one",
		orchestrator.ReasonFailed:        "the start failed",
		orchestrator.ReasonSkipped:       "the term ended before it could start it",
		orchestrator.ReasonNoWorker:      "no worker is open to new tasks",
		orchestrator.ReasonNoOtherWorker: "the worker cannot take it, and every other one runs one already",
		orchestrator.ReasonRequires:      "the worker does not have the labels that it requires",
		orchestrator.ReasonZone:          "the zone has as many instances as it may have",
		orchestrator.ReasonLimit:         "the worker has as many tasks as its limit",
		orchestrator.ReasonNoPlace:       "labels, zones or limits leave no place",
		orchestrator.ReasonObserved:      "the leader starts it somewhere, or has the reason why not",
	}
	whyWaiting = map[orchestrator.Reason]string{
		orchestrator.ReasonHeld:          "may run on a worker that does not answer",
		orchestrator.ReasonNeverAnswered: "a worker that has not answered since this leader started may run it",
		orchestrator.ReasonInitialWait:   "the leader waits for workers to register, and one of them may run it",
		orchestrator.ReasonNoWorker:      "no worker is open to new tasks",
		orchestrator.ReasonNoOtherWorker: "every worker that could take one already runs the task",
		orchestrator.ReasonPaused:        "the workers that could take it failed to start it, or its stop failed",
		orchestrator.ReasonPinned:        "pinned by a draining worker",
		orchestrator.ReasonSkipped:       "the term ended before the start",
		orchestrator.ReasonFailed:        "the start failed",
		orchestrator.ReasonObserved:      "the leader starts it, or has the reason why not",
		orchestrator.ReasonNoPlace:       "labels, zones or limits leave no place",
		orchestrator.ReasonRequires:      "its worker does not have the labels that it requires, and it has no other place",
		orchestrator.ReasonZone:          "its zone has more than it may have, and it has no other place",
		orchestrator.ReasonLimit:         "its worker has more tasks than its limit, and it has no other place",
		orchestrator.ReasonEvictionHeld:  "its worker does not have the labels that it requires; evictions wait, because changed labels would evict too many",
	}
)

// lacks returns that a worker does not fulfil a label as a task requires it.
func lacks(label string) string {
	if label, not := strings.CutPrefix(label, "!"); not {
		return "the worker has the label " + quote(label)
	}
	return "the worker does not have the label " + quote(label)
}

// waits returns why instances wait.
func waits(w api.Waiting) string {
	text := cmp.Or(whyWaiting[w.Reason], string(w.Reason))
	if w.Causes != nil {
		text += ": " + textOf(w.Causes)
	}
	return text
}

// placementOf returns the settings and the weight of a worker as a list: "zone east, gpu, at
// most 9 tasks, weighs 40 of 27".
func placementOf(w api.Worker) string {
	var parts []string
	s := w.Settings
	if s.Zone != "" {
		parts = append(parts, "zone "+s.Zone)
	}
	parts = append(parts, s.Labels...)
	if s.Share > 1 {
		parts = append(parts, "share "+grouped(s.Share))
	}
	if s.MaxTasks > 0 {
		parts = append(parts, "at most "+plural(s.MaxTasks, "task"))
	}
	if w.Weight > 0 || w.Level > 0 {
		parts = append(parts, "weighs "+grouped(w.Weight)+" of "+grouped(w.Level))
	}
	return strings.Join(parts, ", ")
}

// isPlaced reports whether there is something to say of the placement of some worker.
func isPlaced(workers []api.Worker) bool {
	return slices.ContainsFunc(workers, func(w api.Worker) bool { return placementOf(w) != "" })
}

// rulesOf returns the rules of a task as sentences.
func rulesOf(t api.Task) string {
	var has, not, parts []string
	for _, label := range t.Requires {
		if label, without := strings.CutPrefix(label, "!"); without {
			not = append(not, quote(label))
		} else {
			has = append(has, quote(label))
		}
	}
	if len(has) > 0 {
		parts = append(parts, "Its workers must have "+strings.Join(has, ", ")+".")
	}
	if len(not) > 0 {
		parts = append(parts, "Its workers must not have "+strings.Join(not, ", ")+".")
	}
	switch {
	case t.MaxPerZone > 0:
		parts = append(parts, "At most "+plural(t.MaxPerZone, "instance")+" may run in one zone.")
	case t.MaxPerZone < 0:
		parts = append(parts, "Its instances are not spread over zones.")
	}
	if t.Weight > 0 {
		parts = append(parts, "Each instance weighs "+grouped(t.Weight)+".")
	}
	return strings.Join(parts, " ")
}

// urgency returns how a problem is shown.
func urgency(kind api.ProblemKind) string {
	switch kind {
	case api.ProblemMassLoss, api.ProblemNoTerms, api.ProblemCut, api.ProblemLost, api.ProblemUnplaced, api.ProblemFailing:
		return "bad"
	}
	return "warn"
}

// assumption is a part of the what-if form: the workers to which something is assumed to
// happen.
type assumption struct {
	Param, Legend string
	Names         []string
}

func assumedOf(param, legend string, query url.Values) assumption {
	return assumption{param, legend, slices.DeleteFunc(slices.Clone(query[param]), func(name string) bool { return name == "" })}
}

// textPart is a piece of a text: plain, or a link to a worker or a task.
type textPart struct {
	Text         string
	Worker, Task *api.Name
}

// linkedText is a text with links in it, and the names that it concerns unless the text has
// all of them.
type linkedText struct {
	Parts          []textPart
	Workers, Tasks nameList
}

// linked makes links of the names in the text of a problem.
func linked(p api.Problem) linkedText {
	l := linkedText{Parts: []textPart{{Text: p.Text}}}
	link := func(names []api.Name, total int, part func(*api.Name) textPart) (missing nameList) {
		found := 0
		for i := range names {
			if l.replace(names[i].Name, part(&names[i])) {
				found++
			}
		}
		if found == total {
			return nameList{}
		}
		return namesOf(names, total)
	}
	l.Workers = link(p.Workers, p.WorkersTotal, func(n *api.Name) textPart { return textPart{Worker: n} })
	l.Tasks = link(p.Tasks, p.TasksTotal, func(n *api.Name) textPart { return textPart{Task: n} })
	return l
}

// replace puts a link in the place of the first occurrence of a name as a whole word. It
// returns false if the name does not occur.
func (l *linkedText) replace(name string, link textPart) bool {
	if name == "" {
		return false
	}
	for i, p := range l.Parts {
		for from := 0; ; {
			at := strings.Index(p.Text[from:], name)
			if at < 0 {
				break
			}
			before, after := p.Text[:from+at], p.Text[from+at+len(name):]
			if isBoundary(utf8.DecodeLastRuneInString(before)) && isBoundary(utf8.DecodeRuneInString(after)) {
				l.Parts = slices.Replace(l.Parts, i, i+1, textPart{Text: before}, link, textPart{Text: after})
				return true
			}
			from += at + len(name)
		}
	}
	return false
}

// isBoundary reports whether a character beside a name is not part of the name.
func isBoundary(r rune, size int) bool {
	return size == 0 || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_'
}

package dashboard

// What the templates call: numbers, times and sentences.

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// sentenceFuncs returns the functions of all templates.
func sentenceFuncs(w words) template.FuncMap {
	return template.FuncMap{
		"ago": agoOf, "at": api.Clock, "because": w.reasonOf, "clock": utc, "condition": conditionOf, "contains": strings.Contains,
		"count": grouped, "decimal": decimal, "dict": dict, "earlier": earlier, "fell": w.fell, "fields": strings.Fields, "held": w.held, "isLink": isLink,
		"join": strings.Join, "linked": linked, "merge": mergeQuery, "minus": minus, "names": namesOf,
		"percent": percent, "pick": pick, "placed": w.isPlaced, "plural": plural, "plus": plus, "repeats": repeats,
		"sameDay": clock, "say": w.say, "shorten": shorten, "stamp": stamp, "states": statesOf, "sum": sum, "stack": stack, "tally": count, "text": textOf,
		"took": took, "tries": w.triesOf, "trim": strings.TrimPrefix, "unlimited": unlimited, "urgency": urgency, "word": w.word,

		"bars": barsOf, "calls": callsOf, "cells": cellsOf, "difference": differenceOf,
		"histogram": histogramOf, "load": loadOf, "timeline": timelineOf,
	}
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
	for _, u := range []struct {
		least, unit time.Duration
		name        string
	}{{48 * time.Hour, 24 * time.Hour, "d"}, {2 * time.Hour, time.Hour, "h"}, {2 * time.Minute, time.Minute, "min"}, {time.Second, time.Second, "s"}} {
		if d := now.Sub(t); d >= u.least {
			return age{t, fmt.Sprintf("%d %s ago", d/u.unit, u.name)}
		}
	}
	return age{t, "just now"}
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }
func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', -1, 64) + " %" }
func minus(a, b int) int       { return a - b }
func plus(a, b int) int        { return a + b }

// dict returns a map of keys and their values.
func dict(pairs ...any) map[string]any {
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m
}

// triesOf returns the counters of a problem: "19 starts refused, by 9 workers; next try in 3 s". It is empty
// without tries.
func (w words) triesOf(p api.Problem, now time.Time) string {
	return w.say("tries", struct {
		api.Problem
		Refused bool
		Wait    int
	}{
		p, strings.Contains(p.Text, ": "+orchestrator.ErrRejected.Error()),
		max(0, int(math.Ceil(p.NextTry.Sub(now).Seconds()))),
	}, "; ")
}

// sum returns how many changes there are of all kinds.
func sum(changes map[orchestrator.ChangeKind]int) int {
	n := 0
	for _, of := range changes {
		n += of
	}
	return n
}

// unlimited reports whether a grace period never ends.
func unlimited(d time.Duration) bool { return d == orchestrator.HoldUntilRemoved }

// isLink reports whether an address can be opened in a browser.
func isLink(address string) bool {
	return strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://")
}

// nameList is the first names of a list, and the number of the others.
type nameList struct {
	Names []api.Name
	More  int
}

func namesOf(names []api.Name, total int) nameList {
	return nameList{names, max(total-len(names), 0)}
}

// repeats makes rows of the changes of one term.
func repeats(changes []api.Change) []api.RepeatedChange {
	rows := make([]api.RepeatedChange, len(changes))
	for i, c := range changes {
		rows[i] = api.RepeatedChange{Change: c, Times: 1}
	}
	return rows
}

// earlier returns how many of so many changes are not in the rows.
func earlier(rows []api.RepeatedChange, total int) int {
	for i := range rows {
		total -= rows[i].Times
	}
	return max(total, 0)
}

// conditionOf returns the words for a worker's condition in a term, as statesOf does.
func conditionOf(c *history.Condition) []string {
	return statesOf(api.Worker{State: c.State, Draining: c.Draining, Quarantined: c.Quarantined})
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

// fell returns what follows from the falls of a worker, and until when.
func (w words) fell(falls any, ends time.Time) string {
	return w.say("fell", dict("Falls", falls, "Ends", ends), "; ")
}

// held returns how many moves for an even spread wait, and for the first holds why and until when, without a
// full stop. It is empty without moves and holds.
func (w words) held(moves int, holds []orchestrator.Hold) string {
	return w.say("held", dict("Moves", moves, "Holds", holds), "")
}

// reasonOf returns why a worker has a task or not, as a sentence without its end. changes are
// the last ones of the task, the newest first: if the worker keeps the task, one of them may
// have brought it.
func (w words) reasonOf(r api.WorkerReason, changes []api.RepeatedChange) string {
	i := slices.IndexFunc(changes, func(c api.RepeatedChange) bool {
		return c.Change.Kind.Op != orchestrator.Stop && c.Change.To == r.Worker.Name && c.Change.Outcome == orchestrator.OutcomeDone
	})
	return w.say("because", dict("R", r, "By", changes[max(i, 0):max(i+1, 0)]), "")
}

// isPlaced reports whether there is something to say of the placement of some worker.
func (w words) isPlaced(workers []api.Worker) bool {
	return slices.ContainsFunc(workers, func(of api.Worker) bool { return w.say("placement", of, "") != "" })
}

// urgency returns how a problem is shown.
func urgency(kind api.ProblemKind) string {
	if slices.Contains(severity[:6], kind) {
		return "bad"
	}
	return "warn"
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
	word, err := regexp.Compile(`(?:^|[^\pL\p{Nd}_-])(` + regexp.QuoteMeta(name) + `)(?:$|[^\pL\p{Nd}_-])`)
	for i, p := range l.Parts {
		if at := word.FindStringSubmatchIndex(p.Text); err == nil && name != "" && at != nil {
			l.Parts = slices.Replace(l.Parts, i, i+1, textPart{Text: p.Text[:at[2]]}, link, textPart{Text: p.Text[at[3]:]})
			return true
		}
	}
	return false
}

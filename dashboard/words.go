package dashboard

// The sentences of pages, API and command, from web/words.txt.

import (
	"strings"
	"text/template"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// words is the sentences of web/words.txt.
type words struct{ *template.Template }

func newWords() (words, error) {
	w := words{template.New("")}
	_, err := w.Funcs(sentenceFuncs(w)).ParseFS(web, "web/words.txt")
	return w, err
}

// say returns the lines of a sentence that are not empty, with sep between them. It returns "" if there is
// no such sentence.
func (w words) say(name string, data any, sep string) string {
	var b strings.Builder
	if one := w.Lookup(name); one == nil {
		return ""
	} else if err := one.Execute(&b, data); err != nil {
		return err.Error()
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, sep)
}

// word returns the words of a kind for a reason, or "".
func (w words) word(kind string, r orchestrator.Reason) string {
	return w.say(kind+" "+string(r), nil, "")
}

// problem returns a cause as a problem.
func (c *causes) problem(from *cause) api.Problem {
	p := api.Problem{
		Kind: from.kind, WorkersTotal: len(from.workers), TasksTotal: len(from.tasks), Instances: from.instances, Since: from.since,
		Tried: from.tried, Tries: from.tries, TriedBy: from.triedBy,
	}
	if p.Tried == "" && (from.tries > 0 || from.until > 0) {
		p.Tried = "starts"
	}
	if p.Tried == "starts" || p.Tried == "stops" {
		p.NextTry = c.timeOf(max(from.until, c.stats.Term.Number+1))
	}
	switch from.kind {
	case api.ProblemLost, api.ProblemDeferred, api.ProblemDuplicate, api.ProblemUnexpected:
		p.Instances = 0 // it counts something else
	}
	for i := range c.table.rows {
		if from.workers[i] {
			if p.Workers = append(p.Workers, c.table.rows[i].Name); len(p.Workers) == min(mostNames, len(from.workers)) {
				break
			}
		}
	}
	for _, task := range from.someTasks {
		p.Tasks = append(p.Tasks, api.Name{Name: task})
	}
	p.Text = c.text(from, &p)
	return p
}

// text returns the sentences of a problem.
func (c *causes) text(from *cause, p *api.Problem) string {
	say := struct {
		api.Problem
		Workers, Tasks, State, Since, Until, Err, Rules, Band string
		Instances, Moves, All                                 int // all workers
		Later, Others                                         bool
		Reason                                                orchestrator.Reason
	}{
		Problem: *p, Workers: subject(p.Workers, p.WorkersTotal, "worker"), Tasks: subject(p.Tasks, p.TasksTotal, "task"), State: string(p.Kind),
		Err: shorten(from.err, 160), Rules: from.rules,
		Band: percent(c.lead.Config().Band), Instances: from.instances, Moves: from.moves, All: len(c.table.rows),
		Later: from.later, Others: from.others, Reason: from.reason,
	}
	if from.tried == "stops" && strings.HasPrefix(say.Err, orchestrator.ErrStopping.Error()) {
		say.Err = "" // it says the same
	}
	switch p.Kind {
	case api.ProblemMassLoss:
		say.State = orchestrator.Silent.String()
	case api.ProblemBand:
		say.State = pick(p.WorkersTotal, "out of its band", "out of their bands")
	}
	if !from.since.IsZero() {
		say.Since = clock(from.since, c.stats.Start)
	}
	if until := c.stats.InitialWait; !until.IsZero() {
		say.Until = clock(until, c.stats.Start)
	}
	return c.h.words.say("problem "+string(p.Kind), say, " ")
}

// causesText returns why labels, zones and limits leave no place; "" without such causes.
func causesText(w *orchestrator.Waiting[string, string]) string {
	if w.Causes == nil {
		return ""
	}
	return printable(w.Causes.String())
}

// subject returns the name of the only one, or the number.
func subject(names []api.Name, total int, noun string) string {
	if total == 1 && len(names) == 1 {
		return shorten(names[0].Name, 80)
	}
	return count(total, noun, noun+"s")
}

// count returns a number with its noun.
func count(n int, one, many string) string { return grouped(n) + " " + pick(n, one, many) }

// pick returns the form of a word for a number.
func pick(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// shorten cuts a text to a number of characters.
func shorten(s string, most int) string {
	n := 0
	for i := range s {
		if n++; n > most {
			return s[:i] + "…"
		}
	}
	return s
}

// clock returns a time of the day, with the date if it is not that of now.
func clock(t, now time.Time) string {
	return strings.TrimPrefix(api.Clock(t), now.UTC().Format(time.DateOnly+" "))
}

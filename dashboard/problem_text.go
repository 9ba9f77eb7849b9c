package dashboard

// The sentences of the problems.

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// problem returns a cause as a problem.
func (c *causes) problem(from *cause) api.Problem {
	p := api.Problem{
		Kind: from.kind, WorkersTotal: len(from.workers), TasksTotal: len(from.tasks), Instances: from.instances, Since: from.since,
		Tries: from.tries, TriedBy: from.triedBy,
	}
	if from.until > 0 || from.tries > 0 {
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
	workers, tasks := subject(p.Workers, p.WorkersTotal, "worker"), subject(p.Tasks, p.TasksTotal, "task")
	n := p.WorkersTotal
	are, have, its := pick(n, "is", "are"), pick(n, "has", "have"), pick(n, "Its", "Their")
	state := func(word string) string {
		if from.since.IsZero() {
			return workers + " " + are + " " + word
		}
		first := ""
		if from.later {
			first = ", the first"
		}
		return workers + " " + have + " been " + word + first + " since " + clock(from.since, c.stats.Start)
	}
	why := from.why()
	holds := ""
	if from.instances > 0 {
		holds = fmt.Sprintf(" %s %s held.", its, count(from.instances, "instance is", "instances are"))
	}
	switch p.Kind {
	case api.ProblemMassLoss:
		return fmt.Sprintf("%s%s. The network of this leader may have failed, so no worker is declared lost for now.%s",
			state("silent"), why, holds)
	case api.ProblemCut:
		return "The last term ended early" + why + "."
	case api.ProblemLost:
		if from.instances > 0 {
			holds = fmt.Sprintf(" Other workers take %s %s.", strings.ToLower(its), count(from.instances, "task", "tasks"))
		}
		return fmt.Sprintf("%s%s.%s", state("lost"), why, holds)
	case api.ProblemUnplaced:
		return c.unplaced(from, workers, tasks)
	case api.ProblemFailing:
		if from.runs {
			return fmt.Sprintf("%s %s again and again on %s%s.", tasks, pick(p.TasksTotal, "fails", "fail"), workers, why)
		}
		return failing(from, p, tasks, workers, why)
	case api.ProblemSilent:
		return fmt.Sprintf("%s%s.%s", state("silent"), why, holds)
	case api.ProblemStuck:
		return fmt.Sprintf("%s: a call has not returned, so no other is made.%s", state("stuck"), holds)
	case api.ProblemLate:
		return fmt.Sprintf("%s %s late: %s has not answered since %s.%s", workers, are, pick(n, "it", "the first"), clock(from.since, c.stats.Start), holds)
	case api.ProblemQuarantined:
		return fmt.Sprintf("%s %s quarantined, because starts failed%s.", workers, are, why)
	case api.ProblemStaying:
		if from.reason == "" {
			return fmt.Sprintf("%s cannot be emptied: %s %s not stop%s.", workers, tasks, pick(p.TasksTotal, "does", "do"), why)
		}
		if text := breaks[from.reason]; text != "" {
			stay := pick(from.instances, "stays", "stay")
			return fmt.Sprintf("%s of %s %s on %s, %s: %s.", count(from.instances, "instance", "instances"), tasks, stay, workers, text, cmp.Or(from.rules, whyHeld))
		}
		return fmt.Sprintf("%s cannot be emptied. %s of %s %s there: %s.",
			workers, count(from.instances, "instance", "instances"), tasks, pick(from.instances, "stays", "stay"), cmp.Or(from.rules, whyWaiting[from.reason], string(from.reason)))
	case api.ProblemDeferred:
		if from.err == "" {
			return fmt.Sprintf("%s: this leader may move none (WithMaxMoves).", count(from.instances, "move waits", "moves wait"))
		}
		return fmt.Sprintf("All moves pause, because one left its task stopped%s. %s.",
			why, count(from.instances, "move waits", "moves wait"))
	case api.ProblemDuplicate:
		return fmt.Sprintf("Workers list a task more than once, %s in this term.", count(from.instances, "time", "times"))
	case api.ProblemUnexpected:
		return fmt.Sprintf("%s should stop on %s and cannot%s.", tasks, workers, why)
	}
	return ""
}

// unplaced returns the sentence for instances that no start was tried for.
func (c *causes) unplaced(from *cause, workers, tasks string) string {
	what, has := count(from.instances, "instance", "instances")+" of "+tasks, pick(from.instances, "has", "have")
	switch from.reason {
	case orchestrator.ReasonNeverAnswered:
		return fmt.Sprintf("%s %s no place yet: %s may run on %s, which has not answered since this leader started.",
			what, has, pick(from.instances, "it", "they"), workers)
	case orchestrator.ReasonInitialWait:
		return fmt.Sprintf("%s %s not started before %s: this leader waits for workers to register, and one of them may run %s.",
			what, pick(from.instances, "is", "are"), clock(c.plan.Stats.InitialWait, c.plan.Stats.Start), pick(from.instances, "it", "them"))
	case orchestrator.ReasonNoWorker:
		if len(c.table.rows) == 0 {
			return fmt.Sprintf("%s %s no place: there are no workers.", what, has)
		}
	case orchestrator.ReasonObserved:
		return fmt.Sprintf("%s %s missing. The leader starts %s, or has the reason why not.", what, pick(from.instances, "is", "are"), pick(from.instances, "it", "them"))
	case orchestrator.ReasonSkipped:
		return fmt.Sprintf("%s %s no place yet: the term ended before it could start them.", what, has)
	case "":
		return fmt.Sprintf("%s would be started, but this leader only plans (WithDryRun).", what)
	}
	return fmt.Sprintf("%s %s no place: %s.", what, has, cmp.Or(from.rules, whyWaiting[from.reason], string(from.reason)))
}

// breaks says of an instance that stays which rule it breaks.
var breaks = map[orchestrator.Reason]string{
	orchestrator.ReasonRequires:     "without the labels that it requires",
	orchestrator.ReasonZone:         "in a zone with more than it may have",
	orchestrator.ReasonLimit:        "above the limit of the worker",
	orchestrator.ReasonEvictionHeld: "without the labels that it requires",
}

// whyHeld is why an instance is not evicted though it may have a place.
const whyHeld = "changed labels would evict too many at once, so none is evicted for five minutes"

// causesText returns why labels, zones and limits leave no place; "" without such causes.
func causesText(w *orchestrator.Waiting[string, string]) string {
	if w.Causes == nil {
		return ""
	}
	return printable(w.Causes.String())
}

func failing(from *cause, p *api.Problem, tasks, workers, why string) string {
	if p.WorkersTotal == 0 {
		return fmt.Sprintf("%s cannot start: the workers that could take %s are quarantined.", tasks, pick(from.instances, "the instance", "the instances"))
	}
	on := ""
	if p.TasksTotal > 1 && p.WorkersTotal == 1 { // of a single task, each try may be on another worker
		on = " on " + workers
	}
	text := fmt.Sprintf("%s %s to start%s%s. %s missing.", tasks, pick(p.TasksTotal, "fails", "fail"), on, why, count(from.instances, "instance is", "instances are"))
	if from.moves > 0 {
		text += " " + count(from.moves, "move waits", "moves wait") + " for that."
	}
	return text
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

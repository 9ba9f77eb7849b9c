package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// A plan as a table for people.

// planShown bounds how many lines of each kind String writes.
const planShown = 50

// String returns the plan as tables: the changes, the waiting instances, the pauses and
// the workers. Each table shows the first fifty rows.
func (p Plan[W, T]) String() string {
	var b strings.Builder
	p.summary(&b)
	table(&b, "change\ttask\tfrom\tto\treason\toutcome", p.Changes, func(c Change[W, T]) string {
		from, to := "-", "-"
		if c.Kind.Op != Start {
			from = fmt.Sprint(c.From)
		}
		if c.Kind.Op != Stop {
			to = fmt.Sprint(c.To)
		}
		line := fmt.Sprintf("%s\t%v\t%s\t%s\t%s\t%s", c.Kind.Op, c.Task, from, to, c.Kind.Reason, c.Outcome)
		if c.Err != nil {
			line += fmt.Sprintf(": %v", c.Err)
		}
		return line
	})
	table(&b, "waiting\ttask\tinstances\tworker\treason", p.Waiting, func(x Waiting[W, T]) string {
		worker := "-"
		if x.Named {
			worker = fmt.Sprint(x.Worker)
		}
		return fmt.Sprintf("\t%v\t%d\t%s\t%s", x.Task, x.Instances, worker, x.Reason)
	})
	table(&b, "paused\tworker\ttask\tuntil term\tfailures\tlast failure", p.Paused, func(x Pause[W, T]) string {
		worker, task := "-", "-"
		if x.hasWorker() {
			worker = fmt.Sprint(x.Worker)
		}
		if x.hasTask() {
			task = fmt.Sprint(x.Task)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%v", x.Kind, worker, task, x.Until, x.Failures, x.Err)
	})
	table(&b, "worker\tstate\tbefore\tafter", p.Workers, func(r WorkerPlan[W]) string {
		state := r.State.String()
		if r.Late {
			state += ", late"
		}
		if r.Draining {
			state += ", draining"
		}
		if r.Quarantined {
			state += ", quarantined"
		}
		return fmt.Sprintf("%v\t%s\t%d\t%d", r.Name, state, r.Before, r.After)
	})
	return b.String()
}

// summary writes the plan's first line.
func (p Plan[W, T]) summary(b *strings.Builder) {
	s := &p.Stats
	if s.Term.Number > 0 {
		fmt.Fprintf(b, "term %d: ", s.Term.Number)
	}
	switch {
	case s.Cut && len(p.Changes) == 0:
		b.WriteString("cut short before it could plan")
	case len(p.Changes) == 0:
		b.WriteString("nothing to change")
	default:
		b.WriteString(plural(len(p.Changes), "change"))
		kinds := slices.SortedFunc(maps.Keys(s.Changes), func(x, y ChangeKind) int {
			return strings.Compare(x.String(), y.String())
		})
		sep := ": "
		for _, k := range kinds {
			fmt.Fprintf(b, "%s%d %s (%s)", sep, s.Changes[k], k.Op, k.Reason)
			sep = ", "
		}
		fmt.Fprintf(b, "; %s, at least %d needed", plural(s.Adds, "start"), s.LowerBound)
	}
	if n := len(p.Waiting); n > 0 {
		fmt.Fprintf(b, "; %d waiting", n)
	}
	if s.Deferred > 0 {
		fmt.Fprintf(b, "; %s left for later", plural(s.Deferred, "move"))
	}
	if s.MassLoss {
		b.WriteString("; too many workers silent at once, none declared lost")
	}
	b.WriteString("\n")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// table writes an empty line, a heading, and a line for each of the first rows. It
// writes nothing if there are no rows. Cells end with a tab.
func table[R any](b *strings.Builder, heading string, rows []R, line func(R) string) {
	if len(rows) == 0 {
		return
	}
	lines := []string{"", heading}
	for _, r := range rows[:min(planShown, len(rows))] {
		lines = append(lines, line(r))
	}
	if more := len(rows) - planShown; more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, strings.Join(lines, "\n")) // a strings.Builder returns no error
	_ = w.Flush()
}

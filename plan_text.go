package orchestrator

// A plan as text.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// planShown bounds how many rows of each table String writes.
const planShown = 50

// String returns the plan as tables: the changes, the waiting instances, the pauses and
// the workers. Each table shows the first fifty rows.
func (p Plan[W, T]) String() string {
	var b strings.Builder
	p.summary(&b)
	table(&b, "change\ttask\tfrom\tto\treason\toutcome", p.Changes, func(c Change[W, T]) string {
		reason := string(c.Kind.Reason)
		if c.hasWas() {
			reason += fmt.Sprintf(" (%v)", c.Was)
		}
		from, to := cell(c.hasFrom(), c.From), cell(c.hasTo(), c.To)
		line := fmt.Sprintf("%s\t%v\t%s\t%s\t%s\t%s", c.Kind.Op, c.Task, from, to, reason, c.Outcome)
		if c.Err != nil {
			line += fmt.Sprintf(": %v", c.Err)
		}
		return line
	})
	table(&b, "waiting\ttask\tinstances\tworker\treason", p.Waiting, func(x Waiting[W, T]) string {
		reason := string(x.Reason)
		if x.Causes != nil {
			reason += ": " + x.Causes.String()
		}
		return fmt.Sprintf("\t%v\t%d\t%s\t%s", x.Task, x.Instances, cell(x.Named, x.Worker), reason)
	})
	table(&b, "paused\tworker\ttask\tuntil\ttimes\twhy", p.Paused, func(x Pause[W, T]) string {
		worker, task := cell(x.hasWorker(), x.Worker), cell(x.hasTask(), x.Task)
		until := fmt.Sprint("term ", x.Until)
		if !x.Ends.IsZero() {
			until = utc(x.Ends)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%v", x.Kind, worker, task, until, x.Failures, x.Err)
	})
	heading := "worker\tstate\tbefore\tafter"
	settings := slices.ContainsFunc(p.Workers, func(r WorkerPlan[W]) bool { return !r.Settings.Equal(WorkerSettings{Host: r.Settings.Host}) })
	if settings {
		heading += "\tzone\tlabels\tshare\tmax tasks"
	}
	weighed := slices.ContainsFunc(p.Workers, func(r WorkerPlan[W]) bool { return r.Weight > 0 || r.Level > 0 })
	if weighed {
		heading += "\tweight\tlevel"
	}
	table(&b, heading, p.Workers, func(r WorkerPlan[W]) string {
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
		line := fmt.Sprintf("%v\t%s\t%d\t%d", r.Name, state, r.Before, r.After)
		if s := &r.Settings; settings {
			limit := cell(s.MaxTasks != 0, s.MaxTasks)
			line += fmt.Sprintf("\t%s\t%s\t%d\t%s", s.Zone, strings.Join(s.Labels, ","), max(s.Share, 1), limit)
		}
		if weighed {
			line += fmt.Sprintf("\t%d\t%d", r.Weight, r.Level)
		}
		return line
	})
	return b.String()
}

// cell returns the text of a value, or "-" without one.
func cell(is bool, value any) string {
	if !is {
		return "-"
	}
	return fmt.Sprint(value)
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
	if s.MovesHeld > 0 && len(p.Holds) > 0 {
		fmt.Fprintf(b, "; %s for an even spread %s: %s", plural(s.MovesHeld, "move"), map[bool]string{true: "waits", false: "wait"}[s.MovesHeld == 1], p.Holds[0])
	}
	if s.MassLoss {
		b.WriteString("; too many workers silent at once, none declared lost")
	}
	if s.EvictionsHeld > 0 {
		fmt.Fprintf(b, "; changed labels would evict %s, none evicted yet", plural(s.EvictionsHeld, "instance"))
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

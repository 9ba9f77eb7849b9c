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

// String returns the plan as a table: what changes and why, what waits and
// why, who is avoided, and what each worker has before and after. Of each it
// shows the first fifty.
func (p Plan[W, T]) String() string {
	var b strings.Builder
	p.summary(&b)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	table(w, "\nchange\ttask\tfrom\tto\treason\toutcome\n", p.Changes, func(c Change[W, T]) {
		from, to := "-", "-"
		if c.Kind.Op != Start {
			from = fmt.Sprint(c.From)
		}
		if c.Kind.Op != Stop {
			to = fmt.Sprint(c.To)
		}
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s", c.Kind.Op, c.Task, from, to, c.Kind.Reason, c.Outcome)
		if c.Err != nil {
			fmt.Fprintf(w, ": %v", c.Err)
		}
		fmt.Fprintln(w)
	})
	table(w, "\nwaiting\ttask\tinstances\tworker\treason\n", p.Waiting, func(x Waiting[W, T]) {
		worker := "-"
		if x.Named {
			worker = fmt.Sprint(x.Worker)
		}
		fmt.Fprintf(w, "\t%v\t%d\t%s\t%s\n", x.Task, x.Instances, worker, x.Reason)
	})
	table(w, "\navoided\tworker\ttask\tuntil term\tfailures\tlast failure\n", p.Avoided, func(a Avoided[W, T]) {
		task := "all"
		if !a.Whole {
			task = fmt.Sprint(a.Task)
		}
		fmt.Fprintf(w, "\t%v\t%s\t%d\t%d\t%v\n", a.Worker, task, a.Until, a.Failures, a.Err)
	})
	table(w, "\nworker\tstate\tbefore\tafter\n", p.Workers, func(r WorkerPlan[W]) {
		state := r.State.String()
		if r.Draining {
			state += ", draining"
		}
		if r.Avoided {
			state += ", avoided"
		}
		fmt.Fprintf(w, "%v\t%s\t%d\t%d\n", r.Name, state, r.Before, r.After)
	})
	w.Flush()
	return b.String()
}

// summary writes the plan's first line.
func (p Plan[W, T]) summary(b *strings.Builder) {
	s := &p.Stats
	if len(p.Changes) == 0 {
		b.WriteString("nothing to change")
	} else {
		fmt.Fprintf(b, "%d changes", len(p.Changes))
		kinds := slices.SortedFunc(maps.Keys(s.Changes), func(x, y ChangeKind) int {
			return strings.Compare(x.String(), y.String())
		})
		sep := ": "
		for _, k := range kinds {
			fmt.Fprintf(b, "%s%d %s (%s)", sep, s.Changes[k], k.Op, k.Reason)
			sep = ", "
		}
		fmt.Fprintf(b, "; %d starts, at least %d needed", s.Adds, s.LowerBound)
	}
	if n := len(p.Waiting); n > 0 {
		fmt.Fprintf(b, "; %d waiting", n)
	}
	if s.Deferred > 0 {
		fmt.Fprintf(b, "; %d moves left for later", s.Deferred)
	}
	if s.MassLoss {
		b.WriteString("; too many workers silent at once, none given up")
	}
	b.WriteString("\n")
}

// table writes a heading and a line for each of the first rows, if there are
// any.
func table[R any](w *tabwriter.Writer, heading string, rows []R, line func(R)) {
	if len(rows) == 0 {
		return
	}
	w.Flush()
	fmt.Fprint(w, heading)
	for _, r := range rows[:min(planShown, len(rows))] {
		line(r)
	}
	if more := len(rows) - planShown; more > 0 {
		fmt.Fprintf(w, "… and %d more\n", more)
	}
}

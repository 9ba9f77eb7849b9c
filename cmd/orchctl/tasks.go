package main

// Tasks: tasks, task, why and waiting.

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

func tasks(f *flag.FlagSet) action {
	limit := limitFlag(f, maxRows)
	return func(ctx context.Context, s *session, args []string) error {
		query := url.Values{}
		if len(args) > 0 {
			query.Set("q", args[0])
		}
		a, err := list(ctx, s, "tasks", query, *limit, tasksParts)
		if err != nil {
			return err
		}
		return s.show(a, column(a.Tasks, (*api.Task).String), func() string {
			var rows [][]string
			for _, t := range a.Tasks {
				rows = append(rows, []string{shown(t.Name), fmt.Sprintf("%d/%d", t.WorkersTotal, t.Instances), shownAll(t.Workers, t.WorkersTotal), strings.Join(reasons(&t), "; ")})
			}
			return s.screen.table([]string{"task", "runs", "workers", "waiting"}, rows)
		})
	}
}

func tasksParts(a *api.Tasks) (*api.Page, *[]api.Task) { return &a.Page, &a.Tasks }

// reasons returns why instances of a task wait.
func reasons(t *api.Task) (all []string) {
	for _, w := range t.Waiting {
		all = append(all, waitingText(&w))
	}
	return all
}

func waitingText(w *api.Waiting) string {
	text := api.Printable(string(w.Reason))
	if w.Named {
		text += " (" + name(w.Worker) + ")"
	}
	if w.Instances > 1 {
		text += fmt.Sprintf(" × %d", w.Instances)
	}
	return text + causesText(w)
}

// causesText returns why no worker takes waiting instances, as the end of a text.
func causesText(w *api.Waiting) string {
	if w.Causes == nil {
		return ""
	}
	return ": " + api.Printable(w.Causes.String())
}

// rulesText returns the rules of a task as a list; "" without any.
func rulesText(t *api.Task) string {
	var parts []string
	if len(t.Requires) > 0 {
		parts = append(parts, "requires "+api.Printable(strings.Join(t.Requires, ", ")))
	}
	switch {
	case t.MaxPerZone > 0:
		parts = append(parts, fmt.Sprintf("at most %d in a zone", t.MaxPerZone))
	case t.MaxPerZone < 0:
		parts = append(parts, "not spread over zones")
	}
	if t.Weight > 0 {
		parts = append(parts, fmt.Sprintf("weight %d", t.Weight))
	}
	return strings.Join(parts, "; ")
}

func taskDetail(*flag.FlagSet) action {
	return oneTask(func(s *session, b *strings.Builder, a *api.TaskDetail) {
		if a.Missing > 0 {
			fmt.Fprintf(b, "missing: %d\n", a.Missing)
		}
		for _, reason := range reasons(&a.Task) {
			fmt.Fprintf(b, "waiting: %s\n", reason)
		}
		if a.LongestGap > 0 {
			fmt.Fprintf(b, "longest gap of a move: %s\n", short(a.LongestGap))
		}
		s.changeSection(b, a.Changes, a.ChangesTotal)
	})
}

func why(*flag.FlagSet) action {
	return oneTask(func(s *session, b *strings.Builder, a *api.TaskDetail) {
		b.WriteString(s.heldText(0, a.Holds))
		for i := range a.Waiting {
			if w := &a.Waiting[i]; w.Causes != nil {
				fmt.Fprintf(b, "waiting: %s\n", waitingText(w))
			}
		}
		var rows [][]string
		for _, r := range a.Reasons {
			has, until := "no", ""
			if r.Has {
				has = "yes"
			}
			if r.Until > 0 {
				until = fmt.Sprintf("until term %d", r.Until)
			}
			if !r.Ends.IsZero() {
				until = api.FellText(r.Failure, r.Ends)
			} else if r.Failure != "" {
				until = strings.TrimPrefix(until+": "+api.Printable(r.Failure), ": ")
			}
			reason := api.Printable(string(r.Reason))
			if r.Label != "" {
				reason += " " + api.Printable(r.Label)
			}
			rows = append(rows, []string{shown(r.Worker), has, reason, until})
		}
		section(b, s.screen.table([]string{"worker", "has it", "reason", ""}, rows))
		more(b, a.ReasonsPage.Matching-len(a.Reasons), "more worker")
	})
}

// oneTask returns the action for a command about one task. Its names are those of the workers
// that have it. A log does not have them.
func oneTask(text func(*session, *strings.Builder, *api.TaskDetail)) action {
	return func(ctx context.Context, s *session, args []string) error {
		var a api.TaskDetail
		if err := s.get(ctx, "task", url.Values{"name": args}, &a); err != nil {
			return err
		}
		return s.show(a, column(a.Workers, (*api.Name).String), func() string {
			var b strings.Builder
			if s.settings.log == nil {
				where := cmp.Or(shownAll(a.Workers, a.WorkersTotal), "no worker")
				fmt.Fprintf(&b, "%s: %s wanted, on %s\n", shown(a.Name), plural(a.Instances, "instance"), where)
				if rules := rulesText(&a.Task); rules != "" {
					fmt.Fprintf(&b, "rules: %s\n", rules)
				}
			}
			for _, i := range a.States {
				fmt.Fprintf(&b, "%s\n", instanceText(&i))
			}
			text(s, &b, &a)
			return b.String()
		})
	}
}

// instanceText returns what a worker says of an instance.
func instanceText(i *api.InstanceState) string {
	text := fmt.Sprintf("on %s: %s", shown(i.Worker), api.Printable(i.State.State))
	if i.State.Attempts > 0 {
		text += ", after " + plural(i.State.Attempts, "failed run")
	}
	if i.State.Err != "" {
		text += ": " + api.Printable(i.State.Err)
	}
	return text
}

func waiting(f *flag.FlagSet) action {
	kind := f.String("kind", "any", "only instances of this `kind`: held, staying, unplaced, failing, or missing for the last two")
	limit := limitFlag(f, maxRows)
	return func(ctx context.Context, s *session, _ []string) error {
		a, err := list(ctx, s, "tasks", url.Values{"waiting": {*kind}}, *limit, tasksParts)
		if err != nil {
			return err
		}
		return s.show(a, column(a.Tasks, (*api.Task).String), func() string {
			var rows [][]string
			for _, t := range a.Tasks {
				for _, w := range t.Waiting {
					if isKind(&w, *kind) {
						rows = append(rows, waitingRow(shown(t.Name), &w))
					}
				}
			}
			return s.screen.table(waitingHeading(), rows)
		})
	}
}

// isKind reports whether a waiting instance is of a kind that the flag -kind names.
func isKind(w *api.Waiting, kind string) bool {
	is := w.Kind()
	return kind == "any" || kind == string(is) ||
		kind == "missing" && (is == orchestrator.WaitingUnplaced || is == orchestrator.WaitingFailing)
}

func waitingHeading() []string {
	return []string{"task", "instances", "kind", "worker", "reason"}
}

func waitingRow(task string, w *api.Waiting) []string {
	worker := "-"
	if w.Named {
		worker = name(w.Worker)
	}
	return []string{task, strconv.Itoa(w.Instances), api.Printable(string(w.Kind())), worker, api.Printable(string(w.Reason)) + causesText(w)}
}

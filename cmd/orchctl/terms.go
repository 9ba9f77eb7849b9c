package main

// The history: terms and changes. And the command version.

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

func terms(f *flag.FlagSet) action {
	limit := limitFlag(f, 20)
	return func(ctx context.Context, s *session, _ []string) error {
		a, err := list(ctx, s, "terms", url.Values{}, *limit, func(a *api.Terms) (*api.Page, *[]api.TermRow) { return &a.Page, &a.Terms })
		if err != nil {
			return err
		}
		names := column(a.Terms, func(t *api.TermRow) string { return strconv.FormatUint(t.Stats.Term.Number, 10) })
		return s.show(a, names, func() string {
			var rows [][]string
			for _, t := range a.Terms {
				rows = append(rows, termRow(&t, s.when(a.Now, t.Stats.Start)))
			}
			return s.screen.table([]string{"term", "start", "took", "answering", "missing", "changes"}, rows)
		})
	}
}

func termRow(t *api.TermRow, when string) []string {
	x := &t.Stats
	all := x.Workers.Answering + x.Workers.Silent + x.Workers.Lost
	text := changesText(x)
	if x.MovesHeld > 0 {
		text += "; " + api.HeldText(x.MovesHeld, t.Holds)
	}
	if t.Quiet > 0 {
		text += fmt.Sprintf("; %s followed", plural(t.Quiet, "quiet term"))
	}
	return []string{
		strconv.FormatUint(x.Term.Number, 10), when, short(x.Total),
		fmt.Sprintf("%d/%d", x.Workers.Answering, all), strconv.Itoa(x.Instances.Missing), text,
	}
}

// changesText returns what a term did, what of it did not succeed, and why it ended early.
func changesText(x *orchestrator.TermStats) string {
	text := cmp.Or(counts(x.Changes), "none")
	outcomes := maps.Clone(x.Outcomes)
	delete(outcomes, orchestrator.OutcomeDone)
	if failed := counts(outcomes); failed != "" {
		text += "; " + failed
	}
	if x.Cut {
		text += "; cut: " + errText(x.Err)
	}
	return text
}

// counts returns for example "2 move/drain, 1 start/lost".
func counts[K comparable](numbers map[K]int) string {
	var all []string
	for kind, n := range numbers {
		all = append(all, fmt.Sprintf("%d %s", n, api.Printable(fmt.Sprint(kind))))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// filterFlags defines the flags that select changes, and returns their values.
func filterFlags(f *flag.FlagSet) url.Values {
	query := url.Values{}
	for key, words := range map[string][]string{
		"task": nil, "worker": nil,
		"reason":  {"missing", "lost", "vanished", "unexpected", "surplus", "rebalance", "drain", "requires", "zone", "limit", "room"},
		"outcome": {"done", "failed", "returned", "unknown", "stopping", "skipped", "dry"},
	} {
		queryFlag(f, query, key, "only changes with this `"+key+"`", words...)
	}
	return query
}

func changes(f *flag.FlagSet) action {
	query := filterFlags(f)
	since := f.Duration("since", 0, "only changes of this last time, such as 10m")
	limit := limitFlag(f, 100)
	return func(ctx context.Context, s *session, _ []string) error {
		if *since > 0 {
			var now api.Header // by the clock of the leader
			if err := s.get(ctx, "progress", nil, &now); err != nil {
				return err
			}
			query.Set("since", now.Now.Add(-*since).Format(time.RFC3339Nano))
		}
		a, err := list(ctx, s, "changes", query, *limit, func(a *api.Changes) (*api.Page, *[]api.RepeatedChange) { return &a.Page, &a.Changes })
		if err != nil {
			return err
		}
		return s.show(a, column(a.Changes, changedTask), func() string { return s.changes(a.Changes) })
	}
}

func changedTask(c *api.RepeatedChange) string { return c.Change.Task }

// changes returns a table of changes.
func (s *session) changes(changes []api.RepeatedChange) string {
	var rows [][]string
	for _, c := range changes {
		rows = append(rows, changeRow(strconv.FormatUint(c.Term.Number, 10), &c))
	}
	return s.screen.table([]string{"term", "change", "task", "workers", "reason", "outcome"}, rows)
}

// changeSection appends the last changes of a worker or a task, of a number of all.
func (s *session) changeSection(b *strings.Builder, changes []api.RepeatedChange, total int) {
	section(b, s.changes(changes))
	for _, c := range changes {
		total -= c.Times
	}
	more(b, total, "earlier change")
}

func changeRow(first string, r *api.RepeatedChange) []string {
	c := &r.Change
	reason, outcome := api.Printable(string(c.Kind.Reason)), api.Printable(string(c.Outcome))
	if c.Kind.Reason == orchestrator.ReasonLost || c.Kind.Reason == orchestrator.ReasonVanished {
		reason += " (" + name(c.Was) + ")"
	}
	if r.Times > 1 {
		outcome += fmt.Sprintf(" × %d", r.Times)
	}
	if c.Err != nil {
		outcome += ": " + errText(c.Err)
	}
	return []string{first, api.Printable(string(c.Kind.Op)), name(c.Task), workersText(c), reason, outcome}
}

// workersText returns the workers of a change, such as "w1 -> w2".
func workersText(c *api.Change) string {
	switch c.Kind.Op {
	case orchestrator.Start:
		return "-> " + name(c.To)
	case orchestrator.Stop:
		return name(c.From) + " ->"
	}
	return name(c.From) + " -> " + name(c.To)
}

// changeText returns a change in one line.
func changeText(r *api.RepeatedChange) string {
	row := changeRow("", r)
	text := fmt.Sprintf("%s %s %s, %s: %s", row[1], row[2], row[3], row[4], row[5])
	if r.Change.Gap > 0 {
		text += fmt.Sprintf(", stopped for %s", short(r.Change.Gap))
	}
	return text
}

func version(*flag.FlagSet) action {
	return func(_ context.Context, s *session, _ []string) error {
		v := map[string]string{"orchctl": "(devel)", "go": runtime.Version()}
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
			v["orchctl"] = info.Main.Version
		}
		return s.show(v, nil, func() string { return fmt.Sprintf("orchctl %s, %s\n", v["orchctl"], v["go"]) })
	}
}

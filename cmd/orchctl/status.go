package main

// The fleet as a whole: status and watch.

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

func status(f *flag.FlagSet) action {
	check := f.Bool("check", false, "print one line, and end with code 5 if something needs a person")
	return func(ctx context.Context, s *session, _ []string) error {
		var a api.Status
		if err := s.get(ctx, "status", nil, &a); err != nil {
			return err
		}
		err := s.show(a, nil, func() string {
			if *check {
				return checkLine(&a) + "\n"
			}
			return s.statusText(&a)
		})
		if err == nil && *check && a.ProblemsTotal > 0 {
			return errFound
		}
		return err
	}
}

// checkLine returns the state of the fleet in one line.
func checkLine(a *api.Status) string {
	if len(a.Problems) == 0 {
		return "ok: " + api.Printable(a.Summary)
	}
	first := a.Problems[0]
	line := fmt.Sprintf("%s: %s", api.Printable(string(first.Kind)), api.Printable(first.Text))
	if more := a.ProblemsTotal - 1; more > 0 {
		line += fmt.Sprintf(" (and %s)", plural(more, "other problem"))
	}
	return line
}

func (s *session) statusText(a *api.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", name(a.Title), termText(&a.Header))
	if p := a.Progress; p != nil {
		fmt.Fprintf(&b, "a term is under way: %s\n", progressText(p, a.Now))
	}
	fmt.Fprintf(&b, "%s\n%s\n", api.Printable(a.Summary), s.heldText(a.MovesHeld, a.Holds))

	var rows [][]string
	for _, p := range a.Problems {
		rows = append(rows, []string{api.Printable(string(p.Kind)), s.when(a.Now, p.Since), problemText(&p, a.Now)})
	}
	if more := a.ProblemsTotal - len(a.Problems); more > 0 {
		rows = append(rows, []string{"", "", fmt.Sprintf("and %d more", more)})
	}
	if len(rows) > 0 {
		b.WriteString(s.screen.table([]string{"problem", "since", "what"}, rows) + "\n")
	}
	i, w := &a.Instances, &a.Workers
	b.WriteString(s.figures("instances", []string{"wanted", "running", "held", "missing", "no place"}, i.Wanted, i.Running, i.Held, i.Missing, i.Unplaceable))
	b.WriteString(s.figures("workers", []string{"answering", "silent", "lost", "draining", "quarantined"}, w.Answering, w.Silent, w.Lost, w.Draining, w.Quarantined))
	return b.String()
}

// problemText returns what a problem is, with its counters.
func problemText(p *api.Problem, now time.Time) string {
	text := api.Printable(p.Text)
	if tries := api.TriesText(p, now); tries != "" {
		text += " (" + tries + ")"
	}
	return text
}

// heldText returns a sentence that says which moves for an even spread wait and why, as lines; ""
// if there are no holds.
func (s *session) heldText(moves int, holds []orchestrator.Hold) string {
	text := api.HeldText(moves, holds)
	if text == "" {
		return ""
	}
	return strings.Join(wrap(text+".", cmp.Or(s.screen.width, len(text)+1)), "\n") + "\n"
}

// figures returns a table with one row of numbers.
func (s *session) figures(title string, heading []string, values ...int) string {
	row := []string{""}
	for _, v := range values {
		row = append(row, strconv.Itoa(v))
	}
	return s.screen.table(append([]string{title + strings.Repeat(" ", len("instances")-len(title))}, heading...), [][]string{row})
}

// termText returns which term a page shows.
func termText(h *api.Header) string {
	if h.Term.Number == 0 {
		return "no term has ended yet"
	}
	if h.Observed {
		return fmt.Sprintf("read %s ago by a process that does not lead; %s does", ago(h.Now, h.Start.Add(h.Took)), api.Printable(cmp.Or(h.Leader, "nobody that it knows")))
	}
	return fmt.Sprintf("term %d of epoch %d, %s ago, took %s", h.Term.Number, h.Term.Epoch, ago(h.Now, h.Start.Add(h.Took)), short(h.Took))
}

func progressText(p *api.Progress, now time.Time) string {
	text := string(p.Phase)
	switch p.Phase {
	case orchestrator.PhaseList:
		text = fmt.Sprintf("list, %d of %s answered", p.Done, plural(p.Total, "worker"))
	case orchestrator.PhaseWrite:
		text = fmt.Sprintf("write, %d of %s ended", p.Done, plural(p.Total, "change"))
	}
	text = api.Printable(text) + ", for " + ago(now, p.Since)
	if len(p.WaitingFor) > 0 {
		var names []string
		for _, w := range p.WaitingFor {
			names = append(names, name(w))
		}
		text += ", waiting for " + strings.Join(names, ", ")
	}
	return text
}

// askEvery is the interval at which watch and drain ask.
const askEvery = time.Second

func watch(*flag.FlagSet) action {
	return func(ctx context.Context, s *session, _ []string) error {
		var last api.Status
		for first := true; ; {
			var a api.Status
			answered, err := s.ask(ctx, first, func() error { return s.get(ctx, "status", nil, &a) })
			if err == nil && answered && (first || a.Term != last.Term) {
				if answered, err = s.news(ctx, &last, &a); answered {
					last, first = a, false
				}
			}
			switch {
			case ctx.Err() != nil:
				return nil // an interrupt is the way to end it
			case err != nil:
				return err
			}
			pause(ctx, askEvery)
		}
	}
}

// news prints what terms have changed. It prints nothing if no server answers.
func (s *session) news(ctx context.Context, last, now *api.Status) (answered bool, err error) {
	if s.settings.format == formatJSON {
		line, err := json.Marshal(now)
		if err != nil {
			return false, err
		}
		return true, s.write(escapeJSON(line) + "\n")
	}
	var b strings.Builder
	if last.Term.Number > 0 {
		var a api.Changes
		if answered, err := s.ask(ctx, false, func() error {
			return s.get(ctx, "changes", url.Values{"limit": {strconv.Itoa(maxRows)}}, &a)
		}); !answered {
			return false, err
		}
		if n := len(a.Changes); a.After != "" && n > 0 && a.Changes[n-1].Term.Compare(last.Term) > 0 {
			s.say("orchctl: too many changes at once: only the last %d are shown", n)
		}
		for _, c := range slices.Backward(a.Changes) {
			if c.Term.Compare(last.Term) > 0 && c.Term.Compare(now.Term) <= 0 {
				fmt.Fprintf(&b, "%s  term %d: %s\n", clock(now.Start), c.Term.Number, changeText(&c))
			}
		}
	}
	if line := checkLine(now); last.Term.Epoch != now.Term.Epoch || line != checkLine(last) {
		leader := ""
		if last.Term.Epoch != now.Term.Epoch {
			leader = fmt.Sprintf(" of epoch %d", now.Term.Epoch)
		}
		fmt.Fprintf(&b, "%s  term %d%s: %s\n", clock(now.Start), now.Term.Number, leader, line)
	}
	return true, s.write(b.String())
}

// clock returns a time, or "-" if t is zero.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return api.Clock(t)
}

// ask calls get for a command that goes on without an answer. It says when answers stop and
// when they begin again. The first failure of the command is returned, and so is every
// failure that is not the lack of an answer.
func (s *session) ask(ctx context.Context, first bool, get func() error) (answered bool, err error) {
	err = get()
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err == nil:
		if s.silent {
			s.say("orchctl: %s answers again", s.last.shown)
		}
		s.silent = false
		return true, nil
	case first || exitCode(err) != exitUnreachable:
		return false, err
	case !s.silent:
		s.say("orchctl: %v; asking again every %v", err, askEvery)
	}
	s.silent = true
	return false, nil
}

// pause waits, and reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// The views of the demonstration: the interface, and the plain view for pipes and
// files. screen.go is the view for terminals.

package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
)

// view shows the demonstration. Its methods are called from one goroutine.
type view interface {
	chapter(title string) // begins a chapter
	say(line string)
	term(f frame) // called after each term
	close()       // restores the terminal
}

// newView returns the view for a file: a screen for a terminal, unless TERM says
// that it is dumb.
func newView(out *os.File, began time.Time) view {
	info, err := out.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" {
		return newScreen(out, began)
	}
	return &plain{out: out, began: began}
}

// frame is the state after a term.
type frame struct {
	plan    orchestrator.Plan[member, endpoint]
	actual  []orchestrator.WorkerState[member, endpoint]
	longest gap // since the chapter began
}

// plain writes lines, each with the seconds since the beginning.
type plain struct {
	out      io.Writer
	began    time.Time
	narrator narrator
}

func (p *plain) chapter(title string) { p.print("\n" + stamp(p.began) + title) }

func (p *plain) say(line string) { p.print(stamp(p.began) + line) }

func (p *plain) term(f frame) {
	lines := p.narrator.tell(f)
	for _, line := range lines {
		p.say(line)
	}
	if len(lines) > 0 {
		p.say("load is now " + loads(f.actual))
	}
}

func (p *plain) close() {}

// print ignores errors, because a reader that has closed the pipe needs no more
// lines.
func (p *plain) print(line string) { _, _ = io.WriteString(p.out, line+"\n") }

func stamp(began time.Time) string {
	return fmt.Sprintf("%6.1fs  ", time.Since(began).Seconds())
}

func loads(actual []orchestrator.WorkerState[member, endpoint]) string {
	var all []string
	for _, w := range actual {
		switch w.State {
		case orchestrator.Answering:
			all = append(all, fmt.Sprintf("%v: %d", w.Name, len(w.Tasks)))
		case orchestrator.Silent:
			all = append(all, fmt.Sprintf("%v: %d held", w.Name, len(w.Tasks)))
		case orchestrator.Lost:
			all = append(all, fmt.Sprintf("%v: lost", w.Name))
		}
	}
	return strings.Join(all, "  ")
}

// narrator describes the differences after a term.
type narrator struct {
	states map[string]orchestrator.State
}

func (n *narrator) tell(f frame) []string {
	var lines []string
	states := make(map[string]orchestrator.State, len(f.actual))
	for _, w := range f.actual {
		name := w.Name.Name
		states[name] = w.State
		if before, known := n.states[name]; !known || before == w.State {
			continue
		}
		switch w.State {
		case orchestrator.Silent:
			lines = append(lines, fmt.Sprintf("%s is silent: it may still run its %d tasks, so nothing moves yet", name, len(w.Tasks)))
		case orchestrator.Lost:
			lines = append(lines, fmt.Sprintf("%s was silent for %v and is lost: what it ran is started elsewhere", name, gracePeriod))
		case orchestrator.Answering:
			lines = append(lines, name+" answers again")
		}
	}
	n.states = states
	return append(lines, changes(f.plan.Changes)...)
}

// changes groups changes of the same kind with the same ends.
func changes(all []orchestrator.Change[member, endpoint]) []string {
	tasks := make(map[string][]string)
	var heads []string
	for _, c := range all {
		head := headline(c)
		if _, ok := tasks[head]; !ok {
			heads = append(heads, head)
		}
		tasks[head] = append(tasks[head], c.Task.Name)
	}
	slices.SortStableFunc(heads, func(a, b string) int { return cmp.Compare(a, b) })
	lines := make([]string, 0, len(heads))
	for _, head := range heads {
		slices.Sort(tasks[head])
		lines = append(lines, fmt.Sprintf("%s: %s", head, strings.Join(tasks[head], " ")))
	}
	return lines
}

func headline(c orchestrator.Change[member, endpoint]) string {
	var where string
	switch c.Kind.Op {
	case orchestrator.Start:
		where = "on " + c.To.Name
	case orchestrator.Stop:
		where = "on " + c.From.Name
	case orchestrator.Move:
		where = c.From.Name + " → " + c.To.Name
	}
	head := fmt.Sprintf("%-5s %s (%s)", c.Kind.Op, where, c.Kind.Reason)
	if c.Outcome != orchestrator.OutcomeDone {
		head += fmt.Sprintf(", %s: %v", c.Outcome, c.Err)
	}
	return head
}

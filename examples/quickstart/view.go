package main

// The views of the demonstration: lines for pipes and files, and a live table with
// the last changes below it for terminals.

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
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

func (p *plain) chapter(title string) { p.print("\n" + stage.Stamp(p.began) + title) }

func (p *plain) say(line string) { p.print(stage.Stamp(p.began) + line) }

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
	for _, l := range stage.Lines(f.plan.Changes) {
		lines = append(lines, l.What+": "+strings.Join(l.Tasks, " "))
	}
	return lines
}

// Control sequences that all common terminals support. The view uses the alternate
// screen, so that the previous content is restored. It disables wrapping, so that
// long lines are cut at the terminal's edge.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	endLine     = "\x1b[K\r\n"
	clearBelow  = "\x1b[J"

	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// The view fits into 80 columns.
const (
	taskColumn = 52 // width of a worker's tasks
	tailColumn = 69 // width of a change, beside its time and the indent of its next lines
	tailLines  = 6  // number of lines for the last changes
	maxWorkers = 8  // number of workers shown
)

// screen is a view that updates in place.
type screen struct {
	out      io.Writer
	began    time.Time
	narrator narrator
	title    string
	tail     []string
	last     frame
}

func newScreen(out io.Writer, began time.Time) *screen {
	_, _ = io.WriteString(out, enterScreen)
	return &screen{out: out, began: began}
}

func (s *screen) close() { _, _ = io.WriteString(s.out, leaveScreen) }

func (s *screen) chapter(title string) {
	s.title = title
	s.draw()
}

func (s *screen) say(line string) {
	at := stage.Stamp(s.began)
	rows := wrap(strings.Split(line, " "), tailColumn, len(line)+1)
	s.tail = append(s.tail, at+rows[0])
	for _, more := range rows[1:] {
		s.tail = append(s.tail, strings.Repeat(" ", len(at)+2)+strings.TrimLeft(more, " "))
	}
	s.tail = s.tail[max(0, len(s.tail)-tailLines):]
	s.draw()
}

func (s *screen) term(f frame) {
	s.last = f
	for _, line := range s.narrator.tell(f) {
		s.say(line)
	}
	s.draw()
}

// draw writes the whole screen at once to avoid flicker.
func (s *screen) draw() {
	var b strings.Builder
	line := func(format string, args ...any) {
		fmt.Fprintf(&b, format, args...)
		b.WriteString(endLine)
	}
	f, stats := s.last, s.last.plan.Stats
	b.WriteString(home)
	line(" %s  %s", paint(bold, fmt.Sprintf("%-52s", s.title)), paint(dim, fmt.Sprintf("term %-4d %6.1f s", stats.Term.Number, time.Since(s.began).Seconds())))
	line("")
	line(" %s", paint(dim, "worker  state      load  tasks"))
	for i, w := range f.actual {
		if i == maxWorkers {
			line(" … and %d more", len(f.actual)-i)
			break
		}
		if w.State == orchestrator.Lost {
			w.Tasks = nil // its last tasks no longer run there
		}
		rows := wrap(names(w.Tasks), taskColumn, 2)
		line(" %-7v %s  %4d  %s", w.Name, state(w), len(w.Tasks), rows[0])
		for _, more := range rows[1:] {
			line(" %26s%s", "", more)
		}
	}
	line("")
	i := stats.Instances
	line(" %d wanted, %d running, %d held, %d missing; longest unprobed %v",
		i.Wanted, i.Running, i.Held, i.Missing, f.longest)
	line("")
	for _, change := range s.tail {
		line("%s", change)
	}
	b.WriteString(clearBelow)
	_, _ = io.WriteString(s.out, b.String())
}

func state(w orchestrator.WorkerState[member, endpoint]) string {
	text, colour := w.State.String(), green
	switch {
	case w.State == orchestrator.Lost:
		colour = red
	case w.State == orchestrator.Silent:
		colour = yellow
	case w.Draining:
		text, colour = "draining", cyan
	}
	return paint(colour, fmt.Sprintf("%-9s", text))
}

func paint(colour, text string) string { return "\x1b[" + colour + "m" + text + "\x1b[0m" }

func names(tasks []endpoint) []string {
	all := make([]string, len(tasks))
	for i, e := range tasks {
		all[i] = e.Name
	}
	slices.Sort(all)
	return all
}

// wrap breaks words into one or more lines, but at most lines, and counts the
// remaining words.
func wrap(words []string, width, lines int) []string {
	out := []string{""}
	for i, word := range words {
		last := &out[len(out)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) <= width:
			*last += " " + word
		case len(out) == lines:
			*last += fmt.Sprintf(" +%d", len(words)-i)
			return out
		default:
			out = append(out, word)
		}
	}
	return out
}

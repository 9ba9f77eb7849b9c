package main

// The output: lines while the story runs, each with the seconds since the start, and
// the summary of what was counted and followed, according to the workers' records.

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

// width is the maximum length of a list of names on one line.
const width = 88

// view prints events, both of the story and of the manager's terms.
type view struct {
	mu    sync.Mutex // guards out
	out   io.Writer
	began time.Time
}

func (v *view) chapter(title string) { v.print("\n" + stage.Stamp(v.began) + title) }

func (v *view) say(format string, args ...any) {
	v.print(stage.Stamp(v.began) + fmt.Sprintf(format, args...))
}

// term prints the changes of a term, with their reasons. It omits stops of completed
// tasks.
func (v *view) term(p plan) {
	var changes []orchestrator.Change[grpc.WorkerID, string]
	for _, c := range p.Changes {
		if c.Kind.Reason == orchestrator.ReasonUnexpected && c.Outcome == orchestrator.OutcomeDone {
			continue
		}
		if errors.Is(c.Err, orchestrator.ErrStale) {
			c.Outcome, c.Err = orchestrator.OutcomeSkipped, errors.New("task has completed") // the only cause here
		}
		c.Task = short(c.Task)
		changes = append(changes, c)
	}
	for _, l := range stage.Lines(changes) {
		v.say("%s: %s", l.What, brief(l.Tasks))
	}
}

// print ignores errors: if the reader has closed the pipe, it wants no more lines.
func (v *view) print(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = io.WriteString(v.out, line+"\n")
}

// short returns the name of a task without its kind.
func short(task string) string {
	_, name, _ := strings.Cut(task, "/")
	return name
}

// brief returns as many names as fit on one line, and the number of the others.
func brief(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 && b.Len()+1+len(name) > width {
			fmt.Fprintf(&b, " +%d", len(names)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(name)
	}
	return b.String()
}

// maxRows is the number of counted files that are shown.
const maxRows = 12

// summary is the result of the run.
type summary struct {
	words []result // by name
	files []tally
}

// tally is the result of following a file.
type tally struct {
	name  string
	lines int // in the file
	by    map[string]int
	lost  int // lines that were not followed
	twice int // lines that were followed more than once
}

// summarize reads the workers' records.
func summarize(f folder, documents []document, files []*growing) (*summary, error) {
	counted, err := gather(f.results("*"))
	if err != nil {
		return nil, err
	}
	s := &summary{}
	for _, d := range documents {
		r, ok := counted[kindCount+d.name]
		if !ok {
			return nil, fmt.Errorf("%s has completed, but no result is recorded", d.name)
		}
		s.words = append(s.words, r)
	}
	for _, g := range files {
		entries, _, err := readEntries[followed](f.followed(g.name))
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, tallyOf(g.name, g.lines, entries))
	}
	return s, nil
}

func tallyOf(name string, lines int, entries []followed) tally {
	t := tally{name: name, lines: lines, by: make(map[string]int)}
	times := make(map[int]int)
	for _, e := range entries {
		t.by[e.Worker]++
		times[e.Line]++
	}
	for n := 1; n <= lines; n++ {
		switch times[n] {
		case 0:
			t.lost++
		case 1:
		default:
			t.twice++
		}
	}
	return t
}

// write writes the summary, and returns an error if any line was lost or followed
// twice, or any file could not be counted.
func (s *summary) write(out io.Writer) error {
	var b strings.Builder
	total, by, wrong := 0, make(map[string]int), []error(nil)
	for _, r := range s.words {
		total += r.Words
		by[r.Worker]++
		if r.Problem != "" {
			wrong = append(wrong, fmt.Errorf("%s: %s", short(r.Task), r.Problem))
		}
	}
	fmt.Fprintf(&b, "\n  %-40s%10s  %s\n", "", "words", "counted by")
	for i, r := range s.words {
		if i == maxRows {
			fmt.Fprintf(&b, "  and %d more\n", len(s.words)-i)
			break
		}
		fmt.Fprintf(&b, "  %-40s%10d  %s\n", ending(short(r.Task), 40), r.Words, r.Worker)
	}
	fmt.Fprintf(&b, "  %-40s%10d  %s\n", fmt.Sprintf("%d files", len(s.words)), total, shares(by))

	fmt.Fprintf(&b, "\n  %-12s%8s%8s%8s  %s\n", "", "lines", "lost", "twice", "followed by")
	for _, t := range s.files {
		fmt.Fprintf(&b, "  %-12s%8d%8d%8d  %s\n", t.name, t.lines, t.lost, t.twice, shares(t.by))
		if t.lost+t.twice > 0 {
			wrong = append(wrong, fmt.Errorf("%s: %d lines lost, %d followed more than once", t.name, t.lost, t.twice))
		}
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	return errors.Join(wrong...)
}

func shares(by map[string]int) string {
	var all []string
	for _, worker := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%s %d", worker, by[worker]))
	}
	return strings.Join(all, ", ")
}

// ending returns the last most characters of a text, with an ellipsis if it is
// longer.
func ending(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return "…" + string(runes[len(runes)-most+1:])
}

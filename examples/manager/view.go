// The output while the story runs: lines, each with the seconds since the start.

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
)

// width is the maximum length of a list of names on one line.
const width = 88

// view prints events, both of the story and of the manager's terms.
type view struct {
	mu    sync.Mutex // guards out
	out   io.Writer
	began time.Time
}

func (v *view) chapter(title string) { v.print("\n" + v.stamp() + title) }

func (v *view) say(format string, args ...any) { v.print(v.stamp() + fmt.Sprintf(format, args...)) }

// term prints the changes of a term, with their reasons.
func (v *view) term(p plan) {
	for _, line := range changes(p.Changes) {
		v.say("%s", line)
	}
}

// print ignores errors: if the reader has closed the pipe, it wants no more lines.
func (v *view) print(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = io.WriteString(v.out, line+"\n")
}

func (v *view) stamp() string { return fmt.Sprintf("%6.1fs  ", time.Since(v.began).Seconds()) }

// changes groups the changes of the same kind between the same workers. It omits
// stops of completed tasks.
func changes(all []orchestrator.Change[grpc.Worker, string]) []string {
	tasks := make(map[string][]string)
	var heads []string
	for _, c := range all {
		if c.Kind.Reason == orchestrator.ReasonUnexpected && c.Outcome == orchestrator.OutcomeDone {
			continue
		}
		head := headline(c)
		if _, ok := tasks[head]; !ok {
			heads = append(heads, head)
		}
		tasks[head] = append(tasks[head], short(c.Task))
	}
	slices.SortStableFunc(heads, func(a, b string) int { return cmp.Compare(a, b) })
	lines := make([]string, 0, len(heads))
	for _, head := range heads {
		slices.Sort(tasks[head])
		lines = append(lines, head+": "+brief(tasks[head]))
	}
	return lines
}

func headline(c orchestrator.Change[grpc.Worker, string]) string {
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
	switch {
	case c.Outcome == orchestrator.OutcomeDone:
		return head
	case errors.Is(c.Err, orchestrator.ErrStale):
		return head + ", skipped: task has completed" // the only cause here
	}
	return head + fmt.Sprintf(", %s: %v", c.Outcome, c.Err)
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

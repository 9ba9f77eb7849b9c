package trial

// What a journal says of tasks that ran in two places.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Run is one run of a task, in one process.
type Run struct {
	Task     string
	Token    uint64
	Node     string
	PID      int
	From, To int64 // To is EndOfTime while it lasts
}

// EndOfTime is when a run ends that lasts.
const EndOfTime = 1<<63 - 1

// History is what a journal comes to so far.
type History struct {
	runs []*Run
	open map[runKey]*Run
	// pauses of each process; the last may last.
	pauses map[int][]Span
}

type runKey struct {
	pid  int
	task string
}

// Span is a stretch of time.
type Span struct{ From, To int64 }

// NewHistory returns one in which nothing has happened.
func NewHistory() *History {
	return &History{open: map[runKey]*Run{}, pauses: map[int][]Span{}}
}

// Add takes events in, in the order of the journal. It fails where one process runs
// a task twice.
func (h *History) Add(events ...Event) error {
	for _, e := range events {
		k := runKey{e.PID, e.Task}
		switch e.Kind {
		case Started:
			if h.open[k] != nil {
				return fmt.Errorf("%s (%d) runs task %s twice at once", e.Node, e.PID, e.Task)
			}
			r := &Run{e.Task, e.Token, e.Node, e.PID, e.At, EndOfTime}
			h.open[k] = r
			h.runs = append(h.runs, r)
		case Stopped:
			r := h.open[k]
			if r == nil {
				return fmt.Errorf("%s (%d) stops task %s, which it does not run", e.Node, e.PID, e.Task)
			}
			r.To = e.At
			delete(h.open, k)
		case Died:
			for k, r := range h.open {
				if k.pid == e.PID {
					r.To = e.At
					delete(h.open, k)
				}
			}
		case Paused:
			h.pauses[e.PID] = append(h.pauses[e.PID], Span{e.At, EndOfTime})
		case Resumed:
			pauses := h.pauses[e.PID]
			pauses[len(pauses)-1].To = e.At
		}
	}
	return nil
}

// Runs returns every run so far, in the order in which they began.
func (h *History) Runs() []*Run { return h.runs }

// Running returns on which nodes each task runs now.
func (h *History) Running() map[string][]string {
	where := map[string][]string{}
	for _, r := range h.open {
		where[r.Task] = append(where[r.Task], r.Node)
	}
	return where
}

// IsEven reports whether each of n tasks, and nothing else, runs now, once, evenly
// over nodes.
func (h *History) IsEven(tasks int, nodes []string) bool {
	running := h.Running()
	if len(running) != tasks {
		return false
	}
	load := make(map[string]int, len(nodes))
	for _, node := range nodes {
		load[node] = 0
	}
	for _, where := range running {
		if _, there := load[where[0]]; len(where) != 1 || !there {
			return false
		}
		load[where[0]]++
	}
	loads := slices.Sorted(maps.Values(load))
	return len(loads) > 0 && loads[len(loads)-1]-loads[0] <= 1
}

// WasPaused reports whether a process was ever stopped by a signal.
func (h *History) WasPaused(pid int) bool { return len(h.pauses[pid]) > 0 }

// Overlap is a time in which two processes ran a task.
type Overlap struct {
	Span
	A, B *Run
}

func (o Overlap) String() string {
	return fmt.Sprintf("task %s ran on %s (%d, token %d) and %s (%d, token %d) for %v",
		o.A.Task, o.A.Node, o.A.PID, o.A.Token, o.B.Node, o.B.PID, o.B.Token, ms(o.To-o.From))
}

// Overlaps returns every time in which a task ran twice. A process that is
// stopped by a signal runs nothing.
func (h *History) Overlaps() []Overlap {
	var all []Overlap
	byTask := map[string][]*Run{}
	for _, r := range h.runs {
		byTask[r.Task] = append(byTask[r.Task], r)
	}
	for _, runs := range byTask {
		for i, a := range runs {
			for _, b := range runs[i+1:] {
				for _, x := range h.awake(a) {
					for _, y := range h.awake(b) {
						if s := (Span{max(x.From, y.From), min(x.To, y.To)}); s.From < s.To {
							all = append(all, Overlap{s, a, b})
						}
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Overlap) int { return cmp.Compare(a.From, b.From) })
	return all
}

// awake returns the times of a run in which its process was not stopped.
func (h *History) awake(r *Run) []Span {
	spans := []Span{{r.From, r.To}}
	for _, p := range h.pauses[r.PID] {
		last := &spans[len(spans)-1]
		if p.To <= last.From || p.From >= last.To {
			continue
		}
		rest := Span{p.To, last.To}
		last.To = max(p.From, last.From)
		if rest.From < rest.To {
			spans = append(spans, rest)
		}
	}
	return spans
}

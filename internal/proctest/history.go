package proctest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Run is one run of a task in one process.
type Run struct {
	Task     string
	Token    uint64
	Node     string
	PID      int
	From, To int64 // To is EndOfTime until the run ends
}

// EndOfTime is the end of a run that has not ended.
const EndOfTime = 1<<63 - 1

// History holds the runs and pauses that a journal has recorded so far.
type History struct {
	runs []*Run
	open map[runKey]*Run
	// pauses by process; the last pause may not have ended.
	pauses map[int][]Span
}

type runKey struct {
	pid  int
	task string
}

// Span is a time span [From, To), in nanoseconds as Now returns them.
type Span struct{ From, To int64 }

// NewHistory returns an empty history.
func NewHistory() *History {
	return &History{open: map[runKey]*Run{}, pauses: map[int][]Span{}}
}

// Add adds events in the order of the journal. It fails if a process starts a task
// that it already runs, or stops one that it does not run.
func (h *History) Add(events ...Event) error {
	for _, e := range events {
		k := runKey{e.PID, e.Task}
		switch e.Kind {
		case Started:
			if h.open[k] != nil {
				return fmt.Errorf("%s (%d) starts task %s, which already runs", e.Node, e.PID, e.Task)
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

// Runs returns every run so far, in the order of their starts.
func (h *History) Runs() []*Run { return h.runs }

// Running returns the nodes that run each task now.
func (h *History) Running() map[string][]string {
	where := map[string][]string{}
	for _, r := range h.open {
		where[r.Task] = append(where[r.Task], r.Node)
	}
	return where
}

// IsEven reports whether the given number of tasks runs now, each exactly once,
// spread over nodes with loads that differ by one at most.
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

// Pauses returns when a process was stopped by a signal, in order. The caller must not
// change the spans.
func (h *History) Pauses(pid int) []Span { return h.pauses[pid] }

// WasPaused reports whether a process was ever stopped by a signal.
func (h *History) WasPaused(pid int) bool { return len(h.pauses[pid]) > 0 }

// Overlap is a time span in which two processes ran the same task.
type Overlap struct {
	Span
	A, B *Run
}

func (o Overlap) String() string {
	return fmt.Sprintf("task %s ran on %s (%d, token %d) and %s (%d, token %d) for %v",
		o.A.Task, o.A.Node, o.A.PID, o.A.Token, o.B.Node, o.B.PID, o.B.Token, ms(o.To-o.From))
}

// Overlaps returns every time span in which a task ran twice, sorted by start. A
// process that is stopped by a signal runs nothing.
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

// awake returns the parts of a run in which its process was not stopped.
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

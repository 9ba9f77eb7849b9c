package proof_test

// What the journal says of tasks that ran in two places.

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// run is one run of a task, in one process.
type run struct {
	task     string
	token    uint64
	node     string
	pid      int
	from, to int64 // to is the end of time while it lasts
}

const endOfTime = 1<<63 - 1

// history is what the journal comes to so far.
type history struct {
	runs []*run
	open map[runKey]*run
	// pauses of each process; the last may last.
	pauses map[int][]span
}

type runKey struct {
	pid  int
	task string
}

type span struct{ from, to int64 }

func newHistory() *history {
	return &history{open: map[runKey]*run{}, pauses: map[int][]span{}}
}

// add takes events in, in the order of the journal.
func (h *history) add(events ...event) error {
	for _, e := range events {
		k := runKey{e.PID, e.Task}
		switch e.Kind {
		case started:
			if h.open[k] != nil {
				return fmt.Errorf("%s (%d) runs task %s twice at once", e.Node, e.PID, e.Task)
			}
			r := &run{e.Task, e.Token, e.Node, e.PID, e.At, endOfTime}
			h.open[k] = r
			h.runs = append(h.runs, r)
		case stopped:
			r := h.open[k]
			if r == nil {
				return fmt.Errorf("%s (%d) stops task %s, which it does not run", e.Node, e.PID, e.Task)
			}
			r.to = e.At
			delete(h.open, k)
		case died:
			for k, r := range h.open {
				if k.pid == e.PID {
					r.to = e.At
					delete(h.open, k)
				}
			}
		case paused:
			h.pauses[e.PID] = append(h.pauses[e.PID], span{e.At, endOfTime})
		case resumed:
			pauses := h.pauses[e.PID]
			pauses[len(pauses)-1].to = e.At
		}
	}
	return nil
}

// running counts where each task runs now.
func (h *history) running() map[string][]string {
	where := map[string][]string{}
	for _, r := range h.open {
		where[r.task] = append(where[r.task], r.node)
	}
	return where
}

// overlap is a time in which two processes ran a task.
type overlap struct {
	span
	a, b *run
}

func (o overlap) String() string {
	return fmt.Sprintf("task %s ran on %s (token %d) and %s (token %d) for %v",
		o.a.task, o.a.node, o.a.token, o.b.node, o.b.token, ms(o.to-o.from))
}

// overlaps returns every time in which a task ran twice. A process that is
// stopped by a signal runs nothing.
func (h *history) overlaps() []overlap {
	var all []overlap
	byTask := map[string][]*run{}
	for _, r := range h.runs {
		byTask[r.task] = append(byTask[r.task], r)
	}
	for _, runs := range byTask {
		for i, a := range runs {
			for _, b := range runs[i+1:] {
				for _, x := range h.awake(a) {
					for _, y := range h.awake(b) {
						if s := (span{max(x.from, y.from), min(x.to, y.to)}); s.from < s.to {
							all = append(all, overlap{s, a, b})
						}
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b overlap) int { return cmp.Compare(a.from, b.from) })
	return all
}

// awake returns the times of a run in which its process was not stopped.
func (h *history) awake(r *run) []span {
	spans := []span{{r.from, r.to}}
	for _, p := range h.pauses[r.pid] {
		last := &spans[len(spans)-1]
		if p.to <= last.from || p.from >= last.to {
			continue
		}
		rest := span{p.to, last.to}
		last.to = max(p.from, last.from)
		if rest.from < rest.to {
			spans = append(spans, rest)
		}
	}
	return spans
}

func TestHistory_FindsWhatRunsTwice(t *testing.T) {
	at := func(ns int64, pid int, kind string) event {
		return event{At: ns, PID: pid, Node: fmt.Sprint("n", pid), Kind: kind, Task: "a"}
	}
	for name, c := range map[string]struct {
		events []event
		spans  []span
	}{
		"one after the other": {[]event{at(1, 1, started), at(5, 1, stopped), at(5, 2, started)}, nil},
		"both":                {[]event{at(1, 1, started), at(4, 2, started), at(6, 1, stopped)}, []span{{4, 6}}},
		"for ever":            {[]event{at(1, 1, started), at(4, 2, started)}, []span{{4, endOfTime}}},
		"dead":                {[]event{at(1, 1, started), at(4, 1, died), at(4, 2, started)}, nil},
		"paused meanwhile":    {[]event{at(1, 1, started), at(2, 1, paused), at(3, 2, started), at(7, 2, stopped), at(8, 1, resumed)}, nil},
		"resumed too early":   {[]event{at(1, 1, started), at(2, 1, paused), at(3, 2, started), at(5, 1, resumed), at(7, 2, stopped)}, []span{{5, 7}}},
		"paused twice": {[]event{
			at(1, 1, started), at(2, 1, paused), at(4, 1, resumed), at(6, 1, paused), at(6, 2, started), at(8, 1, resumed), at(9, 1, stopped),
		}, []span{{8, 9}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory()
			require.NoError(t, h.add(c.events...))
			var spans []span
			for _, o := range h.overlaps() {
				spans = append(spans, o.span)
			}
			require.Equal(t, c.spans, spans)
		})
	}
}

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// verdict is what the overlaps of a round show.
type verdict struct {
	violations []string
	told       []time.Duration // the lengths of the overlaps that may happen
}

// most is how long a process may run a task after it was stopped past its lease.
const most = 50 * time.Millisecond

// judge judges each overlap that ended in a round, given the events of the round. The stale process is the one with the lower token. It must
// have been stopped past its lease, the overlap must end within most and slack of its
// continuation, and worker.Check must have allowed the stale task no step after the start of
// the newer one.
func judge(h *proctest.History, events []proctest.Event, slack time.Duration) verdict {
	var v verdict
	for _, o := range h.Overlaps() {
		if len(events) == 0 || o.To < events[0].At {
			continue
		}
		stale, newer := o.A, o.B
		if stale.Token > newer.Token {
			stale, newer = newer, stale
		}
		var stopped proctest.Span
		for _, p := range h.Pauses(stale.PID) {
			if p.To <= o.From {
				stopped = p // the last one before the overlap
			}
		}
		violation := func(format string, args ...any) {
			v.violations = append(v.violations, fmt.Sprintf("%v: %s%s", o, fmt.Sprintf(format, args...), trace(events, stale.PID, stopped.To, o.To)))
		}
		pause := time.Duration(stopped.To - stopped.From)
		end := lastSign(events, stale.PID, o.To)
		late := time.Duration(end - stopped.To)
		steps := stepsAfter(events, stale, newer.From)
		switch {
		case stale.Token == newer.Token:
			violation("with one token")
		case pause < lease/2:
			violation("the stale process was not stopped past its lease, but for %v", pause)
		case late > most+slack:
			violation("ended %v after the stale process was continued", late)
		case steps > 0:
			violation("worker.Check allowed %d steps of the stale task", steps)
		case end > o.From:
			v.told = append(v.told, time.Duration(end-o.From))
		}
	}
	return v
}

// stepsAfter counts the steps of a run that worker.Check allowed after a time.
func stepsAfter(events []proctest.Event, r *proctest.Run, after int64) (n int) {
	for _, e := range events {
		if e.Kind == allowed && e.PID == r.PID && e.Task == r.Task && e.Token == r.Token && e.At > after {
			n++
		}
	}
	return n
}

// lastSign returns the time of the last event that a process wrote until a time, or that
// continued it. A process that exits may be recorded as dead much later on a busy machine.
// If its tasks went on meanwhile, their first step after the stop would be an event.
func lastSign(events []proctest.Event, pid int, until int64) (at int64) {
	for _, e := range events {
		if e.PID == pid && e.Kind != proctest.Died && e.At <= until {
			at = max(at, e.At)
		}
	}
	return at
}

// trace returns the events of a process from one time to another, each with the time since
// the first.
func trace(events []proctest.Event, pid int, from, to int64) string {
	var b strings.Builder
	for _, e := range events {
		if e.PID == pid && from <= e.At && e.At <= to {
			fmt.Fprintf(&b, "\n%v %s %s %s", time.Duration(e.At-from), e.Kind, e.Task, e.Text)
		}
	}
	return b.String()
}

func TestJudge(t *testing.T) {
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	// Process 1 runs task a with token 1 and is stopped from 1 s on. Process 2 starts it with
	// token 2 after 3 s.
	const died = -1
	for name, c := range map[string]struct {
		continued int64 // when process 1 is continued
		allowed   int64 // when its last step was allowed
		ended     int64 // when it has stopped the task; died: the process ended after 4 s
		token     uint64
		want      string // a violation
	}{
		"told":             {3500, 900, 3510, 2, ""},
		"no overlap":       {2900, 900, 2910, 2, ""},
		"told, and died":   {3500, 900, died, 2, ""},
		"a step":           {3500, 3501, 3510, 2, "allowed 1 steps"},
		"a step, and died": {3500, 3501, died, 2, "allowed 1 steps"},
		"a late end":       {3500, 900, 3560, 2, "ended 60ms after"},
		"a short stop":     {1500, 1600, 3510, 2, "not stopped past its lease"},
		"one token":        {3500, 900, 3510, 1, "with one token"},
		"a reversed token": {3500, 900, 3510, 0, "not stopped past its lease"},
	} {
		t.Run(name, func(t *testing.T) {
			events := []proctest.Event{
				{At: ms(0), PID: 1, Kind: proctest.Started, Task: "a", Token: 1},
				{At: ms(1000), PID: 1, Kind: proctest.Paused},
				{At: ms(3000), PID: 2, Kind: proctest.Started, Task: "a", Token: c.token},
				{At: ms(c.allowed), PID: 1, Kind: allowed, Task: "a", Token: 1},
				{At: ms(c.continued), PID: 1, Kind: proctest.Resumed},
				{At: ms(c.ended), PID: 1, Kind: proctest.Stopped, Task: "a", Token: 1},
			}
			if c.ended == died {
				events[len(events)-1] = proctest.Event{At: ms(4000), PID: 1, Kind: proctest.Died}
			}
			h := proctest.NewHistory()
			require.NoError(t, h.Add(events...))
			v := judge(h, events, 0)
			if c.want == "" {
				require.Empty(t, v.violations)
				return
			}
			require.Len(t, v.violations, 1)
			require.Contains(t, v.violations[0], c.want)
			require.Empty(t, v.told)
		})
	}
}

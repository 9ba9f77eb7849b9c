package trial_test

import (
	"fmt"
	"testing"

	"github.com/f8949c05/orchestrator/internal/trial"
	"github.com/stretchr/testify/require"
)

func TestHistory_FindsWhatRunsTwice(t *testing.T) {
	at := func(ns int64, pid int, kind string) trial.Event {
		return trial.Event{At: ns, PID: pid, Node: fmt.Sprint("n", pid), Kind: kind, Task: "a"}
	}
	type events = []trial.Event
	type spans = []trial.Span
	for name, c := range map[string]struct {
		events events
		spans  spans
	}{
		"one after the other": {events{at(1, 1, trial.Started), at(5, 1, trial.Stopped), at(5, 2, trial.Started)}, nil},
		"both":                {events{at(1, 1, trial.Started), at(4, 2, trial.Started), at(6, 1, trial.Stopped)}, spans{{4, 6}}},
		"for ever":            {events{at(1, 1, trial.Started), at(4, 2, trial.Started)}, spans{{4, trial.EndOfTime}}},
		"dead":                {events{at(1, 1, trial.Started), at(4, 1, trial.Died), at(4, 2, trial.Started)}, nil},
		"paused during the overlap": {events{
			at(1, 1, trial.Started), at(2, 1, trial.Paused), at(3, 2, trial.Started), at(7, 2, trial.Stopped), at(8, 1, trial.Resumed),
		}, nil},
		"resumed too early": {events{
			at(1, 1, trial.Started), at(2, 1, trial.Paused), at(3, 2, trial.Started), at(5, 1, trial.Resumed), at(7, 2, trial.Stopped),
		}, spans{{5, 7}}},
		"paused twice": {events{
			at(1, 1, trial.Started), at(2, 1, trial.Paused), at(4, 1, trial.Resumed), at(6, 1, trial.Paused),
			at(6, 2, trial.Started), at(8, 1, trial.Resumed), at(9, 1, trial.Stopped),
		}, spans{{8, 9}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := trial.NewHistory()
			require.NoError(t, h.Add(c.events...))
			var found spans
			for _, o := range h.Overlaps() {
				found = append(found, o.Span)
			}
			require.Equal(t, c.spans, found)
		})
	}
}

func TestHistory_FindsWhatOneProcessRunsTwice(t *testing.T) {
	h := trial.NewHistory()
	start := trial.Event{At: 1, PID: 1, Kind: trial.Started, Task: "a"}
	require.NoError(t, h.Add(start))
	require.Error(t, h.Add(start))
	require.Error(t, h.Add(trial.Event{At: 2, PID: 2, Kind: trial.Stopped, Task: "a"}))
}

func TestHistory_IsEven(t *testing.T) {
	h := trial.NewHistory()
	run := func(pid int, task string) {
		require.NoError(t, h.Add(trial.Event{PID: pid, Node: fmt.Sprint("n", pid), Kind: trial.Started, Task: task}))
	}
	run(1, "a")
	run(1, "b")
	require.True(t, h.IsEven(2, []string{"n1"}))
	require.False(t, h.IsEven(2, []string{"n1", "n2"}), "n2 runs nothing")
	require.False(t, h.IsEven(3, []string{"n1"}), "a task is missing")
	run(2, "c")
	require.True(t, h.IsEven(3, []string{"n1", "n2"}))
	require.False(t, h.IsEven(3, []string{"n1"}), "a task runs on another node")
	run(2, "a")
	require.False(t, h.IsEven(3, []string{"n1", "n2"}), "a task runs twice")
}

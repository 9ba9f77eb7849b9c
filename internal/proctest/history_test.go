package proctest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

func TestHistory_FindsWhatRunsTwice(t *testing.T) {
	at := func(ns int64, pid int, kind string) proctest.Event {
		return proctest.Event{At: ns, PID: pid, Node: fmt.Sprint("n", pid), Kind: kind, Task: "a"}
	}
	type events = []proctest.Event
	type spans = []proctest.Span
	for name, c := range map[string]struct {
		events events
		spans  spans
	}{
		"one after the other": {events{at(1, 1, proctest.Started), at(5, 1, proctest.Stopped), at(5, 2, proctest.Started)}, nil},
		"both":                {events{at(1, 1, proctest.Started), at(4, 2, proctest.Started), at(6, 1, proctest.Stopped)}, spans{{4, 6}}},
		"for ever":            {events{at(1, 1, proctest.Started), at(4, 2, proctest.Started)}, spans{{4, proctest.EndOfTime}}},
		"dead":                {events{at(1, 1, proctest.Started), at(4, 1, proctest.Died), at(4, 2, proctest.Started)}, nil},
		"paused during the overlap": {events{
			at(1, 1, proctest.Started), at(2, 1, proctest.Paused), at(3, 2, proctest.Started), at(7, 2, proctest.Stopped), at(8, 1, proctest.Resumed),
		}, nil},
		"resumed too early": {events{
			at(1, 1, proctest.Started), at(2, 1, proctest.Paused), at(3, 2, proctest.Started), at(5, 1, proctest.Resumed), at(7, 2, proctest.Stopped),
		}, spans{{5, 7}}},
		"paused twice": {events{
			at(1, 1, proctest.Started), at(2, 1, proctest.Paused), at(4, 1, proctest.Resumed), at(6, 1, proctest.Paused),
			at(6, 2, proctest.Started), at(8, 1, proctest.Resumed), at(9, 1, proctest.Stopped),
		}, spans{{8, 9}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := proctest.NewHistory()
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
	h := proctest.NewHistory()
	start := proctest.Event{At: 1, PID: 1, Kind: proctest.Started, Task: "a"}
	require.NoError(t, h.Add(start))
	require.Error(t, h.Add(start))
	require.Error(t, h.Add(proctest.Event{At: 2, PID: 2, Kind: proctest.Stopped, Task: "a"}))
}

func TestHistory_IsEven(t *testing.T) {
	h := proctest.NewHistory()
	run := func(pid int, task string) {
		require.NoError(t, h.Add(proctest.Event{PID: pid, Node: fmt.Sprint("n", pid), Kind: proctest.Started, Task: task}))
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

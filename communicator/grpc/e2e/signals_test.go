package e2e_test

// The end of a worker's process by signals.

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// end returns how the process of a member ended, such as "exit status 3".
func (f *fleet) end(m *member) string {
	f.T.Helper()
	f.Wait("the process ends", time.Minute, func() bool { return !m.Alive() })
	f.Look()
	for _, e := range f.Events {
		if e.Kind == proctest.Died && e.PID == m.PID() {
			return e.Text
		}
	}
	return ""
}

// TestW6_SignalsEndAWorker sends SIGTERM to workers. The first drains: the tasks move, and the process
// ends with code 0. A task that ignores its context is named, and keeps the process until a second
// signal ends it.
func TestW6_SignalsEndAWorker(t *testing.T) {
	const workers, tasks = 3, 9
	s := settings{Lease: 3 * time.Second, Stop: 300 * time.Millisecond, Interval: 200 * time.Millisecond, Drain: 2 * time.Second}
	f := startFleet(t, workers, s)
	f.put(forever, names("long", tasks)...)
	f.Wait("all tasks run", time.Minute, func() bool { return f.settled(tasks) })

	leaves := f.workers[0]
	its := f.of(leaves.name)
	require.Len(t, its, tasks/workers)
	leaves.Leave()
	require.Equal(t, "exit status 0", f.end(leaves), leaves.Output.Tail())
	f.Wait("its tasks run elsewhere", time.Minute, func() bool { return f.elsewhere(its, leaves.name) && f.settled(tasks) })
	require.NotContains(t, leaves.Output.Tail(), "drain cut short")

	f.put(stubborn, names("stubborn", 2)...)
	f.Wait("the stubborn ones run", time.Minute, func() bool { return len(f.Look()) == tasks+2 })
	var stays *member
	name := "stubborn000"
	for _, m := range f.workers[1:] {
		if f.of(m.name)[name] != nil {
			stays = m
		}
	}
	stays.Leave()
	f.Wait("the task is named", time.Minute, func() bool { return strings.Contains(stays.Output.Tail(), "tasks do not stop") })
	require.Regexp(t, `level=ERROR msg="tasks do not stop, .*`+name, stays.Output.Tail())
	f.Pass(2 * s.Lease) // the lease is kept for it
	require.True(t, stays.Alive(), stays.Output.Tail())
	require.Len(t, f.Look()[name], 1, "it starts nowhere else")
	stays.Leave()
	require.Equal(t, "signal: terminated", f.end(stays), stays.Output.Tail())
	require.Empty(t, f.History.Overlaps())
}

package e2e_test

// Workers that are suspended past their lease and resumed: no clock can prevent a
// second run.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// TestW5_StoppedPastItsLease suspends a worker with SIGSTOP for longer than its
// lease, and resumes it when others run its tasks. Package worker does not promise
// then that no task runs twice. It promises that the worker notices immediately,
// because its timers are overdue, and stops all tasks or ends by its last resort.
// worker.Check must tell a task before any other effect. No other task may run
// twice.
func TestW5_StoppedPastItsLease(t *testing.T) {
	t.Parallel() // it mostly waits
	const tasks = 20
	s := settings{Lease: 1500 * time.Millisecond, Stop: 200 * time.Millisecond, Interval: 100 * time.Millisecond}
	f := startFleet(t, 3, s)
	f.put(forever, names("long", tasks)...)
	f.Wait("all tasks run", time.Minute, func() bool { return f.settled(tasks) })

	var ended []time.Duration
	for round := range max(2, *rounds/5) {
		victim := f.workers[round%len(f.workers)]
		its := f.of(victim.name)
		victim.Pause()
		f.Wait("its tasks run elsewhere too", 4*s.Lease, func() bool {
			running := f.Look()
			for task := range its {
				if len(running[task]) != 2 { // the suspended worker has not recorded a stop
					return false
				}
			}
			return true
		})
		resumed := proctest.Now()
		victim.Resume()
		f.Wait("it has stopped them, or is gone", s.Lease, func() bool {
			f.Look()
			for _, r := range its {
				if r.To == proctest.EndOfTime {
					return false
				}
			}
			return true
		})
		for _, r := range its {
			ended = append(ended, time.Duration(r.To-resumed))
		}
		f.Wait("it is back, or is gone", 10*s.Lease, func() bool { return !victim.Alive() || f.settled(tasks) })
		f.Restart()
		f.Wait("all tasks run again", 10*s.Lease, func() bool { return f.settled(tasks) })
	}
	for _, o := range f.History.Overlaps() {
		require.True(t, f.History.WasPaused(o.A.PID) || f.History.WasPaused(o.B.PID), "%v", o)
		require.Less(t, o.To-o.From, int64(s.Lease), "%v", o)
	}
	told := 0
	for _, e := range f.Events {
		if e.Kind == checked {
			require.NotEmpty(t, e.Text, "task %s on %s: worker.Check returns nil", e.Task, e.Node)
			told++
		}
	}
	require.Positive(t, told, "no task has called worker.Check after it was resumed")
	proctest.Report(t, "from SIGCONT to the end of a task that also runs elsewhere", ended)
	t.Logf("%d first calls of worker.Check after SIGCONT, each with an error; %d last resorts", told, f.Count(lastResort))
}

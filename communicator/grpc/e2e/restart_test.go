package e2e_test

// The manager is killed and started again, and one of twenty workers cannot reach it
// at first.

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// TestR2_TheManagerIsRestarted kills the manager repeatedly with SIGKILL, and cuts
// one worker's connections at the same time. All workers come back, no running task
// is started again, completions in the meantime are recorded and not repeated, and
// nothing is started before the late worker is heard. In every other round that
// happens within its lease, and it keeps its tasks. In the others its tasks go
// elsewhere when a whole lease has passed since the start.
func TestR2_TheManagerIsRestarted(t *testing.T) {
	const workers, tasks, short = 20, 100, 40
	s := settings{Lease: 8 * time.Second, Stop: 300 * time.Millisecond, Interval: 200 * time.Millisecond}
	f := startFleet(t, workers, s)
	f.put(forever, names("long", tasks)...)
	f.Wait("all tasks run", time.Minute, func() bool { return f.settled(tasks) })

	var toLead, toMove []time.Duration
	lost := map[string]bool{} // tasks that ran on a late worker when it lost its lease
	for round := range max(2, *rounds/5) {
		late := f.workers[round%workers]
		inTime := round%2 == 0
		before := f.lasting()
		f.put("1s", names(fmt.Sprint("short", round, "-"), short)...)
		f.Wait("the short ones run", time.Minute, func() bool { return len(f.Look()) == tasks+short })

		late.up.Cut(netfault.Both)
		late.down.Cut(netfault.Both)
		killed := proctest.Now()
		f.manager.Kill()
		f.Wait("the short ones are done", time.Minute, func() bool { return len(f.Look()) == tasks })
		f.manager.Start()
		served := f.Await(serves, killed, time.Minute)
		if inTime {
			f.until(served.At, s.Lease/4)
			healed := proctest.Now()
			late.up.Heal()
			late.down.Heal()
			first := f.Await(leads, killed, 2*s.Lease)
			require.Empty(t, f.startedIn(killed, healed), "round %d: started before %s was heard", round, late.name)
			toLead = append(toLead, time.Duration(first.At-healed))
			f.Wait("all is recorded", time.Minute, func() bool { return f.recorded() == (round+1)*short })
			for _, r := range before {
				require.EqualValues(t, proctest.EndOfTime, r.To, "round %d: %s on %s was stopped\n%s", round, r.Task, r.Node, f.Logs())
			}
		} else {
			its := f.of(late.name)
			require.NotEmpty(t, its)
			f.Wait("its tasks run elsewhere", 5*s.Lease, func() bool { return f.elsewhere(its, late.name) })
			toMove = append(toMove, time.Duration(proctest.Now()-served.At))
			require.Empty(t, f.startedIn(killed, served.At+int64(s.Lease)), "round %d: started while %s had its lease", round, late.name)
			for _, r := range before {
				if r.Node != late.name {
					require.EqualValues(t, proctest.EndOfTime, r.To, "round %d: %s on %s was stopped\n%s", round, r.Task, r.Node, f.Logs())
				}
			}
			late.up.Heal()
			late.down.Heal()
			// A completion that it could not report in time is repeated.
			for _, r := range f.History.Runs() {
				lost[r.Task] = lost[r.Task] || r.PID == late.PID()
			}
		}
		f.Wait("all tasks run again", 5*s.Lease, func() bool { return f.settled(tasks) })
		f.Wait("all is recorded", time.Minute, func() bool { return f.recorded() == (round+1)*short })
		require.Empty(t, f.History.Overlaps())
		for _, m := range f.workers {
			require.True(t, m.Alive(), "%s\n%s", m.name, m.Output.Tail())
		}
	}
	f.checkCompletions()
	for task, n := range f.runsOf("short") {
		require.True(t, n == 1 || lost[task], "task %s was run %d times", task, n)
	}
	proctest.Report(t, "from healing the late worker's connections to the first term", toLead)
	proctest.Report(t, "a restarted manager serves to the late one's tasks all run elsewhere, of a lease of "+s.Lease.String(), toMove)
}

// recorded returns the number of the manager's completions.
func (f *fleet) recorded() int {
	s, _ := f.control.ask()
	return len(s.Completed)
}

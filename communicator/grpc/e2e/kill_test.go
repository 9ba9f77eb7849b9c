package e2e_test

// Managers and workers are killed at random while tasks complete.

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
)

// TestW3_CompletedAtLeastOnceRecordedOnce runs 500 tasks that take from a few to
// some hundred milliseconds. Meanwhile the manager and workers are killed with
// SIGKILL and started again. Each task completes at least once, and each completion
// is recorded exactly once. The journal, which contains every change of the store,
// and the store as each manager finds it prove this.
func TestW3_CompletedAtLeastOnceRecordedOnce(t *testing.T) {
	t.Parallel() // it mostly waits
	const tasks = 500
	s := settings{Lease: 1500 * time.Millisecond, Stop: 200 * time.Millisecond, Interval: 100 * time.Millisecond, Slots: 4}
	f := startFleet(t, 6, s)
	random := rand.New(rand.NewPCG(*seed, 1))
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }

	rounds := max(2, *rounds*2/5)
	put, managers, workers, underWay := 0, 0, 0, 0
	for round := range rounds {
		var items []manager.Item
		for put < tasks*(round+1)/rounds {
			takes := 2*time.Millisecond + upTo(400*time.Millisecond)
			items = append(items, manager.Item{Name: fmt.Sprintf("t%03d", put), Content: []byte(takes.String())})
			put++
		}
		f.Wait("the manager takes tasks", time.Minute, func() bool { return f.control.put(items) })
		f.Wait("some are done", time.Minute, func() bool {
			f.Look()
			return f.Count(did) > tasks*round/rounds
		})
		f.Pass(upTo(s.Lease / 2))
		kill := 1 + random.IntN(3) // the manager, workers, or both
		if kill&1 != 0 {
			f.manager.Kill()
			managers++
		}
		if kill&2 != 0 {
			for _, i := range random.Perm(len(f.workers))[:1+random.IntN(3)] {
				f.workers[i].Kill()
				workers++
			}
		}
		if len(f.Look()) > 0 {
			underWay++
		}
		f.Pass(upTo(s.Lease))
		if kill&1 != 0 {
			f.manager.Start()
		}
		f.Restart()
	}
	f.Wait("all have completed", time.Minute, func() bool {
		f.Look()
		return f.Count(did) >= tasks
	})
	f.Wait("nothing is expected any more", time.Minute, func() bool {
		s, ok := f.control.ask()
		return ok && len(s.Expected) == 0
	})
	f.Wait("nothing runs any more", time.Minute, func() bool { return len(f.Look()) == 0 })
	require.Positive(t, underWay, "no task was running at any kill")

	last, ok := f.control.ask()
	require.True(t, ok)
	require.Len(t, last.Completed, tasks)
	v := f.checkCompletions()
	require.Len(t, v.recorded, tasks)
	for _, c := range last.Completed {
		require.Contains(t, v.recorded, c.Task)
	}
	require.Empty(t, f.History.Overlaps())
	t.Logf("%d rounds, %d managers and %d workers killed: %d tasks completed %d times in %d runs, recorded %d times; %d starts after a recorded completion",
		rounds, managers, workers, tasks, f.Count(did), len(f.History.Runs()), f.Count(recorded), v.again)
}

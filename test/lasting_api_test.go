package test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// What can be read about lasting faults in LastActual and LastPlan, and what
// makes ties repeatable.

// A lost worker runs nothing, as far as the leader knows. Its tasks are those of
// other workers now.
func TestT12_ALostWorkerHasLastTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.expect(20)
		f.term()
		before := f.RunsOn("w2")
		require.Len(t, before, 5)
		require.Empty(t, f.state("w2").LastTasks)

		f.Cut("w2")
		f.silentTerm("w2")
		require.ElementsMatch(t, before, f.state("w2").Tasks, "silent: it holds them")
		require.Empty(t, f.state("w2").LastTasks)

		f.waitOutGrace()
		_ = f.NextTerm(t.Context())
		require.Equal(t, orchestrator.Lost, f.state("w2").State)
		require.Empty(t, f.state("w2").Tasks)
		require.ElementsMatch(t, before, f.state("w2").LastTasks)
		owners := make(map[string]int)
		for _, s := range f.LastActual() {
			for _, task := range s.Tasks {
				owners[task]++
			}
		}
		for _, name := range names("t", 20) {
			require.Equal(t, 1, owners[name], "%s has one owner", name)
		}

		f.heal()
		f.heal()
		require.Equal(t, orchestrator.Answering, f.state("w2").State)
		require.Empty(t, f.state("w2").LastTasks)
	})
}

// LastPlan names a stop that is paused, until when and why.
func TestT9_PausedStopsCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(8)
		f.term()
		s := &stuck{n: 1, fault: stopFaults[2].fault}
		f.intercept(s.tap)
		require.NoError(t, f.DrainWorker("w1"))
		f.failingTerm()
		i := slices.IndexFunc(f.LastPlan().Paused, func(p orchestrator.Pause[string, string]) bool { return p.Kind == "stop" })
		require.GreaterOrEqual(t, i, 0, "%v", f.LastPlan().Paused)
		p := f.LastPlan().Paused[i]
		require.Equal(t, s.copies[0], p.Worker+" "+p.Task)
		require.Equal(t, 1, p.Failures)
		require.ErrorIs(t, p.Err, errBoom)
		require.Greater(t, p.Until, f.termNumber())

		f.intercept(nil)
		f.untilTerm(20, func() bool { return len(f.RunsOn("w1")) == 0 })
		require.Empty(t, f.RunsOn("w1"))
		f.steadyTerm()
		require.Empty(t, f.LastPlan().Paused)
	})
}

// Two leaders with the same seed break ties alike, and different seeds do not
// prefer the same workers.
func TestT10_TheSeedDecidesTies(t *testing.T) {
	place := func(seed uint64) string {
		lists := make(map[string][]string)
		o, err := orchestrator.New(recorder[string, string](lists), orchestrator.WithSeed(seed))
		require.NoError(t, err)
		for _, name := range names("w", 5) {
			require.NoError(t, o.AddWorker(name))
		}
		require.NoError(t, o.UpdateTasks([]task{{Name: "a"}, {Name: "b"}}))
		require.NoError(t, o.NextTerm(t.Context()))
		return fmt.Sprint(lists)
	}
	different := make(map[string]bool)
	for seed := range uint64(50) {
		placed := place(seed)
		require.Equal(t, placed, place(seed), "seed %d", seed)
		different[placed] = true
	}
	require.Len(t, different, 5, "each worker comes first for some seed")
	require.Contains(t, different, place(math.MaxUint64))
}

// A pause ends by its time, also where terms are far apart.
func TestT9_WithMaxPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, orchestrator.WithMaxPause(5*time.Second))
		f.refusePoison()
		f.expect(4)
		require.NoError(t, f.AddTask("poison"))
		tries := 0
		for range 50 {
			f.forget()
			_ = f.NextTerm(t.Context())
			tries += len(f.sent(orchestrator.OpAdd))
			time.Sleep(10 * time.Second)
		}
		require.GreaterOrEqual(t, tries, 4+25, "it is tried in every other term")
	})
}

// An unexpected task whose stop pauses is still reported, and does not count as
// running.
func TestT15_AnUnexpectedTaskThatDoesNotStopIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(4)
		f.term()
		f.RemoveTask("t1")
		f.intercept(on(orchestrator.OpRemove, "", "t1", func(context.Context) error { return errBoom }))
		for range 10 {
			f.steadyTerm()
			in := f.LastPlan().Stats.Instances
			require.Equal(t, orchestrator.InstanceStats{Wanted: 3, Running: 3, Unexpected: 1}, in)
		}
	})
}

// A worker that could not begin all of its starts is given less in the next term, and
// only in that one.
func TestT9_AGainIsLimitedForOneTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.intercept(on(orchestrator.OpAdd, "w1", "", func(ctx context.Context) error { return takesLong(ctx, nil) }))
		f.expect(9)
		f.term()
		require.Equal(t, []int{2, 3, 3}, f.loads())
		f.intercept(nil)
		f.RemoveTask("t9")
		f.RemoveTask(f.RunsOn("w2")[0])
		f.RemoveTask(f.RunsOn("w3")[0])
		f.term() // nothing is missing
		f.expect(60)
		f.term()
		require.Equal(t, []int{20, 20, 20}, f.loads())
	})
}

package test

// T16 and T17: when moves for an even spread wait, and workers that fall again and again.

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// crash ends a worker's process, and removes the worker when its lease is over.
func (f *fleet) crash(lease time.Duration, workers ...string) {
	f.Kill(workers...)
	f.workers = slices.DeleteFunc(slices.Clone(f.workers), func(w string) bool { return slices.Contains(workers, w) })
	time.AfterFunc(lease, func() {
		for _, w := range workers {
			f.RemoveWorker(w)
		}
	})
}

// startsSince counts the starts since a number of events.
func (f *fleet) startsSince(events int) (n int) {
	for _, e := range f.Events()[events:] {
		if e.Kind == memory.TaskStarted {
			n++
		}
	}
	return n
}

// kinds are the four kinds of fleets of these tests.
var kinds = map[string]struct {
	worker func(i int) []orchestrator.WorkerOption
	task   func(i int) []orchestrator.TaskOption
}{
	"plain": {},
	"zones": {
		func(i int) []orchestrator.WorkerOption {
			return []orchestrator.WorkerOption{orchestrator.WithWorkerZone(fmt.Sprint(i % 3))}
		},
		func(int) []orchestrator.TaskOption {
			return []orchestrator.TaskOption{orchestrator.WithTaskInstances(2)}
		},
	},
	"weights": {nil, func(i int) []orchestrator.TaskOption {
		return []orchestrator.TaskOption{orchestrator.WithTaskWeight(int64(1 + i*i%7))}
	}},
	"labels": {
		func(i int) []orchestrator.WorkerOption {
			return []orchestrator.WorkerOption{orchestrator.WithWorkerLabels(fmt.Sprint("pool", i%2))}
		},
		func(i int) []orchestrator.TaskOption {
			return []orchestrator.TaskOption{orchestrator.WithTaskRequires(fmt.Sprint("pool", i%2))}
		},
	},
}

// ofEachKind runs a test on a fleet of each kind, under Run, once all tasks run. add starts and adds
// worker i, and copies is how many copies the tasks have in all.
func ofEachKind(t *testing.T, workers, tasks int, test func(t *testing.T, f *fleet, add func(name string, i int), copies int)) {
	for name, kind := range kinds {
		t.Run(name, bubble(given{opts: options{hold}}, func(t *testing.T, f *fleet) {
			add := func(name string, i int) {
				f.Start(name)
				var opts []orchestrator.WorkerOption
				if kind.worker != nil {
					opts = kind.worker(i)
				}
				require.NoError(t, f.AddWorker(name, opts...))
				f.workers = append(f.workers, name)
			}
			for i := range workers {
				add(fmt.Sprint("w", i+1), i)
			}
			copies := 0
			for i := range tasks {
				var opts []orchestrator.TaskOption
				if kind.task != nil {
					opts = kind.task(i)
				}
				require.NoError(t, f.AddTask(fmt.Sprint("t", i+1), opts...))
			}
			f.start(time.Second)
			time.Sleep(5 * time.Second)
			for _, task := range f.ListExpectedTasks() {
				copies += task.Instances
			}
			require.Equal(t, copies, f.startsSince(0))
			test(t, f, add, copies)
			f.requireAllRun()
		}))
	}
}

// T-c: beside a crashed worker, its successor gets what is lost, and nothing healthy moves.
func TestT16_CrashAndReplace(t *testing.T) {
	ofEachKind(t, 12, 240, func(t *testing.T, f *fleet, add func(string, int), _ int) {
		for i, w := range slices.Clone(f.workers) {
			lost, before := len(f.RunsOn(w)), len(f.Events())
			f.crash(10*time.Second, w)
			time.Sleep(5 * time.Second)
			add(fmt.Sprint("new", i), i)
			time.Sleep(15 * time.Second)
			require.Equal(t, lost, f.startsSince(before))
		}
	})
}

// T-d: leases that end one after the other. Nothing healthy moves before the silence is over.
func TestT16_StaggeredLosses(t *testing.T) {
	ofEachKind(t, 12, 240, func(t *testing.T, f *fleet, _ func(string, int), _ int) {
		for i, w := range slices.Clone(f.workers[:4]) {
			f.crash(10*time.Second+time.Duration(i)*400*time.Millisecond, w)
		}
		for range 110 {
			time.Sleep(100 * time.Millisecond)
			require.Empty(t, filter(f.moves(), func(c change) bool { return c.Kind.Reason == orchestrator.ReasonRebalance }))
		}
		time.Sleep(5 * time.Second)
	})
}

// Moves for an even spread wait a minute for a silent worker; then one term moves, and the next
// minute begins. What is missing starts at once.
func TestT16_AMinute(t *testing.T) {
	inBubble(t, given{workers: 3, running: 12, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.Cut("w1")
		_ = f.NextTerm(t.Context())
		began := f.LastPlan().Stats.Start
		f.join("w4")
		f.expect(14)
		_ = f.NextTerm(t.Context())
		require.Equal(t, []int{4, 4, 4, 2}, f.loads(), "what is missing")
		p := f.LastPlan()
		require.Equal(t, 1, p.Stats.MovesHeld)
		require.Zero(t, p.Stats.Deferred)
		require.Equal(t, 2, p.Stats.LowerBound)
		require.Equal(t, []orchestrator.Hold{{Why: "worker w1 is silent", Until: began.Add(time.Minute)}}, p.Holds)
		until := began.Add(time.Minute).UTC().Format(time.DateTime)
		require.Contains(t, p.String(), "; 1 move for an even spread waits: worker w1 is silent, until "+until+" UTC at the latest\n")
		e, ok := f.Last().Explain("t1")
		require.True(t, ok)
		require.Equal(t, p.Holds, e.Holds)
		require.Equal(t, p.Holds, f.plan(hypothesis{}).Holds)
		for time.Since(began) < time.Minute {
			require.Equal(t, []int{4, 4, 4, 2}, f.loads())
			time.Sleep(time.Second)
			_ = f.NextTerm(t.Context())
		}
		require.Equal(t, 1, spread(f.loads()), "one term moves")
		require.Empty(t, f.LastPlan().Holds)
		f.join("w5")
		_ = f.NextTerm(t.Context())
		require.Equal(t, began.Add(2*time.Minute), f.LastPlan().Holds[0].Until)
		require.Empty(t, f.RunsOn("w5"))
		f.heal()
		f.term()
		require.Empty(t, f.LastPlan().Holds)
		require.Equal(t, 1, spread(f.loads()), "the silence is over")
	})
}

// The minute is used up by a term that moves: an operator's hold does not use it, and the budget of
// a term does not end its turn.
func TestT16_AMinuteIsUsedUpByMoves(t *testing.T) {
	inBubble(t, given{workers: 3, running: 12, opts: options{hold, orchestrator.WithMaxMoves(1)}}, func(t *testing.T, f *fleet) {
		f.Hold(time.Now().Add(70*time.Second), "deploy")
		f.Cut("w1")
		f.join("w4")
		for range 70 {
			_ = f.NextTerm(t.Context())
			require.NotEmpty(t, f.LastPlan().Holds)
			require.Empty(t, f.RunsOn("w4"))
			time.Sleep(time.Second)
		}
		for n := range 2 {
			_ = f.NextTerm(t.Context())
			require.Len(t, f.RunsOn("w4"), n+1)
			require.Equal(t, 1-n, f.LastPlan().Stats.Deferred)
		}
		began := f.LastPlan().Stats.Start
		_ = f.NextTerm(t.Context())
		require.Equal(t, []orchestrator.Hold{{Why: "worker w1 is silent", Until: began.Add(time.Minute)}}, f.LastPlan().Holds)
	})
}

// A hold without a text is one, and a silent worker is named only if it is silent.
func TestT16_WhatAHoldSays(t *testing.T) {
	until := time.Date(2027, 11, 27, 10, 20, 30, 0, time.FixedZone("", 3600))
	require.Equal(t, "deploy of 1.4, until 2027-11-27 09:20:30 UTC at the latest", orchestrator.Hold{Why: "deploy\nof\r\n1.4\x1b", Until: until}.String())
	require.Equal(t, "deploy", orchestrator.Hold{Why: "deploy"}.String())
	inBubble(t, given{}, func(t *testing.T, f *fleet) {
		until := time.Now().Add(time.Hour)
		f.Hold(until, "")
		f.expect(1)
		f.term()
		require.Equal(t, []orchestrator.Hold{{Why: "held", Until: until}}, f.LastPlan().Holds)
		f.Hold(time.Time{}, "")
		f.term()
		require.Empty(t, f.LastPlan().Holds)
	})
	inBubble(t, given{workers: 6, running: 12, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.Hold(time.Now().Add(time.Hour), "")
		f.term()
		require.Equal(t, "held", f.LastPlan().Holds[0].Why)
		f.Cut("w3")
		_ = f.NextTerm(t.Context())
		require.Equal(t, "worker w3 is silent", f.LastPlan().Holds[1].Why)
		f.Cut("w2", "w6")
		_ = f.NextTerm(t.Context())
		require.Equal(t, "worker w2 and 2 more are silent", f.LastPlan().Holds[1].Why)
	})
}

// T5 holds for longer. A worker that is silent because a call to it is stuck holds nothing, and
// neither does one without tasks.
func TestT16_WhichSilenceHolds(t *testing.T) {
	inBubble(t, given{workers: 4, running: 8, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.Cut("w1", "w2", "w3")
		_ = f.NextTerm(t.Context())
		require.True(t, f.LastPlan().Stats.MassLoss)
		require.Equal(t, f.LastPlan().Stats.Start.Add(5*time.Minute), f.LastPlan().Holds[0].Until)
	})
	inBubble(t, given{workers: 4, running: 8, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.Stick("w1")
		f.term()
		f.waitOutCalls()
		f.silentTerm("w1")
		require.Equal(t, 1, f.LastPlan().Stats.Workers.Stuck)
		require.Empty(t, f.LastPlan().Holds)
	})
	inBubble(t, given{workers: 2, running: 2, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.join("w3")
		f.term()
		f.Cut("w3")
		f.silentTerm("w3")
		require.Empty(t, f.LastPlan().Holds)
	})
}

// A hold stops moves for an even spread, and nothing else, until it ends.
func TestT16_Hold(t *testing.T) {
	inBubble(t, given{workers: 2, running: 6}, func(t *testing.T, f *fleet) {
		until := time.Now().Add(time.Hour)
		f.Hold(until, "deploy")
		f.Hold(until.Add(time.Hour), "backup")
		f.join("w3", "w4")
		f.expect(7)
		f.term()
		require.Equal(t, []int{3, 3, 1, 0}, f.loads())
		require.Equal(t, []orchestrator.Hold{{Why: "backup", Until: until.Add(time.Hour)}, {Why: "deploy", Until: until}}, f.LastPlan().Holds)
		require.Equal(t, 2, f.LastPlan().Stats.MovesHeld)
		require.NoError(t, f.DrainWorker("w1"))
		f.term()
		require.Equal(t, []int{0, 3, 2, 2}, f.loads(), "a drain goes on")
		require.NoError(t, f.UndrainWorker("w1"))
		f.Hold(time.Time{}, "backup")
		f.term()
		require.Equal(t, []orchestrator.Hold{{Why: "deploy", Until: until}}, f.LastPlan().Holds)
		require.Equal(t, []int{0, 3, 2, 2}, f.loads())
		time.Sleep(time.Until(until))
		f.term()
		require.Empty(t, f.LastPlan().Holds)
		require.Equal(t, 1, spread(f.loads()))
	})
}

// The end of a hold starts a term (T14).
func TestT14_TheEndOfAHoldStartsATerm(t *testing.T) {
	inBubble(t, given{workers: 2, running: 6}, func(t *testing.T, f *fleet) {
		f.Hold(time.Now().Add(time.Hour), "deploy")
		f.start(10 * time.Minute)
		f.join("w3")
		time.Sleep(time.Minute)
		require.Equal(t, []int{3, 3, 0}, f.loads())
		f.Hold(time.Time{}, "deploy")
		time.Sleep(time.Second)
		require.Equal(t, []int{2, 2, 2}, f.loads())
	})
}

// T-e: a worker that comes and goes must show that it stays. The first two times it is believed.
func TestT17_AWorkerThatComesAndGoes(t *testing.T) {
	inBubble(t, given{workers: 10, running: 100, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.start(time.Second)
		lost := 0
		for range 20 {
			f.Start("flaky")
			require.NoError(t, f.AddWorker("flaky"))
			time.Sleep(3 * time.Second)
			lost += len(f.RunsOn("flaky"))
			f.Kill("flaky")
			time.Sleep(10 * time.Second)
			f.RemoveWorker("flaky")
			time.Sleep(10 * time.Second)
		}
		require.LessOrEqual(t, lost, 2*10)
		f.Start("flaky")
		require.NoError(t, f.AddWorker("flaky"))
		time.Sleep(2 * time.Second)
		fallen := f.paused(orchestrator.PauseFallen)
		require.Len(t, fallen, 1)
		require.Equal(t, "flaky", fallen[0].Worker)
		require.InDelta(t, 30*time.Second, time.Until(fallen[0].Ends), float64(3*time.Second))
		require.ErrorContains(t, fallen[0].Err, "times, less than ten minutes apart")
		require.Contains(t, f.LastPlan().String(), "fallen")
		time.Sleep(30 * time.Second)
		require.NotEmpty(t, f.RunsOn("flaky"), "it has stayed")
		time.Sleep(30 * time.Second)
		require.Empty(t, f.paused(orchestrator.PauseFallen))
	})
}

// A fallen worker takes what no other worker may run.
func TestT17_WhatNoOtherWorkerMayRun(t *testing.T) {
	inBubble(t, given{workers: 4, running: 8, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.start(time.Second)
		require.NoError(t, f.AddWorker("w1", orchestrator.WithWorkerLabels("gpu")))
		time.Sleep(time.Second)
		f.falls("w1", 3)
		require.Empty(t, f.RunsOn("w1"))
		require.NoError(t, f.AddTask("gpu", orchestrator.WithTaskRequires("gpu")))
		require.NoError(t, f.AddWorker("w1", orchestrator.WithWorkerLabels("gpu")))
		require.NoError(t, f.AddTask("many", orchestrator.WithTaskInstances(4)))
		time.Sleep(2 * time.Second)
		require.ElementsMatch(t, []string{"gpu", "many"}, f.RunsOn("w1"))
	})
}

// A fall of a host counts once, however many of its workers fall: those that were there at the fall
// count no further one. A worker that has joined since does, and so does the one that fell.
func TestT17_AHostFallsOnce(t *testing.T) {
	inBubble(t, given{workers: 8, running: 16, opts: options{hold}}, func(t *testing.T, f *fleet) {
		onHost := func(workers ...string) {
			for _, w := range workers {
				require.NoError(t, f.AddWorker(w, orchestrator.WithWorkerSettings(orchestrator.WorkerSettings{Host: "h1"})))
			}
			f.term()
		}
		onHost("w1", "w2", "w3")
		for n := range 2 {
			f.Kill("w1", "w2")
			for _, w := range []string{"w1", "w2"} { // their leases end one after the other
				f.RemoveWorker(w)
				_ = f.NextTerm(t.Context())
			}
			f.Start("w1", "w2")
			onHost("w1", "w2")
			require.Len(t, f.paused(orchestrator.PauseFallen), 3*n, "crash %d", n+1)
		}
		time.Sleep(time.Minute)
		f.term()
		require.Empty(t, f.paused(orchestrator.PauseFallen))
		for n := range 2 {
			for _, w := range []string{"w1", "w2", "w3"} {
				require.NoError(t, f.DrainWorker(w))
			}
			f.term()
			for _, w := range []string{"w1", "w2", "w3"} {
				require.NoError(t, f.UndrainWorker(w))
			}
			f.term()
			require.Len(t, f.paused(orchestrator.PauseFallen), 3*n, "drain %d", n+1)
		}
	})
}

// A pause ends at the latest when the falls are forgotten, and says so.
func TestT17_TheEndOfALongPause(t *testing.T) {
	inBubble(t, given{workers: 4, running: 8, opts: options{hold, orchestrator.WithMaxPause(24 * time.Hour)}}, func(t *testing.T, f *fleet) {
		for range 8 {
			require.NoError(t, f.DrainWorker("w1"))
			f.term()
			require.NoError(t, f.UndrainWorker("w1"))
			f.term()
		}
		ends := f.LastPlan().Stats.Start.Add(10 * time.Minute)
		require.Equal(t, ends, f.paused(orchestrator.PauseFallen)[0].Ends)
		time.Sleep(time.Until(ends) - time.Second)
		f.term()
		require.Equal(t, ends, f.paused(orchestrator.PauseFallen)[0].Ends)
		require.Contains(t, f.LastPlan().String(), "fallen  w1      -     "+ends.UTC().Format(time.DateTime)+" UTC  8      fell 8 times, less than ten minutes apart")
		time.Sleep(time.Second)
		f.term()
		require.Empty(t, f.paused(orchestrator.PauseFallen))
		require.NotEmpty(t, f.RunsOn("w1"))
	})
}

// If more than half of the open workers pause, none does.
func TestT17_MoreThanHalf(t *testing.T) {
	inBubble(t, given{workers: 3, running: 9, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.start(time.Second)
		time.Sleep(time.Second)
		for range 3 {
			f.falls("w1", 1)
			f.falls("w2", 1)
		}
		require.Equal(t, []int{3, 3, 3}, f.loads())
	})
}

// What counts as a fall of a host, which outlives its workers.
func TestT17_Falls(t *testing.T) {
	for name, c := range map[string]struct {
		fall func(f *fleet)
		is   bool
	}{
		"undrained": {func(f *fleet) {
			require.NoError(f.t, f.DrainWorker("w1"))
			f.term()
			require.NoError(f.t, f.UndrainWorker("w1"))
			f.term()
		}, true},
		"removed with tasks": {func(f *fleet) {
			f.RemoveWorker("w1")
			f.term()
			require.NoError(f.t, f.AddWorker("w1"))
			f.term()
		}, true},
		"removed, and another name on its host": {func(f *fleet) {
			f.RemoveWorker("w1")
			f.term()
			f.Kill("w1")
			f.Start("w1")
			require.NoError(f.t, f.AddWorker("w1", orchestrator.WithWorkerSettings(orchestrator.WorkerSettings{Host: fmt.Sprint("h", f.termNumber())})))
			f.term()
		}, false},
		"drained and removed": {func(f *fleet) {
			require.NoError(f.t, f.DrainWorker("w1"))
			f.term()
			f.RemoveWorker("w1")
			f.term()
			require.NoError(f.t, f.AddWorker("w1"))
			f.term()
		}, false},
		"back without its tasks": {func(f *fleet) {
			f.Kill("w1")
			f.Start("w1")
			f.term()
			f.term()
		}, true},
		"silent and back": {func(f *fleet) {
			f.Cut("w1")
			_ = f.NextTerm(f.t.Context())
			f.heal()
			f.term()
		}, false},
	} {
		t.Run(name, bubble(given{workers: 4, running: 16}, func(t *testing.T, f *fleet) {
			for n := range 3 {
				c.fall(f)
				require.Equal(t, c.is && n > 0, len(f.paused(orchestrator.PauseFallen)) == 1, "fall %d", n+1)
				time.Sleep(time.Duration(1+30*max(1, n)) * time.Second)
				f.term()
				require.Equal(t, 1, max(1, spread(f.loads())), "its pause is over")
			}
		}))
	}
}

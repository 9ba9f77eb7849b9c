package test

// P9 to P12: labels, zones, shares, limits and weights.

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

var (
	requires   = orchestrator.WithTaskRequires
	perZone    = orchestrator.WithTaskMaxPerZone
	instances  = orchestrator.WithTaskInstances
	labels     = orchestrator.WithWorkerLabels
	inZone     = orchestrator.WithWorkerZone
	atMost     = orchestrator.WithWorkerMaxTasks
	startFirst = orchestrator.WithHandoff(orchestrator.StartThenStop)
)

// set redefines workers.
func (f *fleet) set(opts []orchestrator.WorkerOption, workers ...string) {
	f.t.Helper()
	for _, name := range workers {
		require.NoError(f.t, f.AddWorker(name, opts...))
	}
}

type workerOptions = []orchestrator.WorkerOption

// waits returns the rows of the last plan of a task that waits.
func (f *fleet) waits(name string) []waiting {
	return filter(f.LastPlan().Waiting, func(w waiting) bool { return w.Task == name })
}

func TestT15_BadInput_Settings(t *testing.T) {
	inBubble(t, given{workers: 1, expected: 1}, func(t *testing.T, f *fleet) {
		long := strings.Repeat("x", 257)
		for text, opt := range map[string]orchestrator.TaskOption{
			`the label ""`:                requires(""),
			`the label "!"`:               requires("!"),
			`the label "!!a"`:             requires("!!a"),
			"a comma":                     requires("a,b"),
			"not printable":               requires("a\x00"),
			"has 257 bytes":               requires(long),
			"65 labels":                   requires(slices.Repeat([]string{"a"}, 65)...),
			"MaxPerZone is 2147483648":    perZone(math.MaxInt32 + 1),
			"Weight is -1":                orchestrator.WithTaskWeight(-1),
			"Weight is 1099511627777":     orchestrator.WithTaskWeight(1<<40 + 1),
			"WithTaskRequires: invalid":   requires(""),
			"WithTaskWeight: invalid":     orchestrator.WithTaskWeight(-1),
			"WithTaskMaxPerZone: invalid": perZone(math.MaxInt32 + 1),
		} {
			err := f.AddTask("t2", opt)
			require.ErrorIs(t, err, orchestrator.ErrInvalid, text)
			require.ErrorContains(t, err, text)
		}
		for text, opt := range map[string]orchestrator.WorkerOption{
			`the label ""`:              labels(""),
			`must not begin with "!"`:   labels("!a"),
			"a comma":                   labels("a,b"),
			"ends with a space":         labels(" a"),
			"5120 bytes":                labels(slices.Repeat([]string{strings.Repeat("x", 256)}, 20)...),
			"65 labels":                 labels(slices.Repeat([]string{"a"}, 65)...),
			`Zone "a\n" contains`:       inZone("a\n"),
			"has 257 bytes":             inZone(long),
			"Share is -1":               orchestrator.WithWorkerShare(-1),
			"Share is 1000001":          orchestrator.WithWorkerShare(1_000_001),
			"MaxTasks is -1":            atMost(-1),
			"WithWorkerLabels: invalid": labels(""),
			"WithWorkerZone: invalid":   inZone("\n"),
			"WithWorkerShare: invalid":  orchestrator.WithWorkerShare(-1),
			"MaxTasks is 2147483648":    atMost(math.MaxInt32 + 1),
		} {
			err := f.AddWorker("w2", opt)
			require.ErrorIs(t, err, orchestrator.ErrInvalid, text)
			require.ErrorContains(t, err, text)
		}
		for _, fraction := range []float64{-0.1, 1.01, math.NaN(), math.Inf(1)} {
			require.ErrorIs(t, orchestrator.CheckOptions(orchestrator.WithBand(fraction)), orchestrator.ErrInvalid)
		}
		require.ErrorContains(t, f.UpdateTasks([]task{{Name: "t2", Weight: -1}}), "task t2: ")
		require.ErrorContains(t, f.UpdateWorkers([]member{{Name: "w2", Share: -1}}), "worker w2: ")
		require.ErrorContains(t, f.UpdateWeights(map[string]int64{"t1": -1}), "update weights: task t1: invalid: Weight is -1: must be between 0 and 1099511627776")
		f.term()
		_, err := f.Plan(orchestrator.Hypothesis[string, string]{AddWorkers: []member{{Name: "w2", Labels: []string{""}}}})
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		_, err = f.Plan(orchestrator.Hypothesis[string, string]{AddTasks: []task{{Name: "t2", Requires: []string{""}}}})
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.Equal(t, []task{{Name: "t1", Instances: 1}}, f.ListExpectedTasks(), "nothing changed")
	})
}

// The order and the repetition of labels do not count, and the caller may change its slice.
func TestT15_SettingsAreCopied(t *testing.T) {
	inBubble(t, given{workers: 1}, func(t *testing.T, f *fleet) {
		given := []string{"ssd", "gpu", "ssd"}
		require.NoError(t, f.AddTask("t1", requires(given...), perZone(-7), orchestrator.WithTaskWeight(5)))
		given[0] = "changed"
		require.Equal(t, []task{{Name: "t1", Instances: 1, Requires: []string{"gpu", "ssd"}, MaxPerZone: -1, Weight: 5}}, f.ListExpectedTasks())
		workers := []member{{Name: "w1", Zone: "a", Labels: []string{"ssd", "gpu", "ssd"}, Share: 2, MaxTasks: 9}}
		require.NoError(t, f.UpdateWorkers(workers))
		workers[0].Labels[0] = "changed"
		f.term()
		want := orchestrator.WorkerSettings{Zone: "a", Labels: []string{"gpu", "ssd"}, Share: 2, MaxTasks: 9}
		require.Equal(t, want, f.LastPlan().Workers[0].Settings)
		require.Equal(t, want, f.LastActual()[0].Settings)
		require.Contains(t, f.LastPlan().String(), "gpu,ssd")
	})
}

func TestP10_Requires(t *testing.T) {
	onBothWires(t, given{workers: 4}, func(t *testing.T, f *fleet) {
		f.set(workerOptions{labels("gpu")}, "w3")
		f.set(workerOptions{labels("gpu", "spot")}, "w4")
		for i := range 6 {
			require.NoError(t, f.AddTask(fmt.Sprint("gpu", i), requires("gpu", "!spot")))
			require.NoError(t, f.AddTask(fmt.Sprint("any", i)))
		}
		f.term()
		for i := range 6 {
			require.Equal(t, []string{"w3"}, f.Running(fmt.Sprint("gpu", i)))
		}
		require.Equal(t, []int{2, 2, 6, 2}, f.loads())
		f.requireSettled()

		e, ok := f.Last().Explain("gpu0")
		require.True(t, ok)
		require.Equal(t, []string{"!spot", "gpu"}, e.Requires)
		require.Equal(t, []orchestrator.WorkerReason[string]{
			{Worker: "w1", Reason: orchestrator.ReasonRequires, Label: "gpu"},
			{Worker: "w2", Reason: orchestrator.ReasonRequires, Label: "gpu"},
			{Worker: "w3", Has: true, Reason: orchestrator.ReasonStays},
			{Worker: "w4", Reason: orchestrator.ReasonRequires, Label: "!spot"},
		}, e.Workers)
	})
}

func TestP10_MaxTasks(t *testing.T) {
	onBothWires(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		f.set(workerOptions{atMost(2)}, "w1", "w2")
		f.set(workerOptions{atMost(3)}, "w3")
		f.expect(9)
		f.term()
		require.Equal(t, []int{2, 2, 3}, f.loads())
		require.Equal(t, 2, f.LastPlan().Stats.Instances.Missing)
		require.Len(t, f.LastPlan().Waiting, 2)
		for _, w := range f.LastPlan().Waiting {
			require.Equal(t, orchestrator.ReasonNoPlace, w.Reason)
			require.Equal(t, &orchestrator.Causes{Workers: 3, NoRoom: 3}, w.Causes)
		}
		f.requireQuiet(2)
	})
}

// A worker at its limit takes a task only after another one has stopped there.
func TestP10_AddWaitsForItsRoom(t *testing.T) {
	onBothWires(t, given{workers: 1}, func(t *testing.T, f *fleet) {
		f.set(workerOptions{atMost(1)}, "w1")
		f.expect(1)
		f.term()
		require.NoError(t, f.UpdateTasks([]task{{Name: "t2"}}))
		f.refuse(orchestrator.OpRemove, "w1", "t1", orchestrator.ErrRejected)
		require.Len(t, f.failingTerm(), 1)
		require.Equal(t, []string{"t1"}, f.RunsOn("w1"), "its stop failed, so there is no room")
		require.Equal(t, orchestrator.ReasonSkipped, f.waits("t2")[0].Reason)
		require.ErrorContains(t, f.changesOf("t2")[0].Err, "no stop made room for it")

		f.refuse(orchestrator.OpRemove, "w1", "t1", orchestrator.ErrStopping)
		for range 3 { // the stop pauses before it is tried again
			_ = f.NextTerm(t.Context())
			require.Equal(t, []string{"t1"}, f.RunsOn("w1"), "it is still stopping")
		}
		f.Refuse(nil)
		for range 20 {
			_ = f.NextTerm(t.Context())
		}
		require.Equal(t, []string{"t2"}, f.RunsOn("w1"))
	})
}

// A task that starts first counts at both ends, so it does not move without room, and its
// worker lists it.
// An unexpected task does not stop, and takes the room of its worker. A start must not
// wait for that room while another worker has some.
func TestP10_AStopThatFailsTakesRoom(t *testing.T) {
	for limit := 1; limit <= 2; limit++ {
		onBothWires(t, given{workers: 2, running: 6}, func(t *testing.T, f *fleet) {
			f.set(workerOptions{atMost(limit)}, "w1")
			f.term()
			for _, task := range f.RunsOn("w1") {
				f.refuse(orchestrator.OpRemove, "w1", task, errors.New("no"))
				f.RemoveTask(task)
			}
			f.failingTerm()
			require.NoError(t, f.AddTask("new"))
			_ = f.NextTerm(t.Context()) // the stop fails again
			require.Equal(t, []string{"w2"}, f.Running("new"))
		})
	}
}

func TestP10_StartFirstNeedsRoom(t *testing.T) {
	onBothWires(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		f.set(workerOptions{labels("gpu"), atMost(1)}, "w1")
		f.set(workerOptions{labels("ssd"), atMost(1)}, "w2")
		require.NoError(t, f.AddTask("t1", requires("gpu"), startFirst))
		require.NoError(t, f.AddTask("t2", requires("ssd"), startFirst))
		f.term()
		f.set(workerOptions{labels("ssd"), atMost(1)}, "w1")
		f.set(workerOptions{labels("gpu"), atMost(1)}, "w2")
		time.Sleep(6 * time.Minute) // past the guard, which sees all copies in the wrong place
		for range 3 {
			f.term()
			time.Sleep(5 * time.Minute)
		}
		require.Equal(t, []string{"w1"}, f.Running("t1"))
		require.Equal(t, []string{"w2"}, f.Running("t2"))
		require.Equal(t, orchestrator.ReasonRequires, f.waits("t1")[0].Reason)
		f.set(workerOptions{labels("gpu"), atMost(2)}, "w2")
		f.term()
		f.term()
		require.Equal(t, []string{"w2"}, f.Running("t1"))
		require.Equal(t, []string{"w1"}, f.Running("t2"))
	})
}

// Stop-first moves between full workers change places.
func TestP10_FullWorkersChangePlaces(t *testing.T) {
	onBothWires(t, given{workers: 3, opts: options{orchestrator.WithMaxLoss(1)}}, func(t *testing.T, f *fleet) {
		all := []string{"a", "b", "c"}
		for i, label := range all {
			f.set(workerOptions{labels(label), atMost(1)}, f.workers[i])
			require.NoError(t, f.AddTask(label, requires(label)))
		}
		f.term()
		f.requireSettled()
		for i := range all {
			f.set(workerOptions{labels(all[(i+1)%3]), atMost(1)}, f.workers[i])
		}
		f.term()
		require.Equal(t, []string{"w3"}, f.Running("a"))
		require.Equal(t, []string{"w1"}, f.Running("b"))
		require.Equal(t, []string{"w2"}, f.Running("c"))
		f.requireNeverTwice()
		f.requireSettled()
	})
}

func TestP10_MaxPerZone(t *testing.T) {
	onBothWires(t, given{workers: 4}, func(t *testing.T, f *fleet) {
		f.set(workerOptions{inZone("a")}, "w1", "w2", "w3")
		f.set(workerOptions{inZone("b")}, "w4")
		require.NoError(t, f.AddTask("t1", instances(4), perZone(2)))
		f.term()
		require.Len(t, f.Running("t1"), 3)
		require.Contains(t, f.Running("t1"), "w4")
		require.Equal(t, []waiting{{
			Task: "t1", Instances: 1, Reason: orchestrator.ReasonNoPlace,
			Causes: &orchestrator.Causes{Workers: 4, ZoneFull: 3, Running: 1},
		}}, f.waits("t1"))
		require.Contains(t, f.LastPlan().String(), "no place: of 4 open workers 3 are in a full zone, 1 runs an instance already")
		f.requireQuiet(2)
	})
}

func TestP11_ChangedLabelsEvict(t *testing.T) {
	onBothWires(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		f.set(workerOptions{labels("gpu")}, "w1", "w2")
		for i := range 3 {
			require.NoError(t, f.AddTask(fmt.Sprint("gpu", i), requires("gpu")))
			require.NoError(t, f.AddTask(fmt.Sprint("any", i)))
		}
		f.term()
		f.requireSettled()
		f.set(nil, "w2")
		f.term()
		require.Contains(t, f.LastPlan().Stats.Changes, orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonRequires})
		for i := range 3 {
			require.Equal(t, []string{"w1"}, f.Running(fmt.Sprint("gpu", i)))
		}
		f.requireNeverTwice()
		f.requireSettled()

		f.set(nil, "w1") // all of them would go, and have no place
		f.term()
		for i := range 3 {
			require.Equal(t, []string{"w1"}, f.Running(fmt.Sprint("gpu", i)))
			require.Equal(t, []waiting{{
				Task: fmt.Sprint("gpu", i), Instances: 1, Reason: orchestrator.ReasonRequires, Worker: "w1", Named: true,
				Causes: &orchestrator.Causes{Workers: 3, Lacking: []orchestrator.LabelCount{{Label: "gpu", Workers: 3}}},
			}}, f.waits(fmt.Sprint("gpu", i)))
		}
	})
}

// Workers that register again without their labels evict nothing for five minutes.
func TestP11_StormOfEvictions(t *testing.T) {
	onBothWires(t, given{workers: 4}, func(t *testing.T, f *fleet) {
		f.set(workerOptions{labels("gpu")}, "w1", "w2", "w3")
		for i := range 9 {
			require.NoError(t, f.AddTask(fmt.Sprint("gpu", i), requires("gpu")))
		}
		f.term()
		f.requireSettled()
		changed := time.Now()
		f.set(nil, "w1", "w2") // six of nine
		f.requireQuiet(2)
		stats := f.LastPlan().Stats
		require.Equal(t, 6, stats.EvictionsHeld)
		require.Contains(t, f.LastPlan().String(), "changed labels would evict 6 instances, none evicted yet")
		require.Len(t, f.log.lines(`"level":"ERROR"`, "changed labels would evict too many instances"), 1)
		held := filter(f.LastPlan().Waiting, func(w waiting) bool { return w.Reason == orchestrator.ReasonEvictionHeld })
		require.Len(t, held, 6)
		require.Equal(t, orchestrator.WaitingStaying, held[0].Kind())
		p, err := f.Plan(orchestrator.Hypothesis[string, string]{})
		require.NoError(t, err)
		require.Equal(t, 6, p.Stats.EvictionsHeld, "a what-if plan knows")

		time.Sleep(time.Until(changed.Add(5*time.Minute - time.Second)))
		f.requireQuiet(1)
		time.Sleep(2 * time.Second)
		f.term()
		require.Zero(t, f.LastPlan().Stats.EvictionsHeld)
		require.Equal(t, []int{0, 0, 9, 0}, f.loads())
		f.requireSettled()
		f.requireNeverTwice()
	})
}

// The labels come back, and nothing has moved.
func TestP11_StormEnds(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		f.set(workerOptions{labels("gpu")}, "w1", "w2", "w3")
		for i := range 6 {
			require.NoError(t, f.AddTask(fmt.Sprint("gpu", i), requires("gpu")))
		}
		f.term()
		f.set(nil, "w1", "w2")
		f.requireQuiet(1)
		require.Equal(t, 4, f.LastPlan().Stats.EvictionsHeld)
		f.set(workerOptions{labels("gpu")}, "w1", "w2")
		f.requireQuiet(1)
		require.Zero(t, f.LastPlan().Stats.EvictionsHeld)
		require.Empty(t, f.LastPlan().Waiting)

		time.Sleep(time.Hour) // the next one has five minutes of its own
		f.set(nil, "w1", "w2")
		f.requireQuiet(1)
		require.Equal(t, 4, f.LastPlan().Stats.EvictionsHeld)
	})
}

// Labels that vanish everywhere evict nothing, since nothing has another place. When they come
// back, worker by worker over more than five minutes, the first ones must not get all tasks.
func TestP11_LabelsComeBackSlowly(t *testing.T) {
	inBubble(t, given{workers: 4, opts: options{orchestrator.WithMaxLoss(0.2)}}, func(t *testing.T, f *fleet) {
		workers := []string{"w1", "w2", "w3", "w4"}
		f.set(workerOptions{labels("gpu")}, workers...)
		for i := range 12 {
			require.NoError(t, f.AddTask(fmt.Sprint("gpu", i), requires("gpu")))
		}
		f.term()
		f.set(nil, workers...)
		f.requireQuiet(1)
		time.Sleep(time.Hour)
		for _, w := range workers {
			f.set(workerOptions{labels("gpu")}, w)
			f.requireQuiet(1)
			time.Sleep(2 * time.Minute)
		}
		require.Equal(t, []int{3, 3, 3, 3}, f.loads())
		require.Empty(t, f.LastPlan().Waiting)
	})
}

func TestP12_CountsAddUp(t *testing.T) {
	inBubble(t, given{workers: 6}, func(t *testing.T, f *fleet) {
		f.set(workerOptions{labels("gpu"), inZone("a")}, "w1", "w2")
		f.set(workerOptions{labels("gpu"), inZone("b"), atMost(2)}, "w3")
		f.set(workerOptions{inZone("b")}, "w4")
		f.set(workerOptions{labels("gpu", "spot"), inZone("c"), orchestrator.WithWorkerDraining()}, "w6")
		require.NoError(t, f.AddTask("t1", requires("gpu", "!spot"), instances(5), perZone(1)))
		require.NoError(t, f.AddTask("t2", requires("tpu")))
		require.NoError(t, f.AddTask("t3", instances(6)))
		require.NoError(t, f.AddTask("t4", requires("gpu"), instances(3)))
		f.term()
		require.Equal(t, &orchestrator.Causes{
			Workers: 5, Lacking: []orchestrator.LabelCount{{Label: "tpu", Workers: 5}},
		}, f.waits("t2")[0].Causes)
		check := func() {
			for _, name := range []string{"t1", "t2", "t3", "t4"} {
				rows := filter(f.waits(name), func(w waiting) bool { return w.Kind() == orchestrator.WaitingUnplaced })
				require.LessOrEqual(t, len(rows), 1, "one row for each task")
				for _, w := range rows {
					require.NotNil(t, w.Causes)
					sum := w.Causes.ZoneFull + w.Causes.NoRoom + w.Causes.Running + w.Causes.Quarantined + w.Causes.Paused + w.Causes.Free
					for _, l := range w.Causes.Lacking {
						sum += l.Workers
					}
					require.Equal(t, 5, w.Causes.Workers)
					require.Equal(t, 5, sum, "%s: %s", name, w.Causes)
				}
			}
		}
		check()
		require.NotEmpty(t, f.waits("t1"))
		require.NotEmpty(t, f.waits("t3"))
		f.failAdds(orchestrator.ErrRejected, "w4", "w5")
		require.NoError(t, f.AddTask("t5", requires("!gpu")))
		for range 6 {
			_ = f.NextTerm(t.Context())
			check()
		}
	})
}

func TestP12_Sentence(t *testing.T) {
	require.Equal(t, `of 12 open workers 8 lack "gpu", 3 are in a full zone, 1 runs an instance already`, orchestrator.Causes{
		Workers: 12, Lacking: []orchestrator.LabelCount{{Label: "gpu", Workers: 8}}, ZoneFull: 3, Running: 1,
	}.String())
	require.Equal(t, `of 1 open worker 1 has "spot"`, orchestrator.Causes{
		Workers: 1, Lacking: []orchestrator.LabelCount{{Label: "!spot", Workers: 1}},
	}.String())
	require.Equal(t, "of 8 open workers 2 have no room, 2 are quarantined, 2 are paused for the task, 2 may take it later",
		orchestrator.Causes{Workers: 8, NoRoom: 2, Quarantined: 2, Paused: 2, Free: 2}.String())
	require.Equal(t, "no worker is open", orchestrator.Causes{}.String())
}

// UpdateWeights wakes no term.
func TestUpdateWeights_StartsNoTerm(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
		stop := f.start(time.Hour)
		synctest.Wait()
		number := f.LastPlan().Stats.Term.Number
		require.NoError(t, f.UpdateWeights(map[string]int64{"t1": 7, "unknown": 9}))
		time.Sleep(time.Minute)
		require.Equal(t, number, f.LastPlan().Stats.Term.Number)
		_ = stop(nil)
		for _, task := range f.ListExpectedTasks() {
			require.NotEqual(t, "unknown", task.Name)
			require.Zero(t, task.Weight, "the setting stays")
		}
	})
}

// The plan says what each worker weighs, and what it should weigh.
func TestP20_PlansShowLoads(t *testing.T) {
	inBubble(t, given{workers: 2, running: 8}, func(t *testing.T, f *fleet) {
		require.NotContains(t, f.LastPlan().String(), "level")
		weights := make(map[string]int64)
		for i := range 8 {
			weights[fmt.Sprint("t", i+1)] = int64(10 * (i + 1)) // 360 in all
		}
		require.NoError(t, f.UpdateWeights(weights))
		for range 2 { // a plan that moves, and one that does not
			f.term()
			plan := f.LastPlan()
			require.InDelta(t, 1, plan.Stats.HighestLoad, 0)
			require.Zero(t, plan.Stats.OutOfBand)
			for i, row := range plan.Workers {
				sum := int64(0)
				for _, task := range f.RunsOn(row.Name) {
					sum += weights[task]
				}
				require.Equal(t, sum, row.Weight)
				require.EqualValues(t, 180, row.Level)
				state := f.LastActual()[i]
				require.Equal(t, []int64{sum, 180}, []int64{state.Weight, state.Level})
			}
			require.Contains(t, plan.String(), "weight  level")
		}
		f.Hold(time.Now().Add(time.Hour), "deploy")
		weights["t1"] += 60
		require.NoError(t, f.UpdateWeights(weights))
		f.term()
		stats := f.LastPlan().Stats
		require.InDelta(t, 240.0/210, stats.HighestLoad, 1e-9)
		require.Equal(t, 2, stats.OutOfBand, "one of 240 and one of 180, for a level of 210")

		// Each worker says since when it is out of its band (D30).
		out := func() (since []time.Time) {
			for _, row := range f.LastPlan().Workers {
				since = append(since, row.OutOfBand)
			}
			return since
		}
		began := stats.Start
		time.Sleep(time.Minute)
		f.term()
		require.Equal(t, []time.Time{began, began}, out())
		plan, err := f.Plan(orchestrator.Hypothesis[string, string]{})
		require.NoError(t, err)
		require.Equal(t, time.Now(), plan.Workers[0].OutOfBand)
		require.Equal(t, []time.Time{began, began}, out(), "a what-if plan changes nothing")
		weights["t1"] -= 60
		require.NoError(t, f.UpdateWeights(weights))
		f.term()
		require.Equal(t, []time.Time{{}, {}}, out())
		weights["t1"] += 60
		require.NoError(t, f.UpdateWeights(weights))
		f.term()
		require.Equal(t, f.LastPlan().Stats.Start, out()[0], "it is another time")
		require.NoError(t, f.UpdateWeights(map[string]int64{}))
		f.term()
		require.Equal(t, []time.Time{{}, {}}, out(), "without weights there is no band")
	})
}

// Numbers of tasks that were only listed have no weight.
func TestUpdateWeights_AfterAnUnknownTask(t *testing.T) {
	inBubble(t, given{workers: 2, running: 2}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.Cluster.Add(orchestrator.ContextWithTerm(t.Context(), f.LastPlan().Stats.Term), "w1", "stranger"))
		f.term()
		require.NoError(t, f.UpdateWeights(map[string]int64{"t1": 5, "t2": 9}))
		f.term()
		f.requireSettled()
	})
}

// A new leader moves nothing for an even spread before it knows half of the weights.
func TestWithReportedWeights(t *testing.T) {
	inBubble(t, given{workers: 2, running: 8}, func(t *testing.T, f *fleet) {
		next := f.successor(orchestrator.WithReportedWeights())
		next.join("w3")
		next.requireQuiet(2)
		require.Equal(t, []int{4, 4, 0}, next.loads())
		require.Positive(t, next.LastPlan().Stats.MovesHeld)
		require.NoError(t, next.AddTask("t9"))
		require.NoError(t, next.DrainWorker("w1"))
		next.term()
		require.Empty(t, next.RunsOn("w1"), "a drain does not wait")
		require.Len(t, next.Running("t9"), 1, "nor does a start")
		require.NoError(t, next.UndrainWorker("w1"))

		require.NoError(t, next.UpdateWeights(map[string]int64{"t1": 1, "t2": 1, "t3": 1, "t4": 1}))
		next.requireQuiet(1)
		require.NoError(t, next.UpdateWeights(map[string]int64{"t5": 1}))
		next.requireQuiet(1) // each call replaces the last one
		require.NoError(t, next.UpdateWeights(map[string]int64{"t1": 1, "t2": 1, "t3": 1, "t4": 1, "t5": 1}))
		next.term()
		require.Equal(t, []int{3, 3, 3}, next.loads())
	})
}

// P12: where nothing changes any more, no worker "may take it later".
func TestP12_NothingIsFreeInVain(t *testing.T) {
	rows := 0
	for seed := range uint64(400) {
		inBubble(t, given{workers: 6}, func(t *testing.T, f *fleet) {
			r := rand.New(rand.NewPCG(seed, 12))
			for _, w := range f.workers {
				some := slices.DeleteFunc(workerOptions{atMost(1 + r.IntN(4)), labels("x")}, func(orchestrator.WorkerOption) bool { return r.IntN(2) == 0 })
				f.set(append(some, inZone(fmt.Sprint(r.IntN(3)))), w)
			}
			for i := range 8 {
				opts := []orchestrator.TaskOption{instances(1 + r.IntN(4))}
				if r.IntN(3) == 0 {
					opts = append(opts, perZone(1+r.IntN(2)))
				}
				if r.IntN(3) == 0 {
					opts = append(opts, requires([]string{"x", "!x"}[r.IntN(2)]))
				}
				require.NoError(t, f.AddTask(fmt.Sprint("t", i), opts...))
			}
			f.term()
			if r.IntN(2) == 0 {
				require.NoError(t, f.DrainWorker("w1"))
			}
			for range 5 {
				f.term()
			}
			for _, w := range f.LastPlan().Waiting {
				if w.Causes != nil && len(f.LastPlan().Changes) == 0 {
					rows++
					require.Zero(t, w.Causes.Free, "seed %d: %s %v: %v", seed, w.Task, w.Reason, w.Causes)
				}
			}
		})
	}
	require.Greater(t, rows, 300)
}

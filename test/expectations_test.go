package test

// T1 and T12: the expectations, and what can be read during and after a term.

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// changeEverything calls each method that changes the expectations.
func (f *fleet) changeEverything() {
	f.t.Helper()
	require.NoError(f.t, f.AddTask("new"))
	f.RemoveTask("t1")
	require.NoError(f.t, f.UpdateTasks(append(f.ListExpectedTasks(), task{Name: "newer"})))
	require.NoError(f.t, f.AddWorker("w3"))
	f.RemoveWorker("w3")
	require.NoError(f.t, f.UpdateWorkers([]member{{Name: "w1"}, {Name: "w2"}}))
	require.NoError(f.t, f.DrainWorker("w1"))
	require.NoError(f.t, f.UndrainWorker("w1"))
}

func TestT1_ChangesDoNotWaitForATerm(t *testing.T) {
	for name, blocked := range map[string]orchestrator.Op{
		"that lists": orchestrator.OpList, "that starts": orchestrator.OpAdd, "that stops": orchestrator.OpRemove,
	} {
		t.Run(name, bubble(given{workers: 2, running: 2}, func(t *testing.T, f *fleet) {
			require.NoError(t, f.UpdateTasks([]task{{Name: "other"}}))
			f.intercept(on(blocked, "", "", hang))
			done := f.beginTerm()
			require.Zero(t, took(func() {
				f.changeEverything()
				f.ListExpectedTasks()
				f.LastActual()
				f.LastPlan()
			}))
			require.Empty(t, done, "the term is still under way")
			require.Error(t, <-done)
		}))
	}
}

func TestT1_ChangesTakeEffectInTheNextTerm(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*fleet) error
		first  []int // the loads after the term during which it was made
		second []int // and after the next one
	}{
		{"AddTask", func(f *fleet) error { return f.AddTask("t5") }, []int{2, 2}, []int{3, 2}},
		{"RemoveTask", func(f *fleet) error { f.RemoveTask("t1"); return nil }, []int{2, 2}, []int{2, 1}},
		{"UpdateTasks", func(f *fleet) error { return f.UpdateTasks(nil) }, []int{2, 2}, []int{0, 0}},
		{"DrainWorker", func(f *fleet) error { return f.DrainWorker("w1") }, []int{2, 2}, []int{4, 0}},
		{"AddWorker", func(f *fleet) error { f.join("w3"); return nil }, []int{2, 2, 0}, []int{2, 1, 1}},
		{"RemoveWorker", func(f *fleet) error { f.RemoveWorker("w1"); f.Kill("w1"); return nil }, []int{2, 0}, []int{4, 0}},
	} {
		t.Run(test.name, bubble(given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
			f.Slow(time.Second/2, "w2")
			done := f.beginTerm()
			require.NoError(t, test.change(f))
			require.NoError(t, <-done)
			require.Empty(t, f.LastPlan().Changes)
			require.Equal(t, test.first, descending(f.loads()))
			f.term()
			require.Equal(t, test.second, descending(f.loads()))
		}))
	}
}

// descending returns loads, the largest first.
func descending(loads []int) []int {
	slices.Sort(loads)
	slices.Reverse(loads)
	return loads
}

func TestT1_SlicesAreCopied(t *testing.T) {
	inBubble(t, given{workers: 0}, func(t *testing.T, f *fleet) {
		f.Start("w1", "w2")
		f.workers = []string{"w1", "w2"}
		tasks := []task{{Name: "a"}, {Name: "b"}}
		members := []member{{Name: "w1"}, {Name: "w2"}}
		require.NoError(t, f.UpdateTasks(tasks))
		require.NoError(t, f.UpdateWorkers(members))
		tasks[0].Name, tasks[1].Instances = "changed", 7
		members[0].Name, members[1].Draining = "changed", true
		f.ListExpectedTasks()[0].Name = "changed"
		f.term()
		f.term()
		require.Equal(t, []int{1, 1}, f.loads())
		require.ElementsMatch(t, []task{{Name: "a", Instances: 1}, {Name: "b", Instances: 1}}, f.ListExpectedTasks())

		actual := f.LastActual()
		before := actual[0].Tasks[0]
		actual[0].Tasks[0], actual[0].Name = "changed", "changed"
		require.Equal(t, []string{before}, f.LastActual()[0].Tasks)
		f.term()
		require.Empty(t, f.LastPlan().Changes)
	})
}

func TestT1_RedefinedWorkerKeepsItsState(t *testing.T) {
	for name, redefine := range map[string]func(*fleet) error{
		"AddWorker":     func(f *fleet) error { return f.AddWorker("w1", orchestrator.WithWorkerDraining()) },
		"UpdateWorkers": func(f *fleet) error { return f.UpdateWorkers([]member{{Name: "w2"}, {Name: "w1", Draining: true}}) },
	} {
		t.Run(name, bubble(given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
			f.Cut("w1")
			f.silentTerm("w1")
			f.forget()
			require.NoError(t, redefine(f))
			f.silentTerm("w1")
			require.Empty(t, f.writes(), "it still holds what it held")
			require.True(t, f.state("w1").Draining)

			require.NoError(t, f.DrainWorker("w2"))
			require.NoError(t, redefine(f))
			f.silentTerm("w1")
			require.True(t, f.state("w2").Draining, "what DrainWorker said is not taken back by it")
			require.NoError(t, f.UndrainWorker("w2"))
			require.NoError(t, f.UndrainWorker("w1"))
			f.silentTerm("w1")
			require.False(t, f.state("w2").Draining)
			require.True(t, f.state("w1").Draining, "as it was added")
		}))
	}
}

func TestT1_RedefinedTaskHasItsDefaultsAgain(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.AddTask("a", orchestrator.WithTaskInstances(2), orchestrator.WithHandoff(orchestrator.StartThenStop)))
		require.Equal(t, []task{{Name: "a", Instances: 2, Handoff: orchestrator.StartThenStop}}, f.ListExpectedTasks())
		require.NoError(t, f.AddTask("a"))
		require.Equal(t, []task{{Name: "a", Instances: 1}}, f.ListExpectedTasks())
	})
}

func TestT12_NothingBeforeTheFirstTerm(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		require.Nil(t, f.LastActual())
		require.Zero(t, f.LastPlan())
		f.term()
		require.Len(t, f.LastActual(), 2)
	})
}

func TestT12_LastActualIsWhatTheTermLeftBehind(t *testing.T) {
	inBubble(t, given{workers: 1, running: 4}, func(t *testing.T, f *fleet) {
		require.ElementsMatch(t, names("t", 4), f.state("w1").Tasks, "acknowledged starts are there")

		f.join("w2")
		f.RemoveTask("t1")
		f.intercept(on(orchestrator.OpAdd, "w2", "poison", fails(errors.New("connection reset"))))
		require.NoError(t, f.AddTask("poison"))
		_ = f.NextTerm(t.Context())
		for _, w := range f.workers {
			require.ElementsMatch(t, f.RunsOn(w), f.state(w).Tasks)
			require.Equal(t, orchestrator.Answering, f.state(w).State)
			require.Equal(t, time.Now(), f.state(w).LastAnswer)
		}
		require.NotContains(t, f.state("w1").Tasks, "t1", "acknowledged stops are not")
	})
}

func TestT12_ReadsTheTermBeforeDuringATerm(t *testing.T) {
	inBubble(t, given{workers: 2, running: 2}, func(t *testing.T, f *fleet) {
		f.expect(4)
		f.intercept(onWrites(takes(time.Second)))
		done := make(chan error, 1)
		go func() { done <- f.NextTerm(t.Context()) }()
		time.Sleep(500 * time.Millisecond)
		require.Zero(t, took(func() {
			require.EqualValues(t, 1, f.LastPlan().Stats.Term.Number)
			require.Len(t, f.state("w1").Tasks, 1)
		}))
		require.NoError(t, <-done)
		require.EqualValues(t, 2, f.LastPlan().Stats.Term.Number)
		require.Len(t, f.state("w1").Tasks, 2)
	})
}

// A lost worker has no tasks in LastActual, because they run elsewhere. LastTasks holds
// them.
func TestT12_ALostWorkerHasLastTasks(t *testing.T) {
	inBubble(t, given{workers: 4, running: 20}, func(t *testing.T, f *fleet) {
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

// A name may be of any comparable type.
func TestNew_NamesOfAnyType(t *testing.T) {
	type shard struct{ Topic, Partition int }
	lists := make(map[int][]shard)
	o, err := orchestrator.New(recorder[int, shard](lists))
	require.NoError(t, err)
	require.NoError(t, o.AddWorker(1))
	require.NoError(t, o.AddWorker(2))
	for p := range 4 {
		require.NoError(t, o.AddTask(shard{7, p}))
	}
	require.NoError(t, o.NextTerm(t.Context()))
	require.NoError(t, o.NextTerm(t.Context()))
	require.Empty(t, o.LastPlan().Changes)
	for _, w := range o.LastActual() {
		require.Len(t, w.Tasks, 2)
	}
}

func TestListExpectedTasks(t *testing.T) {
	o, err := orchestrator.New(recorder[string, string](nil))
	require.NoError(t, err)
	require.Empty(t, o.ListExpectedTasks())

	require.NoError(t, o.AddTask("a"))
	require.NoError(t, o.AddTask("b", orchestrator.WithTaskInstances(3), orchestrator.WithHandoff(orchestrator.StartThenStop)))
	require.NoError(t, o.AddTask("c"))
	o.RemoveTask("c")
	o.RemoveTask("never added")
	require.ElementsMatch(t, []task{
		{Name: "a", Instances: 1},
		{Name: "b", Instances: 3, Handoff: orchestrator.StartThenStop},
	}, o.ListExpectedTasks())

	require.NoError(t, o.AddTask("b")) // redefined: all of it
	require.NoError(t, o.UpdateTasks([]task{{Name: "b"}, {Name: "d", Instances: 2}}))
	require.ElementsMatch(t, []task{{Name: "b", Instances: 1}, {Name: "d", Instances: 2}}, o.ListExpectedTasks())
	first := o.ListExpectedTasks()
	require.Equal(t, first, o.ListExpectedTasks(), "in the same order")
	require.NoError(t, o.UpdateTasks(nil))
	require.Empty(t, o.ListExpectedTasks())
}

// A worker drains if it was added as draining or after DrainWorker. Each is undone only
// by its counterpart.
func TestDraining(t *testing.T) {
	added := func(f *fleet) error { return f.AddWorker("w2", orchestrator.WithWorkerDraining()) }
	addedOpen := func(f *fleet) error { return f.AddWorker("w2") }
	drained := func(f *fleet) error { return f.DrainWorker("w2") }
	undrained := func(f *fleet) error { return f.UndrainWorker("w2") }
	updated := func(draining bool) func(f *fleet) error {
		return func(f *fleet) error {
			return f.UpdateWorkers([]member{{Name: "w1"}, {Name: "w2", Draining: draining}})
		}
	}
	replaced := func(f *fleet) error {
		f.RemoveWorker("w2")
		f.Start("w2")
		return f.AddWorker("w2")
	}
	type step = func(*fleet) error
	for name, c := range map[string]struct {
		steps []step
		want  bool
	}{
		"added draining":                       {[]step{added}, true},
		"added draining, then open":            {[]step{added, addedOpen}, false},
		"added draining, undrained":            {[]step{added, undrained}, true},
		"drained":                              {[]step{drained}, true},
		"drained twice":                        {[]step{drained, drained}, true},
		"drained, undrained":                   {[]step{drained, undrained}, false},
		"drained, added again":                 {[]step{drained, addedOpen}, true},
		"drained, updated":                     {[]step{drained, updated(false)}, true},
		"both, undrained":                      {[]step{drained, added, undrained}, true},
		"both, added open":                     {[]step{drained, added, addedOpen}, true},
		"both, taken back":                     {[]step{drained, added, undrained, addedOpen}, false},
		"updated to draining":                  {[]step{updated(true)}, true},
		"updated to draining, updated to open": {[]step{updated(true), updated(false)}, false},
		"drained, removed, added":              {[]step{drained, replaced}, false},
	} {
		t.Run(name, bubble(given{workers: 2, running: 8}, func(t *testing.T, f *fleet) {
			for _, step := range c.steps {
				require.NoError(t, step(f))
			}
			f.term()
			want := []int{4, 4}
			if c.want {
				want = []int{8, 0}
			}
			require.Equal(t, want, f.loads())
			require.Equal(t, c.want, f.state("w2").Draining)
		}))
	}
}

// Every function of WithStats is called once for each term, and at no other time.
func TestWithStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		note := func(who string) option {
			return orchestrator.WithStats(func(s orchestrator.TermStats) {
				heard = append(heard, fmt.Sprint(who, s.Term.Number))
			})
		}
		f := newFleet(t, given{workers: 1, running: 1, opts: options{note("a"), note("b")}})
		_, err := f.Plan(orchestrator.Hypothesis[string, string]{})
		require.NoError(t, err)
		f.Cut("w1")
		f.failingTerm()
		require.Equal(t, []string{"a1", "b1", "a2", "b2"}, heard)
	})
}

// The statistics of terms count the changes of workers' states.
func TestWithStats_ChangesOfStates(t *testing.T) {
	inBubble(t, given{workers: 4, running: 4, opts: options{orchestrator.WithGracePeriod(time.Minute)}}, func(t *testing.T, f *fleet) {
		requireTotal := func(silent, answering, lost int) {
			t.Helper()
			total := make([]int, 3)
			for _, s := range f.terms.all() {
				for i, state := range []orchestrator.State{orchestrator.Silent, orchestrator.Answering, orchestrator.Lost} {
					total[i] += s.StateChanges[state]
				}
			}
			require.Equal(t, []int{silent, answering, lost}, total)
		}
		requireTotal(0, 0, 0) // new workers do not return
		f.Cut("w4")
		f.failingTerm()
		requireTotal(1, 0, 0)
		f.failingTerm()
		f.heal() // its answer may come too late for the term
		f.term()
		requireTotal(1, 1, 0)
		f.Cut("w4")
		f.failingTerm()
		time.Sleep(time.Minute)
		f.failingTerm()
		requireTotal(2, 1, 1)
	})
}

// A term without changes logs nothing above Debug. Changes and failures are logged.
func TestWithLogger(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
		require.Len(t, f.log.lines(`"level":"INFO"`, `"term":1`), 1)
		require.Len(t, f.log.lines(`"level":"DEBUG"`, `"term":1`, `"op":"start","reason":"missing"`, `"to":"w1","outcome":"done"`), 2)
		f.term()
		require.Len(t, f.log.lines(`"level":"DEBUG"`, `"term":2`), 1)
		require.Empty(t, f.log.lines(`"level":"INFO"`, `"term":2`))
		f.Cut("w2")
		f.failingTerm()
		require.Len(t, f.log.lines(`"level":"WARN"`, `"term":3`, `"worker":"w2"`, "cut off"), 1)
	})
}

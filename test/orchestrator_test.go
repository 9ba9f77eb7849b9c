package test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// The methods that change what is expected, and what several files of tests
// share beyond the harness.

// onBothWires runs a test in a bubble twice: with a Communicator that makes
// each write a call of its own, and with one that is an Applier.
func onBothWires(t *testing.T, test func(t *testing.T, start func(*testing.T, int, ...option) *fleet)) {
	t.Helper()
	t.Run("calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newFleet) })
	})
	t.Run("batches", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newBatchFleet) })
	})
}

// failAdds has workers, or all of them if none is named, answer every Add with
// err, and do nothing.
func (f *fleet) failAdds(err error, workers ...string) {
	f.Refuse(func(op orchestrator.Op, worker, _ string) error {
		if op == orchestrator.OpAdd && (len(workers) == 0 || slices.Contains(workers, worker)) {
			return err
		}
		return nil
	})
}

// failingTerm runs a term that has failures, and returns them.
func (f *fleet) failingTerm() []*callError {
	f.t.Helper()
	return failures(f.t, f.NextTerm(f.t.Context()))
}

// requireAllRun checks that every task really runs on as many workers as it
// wants.
func (f *fleet) requireAllRun() {
	f.t.Helper()
	for _, task := range f.ListExpectedTasks() {
		require.Len(f.t, f.Running(task.Name), task.Instances, "task %s", task.Name)
	}
}

// requireNeverTwice checks that no task of a single instance has ever run on
// two workers at the same time.
func (f *fleet) requireNeverTwice() {
	f.t.Helper()
	for _, task := range f.ListExpectedTasks() {
		require.LessOrEqual(f.t, f.Counts(task.Name).Most, 1, "task %s", task.Name)
	}
}

// spread returns the difference between the largest and the smallest load.
func spread(loads []int) int { return slices.Max(loads) - slices.Min(loads) }

// sent returns the writes of one kind since the last forget.
func (f *fleet) sent(op orchestrator.Op) []call {
	return f.calls(func(c call) bool { return c.Op == op })
}

// moves returns the moves of the last term.
func (f *fleet) moves() (found []change) {
	for _, c := range f.LastPlan().Changes {
		if c.Kind.Op == orchestrator.Move {
			found = append(found, c)
		}
	}
	return found
}

// outcomes counts what came of the changes of the last term.
func (f *fleet) outcomes() map[orchestrator.Outcome]int {
	counts := make(map[orchestrator.Outcome]int)
	for _, c := range f.LastPlan().Changes {
		counts[c.Outcome]++
	}
	return counts
}

// Anything comparable is a name.
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

// A worker drains if it was added so, or if DrainWorker says so, and only the
// same way takes that back.
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 2)
				f.expect(8)
				f.term()
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
			})
		})
	}
}

// Every function of WithStats hears of every term, and of nothing else.
func TestWithStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		note := func(who string) option {
			return orchestrator.WithStats(func(s orchestrator.TermStats) {
				heard = append(heard, fmt.Sprint(who, s.Term.Number))
			})
		}
		f := newFleet(t, 1, note("a"), note("b"))
		f.expect(1)
		f.term()
		_, err := f.Plan(orchestrator.Hypothesis[string, string]{})
		require.NoError(t, err)
		f.Cut("w1")
		f.failingTerm()
		require.Equal(t, []string{"a1", "b1", "a2", "b2"}, heard)
	})
}

// A quiet term logs nothing above Debug, and what happens is logged.
func TestWithLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logs
		f := newFleet(t, 2, orchestrator.WithLogger(l.logger()))
		f.expect(4)
		f.term()
		require.Len(t, l.lines(`"level":"INFO"`, `"term":1`), 1)
		require.Len(t, l.lines(`"level":"DEBUG"`, `"term":1`, `"op":"start","reason":"missing"`, `"to":"w1","outcome":"done"`), 2)
		f.term()
		require.Len(t, l.lines(`"level":"DEBUG"`, `"term":2`), 1)
		require.Empty(t, l.lines(`"level":"INFO"`, `"term":2`))
		f.Cut("w2")
		f.failingTerm()
		require.Len(t, l.lines(`"level":"WARN"`, `"term":3`, `"worker":"w2"`, "cut off"), 1)
	})
}

// However often a worker is replaced by another one of its name, no two calls
// are under way to that name at the same time.
func TestC1_RemovedAndAddedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(4)
		f.term()
		for range 3 {
			f.RemoveWorker("w2")
			require.NoError(t, f.AddWorker("w2"))
			_ = f.NextTerm(t.Context())
		}
		f.Stick("w2")
		_ = f.NextTerm(t.Context())
		time.Sleep(timeout)
		_ = f.NextTerm(t.Context())
		require.Equal(t, 1, f.LastPlan().Stats.Workers.Stuck)
		f.RemoveWorker("w2")
		require.NoError(t, f.AddWorker("w2"))
		_ = f.NextTerm(t.Context()) // the wire fails the test where a second call sets out
	})
}

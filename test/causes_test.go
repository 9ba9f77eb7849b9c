package test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// cause is why a task starts, and the worker that had it.
type cause struct {
	reason orchestrator.Reason
	was    string
}

// causes returns why each task starts, by task, in the order of the changes.
func causes(p plan) map[string][]cause {
	all := make(map[string][]cause)
	for _, c := range p.Changes {
		if c.Kind.Op == orchestrator.Start {
			all[c.Task] = append(all[c.Task], cause{c.Kind.Reason, c.Was})
		}
	}
	return all
}

// requireCauses runs a term and checks why its tasks start. A what-if plan before the term
// says the same.
func (f *fleet) requireCauses(want map[string][]cause) {
	f.t.Helper()
	p := f.plan(hypothesis{})
	_ = f.NextTerm(f.t.Context())
	require.Equal(f.t, want, causes(f.LastPlan()))
	require.Equal(f.t, want, causes(p))
}

func TestD15_LostNamesTheWorker(t *testing.T) {
	inBubble(t, given{workers: 3, running: 3}, func(t *testing.T, f *fleet) {
		t1, t2 := f.Running("t1")[0], f.Running("t2")[0]
		f.Kill(t1)
		_ = f.NextTerm(t.Context())
		require.Empty(t, causes(f.LastPlan()), "it is silent")
		f.waitOutGrace()
		require.Equal(t, map[string][]cause{"t1": {{orchestrator.ReasonLost, t1}}}, causes(f.plan(hypothesis{Lose: []string{t1}})))
		_ = f.NextTerm(t.Context())
		require.Equal(t, map[string][]cause{"t1": {{orchestrator.ReasonLost, t1}}}, causes(f.LastPlan()))

		want := make(map[string][]cause)
		for _, task := range f.RunsOn(t2) { // t1 may have been started there
			want[task] = []cause{{orchestrator.ReasonLost, t2}}
		}
		f.Kill(t2)
		f.RemoveWorker(t2)
		f.requireCauses(want)
	})
}

// Each of several lost instances names its own worker.
func TestD15_SeveralInstances(t *testing.T) {
	inBubble(t, given{workers: 4}, func(t *testing.T, f *fleet) {
		f.expect(1, orchestrator.WithTaskInstances(2))
		f.term()
		on := f.Running("t1")
		f.Kill(on...)
		for _, name := range on {
			f.RemoveWorker(name)
		}
		p := f.plan(hypothesis{})
		f.term()
		for _, p := range []plan{p, f.LastPlan()} {
			require.ElementsMatch(t, []cause{{orchestrator.ReasonLost, on[0]}, {orchestrator.ReasonLost, on[1]}}, causes(p)["t1"])
		}
	})
}

// The name of a removed worker is known as long as its task is missing.
func TestD15_AfterManyTerms(t *testing.T) {
	inBubble(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.Kill("w1")
		f.RemoveWorker("w1")
		for range 3 {
			f.term()
			require.Empty(t, f.LastPlan().Changes)
		}
		f.join("w2")
		f.RemoveTask("t2")
		f.requireCauses(map[string][]cause{"t1": {{orchestrator.ReasonLost, "w1"}}})
		f.requireCauses(map[string][]cause{})
		f.Kill("w2")
		f.RemoveWorker("w2")
		f.join("w3")
		f.requireCauses(map[string][]cause{"t1": {{orchestrator.ReasonLost, "w2"}}})
	})
}

// A worker that restarts empty under its name no longer lists what it ran.
func TestD15_VanishedNamesTheWorker(t *testing.T) {
	inBubble(t, given{workers: 2, running: 2}, func(t *testing.T, f *fleet) {
		on := f.Running("t1")[0]
		want := map[string][]cause{"t1": {{orchestrator.ReasonVanished, on}}}
		f.Kill(on)
		f.Start(on)
		f.term()
		require.Equal(t, want, causes(f.LastPlan()))
		f.requireCauses(map[string][]cause{})
		// The reason is the same when the start is tried again.
		f.RemoveTask("t2")
		on = f.Running("t1")[0]
		want["t1"][0].was = on
		f.Kill(on)
		f.Start(on)
		f.failAdds(errRejected, "w1", "w2")
		_ = f.NextTerm(t.Context())
		require.Equal(t, want, causes(f.LastPlan()))
		f.Refuse(nil)
		for f.term(); len(f.LastPlan().Changes) == 0; f.term() {
			require.Less(t, f.termNumber(), uint64(20), "the start pauses")
		}
		require.Equal(t, want, causes(f.LastPlan()))
		f.requireCauses(map[string][]cause{})
	})
}

// A task whose stop was sent did not vanish, whatever the answer to the stop.
func TestD15_StoppedIsNotVanished(t *testing.T) {
	inBubble(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.join("w2")
		f.intercept(func(ctx context.Context, c call) error {
			if c.Op == orchestrator.OpRemove {
				require.NoError(t, f.Cluster.Remove(ctx, c.Worker, c.Task))
				return errors.New("the answer is lost")
			}
			return nil
		})
		require.Error(t, f.NextTerm(t.Context()))
		task := f.moves()[0].Task
		require.Equal(t, orchestrator.OutcomeUnknown, f.moves()[0].Outcome)
		f.intercept(nil)
		f.term()
		require.Equal(t, map[string][]cause{task: {{orchestrator.ReasonMissing, ""}}}, causes(f.LastPlan()))
	})
}

func TestD15_NewTasksWereNowhere(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 1}, func(t *testing.T, f *fleet) {
		f.term()
		require.Equal(t, map[string][]cause{"t1": {{orchestrator.ReasonMissing, ""}}}, causes(f.LastPlan()))
	})
}

// Another instance that runs does not hide where a lost one was.
func TestD15_BesideOtherInstances(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		f.expect(1, orchestrator.WithTaskInstances(2))
		f.term()
		f.Kill("w1")
		f.Start("w1")
		want := map[string][]cause{"t1": {{orchestrator.ReasonVanished, "w1"}}}
		f.term() // in which w2 lists what it has acknowledged since its last answer
		require.Equal(t, want, causes(f.LastPlan()))
	})
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		f.expect(1, orchestrator.WithTaskInstances(3))
		f.term()
		for _, name := range []string{"w1", "w2"} {
			f.Kill(name)
			f.RemoveWorker(name)
		}
		f.term()
		for _, name := range []string{"w4", "w5"} {
			f.join(name)
			f.term()
		}
		require.Equal(t, map[string][]cause{"t1": {{orchestrator.ReasonLost, "w1"}}}, causes(f.LastPlan()))
	})
}

// A start that was not needed leaves no cause for a later one.
func TestD15_FoundAgain(t *testing.T) {
	inBubble(t, given{workers: 2, running: 2}, func(t *testing.T, f *fleet) {
		on := f.Running("t1")[0]
		f.Kill(on)
		f.RemoveWorker(on)
		f.intercept(func(ctx context.Context, c call) error {
			if c.Op == orchestrator.OpAdd {
				require.NoError(t, f.Cluster.Add(ctx, c.Worker, c.Task))
				return errors.New("the answer is lost")
			}
			return nil
		})
		require.Error(t, f.NextTerm(t.Context()))
		require.Equal(t, map[string][]cause{"t1": {{orchestrator.ReasonLost, on}}}, causes(f.LastPlan()))
		f.intercept(nil)
		f.term()
		require.Empty(t, f.LastPlan().Changes)
		f.join("w3")
		require.NoError(t, f.AddTask("t1", orchestrator.WithTaskInstances(2)))
		f.term()
		require.Equal(t, map[string][]cause{"t1": {{orchestrator.ReasonMissing, ""}}}, causes(f.LastPlan()))
	})
}

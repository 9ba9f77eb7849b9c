package test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T13: terms that only look (WithDryRun), and the seed that makes plans repeatable.

// shadow returns a leader of the same workers and tasks that only looks.
func (f *fleet) shadow(opts ...option) *fleet {
	f.t.Helper()
	return f.successor(append(opts, orchestrator.WithDryRun())...)
}

// It writes nothing, and its plan is that of a leader.
func TestDryRun_WritesNothing(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 3)
		f.expect(9)
		f.term()
		require.NoError(t, f.DrainWorker("w1"))
		f.RemoveTask("t9")
		require.NoError(t, f.AddTask("new"))

		var reported []orchestrator.TermStats
		dry := f.shadow(orchestrator.WithStats(func(s orchestrator.TermStats) { reported = append(reported, s) }))
		require.NoError(t, dry.DrainWorker("w1"))
		f.forget()
		for range 3 {
			dry.term()
			p := dry.LastPlan()
			require.NotEmpty(t, p.Changes)
			for _, c := range p.Changes {
				require.Equal(t, orchestrator.OutcomeDry, c.Outcome)
				require.NoError(t, c.Err)
			}
			require.Equal(t, map[orchestrator.Outcome]int{orchestrator.OutcomeDry: len(p.Changes)}, p.Stats.Outcomes)
			require.Equal(t, 1, p.Stats.Instances.Missing)
			require.Zero(t, p.Stats.Writing)
			for _, s := range dry.LastActual() {
				require.ElementsMatch(t, f.RunsOn(s.Name), s.Tasks)
			}
		}
		require.Empty(t, f.writes())
		require.Len(t, f.lists(), 9)
		require.Len(t, reported, 3)

		planned := dry.plan(hypothesis{})
		require.Equal(t, stripped(dry.LastPlan().Changes), stripped(planned.Changes))
		f.term()
		require.Equal(t, stripped(f.LastPlan().Changes), stripped(dry.LastPlan().Changes))
		dry.term()
		require.Empty(t, dry.LastPlan().Changes, "the leader has done it")
	})
}

// Its calls carry no identity, so that they fence no worker: the leader leads on.
func TestT13_ADryRunCarriesNoIdentity(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 2)
		f.expect(4)
		f.term()
		dry := f.shadow()
		f.forget()
		dry.term()
		dry.term()
		require.Len(t, f.lists(), 4)
		for _, c := range f.lists() {
			require.Zero(t, c.Term)
		}
		require.NotZero(t, dry.LastPlan().Stats.Term)
		f.expect(6)
		f.term()
		f.requireSettled()
	})
}

// It sees silence, loss and late workers as a leader does, and learns of no failed
// starts.
func TestDryRun_SeesWhatALeaderSees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.expect(12)
		f.term()
		dry := f.shadow()
		dry.term()
		f.Cut("w2")
		f.anyTerm()
		dry.silentTerm("w2")
		require.Equal(t, orchestrator.Silent, dry.state("w2").State)
		require.Len(t, dry.waitingFor(orchestrator.ReasonHeld), 3)
		dry.waitOutGrace()
		require.Error(t, dry.NextTerm(t.Context()))
		require.Equal(t, orchestrator.Lost, dry.state("w2").State)
		require.Len(t, dry.starts(), 3)
		require.Error(t, dry.NextTerm(t.Context()))
		require.Len(t, dry.starts(), 3, "nothing was started")
		require.Equal(t, orchestrator.ReasonLost, dry.starts()[0].Kind.Reason)
		require.Empty(t, dry.LastPlan().Paused)
	})
}

// Under Run it looks at every tick.
func TestDryRun_Run(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(4)
		dry := f.shadow()
		f.forget()
		ctx, cancel := context.WithTimeout(t.Context(), 5*tick+tick/2)
		defer cancel()
		require.ErrorIs(t, dry.Run(ctx, tick), context.DeadlineExceeded)
		require.Empty(t, f.writes())
		require.EqualValues(t, 6, dry.termNumber())
		require.Len(t, dry.starts(), 4)
	})
}

// The same seed and history make the same plans. Without a seed plans differ.
func TestWithSeed(t *testing.T) {
	plans := func(t *testing.T, opts ...option) (text string) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleetOn(t, newWire(t), recorder[string, string](make(map[string][]string)), 8, opts...)
			f.expect(20)
			f.term()
			for _, c := range f.LastPlan().Changes {
				text += fmt.Sprint(c.Task, c.To, " ")
			}
		})
		return text
	}
	seed := orchestrator.WithSeed
	first := plans(t, seed(1))
	require.Equal(t, first, plans(t, seed(1)))
	require.Equal(t, plans(t), plans(t, seed(0)), "the tests' default: workers added first come first")
	different := make(map[string]bool)
	for n := range uint64(20) {
		different[plans(t, seed(n))] = true
	}
	require.Greater(t, len(different), 3)
	drawn := make(map[string]bool)
	for range 20 {
		lists := make(map[string][]string)
		o, err := orchestrator.New(recorder[string, string](lists))
		require.NoError(t, err)
		require.NoError(t, o.UpdateWorkers([]member{{Name: "w1"}, {Name: "w2"}, {Name: "w3"}, {Name: "w4"}}))
		require.NoError(t, o.AddTask("t1"))
		require.NoError(t, o.NextTerm(t.Context()))
		drawn[o.LastPlan().Changes[0].To] = true
	}
	require.Greater(t, len(drawn), 1)
}

package test

// T13: the term that calls carry, dry runs (WithDryRun), and the seed that makes plans
// repeatable.

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// identities is a tap that records the term of each call.
type identities struct {
	mu    sync.Mutex
	calls map[string]orchestrator.Term // of those that carry one
	bare  []string                     // those that do not
}

func (i *identities) tap(ctx context.Context, c call) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if id, ok := orchestrator.TermFromContext(ctx); ok {
		i.calls[c.String()] = id
	} else {
		i.bare = append(i.bare, c.String())
	}
	return nil
}

func (f *fleet) noteIdentities() *identities {
	i := &identities{calls: make(map[string]orchestrator.Term)}
	f.intercept(i.tap)
	return i
}

// Every call of a term carries it: List, Add and Remove, one by one or in an
// Apply.
func TestT13_EveryCallCarriesTheTerm(t *testing.T) {
	onBothWires(t, given{workers: 1, expected: 2, opts: options{orchestrator.WithEpoch(7)}}, func(t *testing.T, f *fleet) {
		first := f.noteIdentities()
		f.term()
		one := orchestrator.Term{Epoch: 7, Number: 1}
		require.Equal(t, map[string]orchestrator.Term{"list w1": one, "add t1 w1": one, "add t2 w1": one}, first.calls)
		require.Empty(t, first.bare)
		require.Equal(t, one, f.LastPlan().Stats.Term)

		f.join("w2")
		second := f.noteIdentities()
		f.term()
		require.Len(t, second.calls, 4, "two lists, and the halves of a move")
		for c, id := range second.calls {
			require.Equal(t, orchestrator.Term{Epoch: 7, Number: 2}, id, c)
		}
		require.Empty(t, second.bare)
	})
}

// Every call has a deadline, and the values of the caller's context.
func TestT13_EveryCallHasADeadlineAndTheCallersValues(t *testing.T) {
	onBothWires(t, given{workers: 1, expected: 2}, func(t *testing.T, f *fleet) {
		type key struct{}
		seen := make(chan bool, 10)
		f.intercept(func(ctx context.Context, _ call) error {
			deadline, ok := ctx.Deadline()
			seen <- ok && time.Until(deadline) <= timeout && ctx.Value(key{}) == "value"
			return nil
		})
		require.NoError(t, f.NextTerm(context.WithValue(t.Context(), key{}, "value")))
		require.Len(t, seen, 3)
		for range 3 {
			require.True(t, <-seen)
		}
	})
}

// The number rises with every term, even with one that was cut short.
func TestT13_NumbersRise(t *testing.T) {
	inBubble(t, given{workers: 1, expected: 1}, func(t *testing.T, f *fleet) {
		var last uint64
		for i := range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			ids := f.noteIdentities()
			if i%3 == 1 {
				f.intercept(func(ctx context.Context, c call) error { cancel(); return ids.tap(ctx, c) })
			}
			_ = f.NextTerm(ctx)
			cancel()
			require.Greater(t, ids.calls["list w1"].Number, last)
			last = ids.calls["list w1"].Number
		}
	})
}

func TestT13_Epoch(t *testing.T) {
	for name, c := range map[string]struct {
		opts options
		want func(now time.Time) uint64
	}{
		"by default the wall clock when New was called": {
			nil, func(now time.Time) uint64 { return uint64(now.UnixMilli()) },
		},
		"zero means the default": {
			options{orchestrator.WithEpoch(0)}, func(now time.Time) uint64 { return uint64(now.UnixMilli()) },
		},
		"as given":    {options{orchestrator.WithEpoch(5)}, func(time.Time) uint64 { return 5 }},
		"the largest": {options{orchestrator.WithEpoch(orchestrator.MaxEpoch)}, func(time.Time) uint64 { return orchestrator.MaxEpoch }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(12345 * time.Millisecond)
				made := time.Now()
				f := newFleet(t, given{workers: 1, opts: c.opts})
				time.Sleep(time.Hour)
				ids := f.noteIdentities()
				f.term()
				require.Equal(t, c.want(made), ids.calls["list w1"].Epoch)
			})
		})
	}
}

// The epoch rises from the next term on, and never falls. The numbers go on.
func TestR7_RaiseEpoch(t *testing.T) {
	inBubble(t, given{workers: 1, running: 1, opts: options{orchestrator.WithEpoch(5)}}, func(t *testing.T, f *fleet) {
		last := f.LastPlan().Stats.Term
		require.Equal(t, uint64(5), last.Epoch)
		for _, c := range []struct{ raise, want uint64 }{{7, 7}, {6, 7}, {0, 7}, {8, 8}} {
			f.RaiseEpoch(c.raise)
			require.Equal(t, c.want, f.Config().Epoch)
			f.term()
			last.Epoch, last.Number = c.want, last.Number+1
			require.Equal(t, last, f.LastPlan().Stats.Term)
		}
		require.NoError(t, f.AddTask("later"))
		f.term()
		require.Len(t, f.Running("later"), 1)
	})
}

// Of two leaders without WithEpoch the one started last wins, and the other is deposed.
func TestT13_TheLeaderStartedLastWins(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, old *fleet) {
		young := old.successor()
		young.term()
		require.NoError(t, old.AddTask("late"))
		require.ErrorIs(t, old.NextTerm(t.Context()), orchestrator.ErrDeposed)
		require.Empty(t, young.Running("late"))
		young.requireSettled()
	})
}

func TestT13_TermCompare(t *testing.T) {
	term := func(epoch, number uint64) orchestrator.Term { return orchestrator.Term{Epoch: epoch, Number: number} }
	ordered := []orchestrator.Term{{}, term(0, 1), term(1, 0), term(1, 9), term(2, 1), term(1<<63, 0)}
	for i, a := range ordered {
		for j, b := range ordered {
			switch {
			case i < j:
				require.Equal(t, -1, a.Compare(b))
			case i > j:
				require.Equal(t, 1, a.Compare(b))
			default:
				require.Zero(t, a.Compare(b))
			}
		}
	}
}

func TestT13_TermInAContext(t *testing.T) {
	_, ok := orchestrator.TermFromContext(t.Context())
	require.False(t, ok)
	ctx := orchestrator.ContextWithTerm(t.Context(), orchestrator.Term{Epoch: 1, Number: 2})
	ctx = orchestrator.ContextWithTerm(ctx, orchestrator.Term{Epoch: 3, Number: 4})
	id, ok := orchestrator.TermFromContext(ctx)
	require.True(t, ok)
	require.Equal(t, orchestrator.Term{Epoch: 3, Number: 4}, id)

	var buf bytes.Buffer
	slog.New(slog.NewTextHandler(&buf, nil)).Info("x", "term", id)
	require.Contains(t, buf.String(), "term.epoch=3 term.number=4")
}

// shadow returns a leader of the same workers and tasks with WithDryRun.
func (f *fleet) shadow(opts ...option) *fleet {
	f.t.Helper()
	return f.successor(append(opts, orchestrator.WithDryRun())...)
}

// A dry run writes nothing, and its plan is that of a leader.
func TestDryRun_WritesNothing(t *testing.T) {
	onBothWires(t, given{workers: 3, running: 9}, func(t *testing.T, f *fleet) {
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

// The calls of a dry run carry no term, so they raise no fence, and the leader continues.
// Plan makes no call.
func TestT13_ADryRunCarriesNoIdentity(t *testing.T) {
	onBothWires(t, given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
		dry := f.shadow()
		f.forget()
		dry.term()
		dry.term()
		_, err := dry.Plan(orchestrator.Hypothesis[string, string]{})
		require.NoError(t, err)
		require.Len(t, f.lists(), 4)
		require.Empty(t, f.writes())
		for _, c := range f.lists() {
			require.Zero(t, c.Term)
		}
		require.NotZero(t, dry.LastPlan().Stats.Term)
		f.expect(6)
		f.term()
		f.requireSettled()
	})
}

// A dry run sees silent, lost and late workers as a leader does. It learns of no failed
// starts.
func TestDryRun_SeesWhatALeaderSees(t *testing.T) {
	inBubble(t, given{workers: 4, running: 12}, func(t *testing.T, f *fleet) {
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

// Under Run, a dry run lists the workers at every tick.
func TestDryRun_Run(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 4}, func(t *testing.T, f *fleet) {
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

// Equal seeds and histories lead to equal plans. Without a seed, plans differ.
func TestWithSeed(t *testing.T) {
	plans := func(t *testing.T, opts ...option) (text string) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleetOn(t, newWire(t), recorder[string, string](make(map[string][]string)), given{workers: 8, expected: 20, opts: opts})
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

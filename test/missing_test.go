package test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// explained returns how many missing instances of each task the last plan explains, and
// checks that it explains each once.
func (f *fleet) explained() map[string]int {
	f.t.Helper()
	p := f.LastPlan()
	missing, sum := make(map[string]int), 0
	for _, w := range p.Waiting {
		switch w.Kind() {
		case orchestrator.WaitingUnplaced, orchestrator.WaitingFailing:
			missing[w.Task] += w.Instances
			sum += w.Instances
		case orchestrator.WaitingHeld, orchestrator.WaitingStaying:
		default:
			require.Fail(f.t, "no such kind", w.Kind())
		}
	}
	require.Equal(f.t, p.Stats.Instances.Missing, sum, "%v", p)
	return missing
}

// TestD14_EveryMissingInstance runs terms in which starts are refused, hang, are answered
// late or get lost, while workers come and go, and checks that each missing instance is
// explained once.
func TestD14_EveryMissingInstance(t *testing.T) {
	for seed := range uint64(20) {
		onBothWires(t, given{workers: 5, opts: options{orchestrator.WithMaxMoves(3)}}, func(t *testing.T, f *fleet) {
			r := rand.New(rand.NewPCG(seed, 1))
			for i, name := range names("t", 12) {
				require.NoError(t, f.AddTask(name, orchestrator.WithTaskInstances(1+i%3)))
			}
			for range 15 {
				name := f.workers[r.IntN(len(f.workers))]
				switch r.IntN(8) {
				case 0:
					f.Cut(name)
				case 1:
					f.Hang(name)
				case 2:
					f.LoseAnswers(name)
				case 3:
					f.failAdds(errRejected, name)
				case 4:
					f.failAdds(errAway)
				case 5:
					require.NoError(t, f.DrainWorker(name))
				case 6:
					require.NoError(t, f.UndrainWorker(name))
				case 7:
					f.Heal()
					f.Refuse(nil)
				}
				_ = f.NextTerm(t.Context())
				missing := f.explained()
				for _, task := range f.ListExpectedTasks() {
					f.requireExplained(task, missing[task.Name])
				}
			}
		})
	}
}

// TestD14_Kinds checks the kind of each reason.
func TestD14_Kinds(t *testing.T) {
	kinds := map[waiting]orchestrator.WaitingKind{
		{Reason: orchestrator.ReasonHeld, Named: true}:          orchestrator.WaitingHeld,
		{Reason: orchestrator.ReasonNeverAnswered, Named: true}: orchestrator.WaitingUnplaced,
		{Reason: orchestrator.ReasonInitialWait}:                orchestrator.WaitingUnplaced,
		{Reason: orchestrator.ReasonNoWorker}:                   orchestrator.WaitingUnplaced,
		{Reason: orchestrator.ReasonNoWorker, Named: true}:      orchestrator.WaitingStaying,
		{Reason: orchestrator.ReasonNoOtherWorker}:              orchestrator.WaitingUnplaced,
		{Reason: orchestrator.ReasonNoOtherWorker, Named: true}: orchestrator.WaitingStaying,
		{Reason: orchestrator.ReasonPaused}:                     orchestrator.WaitingFailing,
		{Reason: orchestrator.ReasonPaused, Named: true}:        orchestrator.WaitingStaying,
		{Reason: orchestrator.ReasonPinned, Named: true}:        orchestrator.WaitingStaying,
		{Reason: orchestrator.ReasonSkipped, Named: true}:       orchestrator.WaitingUnplaced,
		{Reason: orchestrator.ReasonFailed, Named: true}:        orchestrator.WaitingFailing,
	}
	for w, want := range kinds {
		require.Equal(t, want, w.Kind(), "%+v", w)
	}
}

// TestD14_WhileItIsTried: a task that is refused is failing in each term, those in which it
// is tried and those in which it pauses.
func TestD14_WhileItIsTried(t *testing.T) {
	onBothWires(t, given{workers: 3, expected: 3}, func(t *testing.T, f *fleet) {
		f.addPoison()
		for range 20 {
			_ = f.NextTerm(t.Context())
			require.Equal(t, map[string]int{"poison": 1}, f.explained())
			for _, w := range f.LastPlan().Waiting {
				require.Equal(t, orchestrator.WaitingFailing, w.Kind())
			}
		}
	})
}

// TestD14_StoppedByAMove: a move that leaves its task stopped leaves it missing.
func TestD14_StoppedByAMove(t *testing.T) {
	onBothWires(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.join("w2")
		f.failAdds(errAway, "w2")
		_ = f.NextTerm(t.Context())
		require.Equal(t, map[string]int{f.moves()[0].Task: 1}, f.explained())
		require.Equal(t, []waiting{{Task: f.moves()[0].Task, Instances: 1, Reason: orchestrator.ReasonFailed, Worker: "w2", Named: true}}, f.LastPlan().Waiting)
	})
}

// TestD14_NotWritten: what a plan without writes starts does not wait.
func TestD14_NotWritten(t *testing.T) {
	inBubble(t, given{workers: 1, expected: 1, opts: options{orchestrator.WithDryRun()}}, func(t *testing.T, f *fleet) {
		f.term()
		require.Empty(t, f.LastPlan().Waiting)
		require.Empty(t, f.plan(hypothesis{}).Waiting)
	})
}

// requireExplained checks what Explain says of a task of which some instances are missing:
// it has a reason for each worker, and agrees with the snapshot.
func (f *fleet) requireExplained(task task, missing int) {
	f.t.Helper()
	s := f.Last()
	e, ok := s.Explain(task.Name)
	require.True(f.t, ok)
	require.Equal(f.t, task.Instances, e.Instances)
	require.Equal(f.t, missing, e.Missing)
	held := make(map[string]bool)
	for _, w := range s.Plan().Waiting {
		if w.Task == task.Name && w.Kind() == orchestrator.WaitingHeld {
			held[w.Worker] = true
		}
	}
	i, has := 0, 0
	for w := range s.Workers() {
		row := e.Workers[i]
		require.Equal(f.t, w.Name, row.Worker)
		require.Equal(f.t, slices.Contains(w.Tasks, task.Name) || held[w.Name], row.Has, "%+v", row)
		require.NotEmpty(f.t, row.Reason)
		if row.Has {
			has++
		}
		switch row.Reason {
		case orchestrator.ReasonEnough:
			require.Zero(f.t, e.Missing, "%+v", row)
		case orchestrator.ReasonElsewhere:
			require.NotZero(f.t, e.Missing, "%+v", row)
		case orchestrator.ReasonFailed, orchestrator.ReasonSkipped:
			require.True(f.t, slices.ContainsFunc(s.Plan().Changes, func(c change) bool {
				return c.Task == task.Name && c.To == row.Worker
			}), "its own start failed: %+v", row)
		}
		i++
	}
	require.GreaterOrEqual(f.t, has+e.Missing, task.Instances)
}

// TestD14_WhyNotThere checks the reason of a worker in each state.
func TestD14_WhyNotThere(t *testing.T) {
	inBubble(t, given{workers: 5, expected: 5, opts: options{hold}}, func(t *testing.T, f *fleet) {
		f.term()
		row := func(task, worker string) orchestrator.WorkerReason[string] {
			t.Helper()
			e, ok := f.Last().Explain(task)
			require.True(t, ok)
			i := slices.IndexFunc(e.Workers, func(w orchestrator.WorkerReason[string]) bool { return w.Worker == worker })
			return e.Workers[i]
		}
		reason := func(task, worker string) orchestrator.Reason { t.Helper(); return row(task, worker).Reason }
		home := f.Running("t1")[0]
		require.Equal(t, orchestrator.WorkerReason[string]{Worker: home, Has: true, Reason: orchestrator.ReasonMissing}, row("t1", home))
		f.term()
		require.Equal(t, orchestrator.WorkerReason[string]{Worker: home, Has: true, Reason: orchestrator.ReasonStays}, row("t1", home))
		other := f.Running("t2")[0]
		require.Equal(t, orchestrator.WorkerReason[string]{Worker: other, Reason: orchestrator.ReasonEnough}, row("t1", other))

		f.Cut(home)
		f.silentTerm(home)
		require.Equal(t, orchestrator.WorkerReason[string]{Worker: home, Has: true, Reason: orchestrator.ReasonHeld}, row("t1", home))
		require.Equal(t, orchestrator.ReasonSilent, reason("t2", home))
		f.heal()

		require.NoError(t, f.DrainWorker(home))
		f.term()
		require.Equal(t, orchestrator.ReasonDrain, reason("t1", home))
		require.Equal(t, orchestrator.ReasonDrain, reason("t2", home))
		require.Equal(t, orchestrator.ReasonDrain, reason("t1", f.Running("t1")[0]))

		f.addPoison()
		require.Len(t, f.failingTerm(), 1)
		tried := f.LastPlan().Changes[0].To
		require.Equal(t, orchestrator.WorkerReason[string]{
			Worker: tried, Reason: orchestrator.ReasonFailed, Until: f.termNumber() + 2, Failure: errRejected.Error(),
		}, row("poison", tried))

		for _, name := range f.workers {
			if name != tried && name != home {
				require.Equal(t, orchestrator.ReasonElsewhere, reason("poison", name))
			}
		}

		_, ok := f.Last().Explain("unknown")
		require.False(t, ok)
		f.RemoveTask("t2")
		f.refuse(orchestrator.OpRemove, "", "t2", errRejected)
		_ = f.NextTerm(t.Context())
		for _, name := range f.workers {
			want := orchestrator.ReasonUnexpected
			if name == f.Running("t2")[0] {
				want = orchestrator.ReasonStopping
			}
			require.Equal(t, want, reason("t2", name))
		}
	})
}

// TestD14_HungStop: while the stop of a move is under way or fails, no start has failed, and the task does
// not simply stay.
func TestD14_HungStop(t *testing.T) {
	for _, failure := range []error{orchestrator.ErrStopping, errRejected} {
		inBubble(t, given{workers: 3, expected: 3, opts: options{hold}}, func(t *testing.T, f *fleet) {
			f.term()
			home := f.Running("t1")[0]
			f.refuse(orchestrator.OpRemove, home, "t1", failure)
			require.NoError(t, f.DrainWorker(home))
			_ = f.NextTerm(t.Context())
			change := f.LastPlan().Changes[0]
			require.Equal(t, orchestrator.Move, change.Kind.Op)
			e, _ := f.Last().Explain("t1")
			for _, row := range e.Workers {
				switch row.Worker {
				case home, change.To:
					require.Equal(t, orchestrator.WorkerReason[string]{Worker: row.Worker, Has: row.Worker == home, Reason: orchestrator.ReasonStopping}, row)
				default:
					require.Equal(t, orchestrator.ReasonEnough, row.Reason)
				}
			}
		})
	}
}

// TestD14_NotStarted: a term that did not plan, or did not write, explains what it left
// missing.
func TestD14_NotStarted(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 2}, func(t *testing.T, f *fleet) {
		ctx, cancel := context.WithCancel(t.Context())
		f.Hang("w1")
		time.AfterFunc(time.Second/2, cancel)
		require.ErrorIs(t, f.NextTerm(ctx), context.Canceled)
		e, ok := f.Last().Explain("t1")
		require.True(t, ok)
		require.Equal(t, orchestrator.Explanation[string]{Instances: 1, Missing: 1, Workers: []orchestrator.WorkerReason[string]{
			{Worker: "w1", Reason: orchestrator.ReasonSilent}, {Worker: "w2", Reason: orchestrator.ReasonCut},
		}}, e)
	})
	inBubble(t, given{workers: 2, expected: 1, opts: options{orchestrator.WithDryRun()}}, func(t *testing.T, f *fleet) {
		f.term()
		c := f.LastPlan().Changes[0]
		e, ok := f.Last().Explain("t1")
		require.True(t, ok)
		require.Equal(t, f.LastPlan().Stats.Instances.Missing, e.Missing)
		for _, row := range e.Workers {
			want := orchestrator.ReasonElsewhere
			if row.Worker == c.To {
				want = orchestrator.ReasonSkipped
			}
			require.Equal(t, want, row.Reason)
		}
	})
}

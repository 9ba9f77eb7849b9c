package test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

type snapshot = orchestrator.Snapshot[string, string]

// TestD1_OneTerm reads snapshots while terms end: the figures, the rows and the workers of
// each agree.
func TestD1_OneTerm(t *testing.T) {
	inBubble(t, given{workers: 3, expected: 9}, func(t *testing.T, f *fleet) {
		require.Nil(t, f.Last())
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 2 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if s := f.Last(); s != nil {
						requireOneTerm(t, s)
					}
				}
			})
		}
		for i := range 30 {
			f.expect(6 + i%5)
			if i%3 == 0 {
				require.NoError(t, f.DrainWorker("w1"))
			} else {
				require.NoError(t, f.UndrainWorker("w1"))
			}
			f.term()
			requireOneTerm(t, f.Last())
		}
		close(stop)
		wg.Wait()
		require.Equal(t, f.LastPlan(), f.Last().Plan())
		require.Equal(t, f.LastActual(), slices.Collect(f.Last().Workers()))
		require.Equal(t, f.ListExpectedTasks(), slices.Collect(f.Last().Expected()))
	})
}

// requireOneTerm checks that the parts of a snapshot, of a term without failures, agree.
func requireOneTerm(t *testing.T, s *snapshot) {
	t.Helper()
	p := s.Plan()
	loads := slices.Collect(s.Loads())
	i, running := 0, 0
	for w := range s.Workers() {
		row := p.Workers[i]
		require.Equal(t, row.Name, w.Name)
		require.Equal(t, row.State, w.State)
		require.Equal(t, row.Draining, w.Draining)
		require.Len(t, w.Tasks, row.After)
		require.Equal(t, row.After, loads[i])
		running += len(w.Tasks)
		i++
	}
	require.Len(t, p.Workers, i)
	require.Equal(t, p.Stats.Instances.Running, running)
	require.Len(t, slices.Collect(s.Expected()), p.Stats.Instances.Wanted)
}

// TestD1_Kept checks that a snapshot does not change when later terms and callers do.
func TestD1_Kept(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
		s := f.Last()
		plan, workers, expected := s.Plan(), f.LastActual(), slices.Collect(s.Expected())
		f.LastActual()[0].Tasks[0] = "changed by a caller, who owns it"
		f.expect(1)
		require.NoError(t, f.AddTask("t9"))
		f.RemoveWorker("w2")
		f.term()
		require.Equal(t, plan, s.Plan())
		require.Equal(t, workers, slices.Collect(s.Workers()))
		require.Equal(t, expected, slices.Collect(s.Expected()))
		for range s.Workers() { // an iteration may end early
			break
		}
		for range s.Expected() {
			break
		}
	})
}

// TestD3_Reading reads during a term, which hangs, and ends a term during a read.
func TestD3_Reading(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
		f.Hang("w1")
		before := f.Last()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = f.NextTerm(t.Context())
		}()
		synctest.Wait()
		now := time.Now()
		require.Same(t, before, f.Last())
		require.Len(t, slices.Collect(f.Last().Workers()), 2)
		require.Len(t, f.LastActual(), 2)
		require.Equal(t, timeout, f.Config().CommunicatorTimeout)
		require.NotZero(t, f.Progress())
		f.OnTerm(func(*snapshot) {})()
		require.Equal(t, now, time.Now())
		for range before.Workers() {
			<-done
		}
		require.NotSame(t, before, f.Last())
	})
}

func TestOnTerm(t *testing.T) {
	inBubble(t, given{workers: 1, expected: 1}, func(t *testing.T, f *fleet) {
		var calls []string
		var stopB, stopC func()
		stopA := f.OnTerm(func(s *snapshot) {
			require.Same(t, s, f.Last())
			require.Equal(t, f.terms.all()[len(f.terms.all())-1].Term, s.Plan().Stats.Term, "functions of WithStats come first")
			calls = append(calls, "a")
			stopB()
			stopC()
		})
		stopB = f.OnTerm(func(*snapshot) { calls = append(calls, "b") })
		stopC = f.OnTerm(func(*snapshot) { calls = append(calls, "c") })
		f.term()
		require.Equal(t, []string{"a"}, calls)
		f.OnTerm(func(*snapshot) { calls = append(calls, "d") })
		f.term()
		require.Equal(t, []string{"a", "a", "d"}, calls)
		stopA()
		stopA()
		f.term()
		require.Equal(t, []string{"a", "a", "d", "d"}, calls)
	})
}

func TestConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, given{workers: 1, opts: options{orchestrator.WithEpoch(7)}})
		want := orchestrator.Config{
			CommunicatorTimeout: 10 * time.Second, Concurrency: 1024, GracePeriod: 30 * time.Second,
			Handoff: orchestrator.StopThenStart, MaxMoves: -1, FirstMoves: 1, MaxLoss: 0.5, Settle: 200 * time.Millisecond,
			Epoch: 7, MaxPause: time.Minute, Band: 0.05,
		}
		require.Equal(t, want, f.Config())
		stop := f.start(time.Minute)
		synctest.Wait()
		running := want
		running.Every, running.GracePeriod = time.Minute, 3*time.Minute
		require.Equal(t, running, f.Config())
		_ = stop(nil)
		require.Equal(t, want, f.Config())
	})
}

// delayWrites delays each Remove and each Add.
func (f *fleet) delayWrites(remove, add time.Duration) {
	f.intercept(func(_ context.Context, c call) error {
		switch c.Op {
		case orchestrator.OpRemove:
			time.Sleep(remove)
		case orchestrator.OpAdd:
			time.Sleep(add)
		}
		return nil
	})
}

// TestD_TimesOfAChange checks when changes began, how long they took, and how long a move
// left its instance stopped.
func TestD_TimesOfAChange(t *testing.T) {
	const stop, start = 2 * time.Second, 3 * time.Second
	inBubble(t, given{workers: 1, expected: 2}, func(t *testing.T, f *fleet) {
		f.delayWrites(stop, start)
		began := time.Now()
		f.term()
		for i, c := range f.LastPlan().Changes { // one after the other
			require.Equal(t, began.Add(time.Duration(i)*start), c.Began)
			require.Equal(t, start, c.Took)
			require.Zero(t, c.Gap)
		}
		f.RemoveTask("t1")
		f.RemoveTask("t2")
		f.term()
		for _, c := range f.LastPlan().Changes {
			require.Equal(t, stop, c.Took)
			require.Zero(t, c.Gap)
		}
	})
	for handoff, gap := range map[orchestrator.Handoff]time.Duration{
		orchestrator.StopThenStart: start, orchestrator.StartThenStop: 0,
	} {
		onBothWires(t, given{workers: 1, running: 2, opts: options{orchestrator.WithHandoff(handoff)}}, func(t *testing.T, f *fleet) {
			f.delayWrites(stop, start)
			f.join("w2")
			began := time.Now()
			f.term()
			move := f.moves()[0]
			require.Equal(t, began, move.Began)
			require.Equal(t, stop+start, move.Took)
			require.Equal(t, gap, move.Gap)
		})
	}
}

// TestD_GapOfAFailedMove: a task that is given back was stopped until then, and one that is
// not was stopped until the end of the term.
func TestD_GapOfAFailedMove(t *testing.T) {
	for err, want := range map[error]time.Duration{errRejected: 2 * time.Second, errAway: time.Second} {
		inBubble(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
			f.join("w2")
			f.intercept(func(_ context.Context, c call) error {
				if c.Op != orchestrator.OpAdd {
					return nil
				}
				time.Sleep(time.Second)
				if c.Worker == "w2" {
					return err
				}
				return nil
			})
			_ = f.NextTerm(t.Context())
			move := f.moves()[0]
			require.Equal(t, errors.Is(err, errRejected), move.Outcome == orchestrator.OutcomeReturned)
			require.Equal(t, want, move.Gap)
			require.Equal(t, want, move.Took)
		})
	}
}

// TestD_TimesOfWhatWasNotBegun: nothing was called, so there are no times.
func TestD_TimesOfWhatWasNotBegun(t *testing.T) {
	inBubble(t, given{workers: 1, expected: 1, opts: options{orchestrator.WithDryRun()}}, func(t *testing.T, f *fleet) {
		f.term()
		require.Zero(t, f.LastPlan().Changes[0].Began)
		require.Zero(t, f.plan(hypothesis{}).Changes[0].Began)
	})
}

// TestD_WorkerState checks since when a worker is in its state, and why.
func TestD_WorkerState(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 2}, func(t *testing.T, f *fleet) {
		since := time.Now()
		f.Slow(time.Second/2, "w1")
		f.term()
		f.Heal("w1")
		requireState := func(state orchestrator.State, term uint64) {
			t.Helper()
			w := f.state("w1")
			require.Equal(t, state, w.State)
			require.Equal(t, since, w.Since)
			require.Equal(t, term, w.SinceTerm)
			require.Equal(t, state == orchestrator.Answering, w.Err == nil)
		}
		requireState(orchestrator.Answering, 1)
		require.Equal(t, time.Second/2, f.state("w1").ListTook)
		time.Sleep(time.Second)
		f.term()
		requireState(orchestrator.Answering, 1)
		require.Zero(t, f.state("w1").ListTook)

		f.Cut("w1")
		since = time.Now()
		f.silentTerm("w1")
		requireState(orchestrator.Silent, 3)
		f.silentTerm("w1")
		requireState(orchestrator.Silent, 3)
		require.NotEmpty(t, f.state("w1").Err.Error())
		f.waitOutGrace()
		since = time.Now()
		_ = f.NextTerm(t.Context())
		requireState(orchestrator.Lost, 5)
		require.Empty(t, f.state("w1").Tasks)
		require.Len(t, f.state("w1").LastTasks, 1)
		f.Heal("w1")
		for f.state("w1").State != orchestrator.Answering { // no term waits for it
			since = time.Now()
			_ = f.NextTerm(t.Context())
			synctest.Wait()
		}
		requireState(orchestrator.Answering, f.termNumber())
		require.NoError(t, f.state("w2").Err)
		require.Equal(t, uint64(1), f.state("w2").SinceTerm)
	})
	inBubble(t, given{workers: 2, expected: 8}, func(t *testing.T, f *fleet) {
		f.quarantine("w2")
		require.True(t, f.state("w2").Quarantined)
		require.False(t, f.state("w1").Quarantined)
	})
}

// A term that only looks counts what runs and what is missing, and writes nothing. The leader's
// reasons are not its own.
func TestObserve(t *testing.T) {
	inBubble(t, given{workers: 3, running: 6}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.AddTask("new"))
		require.NoError(t, f.AddTask("gpu", orchestrator.WithTaskRequires("gpu")))
		require.NoError(t, f.DrainWorker("w1")) // a term would move its tasks
		looks := f.successor()
		before, lines := len(f.terms.all()), len(f.log.lines())
		seen := 0
		looks.OnTerm(func(*snapshot) { seen++ })
		f.forget()
		require.NoError(t, looks.Observe(t.Context()))
		require.Equal(t, 1, seen)
		require.Len(t, f.terms.all(), before, "WithStats")
		require.Len(t, f.log.lines(), lines)
		p := looks.LastPlan()
		require.True(t, p.Stats.Observed)
		require.Equal(t, uint64(1), p.Stats.Term.Number)
		for _, op := range []orchestrator.Op{orchestrator.OpAdd, orchestrator.OpRemove} {
			require.Empty(t, f.sent(op))
		}
		require.Empty(t, p.Changes)
		require.Empty(t, p.Stats.Changes)
		require.Zero(t, p.Stats.Adds)
		require.Equal(t, 8, p.Stats.Instances.Wanted)
		require.Equal(t, 6, p.Stats.Instances.Running)
		require.Equal(t, 2, p.Stats.Instances.Missing)
		require.Equal(t, 1, p.Stats.Instances.Unplaceable)
		reasons := make(map[string]orchestrator.Reason)
		for _, w := range p.Waiting {
			reasons[w.Task] = w.Reason
			require.Equal(t, orchestrator.WaitingUnplaced, w.Kind())
			require.False(t, w.Named)
		}
		require.Equal(t, map[string]orchestrator.Reason{"new": orchestrator.ReasonObserved, "gpu": orchestrator.ReasonNoPlace}, reasons)
		for _, w := range p.Workers {
			require.Equal(t, w.Before, w.After)
		}
		e, ok := looks.Last().Explain("t1")
		require.True(t, ok)
		for _, w := range e.Workers {
			require.NotEqual(t, orchestrator.ReasonStays, w.Reason)
		}
	})
}

package test

import (
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
	i, running := 0, 0
	for w := range s.Workers() {
		row := p.Workers[i]
		require.Equal(t, row.Name, w.Name)
		require.Equal(t, row.State, w.State)
		require.Equal(t, row.Draining, w.Draining)
		require.Len(t, w.Tasks, row.After)
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
			Handoff: orchestrator.StopThenStart, MaxMoves: -1, MaxLoss: 0.5, Settle: 200 * time.Millisecond,
			Epoch: 7, MaxPause: time.Minute,
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

package test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

type progress = orchestrator.Progress[string]

// TestD3_Progress follows a term through its phases.
func TestD3_Progress(t *testing.T) {
	onBothWires(t, given{workers: 3, expected: 6, opts: options{orchestrator.WithEpoch(7)}}, func(t *testing.T, f *fleet) {
		f.intercept(func(_ context.Context, c call) error {
			switch {
			case c.Op == orchestrator.OpList && c.Worker == "w3":
				time.Sleep(time.Second / 2)
			case c.Op == orchestrator.OpAdd && c.Worker == "w2":
				time.Sleep(2 * time.Second)
			}
			return nil
		})
		require.Zero(t, f.Progress())
		start := time.Now()
		done := f.beginTerm()
		want := progress{
			Term: orchestrator.Term{Epoch: 7, Number: 1}, Start: start, Phase: orchestrator.PhaseList, Since: start,
			Done: 2, Total: 3, WaitingFor: []string{"w3"},
		}
		require.Equal(t, want, f.Progress())
		time.Sleep(time.Second)
		synctest.Wait()
		want.Phase, want.Since = orchestrator.PhaseWrite, start.Add(time.Second/2)
		want.Done, want.Total, want.WaitingFor = 4, 6, []string{"w2"}
		require.Equal(t, want, f.Progress())
		stop := f.OnTerm(func(*snapshot) { require.Zero(t, f.Progress()) })
		defer stop()
		require.NoError(t, <-done)
		require.Zero(t, f.Progress())
	})
}

// TestD3_ProgressIsBounded: the workers for which a term waits are counted, and the first
// ones named.
func TestD3_ProgressIsBounded(t *testing.T) {
	inBubble(t, given{workers: 20}, func(t *testing.T, f *fleet) {
		f.Hang(f.workers...)
		done := f.beginTerm()
		p := f.Progress()
		require.Equal(t, 20, p.Total)
		require.Zero(t, p.Done)
		require.Equal(t, f.workers[:8], p.WaitingFor)
		require.Error(t, <-done)
	})
}

// TestD3_ProgressDuringTerms reads while terms run, for the race detector.
func TestD3_ProgressDuringTerms(t *testing.T) {
	inBubble(t, given{workers: 3, expected: 6}, func(t *testing.T, f *fleet) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 50 {
				f.expect(6 + i)
				f.term()
			}
		}()
		for {
			select {
			case <-done:
				return
			default:
				p := f.Progress()
				require.LessOrEqual(t, p.Done, p.Total)
				require.GreaterOrEqual(t, p.Done, 0)
			}
		}
	})
}

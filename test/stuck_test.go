package test

// T3: a stop that hangs is its own problem, not its worker's silence.

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// The other tasks of the worker are held while the stop hangs, and never lost. When it returns, the
// worker is as any other.
func TestT3_AStopThatHangs(t *testing.T) {
	for name, ignores := range map[string]bool{"until its deadline": false, "for good": true} {
		t.Run(name, bubble(given{workers: 3, running: 12, opts: options{orchestrator.WithGracePeriod(5 * time.Second)}}, func(t *testing.T, f *fleet) {
			release, stuck := make(chan struct{}), f.RunsOn("w1")[0]
			others := f.RunsOn("w1")[1:]
			f.intercept(on(orchestrator.OpRemove, "w1", stuck, func(ctx context.Context) error {
				if !ignores {
					return hang(ctx)
				}
				<-release
				return nil
			}))
			f.start(tick)
			f.RemoveTask(stuck)
			for range 120 {
				time.Sleep(time.Second)
				require.Equal(t, orchestrator.Answering, f.state("w1").State)
				require.Subset(t, f.RunsOn("w1"), others)
				require.Empty(t, f.LastPlan().Holds)
			}
			require.NoError(t, f.AddTask("new"))
			time.Sleep(15 * time.Second)
			require.Len(t, f.Running("new"), 1)
			if ignores {
				require.NotEqual(t, []string{"w1"}, f.Running("new"), "nothing can be written to it")
				require.Equal(t, 1, f.LastPlan().Stats.Workers.Stuck)
			}
			close(release)
			f.intercept(nil)
			time.Sleep(time.Minute)
			require.NotContains(t, f.RunsOn("w1"), stuck)
			f.requireNeverTwice()
			f.requireAllRun()
		}))
	}
}

// A worker that is silent because its own call has not returned holds no moves, in a what-if plan
// either.
func TestT16_WhatIfBesideAStuckWorker(t *testing.T) {
	inBubble(t, given{workers: 3, running: 12, opts: options{hold}}, func(t *testing.T, f *fleet) {
		release := make(chan struct{})
		defer close(release)
		f.intercept(on(orchestrator.OpAdd, "w1", "new", func(context.Context) error {
			<-release
			return nil
		}))
		f.RemoveTask(f.RunsOn("w1")[0])
		require.NoError(t, f.NextTerm(t.Context()))
		require.NoError(t, f.AddTask("new"))
		for range 8 {
			_ = f.NextTerm(t.Context())
			time.Sleep(tick)
		}
		f.join("w4")
		plan := f.plan(hypothesis{})
		_ = f.NextTerm(t.Context())
		require.NotEmpty(t, f.LastPlan().Changes)
		require.Len(t, plan.Changes, len(f.LastPlan().Changes))
		require.Equal(t, f.LastPlan().Holds, plan.Holds)
	})
}

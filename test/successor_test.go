package test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T4, for a worker that is replaced by one of the same name while a term is under
// way: what the term starts there is with the new one, which is held to run it
// until it is heard.
func TestT4_WhatATermStartedOnASuccessor(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 2, orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
		f.expect(4)
		replaced := false
		f.intercept(func(_ context.Context, c call) error {
			if c.Op != orchestrator.OpList && c.Worker == "w2" && !replaced {
				replaced = true
				f.RemoveWorker("w2")
				require.NoError(t, f.AddWorker("w2"))
			}
			return nil
		})
		f.term()
		require.True(t, replaced)
		require.Len(t, f.RunsOn("w2"), 2)

		f.Cut("w2")
		f.forget()
		f.silentTerm("w2")
		require.Empty(t, f.writes(), "nothing of w2 is started elsewhere")
		require.Len(t, f.LastPlan().Waiting, 2)
		for _, w := range f.LastPlan().Waiting {
			require.Equal(t, orchestrator.ReasonHeld, w.Reason)
			require.Equal(t, "w2", w.Worker)
		}
		f.Heal()
		_ = f.NextTerm(t.Context())
		synctest.Wait()
		f.requireSettled()
	})
}

// The same where the start hangs while its worker is removed, and one of its name
// is added some terms later: it may yet land there.
func TestT4_AStartThatMayLandOnASuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
		f.expect(1)
		release := make(chan struct{})
		f.intercept(func(_ context.Context, c call) error {
			if c.Op == orchestrator.OpAdd && c.Worker == "w1" {
				<-release
			}
			return nil
		})
		f.failingTerm()
		f.Cut("w2")
		f.RemoveWorker("w1")
		_ = f.NextTerm(t.Context())
		require.NoError(t, f.AddWorker("w1"))
		_ = f.NextTerm(t.Context())
		f.Heal("w2")
		f.forget()
		for range 4 {
			_ = f.NextTerm(t.Context())
			synctest.Wait()
		}
		require.Equal(t, orchestrator.Answering, f.state("w2").State)
		require.Empty(t, f.writes(), "t1 may yet be started on w1")
		close(release)
		synctest.Wait()
		for range 2 { // it has come too late, and w1 says so
			_ = f.NextTerm(t.Context())
			synctest.Wait()
		}
		require.Len(t, f.Running("t1"), 1)
		f.requireSettled()
	})
}

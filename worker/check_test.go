package worker_test

// W5: Check reports whether the worker still has its lease.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

func TestW5_CheckReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contexts := make(chan context.Context, 1)
		w := leased(t, func(ctx context.Context, _ string) error {
			contexts <- ctx
			<-ctx.Done()
			<-time.After(time.Minute)
			return nil
		})
		require.NoError(t, w.Add(t.Context(), "a"))
		ctx := <-contexts
		unended := context.WithoutCancel(ctx)
		require.NoError(t, worker.Check(ctx))
		<-time.After(told - 1)
		require.NoError(t, worker.Check(ctx))
		<-time.After(1)
		synctest.Wait()
		require.ErrorIs(t, worker.Check(ctx), worker.ErrLeaseLost)
		require.NoError(t, worker.Check(unended), "a stopping task may still write")
		<-time.After(toStop - 1)
		require.NoError(t, worker.Check(unended))
		<-time.After(1)
		require.ErrorIs(t, worker.Check(unended), worker.ErrLeaseLost)
		require.NoError(t, w.Rejoin(t.Context()))
		w.Sending()()
		require.ErrorIs(t, worker.Check(unended), worker.ErrLeaseLost, "the next lease does not cover a task of the last")
	})
}

func TestW5_CheckAfterGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contexts := make(chan context.Context, 2)
		run := func(ctx context.Context, _ string) error {
			contexts <- ctx
			<-ctx.Done()
			<-time.After(time.Second)
			return nil
		}
		for _, w := range []*worker.Worker[string]{leased(t, run), newWorker(t, run)} {
			require.NoError(t, w.Add(t.Context(), "a"))
			ctx := <-contexts
			require.NoError(t, worker.Check(ctx))
			w.GiveUp(errors.New("gone"))
			require.ErrorContains(t, worker.Check(ctx), "gone")
			require.ErrorIs(t, worker.Check(context.WithoutCancel(ctx)), worker.ErrLeaseLost)
		}
	})
}

func TestW5_CheckReturnsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contexts := make(chan context.Context, 1)
		w := leased(t, func(ctx context.Context, _ string) error {
			contexts <- ctx
			<-ctx.Done()
			return nil
		})
		require.NoError(t, w.Add(t.Context(), "a"))
		ctx := <-contexts
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.ErrorIs(t, worker.Check(ctx), worker.ErrRemoved)
		require.NoError(t, worker.Check(context.WithoutCancel(ctx)), "the lease holds")
		require.NoError(t, worker.Check(t.Context()), "not a task's context")
	})
}

package closing_test

// How one membership ends: with everything moved, or not.

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator/internal/closing"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

func idle(t *testing.T) *worker.Worker[string] {
	t.Helper()
	w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) })
	return w
}

// A worker that has stopped everything for want of its lease is empty, and nothing has moved.
func TestMembership_WhatWasStoppedHasNotMoved(t *testing.T) {
	w := idle(t)
	m := closing.NewMembership(w)
	require.NoError(t, w.Add(t.Context(), "a"))
	w.GiveUp(nil)
	require.NoError(t, w.Rejoin(t.Context())) // all has stopped
	require.False(t, m.Emptied(t.Context()))
}

func TestMembership_Early(t *testing.T) {
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		drains bool
		ends   error
		early  bool
	}{
		"all had moved, and then the lease was lost": {true, closing.ErrDraining, false},
		"nobody was closing it":                      {false, lost, false},
		"the lease was lost while it drained":        {true, lost, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := idle(t)
			m := closing.NewMembership(w)
			if c.drains {
				m.Drain()
			}
			w.GiveUp(nil)
			require.NoError(t, w.Rejoin(t.Context()))
			err := m.Early(t.Context(), c.ends)
			if !c.early {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, worker.ErrLeaseLost)
		})
	}
}

// The last worker waits for the jobs that it runs, and for no other.
func TestW8_TheLastWorkerFinishesTheJobsThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := worker.New(func(ctx context.Context, task string) error {
			if task == "goes on" {
				worker.Movable(ctx)
				<-ctx.Done()
				return nil
			}
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, worker.WithSlots(2), worker.WithCompletion(func(string) {}))
		require.NoError(t, err)
		for _, task := range []string{"goes on", "runs", "waits"} {
			require.NoError(t, w.Add(t.Context(), task))
		}
		synctest.Wait()
		m := closing.NewMembership(w)
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, m.Alone(hurried, slog.New(slog.DiscardHandler), "w"))
		began := time.Now()
		require.True(t, m.Alone(t.Context(), slog.New(slog.DiscardHandler), "w"))
		require.Equal(t, 59*time.Second, time.Since(began))
		require.NoError(t, w.Close(t.Context()))
	})
}

// What runs on the last worker could not have moved.
func TestMembership_NobodyElseCouldHaveTakenIt(t *testing.T) {
	w := idle(t)
	m := closing.NewMembership(w)
	m.Drain()
	require.NoError(t, w.Add(t.Context(), "a"))
	require.Error(t, m.Early(t.Context(), closing.ErrDraining))
	require.NoError(t, m.Early(t.Context(), closing.ErrAlone))
	require.ErrorIs(t, closing.ErrAlone, closing.ErrDraining, "it does not come back")
}

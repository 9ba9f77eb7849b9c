package closing_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/closing"
	"github.com/f8949c05/orchestrator/worker"
)

func idle(t *testing.T) *worker.Worker[string] {
	t.Helper()
	w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) })
	return w
}

// A worker that has lost its lease is empty, but its tasks have not moved.
func TestMembership_WhatWasStoppedHasNotMoved(t *testing.T) {
	w := idle(t)
	m := closing.NewMembership(w)
	require.NoError(t, w.Add(t.Context(), "a"))
	w.EndLease(nil)
	require.NoError(t, w.Rejoin(t.Context())) // all tasks have stopped
	require.False(t, m.Emptied(t.Context()))
}

func TestMembership_Early(t *testing.T) {
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		drains bool
		ends   error
		early  bool
	}{
		"the lease was lost after all tasks had moved": {true, closing.ErrDraining, false},
		"not closing":                         {false, lost, false},
		"the lease was lost while it drained": {true, lost, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := idle(t)
			m := closing.NewMembership(w)
			if c.drains {
				m.Drain()
			}
			w.EndLease(nil)
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

// The last worker waits only for the jobs that run.
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

// The tasks of the last worker could not have moved.
func TestMembership_TheLastWorkerIsNotEarly(t *testing.T) {
	w := idle(t)
	m := closing.NewMembership(w)
	m.Drain()
	require.NoError(t, w.Add(t.Context(), "a"))
	require.Error(t, m.Early(t.Context(), closing.ErrDraining))
	require.NoError(t, m.Early(t.Context(), closing.ErrAlone))
	require.ErrorIs(t, closing.ErrAlone, closing.ErrDraining, "ErrAlone must wrap ErrDraining")
}

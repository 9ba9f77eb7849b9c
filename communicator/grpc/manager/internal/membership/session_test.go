package membership

// What a session says of tasks that have not moved.

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/worker"
)

// newTestSession returns a session of a worker without a lease, and the worker.
func newTestSession(t *testing.T) (*Session, *worker.Worker[string]) {
	t.Helper()
	w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) })
	return newSession(t.Context(), w, nil), w
}

// A worker that has lost its lease is empty, but its tasks have not moved.
func TestSession_WhatWasStoppedHasNotMoved(t *testing.T) {
	s, w := newTestSession(t)
	require.NoError(t, w.Add(t.Context(), "a"))
	w.EndLease(nil)
	require.NoError(t, w.Rejoin(t.Context())) // all tasks have stopped
	require.ErrorIs(t, s.Emptied(t.Context()), errLeaseOver)
}

func TestSession_Early(t *testing.T) {
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		drains bool
		reason error
		early  bool
	}{
		"the lease was lost after all tasks had moved": {true, errDraining, false},
		"not closing":                         {false, lost, false},
		"the lease was lost while it drained": {true, lost, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, w := newTestSession(t)
			s.draining = c.drains
			w.EndLease(nil)
			require.NoError(t, w.Rejoin(t.Context()))
			err := s.early(t.Context(), c.reason)
			if !c.early {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, worker.ErrLeaseLost)
		})
	}
}

// The tasks of the last worker could not have moved.
func TestSession_TheLastWorkerIsNotEarly(t *testing.T) {
	s, w := newTestSession(t)
	s.draining = true
	require.NoError(t, w.Add(t.Context(), "a"))
	require.Error(t, s.early(t.Context(), errDraining))
	require.NoError(t, s.early(t.Context(), errAlone))
	require.ErrorIs(t, errAlone, errDraining, "errAlone must wrap errDraining")
}

package etcd

import (
	"errors"
	"testing"

	"github.com/f8949c05/orchestrator/internal/closing"
	"github.com/stretchr/testify/require"
)

var errRefused = errors.New("no room")

// TestE5_SeatStory follows a task through its life at a member.
func TestE5_SeatStory(t *testing.T) {
	var s claimState
	s.assign(5, false)
	require.Equal(t, doClaim, s.next(nil))
	require.Equal(t, nothing, s.next(nil), "one claim at a time")
	s.made(6)
	require.Equal(t, doStart, s.next(nil))
	s.answered(nil)
	require.Equal(t, doConfirm, s.next(nil))
	s.assign(9, false)
	require.Equal(t, nothing, s.next(nil), "assigned again, and still running")
	s.assign(0, false)
	require.Equal(t, doStop, s.next(nil))
	s.assign(12, false)
	require.Equal(t, nothing, s.next(nil), "the stop must complete before the next start")
	s.ended()
	require.Equal(t, doLeave, s.next(nil))
	s.left()
	require.Equal(t, doClaim, s.next(nil))
	require.EqualValues(t, 12, s.basis)
	s.missed()
	require.Equal(t, nothing, s.next(nil), "the assignment is gone, but the watch still shows it")
	s.assign(0, false)
	require.Equal(t, nothing, s.next(nil))
	require.True(t, s.forgotten())
}

// TestE5_SeatRefuses covers the assignments that are refused.
func TestE5_SeatRefuses(t *testing.T) {
	t.Run("by the worker", func(t *testing.T) {
		var s claimState
		s.assign(5, false)
		require.Equal(t, doClaim, s.next(nil))
		s.made(6)
		require.Equal(t, doStart, s.next(nil))
		s.answered(errRefused)
		require.Equal(t, doStop, s.next(nil), "stopped to be certain")
		s.ended()
		require.Equal(t, doLeave, s.next(nil))
		require.Equal(t, errRefused, s.failure)
		require.EqualValues(t, 5, s.basis)
		s.left()
		require.Equal(t, nothing, s.next(nil))
	})
	t.Run("of another membership", func(t *testing.T) {
		var s claimState
		s.assign(5, true)
		require.Equal(t, doRefuse, s.next(nil))
		require.NoError(t, s.failure)
	})
	t.Run("while closing", func(t *testing.T) {
		var s claimState
		s.assign(5, false)
		require.Equal(t, doRefuse, s.next(closing.ErrDraining))
		require.Equal(t, closing.ErrDraining, s.failure)
	})
	t.Run("claimed by another", func(t *testing.T) {
		var s claimState
		s.assign(5, false)
		require.Equal(t, doClaim, s.next(nil))
		s.refused(errRefused)
		require.Equal(t, doRefuse, s.next(nil))
		require.Equal(t, errRefused, s.failure)
	})
	t.Run("unassigned during the start", func(t *testing.T) {
		var s claimState
		s.assign(5, false)
		s.next(nil)
		s.made(6)
		s.next(nil)
		s.assign(0, false)
		require.Equal(t, doHurry, s.next(nil))
		require.Equal(t, nothing, s.next(nil), "doHurry must be returned once")
		s.assign(9, false)
		s.answered(errRefused)
		require.Equal(t, doStop, s.next(nil))
		s.ended()
		require.Equal(t, doLeave, s.next(nil))
		require.NoError(t, s.failure, "a hurried start is not a failure")
		s.left()
		require.Equal(t, doClaim, s.next(nil))
	})
}

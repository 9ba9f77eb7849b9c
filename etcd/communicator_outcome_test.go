package etcd

import (
	"context"
	"testing"

	"github.com/f8949c05/orchestrator"
	"github.com/stretchr/testify/require"
)

// A Remove waits for the claim that its transaction found, and for a state that
// includes its own change.
func TestE5_RemoveWaitsForTheClaimThatItFound(t *testing.T) {
	for name, c := range map[string]struct {
		made, found, seen int64
		taskState         taskState
		done              bool
	}{
		"nothing was there":                         {made: 9, seen: 3, done: true},
		"nothing was claimed":                       {made: 9, seen: 9, done: true},
		"the end of the assignment is not seen yet": {made: 9, seen: 5, taskState: taskState{assigned: 5}},
		"the end of a claim is not seen yet":        {made: 9, seen: 7, taskState: taskState{claim: 7}},
		"the claim is not seen yet":                 {made: 9, found: 7, seen: 3},
		"the claim is not seen, the assignment is":  {made: 9, found: 7, seen: 5, taskState: taskState{assigned: 5}},
		"the claim is there":                        {made: 9, found: 7, seen: 9, taskState: taskState{claim: 7}},
		"the claim is gone":                         {made: 9, found: 7, seen: 11, done: true},
		"the claim is gone, and claimed again":      {made: 9, found: 7, seen: 15, taskState: taskState{assigned: 14, claim: 15}, done: true},
		"the claim is gone, and assigned again":     {made: 9, found: 7, seen: 14, taskState: taskState{assigned: 14}, done: true},
	} {
		t.Run(name, func(t *testing.T) {
			done, err := after(orchestrator.OpRemove, c.made, c.found, c.seen, c.taskState)
			require.NoError(t, err)
			require.Equal(t, c.done, done)
		})
	}
}

// An Add waits for a state that includes it.
func TestE5_AddWaitsForTheWorker(t *testing.T) {
	for name, c := range map[string]struct {
		seen      int64
		taskState taskState
		done      bool
		want      error
	}{
		"not seen yet":               {seen: 8, taskState: taskState{}},
		"not seen yet, refused once": {seen: 8, taskState: taskState{refused: 3, reason: "full"}},
		"not claimed yet":            {seen: 9, taskState: taskState{assigned: 9}},
		"claimed":                    {seen: 10, taskState: taskState{assigned: 9, claim: 10, starting: true}},
		"started":                    {seen: 11, taskState: taskState{assigned: 9, claim: 10}, done: true},
		"running already":            {seen: 9, taskState: taskState{assigned: 9, claim: 4}, done: true},
		"refused":                    {seen: 11, taskState: taskState{refused: 9, reason: "full"}, done: true, want: orchestrator.ErrRejected},
		"withdrawn, or gone":         {seen: 11, taskState: taskState{refused: 3, reason: "full"}, done: true, want: orchestrator.ErrRejected},
		"taken away again":           {seen: 11, taskState: taskState{claim: 10}, done: true, want: orchestrator.ErrStopping},
	} {
		t.Run(name, func(t *testing.T) {
			done, err := after(orchestrator.OpAdd, 9, 0, c.seen, c.taskState)
			require.Equal(t, c.done, done)
			require.ErrorIs(t, err, c.want)
			if c.taskState.refused == 9 {
				require.ErrorContains(t, err, "full")
			}
		})
	}
}

func TestE5_ResultsAtTheDeadline(t *testing.T) {
	require.ErrorIs(t, late(orchestrator.OpRemove, "t", context.DeadlineExceeded), orchestrator.ErrStopping)
	err := late(orchestrator.OpAdd, "t", context.DeadlineExceeded)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, orchestrator.ErrRejected)

	done, err := before(orchestrator.OpAdd, taskState{claim: 4})
	require.True(t, done)
	require.ErrorIs(t, err, orchestrator.ErrStopping)
	for _, s := range []taskState{{}, {assigned: 3}, {assigned: 3, claim: 4}, {refused: 2}} {
		done, _ = before(orchestrator.OpAdd, s)
		require.False(t, done)
		done, _ = before(orchestrator.OpRemove, s)
		require.False(t, done)
	}
	done, err = before(orchestrator.OpList, taskState{})
	require.True(t, done)
	require.ErrorIs(t, err, orchestrator.ErrRejected)
}

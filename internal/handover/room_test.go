package handover_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// A move waits for credit behind a start that waits for room.
func TestP10_AMoveBehindAStartWithoutRoom(t *testing.T) {
	m := handover.New([]handover.Change{
		{Task: 0, From: handover.None, To: 0, After: 2},
		{Task: 1, From: 0, To: 1, After: 3},
		{Task: 2, From: 1, To: 0, After: 4},
		{Task: 3, From: 0, To: handover.None},
	}, 2, []int32{0, 1}, false)
	for c, ok := m.Next(); ok; c, ok = m.Next() {
		m.Done(c, []handover.Result{handover.Done}, false, false)
	}
	require.True(t, m.Over(), "%d changes are left", m.Left())
}

package standing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/standing"
)

func TestBook_Suspects(t *testing.T) {
	b := standing.New()
	require.Empty(t, b.Suspects())

	// Task 1 on a worker that runs something, task 2 on one that runs nothing.
	runs := among[uint64](7, 8)
	b.Learn(1, []standing.Start{failed(1, 7), failed(2, 9)}, runs, no)
	require.Empty(t, b.Suspects(), "once is no pattern")
	b.Learn(2, []standing.Start{failed(1, 8), failed(2, 10)}, runs, no)
	require.Equal(t, []int32{1}, b.Suspects(), "the workers of task 2 were to blame")
	b.Learn(3, []standing.Start{failed(0, 7), failed(0, 8), failed(2, 7)}, runs, no)
	require.Equal(t, []int32{0, 1, 2}, b.Suspects())

	b.Succeeded(pair(1, 8))
	require.Equal(t, []int32{0, 2}, b.Suspects())
	b.ForgetTasks(among[int32](0))
	require.Equal(t, []int32{2}, b.Suspects())
}

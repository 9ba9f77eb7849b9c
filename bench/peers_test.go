//go:build peers

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The conversion of tasks to partitions is reversible.
func TestLayout_ThereAndBack(t *testing.T) {
	l, err := newLayout(1_000, manyTopics)
	require.NoError(t, err)
	placed, err := l.tasks(map[string]map[string][]int32{"m": l.owned([]int32{999, 0, 10, 9})}, []string{"m", "n"})
	require.NoError(t, err)
	require.ElementsMatch(t, []int32{0, 9, 10, 999}, placed[0])
	require.Empty(t, placed[1])
	_, err = newLayout(1_001, manyTopics)
	require.EqualError(t, err, "1001 tasks are not evenly spread over 100 topics")
}

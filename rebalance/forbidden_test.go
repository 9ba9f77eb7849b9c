package rebalance_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This file holds small problems with forbidden pairs for which the fewest starts
// are known.

// Five tasks, five workers: task 1 is missing, worker 1 has two, and worker 3 may
// not take 0, 3, 4. To start 1 on worker 3 and move 0 or 4 to worker 2 is enough.
func TestP3_WhatIsMissingGoesToTheWorkerThatMayTakeLittleElse(t *testing.T) {
	t.Parallel()
	plan := planned(t, &rebalance.Problem{
		Want: []int32{1, 1, 1, 1, 1}, States: make([]rebalance.State, 5), MaxMoves: noLimit,
		Held:      [][]int32{{2}, {0, 4}, nil, nil, {3}},
		Forbidden: []rebalance.Pair{{Task: 0, Worker: 3}, {Task: 3, Worker: 3}, {Task: 4, Worker: 3}},
	})
	require.Equal(t, 2, plan.Adds)
}

// A copy that was to move, was taken back and was dropped again moved twice on paper, and
// another copy of its task was stopped in its place. With few moves it was missing then.
func TestP4_ACopyThatIsDroppedAgainMovesOnce(t *testing.T) {
	t.Parallel()
	for maxMoves := noLimit; maxMoves < 12; maxMoves++ {
		_, err := examine(&rebalance.Problem{
			Want:   []int32{1, 0, 0, 3, 0, 0, 1, 2, 0, 0, 2, 1, 0, 2, 3, 2, 1, 1, 0, 1, 0, 3, 0, 0, 1, 0, 3, 0, 3, 1, 1, 3, 0, 1, 1, 1, 3, 1},
			States: []rebalance.State{0, rebalance.Draining, 0, 0, 0, 0},
			Held: [][]int32{
				nil, nil, nil,
				{11, 19, 28, 31, 3, 7, 10, 13, 14, 21, 24, 26, 29, 36},
				{28, 31, 30, 33, 34, 37, 3, 14, 15, 21, 35, 0, 26, 36},
				{17, 28, 31, 3, 6, 7, 10, 13, 14, 15, 16, 21, 26, 36},
			},
			Pinned: []int32{0, 0, 0, 10, 8, 11},
			Forbidden: []rebalance.Pair{
				{Task: 23, Worker: 3},
				{Task: 27, Worker: 5},
				{Task: 3, Worker: 0},
				{Task: 10, Worker: 0},
				{Task: 11, Worker: 0},
				{Task: 14, Worker: 0},
				{Task: 26, Worker: 0},
				{Task: 35, Worker: 0},
			},
			MaxMoves: maxMoves,
		}, new(rebalance.Planner))
		require.NoError(t, err, "MaxMoves %d", maxMoves)
	}
}

// A quarantined worker took a copy from one that then lost two more as surplus, and
// ended with more than it.
func TestP6_AQuarantinedWorkerTakesNothingFromOneThatLosesSurplus(t *testing.T) {
	t.Parallel()
	planned(t, &rebalance.Problem{
		Want:   []int32{2, 1, 3, 1, 2, 4},
		States: []rebalance.State{0, 0, 0, rebalance.Quarantined, 0, 0},
		Held:   [][]int32{nil, {4}, {2, 3}, {4}, {0, 1}, {4, 3, 0, 5}},
		Pinned: []int32{0, 0, 2, 0, 2, 0}, Gain: []int32{0, 0, 0, 2, 0, 0}, MaxMoves: noLimit,
	})
}

// Tasks 0 to 9 may run anywhere, 10 to 19 only on even workers, and worker 4 joins.
func TestP3_AWorkerJoinsAPoolAndAnOpenHalf(t *testing.T) {
	t.Parallel()
	pr := &rebalance.Problem{States: make([]rebalance.State, 5), Held: make([][]int32, 5), MaxMoves: noLimit}
	for k := range int32(20) {
		pr.Want = append(pr.Want, 1)
		w := 1 + 2*(k%2)
		if k >= 10 {
			pr.Forbidden = append(pr.Forbidden, rebalance.Pair{Task: k, Worker: 1}, rebalance.Pair{Task: k, Worker: 3})
			w = 2 * (k % 2)
		}
		pr.Held[w] = append(pr.Held[w], k)
	}
	require.Equal(t, 4, planned(t, pr).Adds)
}

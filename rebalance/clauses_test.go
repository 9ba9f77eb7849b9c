package rebalance_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This file shows in small what every random problem is checked for.

func TestP4_ABlipStopsNothingElsewhere(t *testing.T) {
	var planner rebalance.Planner
	problem := &rebalance.Problem{
		Want:     []int32{2},
		States:   []rebalance.State{rebalance.Frozen, rebalance.Open, rebalance.Open, rebalance.Open},
		Held:     [][]int32{{0}, {0}, {0}, {0}},
		MaxMoves: rebalance.NoLimit,
	}
	plan, err := planner.Plan(problem)
	require.NoError(t, err)
	require.Len(t, plan.Changes, 1, "two wanted copies answer, and stay whatever the frozen worker holds")
	require.Equal(t, rebalance.Surplus, plan.Changes[0].Reason)
	require.NotEqualValues(t, 0, plan.Changes[0].From)

	problem.Held = [][]int32{{0}, {0}, {0}, nil}
	plan, err = planner.Plan(problem)
	require.NoError(t, err)
	require.Empty(t, plan.Changes)
}

func TestP7_EveryChangeHasItsReason(t *testing.T) {
	var planner rebalance.Planner
	plan, err := planner.Plan(&rebalance.Problem{
		Want:     []int32{1, 0, 1, 1, 1, 1, 1, 3},
		States:   []rebalance.State{rebalance.Open, rebalance.Open, rebalance.Draining},
		Held:     [][]int32{{0, 1, 3, 4, 5, 7}, {0, 7}, {6}},
		MaxMoves: rebalance.NoLimit,
	})
	require.NoError(t, err)
	reasons := make(map[rebalance.Reason]int)
	for _, c := range plan.Changes {
		reasons[c.Reason]++
		require.Equal(t, c.Reason == rebalance.Missing, c.From == rebalance.None)
		require.Equal(t, c.Reason == rebalance.Unexpected || c.Reason == rebalance.Surplus, c.To == rebalance.None)
	}
	require.Equal(t, 1, reasons[rebalance.Missing], "task 2")
	require.Equal(t, 1, reasons[rebalance.Unexpected], "task 1")
	require.Equal(t, 1, reasons[rebalance.Surplus], "task 0")
	require.Equal(t, 1, reasons[rebalance.Drain], "task 6")
	require.Equal(t, []rebalance.Unplaced{
		{Task: 7, Copies: 1, Worker: rebalance.None, Why: rebalance.NoOtherWorker},
	}, plan.Unplaced)
}

func TestP8_TheLowerBoundStandsBesideTheStarts(t *testing.T) {
	var planner rebalance.Planner
	problem := &rebalance.Problem{
		Want:     []int32{1, 1, 1, 1, 1},
		States:   []rebalance.State{rebalance.Open, rebalance.Open, rebalance.Open},
		Held:     [][]int32{{0, 1, 2, 3}, nil, nil},
		MaxMoves: rebalance.NoLimit,
	}
	plan, err := planner.Plan(problem)
	require.NoError(t, err)
	require.Equal(t, []int{3, 3}, []int{plan.Adds, plan.LowerBound}, "one is missing, two are too many where they are")

	problem.MaxMoves = 0
	plan, err = planner.Plan(problem)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 2}, []int{plan.Adds, plan.LowerBound, plan.Deferred}, "the bound is that of the plan without the deferred moves")
}

func TestP8_WhatIsMissingIsNeededWhateverIsDeferred(t *testing.T) {
	var planner rebalance.Planner
	problem := &rebalance.Problem{ // worker 1 may run only tasks 4 and 5, so the spread ends uneven
		Want:   []int32{1, 1, 1, 1, 1, 1},
		States: []rebalance.State{rebalance.Open, rebalance.Open},
		Held:   [][]int32{{0, 1, 2, 3, 4}, nil},
	}
	for task := range int32(4) {
		problem.Forbidden = append(problem.Forbidden, rebalance.Pair{Task: task, Worker: 1})
	}
	plan, err := planner.Plan(problem)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 1}, []int{plan.Adds, plan.LowerBound, plan.Deferred})
}

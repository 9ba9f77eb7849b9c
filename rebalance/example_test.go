package rebalance_test

import (
	"fmt"

	"github.com/f8949c05/orchestrator/rebalance"
)

// Three workers run six tasks; one of them is to be emptied, and a task is
// missing.
func ExamplePlanner_Plan() {
	var planner rebalance.Planner
	plan, err := planner.Plan(&rebalance.Problem{
		Want:     []int32{1, 1, 1, 1, 1, 1, 1},
		States:   []rebalance.State{rebalance.Open, rebalance.Open, rebalance.Draining},
		Running:  [][]int32{{0, 1, 2}, {3, 4}, {5}},
		MaxMoves: rebalance.NoLimit,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range plan.Changes {
		fmt.Printf("task %d: from %d to %d (%v)\n", c.Task, c.From, c.To, c.Reason)
	}
	fmt.Printf("%d starts, at least %d needed\n", plan.Adds, plan.LowerBound)
	// Output:
	// task 6: from -1 to 1 (missing)
	// task 5: from 2 to 1 (drain)
	// 2 starts, at least 2 needed
}

// Tasks 0 and 1 need a worker of kind 1, such as one with a certain label. Worker 0 has lost
// it, so task 0 has to leave.
func ExamplePlanner_Plan_labels() {
	var planner rebalance.Planner
	plan, err := planner.Plan(&rebalance.Problem{
		Want:     []int32{1, 1, 1, 1},
		Class:    []int32{1, 1, 0, 0},
		May:      [][]int32{nil, {1}},
		States:   []rebalance.State{rebalance.Open, rebalance.Open},
		Kind:     []int32{0, 1},
		Running:  [][]int32{{0, 2}, {1}},
		MaxMoves: rebalance.NoLimit,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range plan.Changes {
		fmt.Printf("task %d: from %d to %d (%v)\n", c.Task, c.From, c.To, c.Reason)
	}
	// Output:
	// task 0: from 0 to 1 (requires)
	// task 3: from -1 to 0 (missing)
}

package rebalance_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// Not in parallel with others, whose allocations would count.
func TestPlan_RepeatedCallsAllocateNothing(t *testing.T) {
	for _, event := range events {
		for _, copies := range []int{1, 3} {
			pr := event.to(even(3_000, 50, copies))
			var planner rebalance.Planner
			_, err := planner.Plan(pr)
			require.NoError(t, err)
			allocations := testing.AllocsPerRun(1, func() { // and one before it counts
				_, _ = planner.Plan(pr)
			})
			require.Zero(t, allocations, "%s, %d copies", event.name, copies)
		}
	}
}

package rebalance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This file writes a problem and its plan for people.

// describe returns the problem and, where there is one, its plan, line by line.
func describe(pr *rebalance.Problem) string {
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	line("%d tasks on %d workers%s", len(pr.Want), len(pr.States), limitOf(pr))
	for t, want := range pr.Want {
		forbidden := ""
		for _, p := range pr.Forbidden {
			if int(p.Task) == t {
				forbidden += fmt.Sprintf(", not on worker %d", p.Worker)
			}
		}
		line("  task %-3d wanted %d times%s", t, want, forbidden)
	}
	for w, s := range pr.States {
		more := ""
		if pr.Pinned != nil && pr.Pinned[w] > 0 {
			more = fmt.Sprintf(", %d pinned", pr.Pinned[w])
		}
		if s == rebalance.Quarantined && pr.Gain != nil {
			more += fmt.Sprintf(", may gain %d", pr.Gain[w])
		}
		line("  worker %-3d runs %v, %v%s", w, pr.Held[w], s, more)
	}
	plan, err := new(rebalance.Planner).Plan(pr)
	if err != nil {
		line("no plan: %v", err)
		return b.String()
	}
	line("the plan: %d starts (at least %d), %d of them moves, %d moves deferred", plan.Adds, plan.LowerBound, plan.Moves, plan.Deferred)
	for _, c := range plan.Changes {
		switch {
		case c.From == none:
			line("  start task %d on worker %d (%v)", c.Task, c.To, c.Reason)
		case c.To == none:
			line("  stop task %d on worker %d (%v)", c.Task, c.From, c.Reason)
		default:
			line("  move task %d from worker %d to %d (%v)", c.Task, c.From, c.To, c.Reason)
		}
	}
	for _, u := range plan.Unplaced {
		if u.Worker == none {
			line("  task %d lacks %d: %v", u.Task, u.Copies, u.Why)
		} else {
			line("  task %d stays on worker %d: %v", u.Task, u.Worker, u.Why)
		}
	}
	return b.String()
}

func limitOf(pr *rebalance.Problem) string {
	if pr.MaxMoves < 0 {
		return ""
	}
	return fmt.Sprintf(", at most %d moves", pr.MaxMoves)
}

func TestP_AProblemReadsWell(t *testing.T) {
	t.Parallel()
	require.Equal(t, `6 tasks on 4 workers, at most 1 moves
  task 0   wanted 1 times
  task 1   wanted 1 times, not on worker 1
  task 2   wanted 1 times
  task 3   wanted 0 times
  task 4   wanted 1 times
  task 5   wanted 4 times
  worker 0   runs [0 1 2 3], open, 1 pinned
  worker 1   runs [], open
  worker 2   runs [5], draining
  worker 3   runs [5], frozen
the plan: 4 starts (at least 3), 1 of them moves, 0 moves deferred
  start task 5 on worker 1 (missing)
  start task 4 on worker 1 (missing)
  move task 0 from worker 0 to 1 (rebalance)
  start task 5 on worker 0 (missing)
  stop task 3 on worker 0 (unexpected)
  task 5 stays on worker 2: every open worker already has a copy
`, describe(&rebalance.Problem{
		Want:      []int32{1, 1, 1, 0, 1, 4},
		States:    []rebalance.State{rebalance.Open, rebalance.Open, rebalance.Draining, rebalance.Frozen},
		Held:      [][]int32{{0, 1, 2, 3}, nil, {5}, {5}},
		Pinned:    []int32{1, 0, 0, 0},
		Forbidden: []rebalance.Pair{{Task: 1, Worker: 1}},
		MaxMoves:  1,
	}))
}

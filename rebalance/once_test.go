package rebalance_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This file is about problems in which nothing is wanted more than once and
// everybody is open, for which the planner counts in bits.

// ordinary makes such a problem of any: what is wanted more often is wanted once.
func ordinary(pr *rebalance.Problem) *rebalance.Problem {
	clear(pr.States)
	pr.Forbidden, pr.Pinned = nil, nil
	for t, want := range pr.Want {
		pr.Want[t] = min(want, 1)
	}
	return pr
}

func TestP5_WhatIsWantedOnceIsPlannedLikeAnythingElse(t *testing.T) {
	t.Parallel()
	var used rebalance.Planner
	repeated, unexpected, surplus, missing, settled := 0, 0, 0, 0, 0
	total := min(*problems, 20_000)
	for number := range uint64(total) {
		pr, name := numbered(number)
		if _, err := examine(ordinary(pr), &used); err != nil { // compares with a bystander
			t.Fatal(report(pr, name, err, number, number))
		}
		plan := planned(t, pr)
		if len(plan.Changes) == 0 {
			settled++
		}
		reasons := make(map[rebalance.Reason]bool)
		for _, c := range plan.Changes {
			reasons[c.Reason] = true
		}
		for of, count := range map[rebalance.Reason]*int{
			rebalance.Unexpected: &unexpected, rebalance.Surplus: &surplus, rebalance.Missing: &missing,
		} {
			if reasons[of] {
				*count++
			}
		}
		if repeats(pr) {
			repeated++
		}
	}
	for _, met := range []int{repeated, unexpected, surplus, missing, settled} {
		require.Greater(t, met, total/40)
	}
}

// repeats says whether a worker lists a task twice.
func repeats(pr *rebalance.Problem) bool {
	for _, list := range pr.Held {
		met := make(map[int32]bool, len(list))
		for _, t := range list {
			if met[t] {
				return true
			}
			met[t] = true
		}
	}
	return false
}

// The last numbers of a word of bits are those of no task.
func TestP1_ATaskBeyondTheLastIsRefusedWhateverTheirNumber(t *testing.T) {
	t.Parallel()
	for tasks := range int32(130) {
		for beyond := tasks; beyond < 200; beyond++ {
			pr := fleet(int(tasks), 1, 3, 0)
			pr.Held[1] = append(pr.Held[1], beyond)
			_, err := new(rebalance.Planner).Plan(pr)
			require.ErrorIs(t, err, rebalance.ErrInvalid, "%d of %d", beyond, tasks)
		}
	}
}

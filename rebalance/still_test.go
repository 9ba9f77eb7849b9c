package rebalance_test

// Still and Trial: what moves while an even spread waits (T9, T16).

import (
	"fmt"
	"slices"
	"testing"

	"github.com/f8949c05/orchestrator/rebalance"
)

// makesRoom reports whether another copy that needs a place, or another move that makes room,
// comes to the worker or the zone that a copy leaves. By weight, that copy may take another place
// in the end.
func (r *ruled) makesRoom(move rebalance.Change) bool {
	return r.pr.Weight != nil || slices.ContainsFunc(r.plan.Changes, func(c rebalance.Change) bool {
		return c.To != none && c.Reason != rebalance.Rebalance && c != move &&
			(c.To == move.From || c.Task == move.Task && r.zone(int(c.To)) == r.zone(int(move.From)))
	})
}

// examineStill checks that a plan under Still has no move for an even spread, places as many
// missing and drained copies as without it, and has nothing more to do on its result.
func examineStill(pr *rebalance.Problem, used *rebalance.Planner) error {
	free := *pr
	pr.Still = true
	after, err := new(rebalance.Planner).Plan(&free)
	if err != nil {
		return err
	}
	for call := range 3 {
		plan, err := used.Plan(pr)
		if err != nil {
			return err
		}
		r, err := checkRuled(pr, plan)
		if err != nil {
			return fmt.Errorf("%w (call %d)", err, call+1)
		}
		if i := slices.IndexFunc(plan.Changes, func(c rebalance.Change) bool { return c.Reason == rebalance.Rebalance }); i >= 0 {
			return fmt.Errorf("T16: change %d, %+v, is for an even spread", i, plan.Changes[i])
		}
		// Of many copies that must leave and have no place, other ones may stay.
		if few := lacking(&free, after); call == 0 && lacking(pr, plan) > few && len(pr.Want) <= 12 {
			return fmt.Errorf("T16: %d copies have no place, %d without Still", lacking(pr, plan), few)
		}
		if len(plan.Changes) == 0 {
			return nil
		}
		pr = r.problem()
	}
	return fmt.Errorf("T16: there is more to do after 3 calls")
}

// lacking counts the missing and drained copies without a place, and the moves that are left to
// later plans although they are not for an even spread.
func lacking(pr *rebalance.Problem, plan rebalance.Plan) int {
	n := plan.Deferred
	for _, u := range plan.Unplaced {
		if u.Worker == none || pr.States[u.Worker] == rebalance.Draining {
			n += int(u.Copies)
		}
	}
	return n
}

func TestT16_RandomProblemsWithoutMovesForEvenness(t *testing.T) {
	t.Parallel()
	r := run{flag: "rebalance.ruled"}
	r.make = func(number uint64) (*rebalance.Problem, string) {
		s := ruledShapes[number%uint64(len(ruledShapes))]
		pr := s.make(number)
		pr.MaxMoves = rebalance.NoLimit
		return pr, s.name
	}
	r.examine = func(pr *rebalance.Problem, used *rebalance.Planner) (gap, error) {
		return gap{}, examineStill(pr, used)
	}
	r.plan(t, *ruledProblems)
}

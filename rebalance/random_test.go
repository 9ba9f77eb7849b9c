package rebalance_test

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This file plans random problems and checks every clause on every one.

var (
	problems = flag.Int("rebalance.problems", 24_000, "how many random problems to plan, over all shapes")
	seed     = flag.Uint64("rebalance.seed", 1, "the seed of each shape's first problem; the next ones follow")
)

func TestP_RandomProblemsKeepEveryClause(t *testing.T) {
	t.Parallel()
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			examineAll(t, s.make, max(1, *problems/len(shapes))*max(1, s.times))
		})
	}
}

func TestP_LargerProblemsKeepEveryClause(t *testing.T) {
	t.Parallel()
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			examineAll(t, s.large, max(1, *problems/len(shapes)/100))
		})
	}
}

// examineAll examines n problems in a row.
func examineAll(t *testing.T, problem func(seed uint64) *rebalance.Problem, n int) {
	t.Helper()
	var used rebalance.Planner
	var gaps tally
	for at := *seed; at < *seed+uint64(n); at++ {
		pr := problem(at)
		gap, err := examine(pr, &used)
		if err != nil {
			small := shrink(pr, err)
			_, why := examine(small, new(rebalance.Planner))
			t.Fatalf("%v\n%#v\n\nas small as it gets: %v\n%#v\n\nagain: go test ./rebalance -run '^%s$' -rebalance.seed=%d -rebalance.problems=1",
				err, *pr, why, *small, t.Name(), at)
		}
		gaps.add(gap)
	}
	gaps.log(t)
}

// examine plans a problem in every way and checks what comes out. used is a
// planner that planned other problems before.
func examine(pr *rebalance.Problem, used *rebalance.Planner) (gap, error) {
	given := clone(pr)
	r := read(given)
	plan, err := new(rebalance.Planner).Plan(pr)
	if err != nil {
		return gap{}, fmt.Errorf("P1: refused: %w", err)
	}
	if !reflect.DeepEqual(pr, given) {
		return gap{}, fmt.Errorf("P5: the problem was changed, to %#v", *pr)
	}
	o, err := carryOut(r, plan)
	if err != nil {
		return gap{}, err
	}
	if err := o.clauses(); err != nil {
		return gap{}, err
	}
	if err := o.kind(); err != nil {
		return gap{}, err
	}
	if err := again(used, pr, plan, "after another problem"); err != nil {
		return gap{}, err
	}
	settled, err := o.settle(used)
	if err != nil {
		return gap{}, err
	}
	if err := again(used, pr, plan, "after its own result"); err != nil {
		return gap{}, err
	}
	g, err := o.distance()
	g.calls = settled
	return g, err
}

// again checks P5: a planner that has a past makes the same plan.
func again(used *rebalance.Planner, pr *rebalance.Problem, plan rebalance.Plan, when string) error {
	other, err := used.Plan(pr)
	if err != nil {
		return fmt.Errorf("P5: refused %s: %w", when, err)
	}
	if !same(plan, other) {
		return fmt.Errorf("P5: %s, the plan is\n%+v, not\n%+v", when, other, plan)
	}
	return nil
}

func same(a, b rebalance.Plan) bool {
	return slices.Equal(a.Changes, b.Changes) && slices.Equal(a.Unplaced, b.Unplaced) &&
		a.Adds == b.Adds && a.Moves == b.Moves && a.LowerBound == b.LowerBound && a.Deferred == b.Deferred
}

func clone(pr *rebalance.Problem) *rebalance.Problem {
	c := *pr
	c.Want, c.States, c.Bounds = slices.Clone(pr.Want), slices.Clone(pr.States), slices.Clone(pr.Bounds)
	c.Forbidden = slices.Clone(pr.Forbidden)
	c.Held = slices.Clone(pr.Held)
	for w := range c.Held {
		c.Held[w] = slices.Clone(c.Held[w])
	}
	return &c
}

// kind checks P6 for the moves between open workers: none that is left out
// would leave a better spread, and together they make it no worse.
func (o *outcome) kind() error {
	before, tight := slices.Clone(o.loads), false
	for _, c := range o.plan.Changes {
		if c.From == rebalance.None || c.To == rebalance.None || o.pr.States[c.From] != rebalance.Open {
			continue
		}
		before[c.From]++
		before[c.To]--
		if o.loads[c.To] > o.loads[c.From]+1 && o.loads[c.From] < o.room(int(c.From)) {
			return fmt.Errorf("P6: %+v makes the spread worse: they end with %d and %d", c, o.loads[c.From], o.loads[c.To])
		}
	}
	var squares int64
	for _, w := range o.open {
		squares += int64(before[w]) * int64(before[w])
		tight = tight || before[w] > o.room(w)
	}
	if squares < o.squares() && !tight {
		return fmt.Errorf("P6: moves between open workers take the sum of squares from %d to %d", squares, o.squares())
	}
	return nil
}

// slackCalls is how many calls more than the moves of an unlimited plan divided
// by the budget it may take until nothing is left to do, where the plan need
// not have the fewest moves; a tenth of the expected calls comes on top.
// Elsewhere it may take none.
const slackCalls = 3

// settle checks P6: it plans again on the result until nothing changes, and
// returns how many calls that took beyond the expected.
func (o *outcome) settle(used *rebalance.Planner) (extra int, err error) {
	limit, slack := 1, 0
	if o.pr.MaxMoves >= 0 {
		free := *o.pr
		free.MaxMoves = rebalance.NoLimit
		plan, err := used.Plan(&free)
		if err != nil {
			return 0, fmt.Errorf("P6: refused without a limit: %w", err)
		}
		if plan.Moves <= o.pr.MaxMoves && !same(plan, o.plan) {
			return 0, fmt.Errorf("P6: a budget of %d changes a plan with %d moves", o.pr.MaxMoves, plan.Moves)
		}
		if first := min(drains(plan), o.pr.MaxMoves); drains(o.plan) != first {
			return 0, fmt.Errorf("P6: %d drains, but %d come first", drains(o.plan), first)
		}
		if o.pr.MaxMoves > 0 {
			limit = max(1, (plan.Moves+o.pr.MaxMoves-1)/o.pr.MaxMoves)
		}
		if !o.plain() {
			slack = slackCalls + limit/10
		}
	}
	now := o
	for calls := 1; ; calls++ {
		next, err := used.Plan(now.problem())
		if err != nil {
			return 0, fmt.Errorf("P6: the result of call %d was refused: %w", calls, err)
		}
		then, err := carryOut(read(now.problem()), next)
		if err != nil {
			return 0, fmt.Errorf("P6: call %d: %w", calls+1, err)
		}
		if err := then.clauses(); err != nil {
			return 0, fmt.Errorf("P6: call %d: %w", calls+1, err)
		}
		if err := then.kind(); err != nil {
			return 0, fmt.Errorf("P6: call %d: %w", calls+1, err)
		}
		if len(next.Changes) == 0 {
			if next.Deferred > 0 && o.pr.MaxMoves > 0 {
				return 0, fmt.Errorf("P6: call %d does nothing, but defers %d moves", calls+1, next.Deferred)
			}
			return max(0, calls-limit), nil
		}
		if calls >= limit+slack {
			return 0, fmt.Errorf("P6: after %d calls, there is still %+v, %d deferred", calls, next.Changes, next.Deferred)
		}
		now = then
	}
}

func drains(plan rebalance.Plan) (n int) {
	for _, c := range plan.Changes {
		if c.Reason == rebalance.Drain {
			n++
		}
	}
	return n
}

func TestP_ShrinkKeepsTheFailure(t *testing.T) {
	t.Parallel()
	pr := shapes[len(shapes)-1].make(7)
	require.Equal(t, pr, clone(pr))
	for _, less := range smaller(pr) {
		require.Len(t, less.Held, len(less.States))
	}
}

// The check itself is checked: no plan with one thing wrong passes.
func TestP_ThePlanWithOneThingWrongIsFound(t *testing.T) {
	t.Parallel()
	plans, wrong := 0, 0
	for _, s := range shapes {
		for at := range uint64(40) {
			pr := s.make(at)
			plan, err := new(rebalance.Planner).Plan(pr)
			require.NoError(t, err)
			r := read(pr)
			passes := func(plan rebalance.Plan) bool {
				o, err := carryOut(r, plan)
				if err == nil {
					err = o.clauses()
				}
				if err == nil {
					_, err = o.distance()
				}
				return err == nil
			}
			if plan.Deferred > 0 || r.over || !r.free() && len(r.closed) > 0 {
				continue // less is promised
			}
			plans++
			for i, bad := range spoilt(plan) {
				wrong++
				require.False(t, passes(bad), "spoilt %d of\n%+v\nfor %#v", i, plan, *pr)
			}
		}
	}
	require.Greater(t, plans, 500)
	require.Greater(t, wrong, 10*plans)
}

// spoilt returns plans with one thing wrong each.
func spoilt(plan rebalance.Plan) (list []rebalance.Plan) {
	change := func(f func(*rebalance.Plan)) {
		c := plan
		c.Changes, c.Unplaced = slices.Clone(plan.Changes), slices.Clone(plan.Unplaced)
		f(&c)
		list = append(list, c)
	}
	change(func(p *rebalance.Plan) { p.Adds++ })
	change(func(p *rebalance.Plan) { p.Moves++ })
	change(func(p *rebalance.Plan) { p.LowerBound = p.Adds + 1 })
	change(func(p *rebalance.Plan) { p.LowerBound = -1 })
	for i, c := range plan.Changes {
		change(func(p *rebalance.Plan) { p.Changes = append(p.Changes, c) })
		change(func(p *rebalance.Plan) { p.Changes[i].Reason++ })
		change(func(p *rebalance.Plan) { p.Changes[i].From, p.Changes[i].To = c.To, c.From })
		change(func(p *rebalance.Plan) {
			p.Changes = slices.Delete(p.Changes, i, i+1)
			if c.To != none {
				p.Adds--
				p.LowerBound = min(p.LowerBound, p.Adds)
			}
			if c.To != none && c.From != none {
				p.Moves--
			}
		})
		if c.From != none && c.To != none {
			change(func(p *rebalance.Plan) { // a move as a stop and a start
				p.Changes[i] = rebalance.Change{Task: c.Task, From: c.From, To: none, Reason: rebalance.Surplus}
				p.Changes = append(p.Changes, rebalance.Change{Task: c.Task, From: none, To: c.To, Reason: rebalance.Missing})
				p.Moves--
			})
		}
	}
	for i := range plan.Unplaced {
		change(func(p *rebalance.Plan) { p.Unplaced = slices.Delete(p.Unplaced, i, i+1) })
		change(func(p *rebalance.Plan) { p.Unplaced = append(p.Unplaced, p.Unplaced[i]) })
		change(func(p *rebalance.Plan) { p.Unplaced[i].Copies++ })
		change(func(p *rebalance.Plan) { p.Unplaced[i].Why += 4 })
	}
	return list
}

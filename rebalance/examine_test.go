package rebalance_test

// Plans of one problem in every way, checked against every clause, and the text of a
// problem and its plan.

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// examine plans a problem in every way and checks the plans. used is a planner that
// planned other problems before.
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
	if err := again(used, bystander(pr), plan, "with a silent worker that holds nothing"); err != nil {
		return gap{}, err
	}
	if err := o.settle(used); err != nil {
		return gap{}, err
	}
	if err := again(used, pr, plan, "after its own result"); err != nil {
		return gap{}, err
	}
	return o.distance()
}

// again checks P5: a planner that planned other problems makes the same plan.
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
		a.Adds == b.Adds && a.Moves == b.Moves && a.LowerBound == b.LowerBound && a.Deferred == b.Deferred &&
		a.Held == b.Held && slices.Equal(a.Loads, b.Loads)
}

func clone(pr *rebalance.Problem) *rebalance.Problem {
	c := *pr
	c.Want, c.States, c.Pinned = slices.Clone(pr.Want), slices.Clone(pr.States), slices.Clone(pr.Pinned)
	c.Forbidden = slices.Clone(pr.Forbidden)
	c.Class, c.Kind, c.May, c.Zone = slices.Clone(pr.Class), slices.Clone(pr.Kind), slices.Clone(pr.May), slices.Clone(pr.Zone)
	c.MaxPerZone, c.Share, c.MaxTasks, c.Weight = slices.Clone(pr.MaxPerZone), slices.Clone(pr.Share), slices.Clone(pr.MaxTasks), slices.Clone(pr.Weight)
	c.Running = slices.Clone(pr.Running)
	for w := range c.Running {
		c.Running[w] = slices.Clone(c.Running[w])
	}
	return &c
}

// bystander is the problem with one more worker, which is silent and holds
// nothing. This changes no choice, but the planner no longer counts the tasks in bits.
func bystander(pr *rebalance.Problem) *rebalance.Problem {
	c := clone(pr)
	c.States, c.Running = append(c.States, rebalance.Frozen), append(c.Running, nil)
	if c.Pinned != nil {
		c.Pinned = append(c.Pinned, 0)
	}
	return c
}

// kind checks P6 for the moves between open workers: none that is left out
// would leave a better spread, and together they make it no worse.
func (o *outcome) kind() error {
	before := slices.Clone(o.loads)
	for _, c := range o.plan.Changes {
		if c.From == rebalance.None || c.To == rebalance.None || o.pr.States[c.From] != rebalance.Open {
			continue
		}
		before[c.From]++
		before[c.To]--
		if o.loads[c.To] > o.loads[c.From]+1 {
			return fmt.Errorf("P6: %+v makes the spread worse: they end with %d and %d", c, o.loads[c.From], o.loads[c.To])
		}
	}
	var squares int64
	for _, w := range o.open {
		squares += int64(before[w]) * int64(before[w])
	}
	if squares < o.squares() {
		return fmt.Errorf("P6: moves between open workers take the sum of squares from %d to %d", squares, o.squares())
	}
	return nil
}

// slackCalls bounds the calls until nothing is left to do, beyond the moves of an
// unlimited plan divided by the budget. A tenth of these calls comes on top. So many starts
// more may be needed too, because each call knows only its own moves.
const slackCalls = 3

// settle checks P6: it plans again on the result until nothing changes.
func (o *outcome) settle(used *rebalance.Planner) error {
	limit, slack, fewest := 1, 0, o.plan.Adds
	if o.pr.MaxMoves >= 0 {
		free := *o.pr
		free.MaxMoves = rebalance.NoLimit
		plan, err := used.Plan(&free)
		if err != nil {
			return fmt.Errorf("P6: refused without a limit: %w", err)
		}
		if plan.Moves <= o.pr.MaxMoves && !same(plan, o.plan) {
			return fmt.Errorf("P6: a budget of %d changes a plan with %d moves", o.pr.MaxMoves, plan.Moves)
		}
		if o.plan.LowerBound != max(o.plan.Adds-o.plan.Moves, plan.LowerBound-o.plan.Deferred) {
			return fmt.Errorf("P8: lower bound %d with %d deferred, %d without a limit", o.plan.LowerBound, o.plan.Deferred, plan.LowerBound)
		}
		if err := o.order(plan); err != nil {
			return err
		}
		if o.pr.MaxMoves > 0 {
			limit = max(1, (plan.Moves+o.pr.MaxMoves-1)/o.pr.MaxMoves)
		}
		slack = slackCalls + limit/10
		fewest = plan.Adds
	}
	now, adds := o, o.plan.Adds
	for calls := 1; ; calls++ {
		next, err := used.Plan(now.problem())
		if err != nil {
			return fmt.Errorf("P6: the result of call %d was refused: %w", calls, err)
		}
		then, err := carryOut(read(now.problem()), next)
		if err != nil {
			return fmt.Errorf("P6: call %d: %w", calls+1, err)
		}
		if err := then.clauses(); err != nil {
			return fmt.Errorf("P6: call %d: %w", calls+1, err)
		}
		if err := then.kind(); err != nil {
			return fmt.Errorf("P6: call %d: %w", calls+1, err)
		}
		adds += next.Adds
		if len(next.Changes) == 0 {
			if o.plain() && o.pr.MaxMoves != 0 && (adds < fewest || adds > fewest+slack) {
				return fmt.Errorf("P3: %d adds in %d calls, %d without a limit", adds, calls, fewest)
			}
			if next.Deferred > 0 && o.pr.MaxMoves > 0 {
				return fmt.Errorf("P6: call %d does nothing, but defers %d moves", calls+1, next.Deferred)
			}
			return nil
		}
		if calls >= limit+slack {
			return fmt.Errorf("P6: after %d calls, there is still %+v, %d deferred", calls, next.Changes, next.Deferred)
		}
		now = then
	}
}

// order checks that drains use the budget first, but for moves that make room for a missing copy. Of
// surplus copies, another one may stop than the one on a draining worker.
func (o *outcome) order(whole rebalance.Plan) error {
	count := func(plan rebalance.Plan) (drains int) {
		for _, c := range plan.Changes {
			if c.Reason == rebalance.Drain {
				drains++
			}
		}
		return drains
	}
	drains, want := count(o.plan), min(count(whole), o.pr.MaxMoves)
	if slices.ContainsFunc(o.plan.Changes, func(c rebalance.Change) bool { return c.Reason == rebalance.Missing || c.Reason == rebalance.Surplus }) {
		want = min(want, max(drains, o.pr.MaxMoves-(o.plan.Moves-drains)))
	}
	if drains != want {
		return fmt.Errorf("P6: %d drains, but %d come first", drains, want)
	}
	return nil
}

// describe returns the problem and its plan, if it has one, line by line.
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
		line("  worker %-3d runs %v, %v%s", w, pr.Running[w], s, more)
	}
	plan, err := func() (_ rebalance.Plan, err error) {
		defer recovered(&err)
		return new(rebalance.Planner).Plan(pr)
	}()
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
			line("  task %d lacks %d: %v", u.Task, u.Copies, u.Reason)
		} else {
			line("  task %d stays on worker %d: %v", u.Task, u.Worker, u.Reason)
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
the plan: 4 starts (at least 4), 1 of them moves, 0 moves deferred
  start task 4 on worker 1 (missing)
  start task 5 on worker 1 (missing)
  start task 5 on worker 0 (missing)
  move task 0 from worker 0 to 1 (rebalance)
  stop task 3 on worker 0 (unexpected)
  task 5 stays on worker 2: every open worker already has a copy
`, describe(&rebalance.Problem{
		Want:      []int32{1, 1, 1, 0, 1, 4},
		States:    []rebalance.State{rebalance.Open, rebalance.Open, rebalance.Draining, rebalance.Frozen},
		Running:   [][]int32{{0, 1, 2, 3}, nil, {5}, {5}},
		Pinned:    []int32{1, 0, 0, 0},
		Forbidden: []rebalance.Pair{{Task: 1, Worker: 1}},
		MaxMoves:  1,
	}))
}

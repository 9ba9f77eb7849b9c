package rebalance_test

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
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
			var used rebalance.Planner
			var gaps tally
			for i := range max(1, *problems/len(shapes)) * max(1, s.times) {
				at := *seed + uint64(i)
				pr := s.make(at)
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
		})
	}
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
// not have the fewest moves. Elsewhere it may take none.
const slackCalls = 2

// settle checks P6: it plans again on the result until nothing changes, and
// returns how many calls that took beyond the expected.
func (o *outcome) settle(used *rebalance.Planner) (extra int, err error) {
	limit, slack := 1, 0
	if !o.plain() && o.pr.MaxMoves >= 0 {
		slack = slackCalls
	}
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

// shrink drops tasks, workers, copies and limits for as long as the same
// clause fails.
func shrink(pr *rebalance.Problem, err error) *rebalance.Problem {
	clause, _, _ := strings.Cut(err.Error(), ":")
	fails := func(pr *rebalance.Problem) bool {
		_, err := examine(pr, new(rebalance.Planner))
		return err != nil && strings.HasPrefix(err.Error(), clause)
	}
	small := clone(pr)
	for again := fails(small); again; {
		again = false
		for _, try := range smaller(small) {
			if fails(try) {
				small, again = try, true
				break
			}
		}
	}
	return small
}

// smaller returns all problems that lack one thing of this one.
func smaller(pr *rebalance.Problem) (list []*rebalance.Problem) {
	change := func(f func(c *rebalance.Problem)) {
		c := clone(pr)
		f(c)
		list = append(list, c)
	}
	for w := range pr.States {
		change(func(c *rebalance.Problem) { dropWorker(c, int32(w)) })
	}
	for t := range pr.Want {
		change(func(c *rebalance.Problem) { dropTask(c, int32(t)) })
	}
	for w, list := range pr.Held {
		for i := range list {
			change(func(c *rebalance.Problem) { c.Held[w] = slices.Delete(c.Held[w], i, i+1) })
		}
	}
	for i := range pr.Forbidden {
		change(func(c *rebalance.Problem) { c.Forbidden = slices.Delete(c.Forbidden, i, i+1) })
	}
	for w, s := range pr.States {
		if s != rebalance.Open {
			change(func(c *rebalance.Problem) { c.States[w] = rebalance.Open })
		}
	}
	for t, want := range pr.Want {
		if want > 1 {
			change(func(c *rebalance.Problem) { c.Want[t]-- })
		}
	}
	if pr.Bounds != nil {
		change(func(c *rebalance.Problem) { c.Bounds = nil })
		for w, bound := range pr.Bounds {
			if bound >= 0 {
				change(func(c *rebalance.Problem) { c.Bounds[w] = -1 })
			}
		}
	}
	if pr.MaxMoves >= 0 {
		change(func(c *rebalance.Problem) { c.MaxMoves = rebalance.NoLimit })
	}
	return list
}

func dropWorker(pr *rebalance.Problem, worker int32) {
	w := int(worker)
	pr.States, pr.Held = slices.Delete(pr.States, w, w+1), slices.Delete(pr.Held, w, w+1)
	if pr.Bounds != nil {
		pr.Bounds = slices.Delete(pr.Bounds, w, w+1)
	}
	pr.Forbidden = slices.DeleteFunc(pr.Forbidden, func(p rebalance.Pair) bool { return p.Worker == worker })
	for i, p := range pr.Forbidden {
		if p.Worker > worker {
			pr.Forbidden[i].Worker--
		}
	}
}

func dropTask(pr *rebalance.Problem, task int32) {
	pr.Want = slices.Delete(pr.Want, int(task), int(task)+1)
	for w := range pr.Held {
		pr.Held[w] = slices.DeleteFunc(pr.Held[w], func(t int32) bool { return t == task })
		for i, t := range pr.Held[w] {
			if t > task {
				pr.Held[w][i]--
			}
		}
	}
	pr.Forbidden = slices.DeleteFunc(pr.Forbidden, func(p rebalance.Pair) bool { return p.Task == task })
	for i, p := range pr.Forbidden {
		if p.Task > task {
			pr.Forbidden[i].Task--
		}
	}
}

// gap is how far a plan is from the best one, where the best is not promised.
type gap struct {
	limited bool  // has closed workers, forbidden pairs or bounds, and no move was deferred
	placed  int   // copies that could have had a place
	depth   int64 // by how much first copies do not come first
	squares int64 // by how much the sum of squared loads is more than it must be
	given   int   // Adds more than needed, with the copies of each task that the plan places
	overall int   // Adds more than needed, where all of the above is as good as it gets
	adds    int
	calls   int
}

// distance compares with the reference where something restricts the plan.
func (o *outcome) distance() (g gap, err error) {
	if o.plain() || o.over || o.plan.Deferred > 0 {
		return gap{}, nil
	}
	have := optimum{squares: o.squares(), adds: o.plan.Adds}
	for t := range o.target {
		n := o.onOpen[t] + o.onClosed[t]
		have.placed += n
		for j := range n {
			have.depth += o.depth(t, j)
		}
	}
	closest := best(o.reading, o.onOpen, false)
	if o.squares() < closest.squares {
		return gap{}, fmt.Errorf("P2: the reference is wrong: %d, at best %d", o.squares(), closest.squares)
	}
	ideal := best(o.reading, o.target, true)
	g = gap{
		limited: true, adds: have.adds,
		placed: ideal.placed - have.placed,
		depth:  have.depth - ideal.depth,
	}
	g.squares = have.squares - closest.squares
	if g.squares == 0 {
		g.given = have.adds - closest.adds
	}
	for _, w := range o.closed {
		have.squares += int64(o.loads[w]) * int64(o.loads[w])
	}
	if g.placed == 0 && g.depth == 0 && have.squares == ideal.squares {
		g.overall = have.adds - ideal.adds
		if g.overall < 0 {
			return gap{}, fmt.Errorf("P3: the reference is wrong: %d adds, at best %d", have.adds, ideal.adds)
		}
		if len(o.closed) == 0 && o.plan.LowerBound > ideal.adds {
			return gap{}, fmt.Errorf("P8: lower bound %d, but %d adds are enough", o.plan.LowerBound, ideal.adds)
		}
	}
	return g, g.accept()
}

// The gaps that are accepted, measured over millions of problems.
const (
	acceptPlaced  = 0
	acceptDepth   = 0
	acceptSquares = 0
	acceptGiven   = 100
	acceptOverall = 100
)

func (g gap) accept() error {
	switch {
	case g.placed > acceptPlaced:
		return fmt.Errorf("P1: %d more copies could have a place", g.placed)
	case g.depth > acceptDepth:
		return fmt.Errorf("P1: first copies do not come first: %d deeper than needed", g.depth)
	case g.squares > acceptSquares:
		return fmt.Errorf("P2: the sum of squared loads could be less by %d", g.squares)
	case g.given > acceptGiven || g.overall > acceptOverall:
		return fmt.Errorf("P3: %d adds, %d less are enough with the same copies, %d less with the best", g.adds, g.given, g.overall)
	}
	return nil
}

// tally sums up the gaps of many problems.
type tally struct {
	problems, adds, calls  int
	placed, depth, squares measure
	given, overall         measure
}

// measure is one gap over many problems.
type measure struct{ sum, worst, count int }

func (m *measure) add(v int) {
	if v > 0 {
		m.count++
	}
	m.sum += v
	m.worst = max(m.worst, v)
}

func (m measure) String() string {
	return fmt.Sprintf("%d in %d problems, at worst %d", m.sum, m.count, m.worst)
}

func (t *tally) add(g gap) {
	t.calls = max(t.calls, g.calls)
	if !g.limited {
		return
	}
	t.problems++
	t.adds += g.adds
	t.placed.add(g.placed)
	t.depth.add(int(g.depth))
	t.squares.add(int(g.squares))
	t.given.add(g.given)
	t.overall.add(g.overall)
}

func (t *tally) log(tb testing.TB) {
	tb.Helper()
	if t.calls > 0 {
		tb.Logf("convergence took up to %d calls more than expected", t.calls)
	}
	if t.problems > 0 {
		tb.Logf("%d restricted problems with %d adds; beyond the reference: placed %v; depth %v; squares %v; adds with the same copies %v; adds overall %v",
			t.problems, t.adds, t.placed, t.depth, t.squares, t.given, t.overall)
	}
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

package rebalance_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This file holds the cases that have a name.

const (
	none    = rebalance.None
	noLimit = rebalance.NoLimit
)

// fleet is a problem in which the tasks are dealt out in turn to all workers
// but the last few, which hold nothing.
func fleet(tasks, copies, workers, fresh int) *rebalance.Problem {
	pr := &rebalance.Problem{
		Want:     make([]int32, tasks),
		States:   make([]rebalance.State, workers+fresh),
		Held:     make([][]int32, workers+fresh),
		MaxMoves: noLimit,
	}
	for t := range tasks {
		pr.Want[t] = int32(copies)
		for c := range copies {
			w := (t*copies + c) % workers
			pr.Held[w] = append(pr.Held[w], int32(t))
		}
	}
	return pr
}

// planned examines the problem and returns its plan.
func planned(t *testing.T, pr *rebalance.Problem) rebalance.Plan {
	t.Helper()
	_, err := examine(pr, new(rebalance.Planner))
	require.NoError(t, err)
	plan, err := new(rebalance.Planner).Plan(pr)
	require.NoError(t, err)
	return plan
}

func TestP3_AWorkerThatJoinsGetsItsShareAndNothingElseMoves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                     string
		tasks, copies, workers   int
		moves, smallest, largest int
	}{
		{"100x4", 100, 1, 4, 20, 20, 20},
		{"101x4", 101, 1, 4, 20, 20, 21},
		{"100x10", 100, 1, 10, 9, 9, 10},
		{"1000x10", 1000, 1, 10, 90, 90, 91},
		{"100x4 in three copies", 100, 3, 4, 60, 60, 60},
		{"3x3", 3, 1, 3, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pr := fleet(c.tasks, c.copies, c.workers, 1)
			plan, err := new(rebalance.Planner).Plan(pr)
			require.NoError(t, err)
			require.Equal(t, c.moves, plan.Moves)
			require.Equal(t, c.moves, plan.Adds)
			require.Equal(t, c.moves, plan.LowerBound)
			require.Len(t, plan.Changes, c.moves)
			for _, change := range plan.Changes {
				require.Equal(t, int32(c.workers), change.To, "%+v", change)
			}
			o, err := carryOut(read(pr), plan)
			require.NoError(t, err)
			for _, load := range o.loads {
				require.GreaterOrEqual(t, load, c.smallest)
				require.LessOrEqual(t, load, c.largest)
			}
		})
	}
}

// Both of the first workers run one task too many: which copies of x and y go
// must be chosen together.
func TestP3_DropsAreChosenTogether(t *testing.T) {
	t.Parallel()
	const x, y, a, b, c, d = 0, 1, 2, 3, 4, 5
	plan := planned(t, &rebalance.Problem{
		Want:     []int32{1, 1, 1, 1, 1, 1},
		States:   make([]rebalance.State, 3),
		Held:     [][]int32{{x, a, b}, {x, y, c}, {y, d}},
		MaxMoves: noLimit,
	})
	require.Zero(t, plan.Adds)
	require.ElementsMatch(t, []rebalance.Change{
		{Task: x, From: 0, To: none, Reason: rebalance.Surplus},
		{Task: y, From: 1, To: none, Reason: rebalance.Surplus},
	}, plan.Changes)
}

func TestP_NamedCases(t *testing.T) {
	t.Parallel()
	const open, draining, frozen, closed = rebalance.Open, rebalance.Draining, rebalance.Frozen, rebalance.Closed
	type (
		states   = []rebalance.State
		changes  = []rebalance.Change
		unplaced = []rebalance.Unplaced
		pairs    = []rebalance.Pair
	)
	for _, c := range []struct {
		name     string
		pr       rebalance.Problem
		changes  changes
		unplaced unplaced
	}{
		{name: "nothing at all", pr: rebalance.Problem{MaxMoves: noLimit}},
		{name: "workers without tasks", pr: rebalance.Problem{States: states{open, open}, Held: make([][]int32, 2), MaxMoves: noLimit}},
		{
			name:     "tasks without workers",
			pr:       rebalance.Problem{Want: []int32{2, 0, 1}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 2, none, rebalance.NoOpenWorker}, {2, 1, none, rebalance.NoOpenWorker}},
		},
		{
			name:    "a task that nobody runs starts",
			pr:      rebalance.Problem{Want: []int32{1}, States: states{open}, Held: [][]int32{nil}, MaxMoves: noLimit},
			changes: changes{{0, none, 0, rebalance.Missing}},
		},
		{
			name:     "more copies than workers",
			pr:       rebalance.Problem{Want: []int32{3}, States: states{open, open}, Held: [][]int32{{0}, nil}, MaxMoves: noLimit},
			changes:  changes{{0, none, 1, rebalance.Missing}},
			unplaced: unplaced{{0, 1, none, rebalance.NoOtherWorker}},
		},
		{
			name:    "unexpected copies stop, also on draining and closed workers, but not on frozen ones",
			pr:      rebalance.Problem{Want: []int32{0}, States: states{open, draining, frozen, closed}, Held: [][]int32{{0}, {0}, {0}, {0}}, MaxMoves: 0},
			changes: changes{{0, 0, none, rebalance.Unexpected}, {0, 1, none, rebalance.Unexpected}, {0, 3, none, rebalance.Unexpected}},
		},
		{
			name: "a task listed twice counts once",
			pr:   rebalance.Problem{Want: []int32{1, 1}, States: states{open, open}, Held: [][]int32{{0, 0, 0}, {1}}, MaxMoves: noLimit},
		},
		{
			name:    "an unexpected task listed twice stops once",
			pr:      rebalance.Problem{Want: []int32{0}, States: states{open}, Held: [][]int32{{0, 0}}, MaxMoves: noLimit},
			changes: changes{{0, 0, none, rebalance.Unexpected}},
		},
		{
			name:    "a draining worker ends empty",
			pr:      rebalance.Problem{Want: []int32{1}, States: states{draining, open}, Held: [][]int32{{0}, nil}, MaxMoves: noLimit},
			changes: changes{{0, 0, 1, rebalance.Drain}},
		},
		{
			name:     "a drain waits for an open worker",
			pr:       rebalance.Problem{Want: []int32{1}, States: states{draining}, Held: [][]int32{{0}}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, 0, rebalance.NoOpenWorker}},
		},
		{
			name:     "a drain waits for another worker",
			pr:       rebalance.Problem{Want: []int32{2}, States: states{draining, open}, Held: [][]int32{{0}, {0}}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, 0, rebalance.NoOtherWorker}},
		},
		{
			name:     "a drain waits for a pair that is forbidden",
			pr:       rebalance.Problem{Want: []int32{1}, States: states{draining, open}, Held: [][]int32{{0}, nil}, Forbidden: pairs{{0, 1}}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, 0, rebalance.WhyForbidden}},
		},
		{
			name:     "a drain waits for room",
			pr:       rebalance.Problem{Want: []int32{1}, States: states{draining, open}, Held: [][]int32{{0}, nil}, Bounds: []int32{-1, 0}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, 0, rebalance.Bounded}},
		},
		{
			name:     "a missing copy without an open worker beside one that waits",
			pr:       rebalance.Problem{Want: []int32{2}, States: states{draining}, Held: [][]int32{{0}}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, none, rebalance.NoOpenWorker}, {0, 1, 0, rebalance.NoOpenWorker}},
		},
		{
			name:    "a surplus copy leaves the draining worker",
			pr:      rebalance.Problem{Want: []int32{1}, States: states{open, draining}, Held: [][]int32{{0}, {0}}, MaxMoves: noLimit},
			changes: changes{{0, 1, none, rebalance.Surplus}},
		},
		{
			name: "a frozen copy is not started elsewhere",
			pr:   rebalance.Problem{Want: []int32{1}, States: states{frozen, open}, Held: [][]int32{{0}, nil}, MaxMoves: noLimit},
		},
		{
			name: "a frozen copy stops none that answers",
			pr:   rebalance.Problem{Want: []int32{1}, States: states{frozen, open}, Held: [][]int32{{0}, {0}}, MaxMoves: noLimit},
		},
		{
			name:    "a frozen copy beside two that answer",
			pr:      rebalance.Problem{Want: []int32{1, 1}, States: states{frozen, open, open}, Held: [][]int32{{0}, {0, 1}, {0}}, MaxMoves: noLimit},
			changes: changes{{0, 1, none, rebalance.Surplus}},
		},
		{
			name:     "a closed worker gains nothing",
			pr:       rebalance.Problem{Want: []int32{1}, States: states{closed}, Held: [][]int32{nil}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, none, rebalance.NoOpenWorker}},
		},
		{
			name: "a closed worker alone keeps everything",
			pr:   rebalance.Problem{Want: []int32{1, 1}, States: states{closed}, Held: [][]int32{{0, 1}}, MaxMoves: noLimit},
		},
		{
			name:     "a task forbidden everywhere",
			pr:       rebalance.Problem{Want: []int32{1}, States: states{open, open}, Held: make([][]int32, 2), Forbidden: pairs{{0, 1}, {0, 0}, {0, 1}}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, none, rebalance.WhyForbidden}},
		},
		{
			name:    "a task forbidden on one",
			pr:      rebalance.Problem{Want: []int32{1}, States: states{open, open}, Held: make([][]int32, 2), Forbidden: pairs{{0, 0}}, MaxMoves: noLimit},
			changes: changes{{0, none, 1, rebalance.Missing}},
		},
		{
			name: "a forbidden copy that is there stays",
			pr:   rebalance.Problem{Want: []int32{1, 1}, States: states{open, open}, Held: [][]int32{{0}, {1}}, Forbidden: pairs{{0, 0}}, MaxMoves: noLimit},
		},
		{
			name: "no room for more",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1}, States: states{open, open}, Held: [][]int32{{0}, {1}},
				Bounds: []int32{1, 1}, MaxMoves: noLimit,
			},
			unplaced: unplaced{{2, 1, none, rebalance.Bounded}},
		},
		{
			name: "a bound stops nothing",
			pr:   rebalance.Problem{Want: []int32{1, 1}, States: states{open}, Held: [][]int32{{0, 1}}, Bounds: []int32{1}, MaxMoves: noLimit},
		},
		{
			name:    "no budget: what is missing starts, what is too much stops, nothing moves",
			pr:      rebalance.Problem{Want: []int32{1, 1, 1, 1, 1}, States: states{open, open}, Held: [][]int32{{0, 1, 2, 3}, {0}}, MaxMoves: 0},
			changes: changes{{0, 0, none, rebalance.Surplus}, {4, none, 1, rebalance.Missing}},
		},
		{
			name:    "no budget: a missing copy overfills a worker",
			pr:      rebalance.Problem{Want: []int32{2, 1, 1, 1}, States: states{open, open}, Held: [][]int32{{1, 2, 3}, {0}}, MaxMoves: 0},
			changes: changes{{0, none, 0, rebalance.Missing}},
		},
		{
			name: "drains come first",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1, 1, 1}, States: states{open, open, draining},
				Held: [][]int32{{0, 1, 2, 3}, nil, {4}}, MaxMoves: 1,
			},
			changes: changes{{4, 2, 1, rebalance.Drain}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			plan := planned(t, &c.pr)
			require.ElementsMatch(t, c.changes, plan.Changes)
			require.ElementsMatch(t, c.unplaced, plan.Unplaced)
		})
	}
}

func TestP2_AClosedWorkerKeepsItsShareAndLosesTheRest(t *testing.T) {
	t.Parallel()
	plan := planned(t, &rebalance.Problem{
		Want:     []int32{1, 1, 1, 1},
		States:   []rebalance.State{rebalance.Closed, rebalance.Open},
		Held:     [][]int32{{0, 1, 2, 3}, nil},
		MaxMoves: noLimit,
	})
	require.Len(t, plan.Changes, 2)
	require.Equal(t, 2, plan.Moves)
}

// A task that runs everywhere costs no more starts than it has copies, beside
// tasks that fill the workers up to their shares.
func TestP3_DaemonsAmongSingleCopies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tasks, workers, daemons int }{{100, 4, 1}, {101, 4, 2}, {30, 10, 3}, {200, 20, 1}, {203, 20, 5}} {
		t.Run(fmt.Sprintf("%dx%d, %d daemons", c.tasks, c.workers, c.daemons), func(t *testing.T) {
			t.Parallel()
			pr := daemons(c.tasks, c.workers, c.daemons)
			starts := c.tasks + c.daemons*c.workers
			plan := planned(t, pr)
			require.Equal(t, starts, plan.Adds)
			require.Equal(t, starts, plan.LowerBound)
			require.Empty(t, plan.Unplaced)
		})
	}
}

// daemons is a fleet that runs nothing yet, and some of whose tasks shall run
// everywhere.
func daemons(tasks, workers, daemons int) *rebalance.Problem {
	pr := without(fleet(tasks+daemons, 1, workers, workers), workers)
	for t := range daemons {
		pr.Want[t] = int32(workers)
	}
	return pr
}

// Problems that were planned wrongly once.
func TestP_OnceWrong(t *testing.T) {
	t.Parallel()
	open := func(n int) []rebalance.State { return make([]rebalance.State, n) }
	for name, pr := range map[string]rebalance.Problem{
		"bounds that are none": {
			Want: []int32{1, 2, 2}, States: open(2), Held: [][]int32{{}, {0, 2}}, Bounds: []int32{-2, -1}, MaxMoves: noLimit,
		},
		"unstable with a closed worker and a bound": {
			Want: []int32{1, 1, 2}, States: []rebalance.State{rebalance.Closed, 0, 0}, Held: [][]int32{{2, 1, 0}, nil, nil},
			Bounds: []int32{-1, -1, 0}, MaxMoves: noLimit,
		},
		"unstable beyond a bound": {
			Want: []int32{1, 1, 2, 1, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2}, States: open(2),
			Held:   [][]int32{{}, {6, 14, 8, 3, 4, 12, 7, 5, 11, 15, 9, 13, 0, 17, 2, 1, 10, 18}},
			Bounds: []int32{-1, 17}, MaxMoves: noLimit,
		},
		"a lower bound above the minimum": {
			Want: []int32{1, 2, 4, 1}, States: open(4), Held: [][]int32{{3, 1}, {0, 1}, {}, {}}, MaxMoves: noLimit,
		},
		"uneven with forbidden pairs": {
			Want: []int32{1, 2, 2, 3}, States: open(4), Held: [][]int32{{}, {1, 0}, {0}, {1, 2}},
			Forbidden: []rebalance.Pair{{Task: 2, Worker: 1}, {Task: 0, Worker: 1}, {Task: 3, Worker: 1}}, MaxMoves: noLimit,
		},
		"stuck with a budget and a closed worker": {
			Want: []int32{1, 1, 1, 2, 1, 1, 2, 1, 1, 1}, States: []rebalance.State{rebalance.Closed, 0, 0},
			Held: [][]int32{{3, 5, 6, 7, 8, 9}, nil, nil},
			Forbidden: []rebalance.Pair{
				{Task: 0, Worker: 1},
				{Task: 1, Worker: 1},
				{Task: 2, Worker: 1},
				{Task: 3, Worker: 1},
				{Task: 4, Worker: 1},
				{Task: 5, Worker: 1},
				{Task: 6, Worker: 1},
				{Task: 7, Worker: 1},
			},
			MaxMoves: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, &pr)
		})
	}
}

// Every problem of a few workers and tasks, with every state of the workers
// where there are few enough.
func TestP_EverySmallProblem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                   string
		workers, tasks, states int
	}{
		{"3x3 open", 3, 3, 1}, {"2x4 open", 2, 4, 1}, {"4x2 open", 4, 2, 1}, {"2x2 any", 2, 2, 4}, {"3x2 any", 3, 2, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var used rebalance.Planner
			pr := &rebalance.Problem{
				Want: make([]int32, c.tasks), States: make([]rebalance.State, c.workers), Held: make([][]int32, c.workers),
				MaxMoves: noLimit,
			}
			digits := make([]int, c.tasks+2*c.workers) // wants, states, lists
			for next := true; next; {
				for i := range pr.Want {
					pr.Want[i] = int32(digits[i])
				}
				for w := range c.workers {
					pr.States[w] = rebalance.State(digits[c.tasks+w])
					pr.Held[w] = pr.Held[w][:0]
					for i := range c.tasks {
						if digits[c.tasks+c.workers+w]>>i&1 != 0 {
							pr.Held[w] = append(pr.Held[w], int32(i))
						}
					}
				}
				if _, err := examine(pr, &used); err != nil {
					t.Fatalf("%v\n%#v", err, *pr)
				}
				next = false
				for i := range digits {
					limit := c.workers + 2
					if i >= c.tasks {
						limit = c.states
					}
					if i >= c.tasks+c.workers {
						limit = 1 << c.tasks
					}
					if digits[i]++; digits[i] < limit {
						next = true
						break
					}
					digits[i] = 0
				}
			}
		})
	}
}

// Of a plan that is cut short, what makes the spread better is done first. Here
// task 1 makes room on worker 2, which is of use only when worker 0, over its bound,
// gives it another; and worker 3 is to have one from worker 0 too.
func TestP6_ABudgetIsSpentOnWhatMakesTheSpreadBetter(t *testing.T) {
	pr := &rebalance.Problem{
		Want: []int32{2, 2, 2}, States: make([]rebalance.State, 4), Bounds: []int32{0, rebalance.NoLimit, 1, 2},
		Held: [][]int32{{2, 0}, {0, 2}, {1}, nil}, MaxMoves: 2,
	}
	p := planned(t, pr)
	loads := []int{2, 2, 1, 0}
	for _, c := range p.Changes {
		if c.From != rebalance.None {
			loads[c.From]--
		}
		if c.To != rebalance.None {
			loads[c.To]++
		}
	}
	require.Equal(t, []int{1, 3, 1, 1}, loads)
	require.Equal(t, 2, p.Deferred)
}

func TestP6_ABudgetIsSpentTermByTerm(t *testing.T) {
	t.Parallel()
	pr := fleet(100, 1, 4, 1)
	pr.MaxMoves = 6
	var planner rebalance.Planner
	for _, want := range []struct{ moves, deferred int }{{6, 14}, {6, 8}, {6, 2}, {2, 0}, {0, 0}} {
		plan, err := planner.Plan(pr)
		require.NoError(t, err)
		require.Equal(t, want.moves, plan.Moves)
		require.Equal(t, want.deferred, plan.Deferred)
		o, err := carryOut(read(pr), plan)
		require.NoError(t, err)
		pr = o.problem()
	}
}

func TestP1_BadInputNamesFieldIndexAndValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		harm func(*rebalance.Problem)
		says []string
	}{
		{"too few states", func(pr *rebalance.Problem) { pr.States = pr.States[:2] }, []string{"Held", "States", "3", "2"}},
		{"too few lists", func(pr *rebalance.Problem) { pr.Held = nil }, []string{"Held", "States", "3", "0"}},
		{"too few bounds", func(pr *rebalance.Problem) { pr.Bounds = []int32{} }, []string{"Bounds", "3", "0"}},
		{"too many bounds", func(pr *rebalance.Problem) { pr.Bounds = make([]int32, 7) }, []string{"Bounds", "3", "7"}},
		{"a state that is none", func(pr *rebalance.Problem) { pr.States[1] = 77 }, []string{"States[1]", "77"}},
		{"less than nothing wanted", func(pr *rebalance.Problem) { pr.Want[2] = -41 }, []string{"Want[2]", "-41"}},
		{"a negative task", func(pr *rebalance.Problem) { pr.Held[1] = []int32{0, -9} }, []string{"Held[1][1]", "-9"}},
		{"a task beyond the last", func(pr *rebalance.Problem) { pr.Held[2] = []int32{4} }, []string{"Held[2][0]", "4"}},
		{"the same on a frozen worker", func(pr *rebalance.Problem) {
			pr.States[2], pr.Held[2] = rebalance.Frozen, []int32{math.MaxInt32}
		}, []string{"Held[2][0]", "2147483647"}},
		{"a pair with a task beyond the last", func(pr *rebalance.Problem) {
			pr.Forbidden = []rebalance.Pair{{0, 0}, {4, 0}}
		}, []string{"Forbidden[1]", "4"}},
		{"a pair with a worker beyond the last", func(pr *rebalance.Problem) {
			pr.Forbidden = []rebalance.Pair{{0, 3}}
		}, []string{"Forbidden[0]", "3"}},
		{"a pair with nobody", func(pr *rebalance.Problem) {
			pr.Forbidden = []rebalance.Pair{{0, none}}
		}, []string{"Forbidden[0]", "-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var planner rebalance.Planner
			for _, instances := range []int{1, 2} {
				pr := fleet(4, instances, 3, 0)
				c.harm(pr)
				plan, err := planner.Plan(pr)
				require.ErrorIs(t, err, rebalance.ErrInvalid)
				for _, part := range c.says {
					require.ErrorContains(t, err, part)
				}
				require.Zero(t, plan)
			}

			good := fleet(9, 2, 4, 1)
			want := planned(t, good)
			got, err := planner.Plan(good)
			require.NoError(t, err)
			require.True(t, same(want, got), "an error leaves its marks on the next plan: %+v, not %+v", got, want)
		})
	}
}

func TestP5_ThePlanKeepsNothingOfTheProblem(t *testing.T) {
	t.Parallel()
	pr := fleet(12, 1, 3, 1)
	var planner rebalance.Planner
	plan, err := planner.Plan(pr)
	require.NoError(t, err)
	want, err := new(rebalance.Planner).Plan(pr)
	require.NoError(t, err)
	for w := range pr.Held {
		clear(pr.Held[w])
	}
	clear(pr.Want)
	require.True(t, same(want, plan))
}

func TestP6_ASteadyCallAllocatesNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		twist func(*rebalance.Problem)
	}{
		{"open", func(*rebalance.Problem) {}},
		{"a limit", func(pr *rebalance.Problem) { pr.MaxMoves = 3 }},
		{"frozen", func(pr *rebalance.Problem) { pr.States[0] = rebalance.Frozen }},
		{"closed", func(pr *rebalance.Problem) { pr.States[0] = rebalance.Closed }},
		{"forbidden", func(pr *rebalance.Problem) { pr.Forbidden = []rebalance.Pair{{1, 0}, {0, 1}} }},
		{"bounds", func(pr *rebalance.Problem) { pr.Bounds = []int32{-1, 200, 300, 100, -1, -1, -1, -1, -1, -1} }},
		{"a worker joins", func(pr *rebalance.Problem) { pr.Held[3] = nil }},
		{"a daemon is new", func(pr *rebalance.Problem) { pr.Want[0], pr.Held = 10, make([][]int32, 10) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			pr := fleet(1000, 1, 10, 0)
			c.twist(pr)
			var planner rebalance.Planner
			require.Zero(t, testing.AllocsPerRun(10, func() {
				if _, err := planner.Plan(pr); err != nil {
					t.Fatal(err)
				}
			}))
		})
	}
}

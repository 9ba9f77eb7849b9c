package rebalance_test

// Small problems: what every random problem is checked for, one call and the next,
// tasks wanted once, and forbidden pairs for which the fewest starts are known.

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

func TestP4_ABlipStopsNothingElsewhere(t *testing.T) {
	var planner rebalance.Planner
	problem := &rebalance.Problem{
		Want:     []int32{2},
		States:   []rebalance.State{rebalance.Frozen, rebalance.Open, rebalance.Open, rebalance.Open},
		Running:  [][]int32{{0}, {0}, {0}, {0}},
		MaxMoves: rebalance.NoLimit,
	}
	plan, err := planner.Plan(problem)
	require.NoError(t, err)
	require.Len(t, plan.Changes, 1, "two wanted copies answer, and stay whatever the frozen worker holds")
	require.Equal(t, rebalance.Surplus, plan.Changes[0].Reason)
	require.NotEqualValues(t, 0, plan.Changes[0].From)

	problem.Running = [][]int32{{0}, {0}, {0}, nil}
	plan, err = planner.Plan(problem)
	require.NoError(t, err)
	require.Empty(t, plan.Changes)
}

func TestP7_EveryChangeHasItsReason(t *testing.T) {
	var planner rebalance.Planner
	plan, err := planner.Plan(&rebalance.Problem{
		Want:     []int32{1, 0, 1, 1, 1, 1, 1, 3},
		States:   []rebalance.State{rebalance.Open, rebalance.Open, rebalance.Draining},
		Running:  [][]int32{{0, 1, 3, 4, 5, 7}, {0, 7}, {6}},
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
		{Task: 7, Copies: 1, Worker: rebalance.None, Reason: rebalance.NoOtherWorker},
	}, plan.Unplaced)
}

func TestP8_TheLowerBoundStandsBesideTheStarts(t *testing.T) {
	var planner rebalance.Planner
	problem := &rebalance.Problem{
		Want:     []int32{1, 1, 1, 1, 1},
		States:   []rebalance.State{rebalance.Open, rebalance.Open, rebalance.Open},
		Running:  [][]int32{{0, 1, 2, 3}, nil, nil},
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
		Want:    []int32{1, 1, 1, 1, 1, 1},
		States:  []rebalance.State{rebalance.Open, rebalance.Open},
		Running: [][]int32{{0, 1, 2, 3, 4}, nil},
	}
	for task := range int32(4) {
		problem.Forbidden = append(problem.Forbidden, rebalance.Pair{Task: task, Worker: 1})
	}
	plan, err := planner.Plan(problem)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 1}, []int{plan.Adds, plan.LowerBound, plan.Deferred})
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

// A worker in quarantine that may gain one copy a term gets its share, for as many
// moves as that is.
func TestP6_AQuarantinedWorkerGrowsToItsShare(t *testing.T) {
	t.Parallel()
	for _, budget := range []int32{noLimit, 1} {
		pr := fleet(100, 1, 4, 1)
		pr.States[4], pr.MaxGain, pr.MaxMoves = rebalance.Quarantined, []int32{0, 0, 0, 0, 1}, int(budget)
		var planner rebalance.Planner
		for call := range 25 {
			plan, err := planner.Plan(pr)
			require.NoError(t, err)
			o, err := carryOut(read(pr), plan)
			require.NoError(t, err)
			if call < 20 {
				require.Len(t, plan.Changes, 1)
				require.Equal(t, call+1, o.loads[4])
			} else {
				require.Empty(t, plan.Changes)
				require.Equal(t, []int{20, 20, 20, 20, 20}, o.loads)
			}
			pr = o.problem()
		}
	}
}

func TestP1_BadInputNamesFieldIndexAndValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		harm func(*rebalance.Problem)
		says []string
	}{
		{"too few states", func(pr *rebalance.Problem) { pr.States = pr.States[:2] }, []string{"Running", "States", "3", "2"}},
		{"too few lists", func(pr *rebalance.Problem) { pr.Running = nil }, []string{"Running", "States", "3", "0"}},
		{"too few numbers of pinned", func(pr *rebalance.Problem) { pr.Pinned = []int32{} }, []string{"Pinned", "3", "0"}},
		{"too many gains", func(pr *rebalance.Problem) { pr.MaxGain = make([]int32, 7) }, []string{"MaxGain", "3", "7"}},
		{"more pinned than held", func(pr *rebalance.Problem) {
			pr.Running[1], pr.Pinned = []int32{0, 3}, []int32{0, 5, 0}
		}, []string{"Pinned[1]", "5", "2"}},
		{"less than nothing pinned", func(pr *rebalance.Problem) { pr.Pinned = []int32{0, 0, -6} }, []string{"Pinned[2]", "-6"}},
		{"a negative gain", func(pr *rebalance.Problem) { pr.MaxGain = []int32{-8, 0, 0} }, []string{"MaxGain[0]", "-8"}},
		{"a late copy of a task beyond the last", func(pr *rebalance.Problem) {
			pr.MoveLast = []rebalance.Pair{{4, 0}}
		}, []string{"MoveLast[0]", "4"}},
		{"a state that is none", func(pr *rebalance.Problem) { pr.States[1] = 77 }, []string{"States[1]", "77"}},
		{"less than nothing wanted", func(pr *rebalance.Problem) { pr.Want[2] = -41 }, []string{"Want[2]", "-41"}},
		{"a negative task", func(pr *rebalance.Problem) { pr.Running[1] = []int32{0, -9} }, []string{"Running[1][1]", "-9"}},
		{"a task beyond the last", func(pr *rebalance.Problem) { pr.Running[2] = []int32{4} }, []string{"Running[2][0]", "4"}},
		{"the same on a frozen worker", func(pr *rebalance.Problem) {
			pr.States[2], pr.Running[2] = rebalance.Frozen, []int32{math.MaxInt32}
		}, []string{"Running[2][0]", "2147483647"}},
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
	for w := range pr.Running {
		clear(pr.Running[w])
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
		{"quarantined", func(pr *rebalance.Problem) { pr.States[0] = rebalance.Quarantined }},
		{"forbidden", func(pr *rebalance.Problem) { pr.Forbidden = []rebalance.Pair{{1, 0}, {0, 1}} }},
		{"pinned", func(pr *rebalance.Problem) { pr.Pinned = []int32{1, 0, 9, 0, 0, 0, 0, 0, 0, 100} }},
		{"quarantined and gaining", func(pr *rebalance.Problem) {
			pr.States[0], pr.Running[0], pr.MaxGain = rebalance.Quarantined, nil, []int32{9, 0, 0, 0, 0, 0, 0, 0, 0, 0}
		}},
		{"a worker joins", func(pr *rebalance.Problem) { pr.Running[3] = nil }},
		{"a limit on moves, some late", func(pr *rebalance.Problem) {
			pr.Running[4], pr.Running[3] = append(pr.Running[4], pr.Running[3]...), nil
			pr.MoveLast, pr.MaxMoves = []rebalance.Pair{{Task: pr.Running[4][0], Worker: 4}}, 3
		}},
		{"a daemon is new", func(pr *rebalance.Problem) { pr.Want[0], pr.Running = 10, make([][]int32, 10) }},
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
	for _, list := range pr.Running {
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
			pr.Running[1] = append(pr.Running[1], beyond)
			_, err := new(rebalance.Planner).Plan(pr)
			require.ErrorIs(t, err, rebalance.ErrInvalid, "%d of %d", beyond, tasks)
		}
	}
}

// Five tasks, five workers: task 1 is missing, worker 1 has two, and worker 3 may
// not take 0, 3, 4. To start 1 on worker 3 and move 0 or 4 to worker 2 is enough.
func TestP3_WhatIsMissingGoesToTheWorkerThatMayTakeLittleElse(t *testing.T) {
	t.Parallel()
	plan := planned(t, &rebalance.Problem{
		Want: []int32{1, 1, 1, 1, 1}, States: make([]rebalance.State, 5), MaxMoves: noLimit,
		Running:   [][]int32{{2}, {0, 4}, nil, nil, {3}},
		Forbidden: []rebalance.Pair{{Task: 0, Worker: 3}, {Task: 3, Worker: 3}, {Task: 4, Worker: 3}},
	})
	require.Equal(t, 2, plan.Adds)
}

// A copy that was to move, was taken back and was dropped again moved twice on paper, and
// another copy of its task was stopped in its place. With few moves it was missing then.
func TestP4_ACopyThatIsDroppedAgainMovesOnce(t *testing.T) {
	t.Parallel()
	for maxMoves := noLimit; maxMoves < 12; maxMoves++ {
		_, err := examine(&rebalance.Problem{
			Want:   []int32{1, 0, 0, 3, 0, 0, 1, 2, 0, 0, 2, 1, 0, 2, 3, 2, 1, 1, 0, 1, 0, 3, 0, 0, 1, 0, 3, 0, 3, 1, 1, 3, 0, 1, 1, 1, 3, 1},
			States: []rebalance.State{0, rebalance.Draining, 0, 0, 0, 0},
			Running: [][]int32{
				nil, nil, nil,
				{11, 19, 28, 31, 3, 7, 10, 13, 14, 21, 24, 26, 29, 36},
				{28, 31, 30, 33, 34, 37, 3, 14, 15, 21, 35, 0, 26, 36},
				{17, 28, 31, 3, 6, 7, 10, 13, 14, 15, 16, 21, 26, 36},
			},
			Pinned: []int32{0, 0, 0, 10, 8, 11},
			Forbidden: []rebalance.Pair{
				{Task: 23, Worker: 3},
				{Task: 27, Worker: 5},
				{Task: 3, Worker: 0},
				{Task: 10, Worker: 0},
				{Task: 11, Worker: 0},
				{Task: 14, Worker: 0},
				{Task: 26, Worker: 0},
				{Task: 35, Worker: 0},
			},
			MaxMoves: maxMoves,
		}, new(rebalance.Planner))
		require.NoError(t, err, "MaxMoves %d", maxMoves)
	}
}

// A quarantined worker took a copy from one that then lost two more as surplus, and
// ended with more than it.
func TestP6_AQuarantinedWorkerTakesNothingFromOneThatLosesSurplus(t *testing.T) {
	t.Parallel()
	planned(t, &rebalance.Problem{
		Want:    []int32{2, 1, 3, 1, 2, 4},
		States:  []rebalance.State{0, 0, 0, rebalance.Quarantined, 0, 0},
		Running: [][]int32{nil, {4}, {2, 3}, {4}, {0, 1}, {4, 3, 0, 5}},
		Pinned:  []int32{0, 0, 2, 0, 2, 0}, MaxGain: []int32{0, 0, 0, 2, 0, 0}, MaxMoves: noLimit,
	})
}

// Tasks 0 to 9 may run anywhere, 10 to 19 only on even workers, and worker 4 joins.
func TestP3_AWorkerJoinsAPoolAndAnOpenHalf(t *testing.T) {
	t.Parallel()
	pr := &rebalance.Problem{States: make([]rebalance.State, 5), Running: make([][]int32, 5), MaxMoves: noLimit}
	for k := range int32(20) {
		pr.Want = append(pr.Want, 1)
		w := 1 + 2*(k%2)
		if k >= 10 {
			pr.Forbidden = append(pr.Forbidden, rebalance.Pair{Task: k, Worker: 1}, rebalance.Pair{Task: k, Worker: 3})
			w = 2 * (k % 2)
		}
		pr.Running[w] = append(pr.Running[w], k)
	}
	require.Equal(t, 4, planned(t, pr).Adds)
}

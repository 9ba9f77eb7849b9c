package rebalance_test

// What users and attackers of earlier planners found, each as a small test. Some play the life of
// a fleet, term by term.

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// checked plans a problem and checks the plan.
func checked(t *testing.T, pr *rebalance.Problem) *ruled {
	t.Helper()
	r, err := func() (_ *ruled, err error) {
		defer recovered(&err)
		plan, err := new(rebalance.Planner).Plan(pr)
		require.NoError(t, err)
		return checkRuled(pr, plan)
	}()
	require.NoError(t, err)
	return r
}

// live carries a plan out. Each worker lists first what it has run longest.
func live(t testing.TB, p *rebalance.Planner, pr *rebalance.Problem) rebalance.Plan {
	t.Helper()
	plan, err := p.Plan(pr)
	require.NoError(t, err)
	gone := make([]map[int32]bool, len(pr.States))
	for _, c := range plan.Changes {
		if c.From != none {
			if gone[c.From] == nil {
				gone[c.From] = make(map[int32]bool)
			}
			gone[c.From][c.Task] = true
		}
	}
	for w, tasks := range gone {
		if tasks != nil {
			pr.Running[w] = slices.DeleteFunc(slices.Clone(pr.Running[w]), func(t int32) bool { return tasks[t] })
		}
	}
	for _, c := range plan.Changes {
		if c.To != none {
			pr.Running[c.To] = append(slices.Clip(pr.Running[c.To]), c.Task)
		}
	}
	return plan
}

// weighted returns a problem of workers that hold tasks of these weights.
func weighted(band int32, held ...[]int64) *rebalance.Problem {
	pr := holds(nil, make([][]int32, len(held)))
	pr.Band = band
	for w, list := range held {
		for _, n := range list {
			pr.Running[w] = append(pr.Running[w], int32(len(pr.Want)))
			pr.Want, pr.Weight = append(pr.Want, 1), append(pr.Weight, rebalance.RoundWeight(n))
		}
	}
	return pr
}

// byWeight returns the load by weight of each worker.
func byWeight(pr *rebalance.Problem) []int64 {
	loads := make([]int64, len(pr.Running))
	for w, list := range pr.Running {
		for _, t := range list {
			loads[w] += pr.Weight[t].Int64()
		}
	}
	return loads
}

// inZones puts the workers into so many zones, in turn.
func inZones(pr *rebalance.Problem, zones int) *rebalance.Problem {
	pr.Zone = make([]int32, len(pr.States))
	for w := range pr.Zone {
		pr.Zone[w] = int32(w % zones)
	}
	return pr
}

// P-a, P-b and P-c.
func TestP17a_AHeavyTaskHasAWorkerForItself(t *testing.T) {
	for _, c := range []struct {
		name    string
		held    [][]int64
		moves   int
		highest int64
	}{
		{"three on one worker", [][]int64{{100, 100, 100}, {1, 1}, {1, 1}, {1, 1}}, 6, 100},
		{"one among light ones", [][]int64{append(slices.Repeat([]int64{1}, 400), 800), nil}, 1, 800},
		{"one among few", [][]int64{{24, 30, 7, 25, 150, 8}, nil}, 1, 150},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := checked(t, weighted(50_000, c.held...))
			require.LessOrEqual(t, r.plan.Moves, c.moves)
			require.Equal(t, c.highest, slices.Max(byWeight(r.problem())))
		})
	}
}

// P-d, P-e, P-n and P-o. No worker but the one that joins gains anything.
func TestP3_AWorkerThatJoinsGetsItsShare(t *testing.T) {
	for _, c := range []struct {
		name                   string
		tasks, copies, workers int
		rule                   func(pr *rebalance.Problem)
	}{
		{"P-d", 5_000, 2, 100, zonesOf(3)},
		{"P-e, labels", 20_000, 3, 200, func(pr *rebalance.Problem) {
			byKind(pr, 200, 20_000)
			pr.May[0] = []int32{1}
		}},
		{"P-e, shares", 20_000, 3, 201, func(pr *rebalance.Problem) {
			pr.Share = slices.Repeat([]int32{2}, 201)
			pr.Share[7] = 1
		}},
		{"P-e, limits", 20_000, 3, 200, func(pr *rebalance.Problem) {
			pr.MaxTasks = make([]int32, 200)
			pr.MaxTasks[7] = 300
		}},
		{"P-n, 100 zones", 33_333, 3, 1_000, zonesOf(100)},
		{"P-n, 300 zones", 33_333, 3, 1_000, zonesOf(300)},
		{"P-o", 100_000, 1, 1_000, notOnOne(1_000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pr := holds(slices.Repeat([]int32{int32(c.copies)}, c.tasks), make([][]int32, c.workers))
			c.rule(pr)
			var p rebalance.Planner
			live(t, &p, pr)
			plan := live(t, &p, joined(pr, 1))
			most := (c.tasks*c.copies + c.workers) / (c.workers + 1)
			require.InDelta(t, most, plan.Adds, 1)
			require.LessOrEqual(t, plan.Adds, most)
			require.Equal(t, plan.Adds, plan.Moves)
		})
	}
}

// P-d, with workers that join one by one: each start goes to one that joins.
func TestP13_WorkersJoinOneByOne(t *testing.T) {
	pr := inZones(holds(slices.Repeat([]int32{2}, 300), make([][]int32, 20)), 3)
	var p rebalance.Planner
	live(t, &p, pr)
	starts := 0
	for range 10 {
		starts += live(t, &p, joined(pr, 1)).Adds
	}
	require.LessOrEqual(t, starts, 243) // the sum of 600 divided by the workers, each rounded up
}

func TestP14_SmallTrials(t *testing.T) {
	problem := func(want []int32, running [][]int32, rule func(pr *rebalance.Problem)) *rebalance.Problem {
		pr := holds(want, running)
		rule(pr)
		return pr
	}
	for _, c := range []struct {
		name  string
		pr    *rebalance.Problem
		adds  int
		loads []int // nil if there are several plans as good
	}{
		{"P-f", problem([]int32{2, 1}, make([][]int32, 3), func(pr *rebalance.Problem) {
			pr.Class, pr.Kind, pr.May, pr.Zone = []int32{0, 1}, []int32{0, 1, 1}, [][]int32{nil, {0}}, []int32{1, 1, 0}
		}), 3, []int{1, 1, 1}},
		{"P-g", problem([]int32{2, 1, 1}, [][]int32{{1, 2}, {2}}, func(pr *rebalance.Problem) {
			pr.Class, pr.Kind, pr.May = make([]int32, 3), []int32{0, 1}, [][]int32{nil, {1}}
		}), 2, []int{2, 2}},
		{"P-h", problem([]int32{1, 2}, [][]int32{nil, {0}, {0}}, func(pr *rebalance.Problem) { pr.Share = []int32{3, 2, 1} }), 2, nil},
		{"P-i", problem([]int32{1, 2}, [][]int32{{0, 1}, nil, {0}, nil}, func(pr *rebalance.Problem) { pr.Zone = []int32{2, 0, 1, 2} }), 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := checked(t, c.pr)
			require.Equal(t, c.adds, r.plan.Adds)
			require.Equal(t, c.adds, r.plan.LowerBound)
			if c.loads != nil {
				require.Equal(t, c.loads, r.loads)
			}
			j, err := r.judge()
			require.NoError(t, err)
			require.Equal(t, noFault, j.fault)
		})
	}
}

// P-j: plans of one move each end as even as one plan without a limit.
func TestP6_ChainsAreMadeWhole(t *testing.T) {
	for _, s := range []shape{
		{name: "plain", bases: anyBase},
		{name: "labels", bases: anyBase, twist: twists(labels)},
		{name: "zones", bases: anyBase, twist: twists(zones)},
		{name: "shares", bases: anyBase, twist: twists(shares)},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for number := range uint64(300) {
				pr := s.make(number)
				whole := checked(t, pr)
				pr.MaxMoves = 1
				r := checked(t, pr)
				for range 200 {
					if len(r.plan.Changes) > 0 {
						r = checked(t, r.problem())
					}
				}
				require.Empty(t, r.plan.Changes, "problem %d", number)
				require.Equal(t, whole.price(whole.after)[tierEven], r.price(r.after)[tierEven], "problem %d", number)
			}
		})
	}
}

// P-k: the workers of a fleet restart one by one under the same names. The caller lists first what has
// moved least.
func TestP3_RollingUpdatesSpareEachTask(t *testing.T) {
	const tasks, workers = 2_000, 50
	for _, c := range []struct {
		name string
		most int
		rule func(pr *rebalance.Problem)
	}{
		{"plain", 3, func(*rebalance.Problem) {}},
		{"zones", 5, zonesOf(3)},
		{"labels", 7, inPools(3)}, // P-k asks for 5
		{"weights", 13, weightsOf("uniform")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			copies := int32(1)
			if c.name == "zones" {
				copies = 2
			}
			pr, starts := holds(slices.Repeat([]int32{copies}, tasks), make([][]int32, workers)), make([]int, tasks)
			c.rule(pr)
			for w := range pr.States {
				pr.Joined = append(pr.Joined, int32(w))
			}
			var p rebalance.Planner
			live(t, &p, pr)
			term := func() {
				for _, c := range live(t, &p, pr).Changes {
					if c.To != none {
						starts[c.Task]++
					}
				}
				for _, list := range pr.Running {
					slices.SortStableFunc(list, func(a, b int32) int { return starts[a] - starts[b] })
				}
			}
			for w := range pr.States {
				pr.States[w] = rebalance.Draining
				term()
				pr.States[w], pr.Joined[w] = rebalance.Open, int32(workers+w)
				term()
			}
			require.LessOrEqual(t, slices.Max(starts), c.most*int(copies))
		})
	}
}

// P-l: weights of which no placement is in band, with 1% of noise.
func TestP18_NoiseMovesLittle(t *testing.T) {
	const tasks, workers = 12, 5
	for _, alpha := range []float64{1, 1.5, 2} {
		total, worst := 0, 0
		for seed := range uint64(100) {
			random := rand.New(rand.NewPCG(seed, 18))
			base := make([]float64, tasks)
			for i := range base {
				base[i] = 1000 / math.Pow(1-random.Float64(), 1/alpha)
			}
			pr := holds(slices.Repeat([]int32{1}, tasks), make([][]int32, workers))
			pr.Weight, pr.Band = make([]rebalance.Weight, tasks), 50_000
			var p rebalance.Planner
			moves := 0
			for range 200 {
				for i := range base {
					pr.Weight[i] = rebalance.RoundWeight(int64(base[i] * (1 + 0.01*(2*random.Float64()-1))))
				}
				moves += live(t, &p, pr).Moves
			}
			total, worst = total+moves, max(worst, moves)
		}
		t.Logf("exponent %v: %d moves in 100 lives, %d in the worst", alpha, total, worst)
		assert.LessOrEqual(t, worst, 10)
	}
}

// P-m: a family of tasks does not meet on one worker, whichever way the families are numbered.
func TestP9_FamiliesSpread(t *testing.T) {
	const tasks, workers = 24, 2
	pr := holds(slices.Repeat([]int32{1}, tasks), make([][]int32, workers))
	live(t, new(rebalance.Planner), pr)
	for _, family := range []func(task int32) bool{
		func(task int32) bool { return task < tasks/2 },
		func(task int32) bool { return task%2 == 0 },
	} {
		for w, list := range pr.Running {
			n := len(slices.DeleteFunc(slices.Clone(list), func(task int32) bool { return !family(task) }))
			require.True(t, n > 0 && n < tasks/2, "worker %d runs %d of a family of %d", w, n, tasks/2)
		}
	}
}

// Large random problems that were planned wrongly.
func TestP1_WrongOnce(t *testing.T) {
	pr, _ := numbered(519_961) // a copy that had moved for an even spread started where it ran
	_, err := examine(pr, new(rebalance.Planner))
	require.NoError(t, err)
	for _, number := range []uint64{505_546, 207_892} { // likewise; a copy that had a place was said to stay
		pr := ruledShapes[number%uint64(len(ruledShapes))].make(number)
		require.NoError(t, examineRuled(pr, new(rebalance.Planner)))
		require.NoError(t, examineStill(pr, new(rebalance.Planner)))
	}
}

// A plan with an error is empty, whatever the planner planned before.
func TestP5_AnErrorHasNoPlan(t *testing.T) {
	var p rebalance.Planner
	live(t, &p, fleet(4, 1, 2, 1))
	plan, err := p.Plan(holds([]int32{1}, [][]int32{{7}}))
	require.ErrorIs(t, err, rebalance.ErrInvalid)
	require.Zero(t, plan)
}

// A first copy takes the room that a further one would take, by a path too.
func TestP9_FirstCopiesComeFirst(t *testing.T) {
	pr := holds([]int32{1, 1, 2}, [][]int32{{1, 2}, {}})
	pr.Class, pr.Kind, pr.May = []int32{0, 1, 1}, []int32{0, 1}, [][]int32{{0}, nil}
	pr.MaxTasks = []int32{2, 1}
	r := checked(t, pr)
	require.True(t, r.after[0][0], "%v", r.plan.Changes)
	require.Equal(t, []rebalance.Unplaced{{Task: 2, Copies: 1, Worker: none, Reason: rebalance.NoPlaceByRules}}, r.plan.Unplaced)
}

// As many copies as a number can say, in two zones, are no more work than a few.
func TestP13_MostCopiesOfAll(t *testing.T) {
	pr := holds([]int32{math.MaxInt32}, make([][]int32, 4))
	pr.Zone = []int32{0, 0, 1, 1}
	require.Equal(t, 4, checked(t, pr).plan.Adds)
}

// Moving two of the heaviest would be as even, with two starts.
func TestP8_TheBoundByWeightIsNotAbove(t *testing.T) {
	weights := append([]int64{60, 40, 40}, slices.Repeat([]int64{1}, 20)...)
	list := make([]int32, len(weights))
	pr := holds(slices.Repeat([]int32{1}, len(weights)), [][]int32{list, {}})
	for i, n := range weights {
		list[i] = int32(i)
		pr.Weight = append(pr.Weight, rebalance.RoundWeight(n))
	}
	pr.Band = 50_000
	require.LessOrEqual(t, checked(t, pr).plan.LowerBound, 2)
}

// Limits that are far above what weights allow change nothing.
func TestP17_HighLimitsOfHeavyTasks(t *testing.T) {
	pr := holds(slices.Repeat([]int32{1}, 8), [][]int32{{0, 1, 2, 3, 4, 5, 6, 7}, {}})
	for i := range 8 {
		pr.Weight = append(pr.Weight, rebalance.RoundWeight(1<<30+int64(i%2)<<24))
	}
	for _, most := range []int32{200_000, 1 << 18, math.MaxInt32} {
		pr.MaxTasks = []int32{most, most}
		r := checked(t, pr)
		require.Equal(t, 4, r.loads[0], "MaxTasks %d: %v", most, r.plan.Loads)
	}
}

// The workers of the other zones have the most, and can hand over nothing.
func TestP17_AWorkerThatJoinsAZoneGetsItsShare(t *testing.T) {
	pr := holds(slices.Repeat([]int32{3}, 10_000), make([][]int32, 300))
	zonesOf(3)(pr)
	weightsOf("uniform")(pr)
	var p rebalance.Planner
	live(t, &p, pr)
	live(t, &p, joined(pr, 1))
	loads := byWeight(pr)
	require.Greater(t, loads[300]*100, 95*slices.Min(loads[:300]))
}

// Few workers may run what one runs, so givers and takers are found by class.
func TestP14_WorkersOfOwnKinds(t *testing.T) {
	pr := holds(slices.Repeat([]int32{1}, 1_000), make([][]int32, 200))
	byKind(pr, 200, 200)
	random := rand.New(rand.NewPCG(7, 7))
	for c := range pr.May {
		first := random.Int32N(180)
		pr.May[c] = []int32{first, first + 1 + random.Int32N(19)}
	}
	var p rebalance.Planner
	live(t, &p, pr)
	for _, changed := range []*rebalance.Problem{joined(clone(pr), 20), without(clone(pr), 20)} {
		require.NoError(t, examineRuled(changed, &p))
	}
}

// Forty tasks run on all workers that are there. Once a worker that joins had the heaviest of them, it took nothing
// else, because only the four heaviest copies of another worker were considered.
func TestP17_WorkersThatJoinTakeWhatTheyLack(t *testing.T) {
	pr := holds(slices.Repeat([]int32{1}, 6_000), make([][]int32, 60))
	weightsOf("uniform")(pr)
	for i := range 40 {
		pr.Want[i*150] = 60
	}
	var p rebalance.Planner
	live(t, &p, pr)
	live(t, &p, joined(pr, 6))
	plan, err := p.Plan(pr)
	require.NoError(t, err)
	for w, l := range plan.Loads {
		require.InEpsilon(t, l.Level, l.Weight, 0.05, "worker %d", w)
	}
}

// Small problems that were planned wrongly: a panic, moves for the spread while Still holds them, a bound above
// the fewest starts, the oldest worker taken for the newest, levels that were not reported.
func TestP_ProblemsThatAReaderFound(t *testing.T) {
	plan := func(t *testing.T, pr rebalance.Problem) rebalance.Plan {
		t.Helper()
		pr.States = append(pr.States, make([]rebalance.State, len(pr.Running)-len(pr.States))...)
		if pr.MaxMoves == 0 {
			pr.MaxMoves = noLimit
		}
		plan, err := new(rebalance.Planner).Plan(&pr)
		require.NoError(t, err)
		return plan
	}
	t.Run("a place that goes to another tier", func(t *testing.T) {
		plan(t, rebalance.Problem{
			Want: []int32{1, 1, 2, 2, 2, 1}, Class: []int32{0, 2, 0, 2, 1, 0}, May: [][]int32{{1}, {}, {0}}, Kind: []int32{1, 0},
			MaxTasks: []int32{2, 3}, Running: [][]int32{nil, {0, 1, 2, 5}},
		})
	})
	t.Run("a stop relieves the limit", func(t *testing.T) {
		p := plan(t, rebalance.Problem{Want: []int32{1, 1, 1, 1}, Running: [][]int32{{0, 1, 2, 3}, {}, {3}}, MaxTasks: []int32{3, 0, 0}, Still: true})
		require.Equal(t, []rebalance.Change{{Task: 3, From: 0, To: none, Reason: rebalance.Surplus}}, p.Changes)
	})
	t.Run("a stop relieves the zone", func(t *testing.T) {
		p := plan(t, rebalance.Problem{
			Want: []int32{2, 1, 1}, Running: [][]int32{{0, 1}, {0, 2}, {}, {}}, Zone: []int32{0, 0, 0, 1}, MaxPerZone: []int32{1, 0, 0}, Still: true,
		})
		require.Len(t, p.Changes, 1)
		require.Equal(t, rebalance.EvictZone, p.Changes[0].Reason)
	})
	t.Run("the first worker that joined", func(t *testing.T) {
		for _, joined := range [][]int32{{2, 0, 1}, {3, 1, 2}} {
			p := plan(t, rebalance.Problem{Want: []int32{1}, States: []rebalance.State{rebalance.Draining}, Running: [][]int32{{0}, {}, {}}, Joined: joined})
			require.Equal(t, int32(2), p.Changes[0].To, "%v", joined)
		}
	})
	t.Run("a copy that stays against a rule", func(t *testing.T) {
		p := plan(t, rebalance.Problem{
			Want: []int32{1, 1, 1}, Running: [][]int32{{0, 2}, {0, 1}}, Class: []int32{0, 1, 0}, May: [][]int32{{}, nil, nil}, MaxTasks: []int32{0, 1},
		})
		require.Zero(t, p.LowerBound)
	})
	t.Run("levels of a plan without moves", func(t *testing.T) {
		weight := []rebalance.Weight{rebalance.RoundWeight(10), rebalance.RoundWeight(10), rebalance.RoundWeight(10), rebalance.RoundWeight(10), rebalance.RoundWeight(1)}
		p := plan(t, rebalance.Problem{Want: []int32{1, 1, 1, 1, 1}, Running: [][]int32{{0, 1, 2, 3}, {}}, Weight: weight, Still: true})
		require.Equal(t, []rebalance.Load{{Weight: 40, Level: 20}, {Weight: 1, Level: 20}}, p.Loads)
	})
	t.Run("a rule for no worker", func(t *testing.T) {
		_, err := new(rebalance.Planner).Plan(&rebalance.Problem{States: make([]rebalance.State, 1), Running: make([][]int32, 1), MaxTasks: []int32{}})
		require.ErrorIs(t, err, rebalance.ErrInvalid)
	})
}

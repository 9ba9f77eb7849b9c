package rebalance_test

// Plans by weight: levels, bands, and how far they are from the best.

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

func TestP17_Levels(t *testing.T) {
	tens := func(n int) []int64 { return slices.Repeat([]int64{10}, n) }
	others := [][]int64{tens(1), tens(12), {10, 10, 10, 10, 10, 10, 10, 9}}
	addTask := func(pr *rebalance.Problem, want int32) (task int32) {
		pr.Want, pr.Weight = append(pr.Want, want), append(pr.Weight, rebalance.RoundWeight(1000))
		return int32(len(pr.Want) - 1)
	}
	for _, c := range []struct {
		name          string
		levels, loads []int64 // a level of -1 may be any
		moves         int
		held          [][]int64
		rule          func(pr *rebalance.Problem)
	}{
		{"giants are no part of it", []int64{1000, 100, 100, 100}, []int64{1000, 100, 100, 100}, 10, [][]int64{{1000}, tens(15), tens(15), nil}, nil},
		{"other tasks are", []int64{10, 6, 6}, []int64{10, 6, 6}, 0, [][]int64{{10}, {4, 2}, {3, 3}}, nil},
		{"by pools", []int64{945, 945, 40, 40}, []int64{960, 930, 40, 40}, 1, [][]int64{{300, 300, 300, 360}, {315, 315}, tens(4), tens(4)}, func(pr *rebalance.Problem) {
			pr.Kind, pr.May, pr.Class = []int32{0, 0, 1, 1}, [][]int32{{0}, nil}, append(make([]int32, 6), slices.Repeat([]int32{1}, 8)...)
		}},
		{"by shares", []int64{100, 100, 800, 0}, []int64{100, 100, 800, 0}, 3, [][]int64{nil, nil, nil, {800, 100, 100}}, func(pr *rebalance.Problem) {
			pr.Share, pr.States[3] = []int32{1, 1, 8, 1}, rebalance.Draining
		}},
		{"a quarantined worker gains nothing", []int64{-1, 99, 99}, []int64{10, 100, 99}, 2, others, func(pr *rebalance.Problem) {
			pr.States[0] = rebalance.Quarantined
		}},
		{"a full worker gains nothing", []int64{-1, 99, 99}, []int64{10, 100, 99}, 2, others, func(pr *rebalance.Problem) {
			pr.MaxTasks = []int32{1, 0, 0}
		}},
		{"what is pinned stays", []int64{-1, 99, 99}, []int64{300, 100, 99}, 2, append([][]int64{{100, 100, 100}}, others[1:]...), func(pr *rebalance.Problem) {
			pr.Pinned = []int32{3, 0, 0}
		}},
		{"what has no place counts nowhere", []int64{69, 69, 69}, []int64{70, 70, 69}, 6, others, func(pr *rebalance.Problem) {
			task := addTask(pr, 1)
			pr.Forbidden = []rebalance.Pair{{Task: task, Worker: 0}, {Task: task, Worker: 1}, {Task: task, Worker: 2}}
		}},
		{"copies beyond the workers count nowhere", []int64{1069, 1069, 1069}, []int64{1050, 1080, 1079}, 4, others, func(pr *rebalance.Problem) {
			task := addTask(pr, 1_000_000_000)
			for w := range pr.Running {
				pr.Running[w] = append(pr.Running[w], task)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pr := weighted(50_000, c.held...)
			if c.rule != nil {
				c.rule(pr)
			}
			r := checked(t, pr)
			require.Equal(t, c.loads, byWeight(r.problem()))
			require.Equal(t, c.moves, r.plan.Moves)
			for w, l := range r.plan.Loads {
				require.Contains(t, []int64{-1, l.Level}, c.levels[w], "worker %d", w)
			}
		})
	}
}

// Many copies of the highest weight exceed the numbers of 64 bits.
func TestP22_NoSumOverflows(t *testing.T) {
	for _, want := range []int32{1 << 20, 1 << 21, 1 << 22, 1 << 23, math.MaxInt32} {
		pr := holds([]int32{want, 1}, make([][]int32, 2))
		pr.Weight = []rebalance.Weight{rebalance.RoundWeight(rebalance.MaxWeight), {}}
		require.Equal(t, 3, checked(t, pr).plan.Adds)
	}
}

// Zones bind some tasks only. They do not divide the workers: a worker that joins gets its share,
// and a task that grows is relieved, wherever the others run.
func TestP17_ZonesDoNotDivideTheWorkers(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 17))
		pr := inZones(holds(nil, make([][]int32, 12)), 2+random.IntN(3))
		pr.Band = 50_000
		add := func(instances int32, weight int64) {
			pr.Want, pr.Weight = append(pr.Want, instances), append(pr.Weight, rebalance.RoundWeight(weight))
		}
		for range 400 {
			add(1, 1+random.Int64N(20))
		}
		for range 1 + random.IntN(20) {
			add(2+random.Int32N(2), 1+random.Int64N(20))
		}
		var p rebalance.Planner
		for event, happens := range []func(){
			func() {},
			func() { joined(pr, 1+random.IntN(4)) },
			func() {
				task := random.IntN(len(pr.Weight))
				pr.Weight[task] = rebalance.RoundWeight(10 * pr.Weight[task].Int64())
			},
			func() { add(3, 20) },
			func() { pr.States[random.IntN(12)] = rebalance.Draining },
		} {
			happens()
			before := byWeight(pr)
			plan := live(t, &p, pr)
			require.Empty(t, plan.Unplaced)
			mean, needless := int64(0), int64(0) // needless: what moves beyond what workers lack
			for w, l := range plan.Loads {
				if pr.States[w] == rebalance.Open {
					mean = l.Level
					require.InDelta(t, mean, l.Weight, 0.05*float64(mean)+1, "seed %d, event %d, loads %v", seed, event, plan.Loads)
					needless -= max(0, mean-before[w])
				}
			}
			for _, c := range plan.Changes {
				if c.From != none && c.To != none {
					needless += pr.Weight[c.Task].Int64()
				}
			}
			require.Less(t, needless, mean, "seed %d, event %d", seed, event)
			require.Empty(t, live(t, &p, pr).Changes, "seed %d, event %d", seed, event)
		}
	}
}

// giants returns how many of the tasks are heavier than the level of the rest, by the words of P17.
func giants(pr *rebalance.Problem) (n int) {
	total, sorted := int64(0), slices.Clone(pr.Weight)
	for _, w := range sorted {
		total += w.Int64()
	}
	slices.SortFunc(sorted, func(a, b rebalance.Weight) int { return cmp.Compare(b.Int64(), a.Int64()) })
	for n < min(len(sorted), len(pr.States)) && sorted[n].Int64()*int64(len(pr.States)-n) > total {
		total -= sorted[n].Int64()
		n++
	}
	return n
}

// Tenants are placed by count, and some turn out busy.
func TestP17a_BusyTenantsPart(t *testing.T) {
	for _, c := range []struct{ workers, each, busy int }{{3, 2, 2}, {4, 3, 2}, {4, 3, 4}, {10, 10, 5}, {20, 30, 19}} {
		for seed := range uint64(200) {
			random := rand.New(rand.NewPCG(seed, uint64(c.workers)))
			held := make([][]int64, c.workers)
			for w := range held {
				held[w] = slices.Repeat([]int64{1 + random.Int64N(5)}, c.each)
			}
			for _, i := range random.Perm(c.workers * c.each)[:c.busy] {
				held[i%c.workers][i/c.workers] = 1000 + random.Int64N(1000)
			}
			pr := weighted(50_000, held...)
			heavy := func(task int32) bool { return pr.Weight[task].Int64() >= 1000 }
			var p rebalance.Planner
			live(t, &p, pr)
			alone := 0
			for w, list := range pr.Running {
				require.LessOrEqual(t, len(slices.DeleteFunc(slices.Clone(list), func(task int32) bool { return !heavy(task) })), 1, "%v: worker %d runs %v", held, w, list)
				if len(list) == 1 && heavy(list[0]) {
					alone++
				}
			}
			require.GreaterOrEqual(t, alone, min(giants(pr), c.workers-1), "%v gives %v", held, byWeight(pr))
			require.Empty(t, live(t, &p, pr).Changes, "%v", held)
		}
	}
}

// A giant lowers the level of the others, so tasks far below the first level may be giants too.
func TestP17a_GiantsBesideGiants(t *testing.T) {
	pr := weighted(50_000, []int64{1_000_000, 1, 1}, []int64{1000, 1, 1}, []int64{100, 1, 1, 1}, []int64{5, 1})
	checked(t, pr)
	var p rebalance.Planner
	live(t, &p, pr)
	require.Equal(t, []int64{1_000_000, 1000, 100, 13}, byWeight(pr))
}

// Levels by limits are the same beside labels that forbid nothing (P21).
func TestP17_LimitsBesideLabels(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 17))
		pr, _ := drawn(60, 6, func() int64 { return 10 + random.Int64N(90) })
		pr.MaxTasks = make([]int32, 6)
		for w := range pr.MaxTasks[:3] {
			pr.MaxTasks[w] = 1 + random.Int32N(6)
		}
		plan, err := new(rebalance.Planner).Plan(pr)
		require.NoError(t, err)
		pr.Kind, pr.May, pr.Class = []int32{0, 1, 0, 1, 0, 1}, [][]int32{{0, 1}, nil}, make([]int32, 60)
		for t := range pr.Class {
			pr.Class[t] = int32(t % 2)
		}
		labelled, err := new(rebalance.Planner).Plan(pr)
		require.NoError(t, err)
		for w := range plan.Loads {
			require.InDelta(t, plan.Loads[w].Level, labelled.Loads[w].Level, 1, "seed %d, worker %d", seed, w)
		}
	}
}

// The band is the trigger: only a worker that is out of it comes to half of it.
func TestP18_ToHalfOfTheBand(t *testing.T) {
	for _, c := range []struct{ before, after [4]int64 }{
		{[4]int64{106, 104, 98, 92}, [4]int64{102, 102, 98, 98}},
		{[4]int64{105, 105, 95, 95}, [4]int64{105, 105, 95, 95}},
	} {
		held := make([][]int64, 4)
		for w, n := range c.before {
			held[w] = append(slices.Repeat([]int64{1}, int(n-2)), 2) // weights must differ
		}
		require.Equal(t, c.after[:], byWeight(checked(t, weighted(50_000, held...)).problem()))
	}
}

// A task that rests moves to later workers only, unless it must leave.
func TestP18_Rests(t *testing.T) {
	pr := weighted(100_000, []int64{30, 20, 10}, []int64{10}, nil)
	pr.Rests, pr.Joined = []int32{2, 2, 2, 2}, []int32{0, 1, 2}
	require.Equal(t, []int64{30, 10, 30}, byWeight(checked(t, pr).problem()))
	pr.Rests = []int32{3, 3, 3, 3}
	require.Empty(t, checked(t, pr).plan.Changes)
	pr.States[0] = rebalance.Draining
	require.Zero(t, byWeight(checked(t, pr).problem())[0])
}

// wander sets all weights to their means but for so many thousandths.
func wander(random *rand.Rand, pr *rebalance.Problem, mean []int64, thousandths int64) {
	for task, n := range mean {
		pr.Weight[task] = rebalance.RoundWeight(n * (1000 - thousandths + random.Int64N(2*thousandths+1)) / 1000)
	}
}

// drawn returns an empty fleet whose tasks have weights of a law, and these.
func drawn(tasks, workers int, law func() int64) (pr *rebalance.Problem, mean []int64) {
	pr = holds(slices.Repeat([]int32{1}, tasks), make([][]int32, workers))
	pr.Weight, pr.Band, mean = make([]rebalance.Weight, tasks), 50_000, make([]int64, tasks)
	for task := range mean {
		mean[task] = law()
		pr.Weight[task] = rebalance.RoundWeight(mean[task])
	}
	return pr, mean
}

func TestP18_WanderingLoadsMoveLittle(t *testing.T) {
	for _, c := range []struct{ each, most int }{{200, 0}, {20, 50}} {
		random := rand.New(rand.NewPCG(18, 1))
		pr, mean := drawn(50*c.each, 50, func() int64 { return 1000 + random.Int64N(9000) })
		var p rebalance.Planner
		live(t, &p, pr)
		moves := 0
		for range 50 {
			wander(random, pr, mean, 100)
			moves += live(t, &p, pr).Moves
		}
		t.Logf("%d tasks a worker: %d moves in 50 terms", c.each, moves)
		require.LessOrEqual(t, moves, c.most)
	}
}

// All weights change by up to 2% a term. A hundredth of the tasks is hot, five times as heavy, and a
// tenth of the hot ones change.
func TestP18_DriftWithHotTasks(t *testing.T) {
	const tasks, workers, terms = 2000, 20, 200
	random := rand.New(rand.NewPCG(200, 1))
	pr, mean := drawn(tasks, workers, func() int64 { return 1000 + random.Int64N(9000) })
	hot := random.Perm(tasks)[:tasks/100]
	var p rebalance.Planner
	moves := 0
	for term := range terms {
		for task, n := range mean {
			mean[task] = max(1, n*(980+random.Int64N(41))/1000)
			pr.Weight[task] = rebalance.RoundWeight(mean[task])
		}
		for range len(hot) / 10 {
			hot[random.IntN(len(hot))] = random.IntN(tasks)
		}
		for _, task := range hot {
			pr.Weight[task] = rebalance.RoundWeight(5 * mean[task])
		}
		plan := live(t, &p, pr)
		if term > 0 {
			moves += plan.Moves
		}
		total, highest := int64(0), int64(0)
		for _, l := range plan.Loads {
			total, highest = total+l.Weight, max(highest, l.Weight)
		}
		require.LessOrEqual(t, float64(highest)*workers, 1.0501*float64(total), "term %d", term)
	}
	t.Logf("%.1f moves a term", float64(moves)/(terms-1))
	require.Less(t, moves, 5*terms)
}

// laws draw weights.
var laws = map[string]func(random *rand.Rand) int64{
	"uniform":   func(random *rand.Rand) int64 { return 1 + random.Int64N(100) },
	"lumps":     func(random *rand.Rand) int64 { return []int64{1, 50}[random.IntN(2)] },
	"powers":    func(random *rand.Rand) int64 { return 1 << random.IntN(41) },
	"lognormal": func(random *rand.Rand) int64 { return 1 + int64(1000*math.Exp(1.5*random.NormFloat64())) },
	"pareto":    func(random *rand.Rand) int64 { return int64(1000 / (1 - random.Float64())) },
}

// What a plan makes of placed or empty fleets is empty when planned again, at the latest the second
// time.
func TestP19_PlanningAgainIsEmpty(t *testing.T) {
	for name, law := range laws {
		for _, size := range []struct{ tasks, workers, problems int }{{10, 3, 500}, {25, 10, 300}, {120, 10, 100}, {2000, 100, 2}} {
			t.Run(fmt.Sprintf("%s/%dx%d", name, size.tasks, size.workers), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(size.problems) {
					random := rand.New(rand.NewPCG(seed, 19))
					pr, _ := drawn(size.tasks, size.workers, func() int64 { return law(random) })
					for task := range size.tasks * random.IntN(2) {
						w := random.IntN(size.workers)
						pr.Running[w] = append(pr.Running[w], int32(task))
					}
					var p rebalance.Planner
					live(t, &p, pr)
					live(t, &p, pr)
					require.Zero(t, live(t, &p, pr).Adds, "seed %d", seed)
				}
			})
		}
	}
}

var packings = flag.Int("rebalance.packings", 1, "how many packings of each number of pieces to solve")

// Perfect packings, of which the optimum is known.
func TestP17_Packings(t *testing.T) {
	for _, pieces := range []int{3, 5, 10, 20, 50} {
		random, worst := rand.New(rand.NewPCG(1, uint64(pieces))), 0.0
		for range *packings {
			const workers, size = 100, 1_000_000
			var cut []int64
			for range workers {
				cuts := []int64{0, size}
				for range pieces - 1 {
					cuts = append(cuts, 1+random.Int64N(size-1))
				}
				slices.Sort(cuts)
				for i := 1; i < len(cuts); i++ {
					cut = append(cut, cuts[i]-cuts[i-1])
				}
			}
			next := 0
			pr, _ := drawn(len(cut), workers, func() int64 { next++; return cut[next-1] })
			pr.Band = 0
			live(t, new(rebalance.Planner), pr)
			worst = max(worst, float64(slices.Max(byWeight(pr)))/size)
		}
		t.Logf("%d pieces: %.4f of the optimum", pieces, worst)
		assert.LessOrEqual(t, worst, map[bool]float64{true: 1.03, false: 1.01}[pieces == 3], "%d pieces", pieces)
	}
}

// everyPlacement calls visit with the loads and the moves of every placement of the tasks.
func everyPlacement(pr *rebalance.Problem, visit func(loads []int64, moves int)) {
	at := make([]int, len(pr.Want))
	for w, list := range pr.Running {
		for _, task := range list {
			at[task] = w
		}
	}
	loads := make([]int64, len(pr.States))
	var place func(task, moves int)
	place = func(task, moves int) {
		if task == len(at) {
			visit(loads, moves)
			return
		}
		n := pr.Weight[task].Int64()
		for w := range loads {
			loads[w] += n
			if w == at[task] {
				place(task+1, moves)
			} else {
				place(task+1, moves+1)
			}
			loads[w] -= n
		}
	}
	place(0, 0)
}

// Plans beside all placements: the moves beside the fewest that are as even, the highest load beside the
// best, and the plans that are not in band where some placement is.
func TestP19_TinyProblems(t *testing.T) {
	for _, c := range []struct {
		law                string
		moves, top, missed float64
	}{{"uniform", 1.104, 1.0177, 0.05}, {"lognormal", 1.057, 1.0035, 0.01}} {
		t.Run(c.law, func(t *testing.T) {
			t.Parallel()
			var planned, fewest, missed int
			top, problems := 0.0, 0
			for seed := range uint64(1000) {
				random := rand.New(rand.NewPCG(seed, 4))
				pr, _ := drawn(3+random.IntN(6), 2+random.IntN(2), func() int64 { return laws[c.law](random) })
				for task := range pr.Want {
					w := random.IntN(len(pr.States))
					pr.Running[w] = append(pr.Running[w], int32(task))
				}
				before := *pr
				before.Running = slices.Clone(pr.Running)
				plan := live(t, new(rebalance.Planner), pr)
				if len(plan.Loads) == 0 {
					continue
				}
				after, total := byWeight(pr), int64(0)
				for _, n := range after {
					total += n
				}
				level := total / int64(len(after))
				isIn := func(loads []int64) bool {
					return slices.Max(loads) <= level*21/20 && slices.Min(loads) >= level*19/20
				}
				uneven := func(loads []int64) (squares float64) {
					for _, n := range loads {
						squares += float64(n) * float64(n)
					}
					return squares
				}
				best, least, reachable := int64(math.MaxInt64), plan.Moves, false
				everyPlacement(&before, func(loads []int64, moves int) {
					best = min(best, slices.Max(loads))
					reachable = reachable || isIn(loads)
					if uneven(loads) <= uneven(after) {
						least = min(least, moves)
					}
				})
				problems++
				planned, fewest, top = planned+plan.Moves, fewest+least, top+float64(slices.Max(after))/float64(best)
				if reachable && !isIn(after) {
					missed++
				}
			}
			t.Logf("%d problems: %d moves for %d, top %.4f of the best, %d in band missed", problems, planned, fewest, top/float64(problems), missed)
			assert.LessOrEqual(t, float64(planned), c.moves*float64(fewest))
			assert.LessOrEqual(t, top, c.top*float64(problems))
			assert.LessOrEqual(t, float64(missed), c.missed*float64(problems))
		})
	}
}

func TestRoundWeight(t *testing.T) {
	for _, of := range []struct{ weight, want int64 }{
		{-1, 1},
		{0, 1},
		{1, 1},
		{999, 999},
		{1000, 1000},
		{1004, 1000},
		{1005, 1010},
		{9994, 9990},
		{9995, 10_000},
		{999_499, 999_000},
		{999_500, 1_000_000},
		{rebalance.MaxWeight, 1_100_000_000_000},
		{math.MaxInt64, 1_100_000_000_000},
	} {
		require.Equal(t, of.want, rebalance.RoundWeight(of.weight).Int64(), "of %d", of.weight)
	}
	require.EqualValues(t, 1, rebalance.Weight{}.Int64())
	last := int64(0)
	for n := int64(1); n <= rebalance.MaxWeight; n += 1 + n/1999 {
		w := rebalance.RoundWeight(n)
		require.Equal(t, w, rebalance.RoundWeight(w.Int64()), "%d", n) // one value for each number
		require.GreaterOrEqual(t, w.Int64(), last, "%d", n)
		require.InEpsilon(t, n, w.Int64(), 0.005, "%d", n)
		last = w.Int64()
	}
}

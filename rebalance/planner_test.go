package rebalance_test

// Several calls of one planner: budgets, bad input, memory, and problems in which every
// task is wanted once.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

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
		{"too few states", func(pr *rebalance.Problem) { pr.States = pr.States[:2] }, []string{"Running", "States", "3", "2"}},
		{"too few lists", func(pr *rebalance.Problem) { pr.Running = nil }, []string{"Running", "States", "3", "0"}},
		{"too few numbers of pinned", func(pr *rebalance.Problem) { pr.Pinned = []int32{} }, []string{"Pinned", "3", "0"}},
		{"more pinned than held", func(pr *rebalance.Problem) {
			pr.Running[1], pr.Pinned = []int32{0, 3}, []int32{0, 5, 0}
		}, []string{"Pinned[1]", "5", "2"}},
		{"less than nothing pinned", func(pr *rebalance.Problem) { pr.Pinned = []int32{0, 0, -6} }, []string{"Pinned[2]", "-6"}},
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

// A planner keeps a plan that changes nothing for the next problem only if that is equal in every field. The
// field that differs comes from another random problem with as many tasks and workers.
func TestP5_ASteadyPlanIsKeptForAnEqualProblemOnly(t *testing.T) {
	t.Parallel()
	fields := reflect.TypeFor[rebalance.Problem]()
	differ := make([]int, fields.NumField())
	all := ruledShapes[len(ruledShapes)-1]
	draw := func(seed uint64, workers, tasks int) *rebalance.Problem {
		m := maker{Rand: rand.New(rand.NewPCG(seed, 5))}
		pr := all.sized(m.Rand, workers, tasks)
		pr.Still, pr.Trial = m.IntN(4) == 0, m.IntN(4) == 0
		for w := range int32(workers) {
			pr.Joined = append(pr.Joined, w*int32(m.IntN(3)))
		}
		for range tasks * m.IntN(2) {
			pr.Rests = append(pr.Rests, int32(m.IntN(workers)))
		}
		return pr
	}
	var used rebalance.Planner
	agree := func(pr *rebalance.Problem) rebalance.Plan {
		want, err := new(rebalance.Planner).Plan(pr)
		got, err2 := used.Plan(pr)
		require.Equal(t, err, err2)
		require.True(t, same(want, got), "%+v\nkept: %+v\nfresh: %+v", pr, got, want)
		return want
	}
	vary := func(pr, other *rebalance.Problem) {
		steady := agree(pr)
		for f := range differ {
			changed := clone(pr)
			reflect.ValueOf(changed).Elem().Field(f).Set(reflect.ValueOf(other).Elem().Field(f))
			if plan := agree(changed); len(steady.Changes) == 0 && !same(steady, plan) {
				differ[f]++
			}
			agree(pr)
			agree(pr)
		}
	}
	chain := &rebalance.Problem{ // only two moves together help
		Want: []int32{1, 1, 1}, States: make([]rebalance.State, 3), Running: [][]int32{{0, 1}, {2}, nil}, Class: []int32{0, 0, 1},
		Kind: []int32{0, 1, 2}, May: [][]int32{{0, 1}, {1, 2}}, MaxMoves: rebalance.NoLimit, Trial: true,
	}
	vary(chain, &rebalance.Problem{})
	for seed := range uint64(300) {
		workers, tasks := 2+int(seed%5), 1+int(seed%7)
		pr := draw(seed, workers, tasks)
		pr.Pinned = nil // live does not count them
		for range 3 {
			live(t, &used, pr)
		}
		if seed%2 == 0 {
			for _, list := range pr.Running {
				pr.Pinned = append(pr.Pinned, int32(len(list)/2))
			}
		}
		vary(pr, draw(seed+1e6, workers, tasks))
		for _, list := range append(pr.Running[:1:1], pr.Want) { // the caller may change its slices
			for i := range list {
				list[i] = (list[i] + 1) % int32(tasks)
				agree(pr)
			}
		}
	}
	for f, n := range differ {
		require.Positive(t, n, fields.Field(f).Name)
	}
}

// Not in parallel with others, whose allocations would count.
func TestPlan_RepeatedCallsAllocateNothing(t *testing.T) {
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
		{"a worker joins", func(pr *rebalance.Problem) { pr.Running[3] = nil }},
		{"weights", func(pr *rebalance.Problem) {
			pr.Weight = slices.Repeat([]rebalance.Weight{rebalance.RoundWeight(1), rebalance.RoundWeight(2)}, 500)
			live(t, new(rebalance.Planner), pr)
		}},
		{"a daemon is new", func(pr *rebalance.Problem) { pr.Want[0], pr.Running = 10, make([][]int32, 10) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			pr := fleet(1000, 1, 10, 0)
			c.twist(pr)
			allocatesNothing(t, pr)
		})
	}
	for _, event := range events {
		for _, copies := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d copies", event.name, copies), func(t *testing.T) {
				allocatesNothing(t, event.to(even(3_000, 50, copies)))
			})
		}
	}
}

// allocatesNothing checks that a planner that has planned a problem before allocates
// nothing when it plans it again.
func allocatesNothing(t *testing.T, pr *rebalance.Problem) {
	t.Helper()
	var planner rebalance.Planner
	require.Zero(t, testing.AllocsPerRun(1, func() { // and one before it counts
		if _, err := planner.Plan(pr); err != nil {
			t.Fatal(err)
		}
	}))
}

// ordinary makes a problem in which each task is wanted at most once.
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
	var mu sync.Mutex
	repeated, unexpected, surplus, missing, settled := 0, 0, 0, 0, 0
	count := func(pr *rebalance.Problem, plan rebalance.Plan) {
		reasons := make(map[rebalance.Reason]bool)
		for _, c := range plan.Changes {
			reasons[c.Reason] = true
		}
		mu.Lock()
		defer mu.Unlock()
		for n, met := range map[*int]bool{
			&repeated: repeats(pr), &unexpected: reasons[rebalance.Unexpected], &surplus: reasons[rebalance.Surplus],
			&missing: reasons[rebalance.Missing], &settled: len(plan.Changes) == 0,
		} {
			if met {
				*n++
			}
		}
	}
	r := run{flag: "rebalance.problems"}
	r.make = func(number uint64) (*rebalance.Problem, string) {
		pr, name := numbered(number)
		return ordinary(pr), name
	}
	r.examine = func(pr *rebalance.Problem, used *rebalance.Planner) (gap, error) {
		g, err := examine(pr, used) // compares with a bystander
		if err != nil {
			return g, err
		}
		plan, err := used.Plan(pr)
		count(pr, plan)
		return g, err
	}
	r.plan(t, min(*problems, 20_000))
	for _, met := range []int{repeated, unexpected, surplus, missing, settled} {
		require.True(t, met > r.done/40 || r.done < 100, "%d of %d", met, r.done)
	}
}

// repeats reports whether a worker lists a task twice.
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

// Classes without May, and numbers of zones that do not bind, cost nothing.
func TestRules_InputWithoutEffect(t *testing.T) {
	plan, err := new(rebalance.Planner).Plan(&rebalance.Problem{
		Want: []int32{1, 1, 1}, States: make([]rebalance.State, 2), Running: [][]int32{{0, 1, 2}, nil},
		Class: []int32{5, 6, 7}, Share: []int32{1, 2}, Zone: []int32{0, 1 << 24}, MaxMoves: rebalance.NoLimit,
	})
	require.NoError(t, err)
	require.Equal(t, 2, plan.Moves)
}

// P10: the copies of a task that leave their workers move inside their zones, where they can. Otherwise those of two
// zones would wait for each other's room.
func TestP10_MovesOfATaskFormNoCircleOfZones(t *testing.T) {
	t.Parallel()
	const zones = 3
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 6))
		pr := &rebalance.Problem{
			Want: []int32{zones}, MaxPerZone: []int32{1}, Class: []int32{0}, May: [][]int32{{1}}, States: make([]rebalance.State, 2*zones), MaxMoves: rebalance.NoLimit,
		}
		for _, w := range r.Perm(2 * zones) { // each zone has a worker that runs the task, and one that may
			pr.Zone, pr.Kind = append(pr.Zone, int32(w/2)), append(pr.Kind, int32(w%2))
			pr.Running = append(pr.Running, make([]int32, 1-w%2))
		}
		plan, err := new(rebalance.Planner).Plan(pr)
		require.NoError(t, err)
		require.Len(t, plan.Changes, zones)
		for _, c := range plan.Changes {
			require.Equal(t, pr.Zone[c.From], pr.Zone[c.To], "seed %d: %+v", seed, plan.Changes)
		}
	}
}

package rebalance

// A fleet whose loads drift and have hot keys, planned by weight, and placed by two common
// rules beside it.

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// driftResult is what a policy makes of a drift: the worst and the mean highest load, as
// multiples of the mean load, and the moves a term.
type driftResult struct{ worst, mean, moves float64 }

// drift runs a policy over some terms. In each term all weights change by up to 2%, and a
// hundredth of the tasks is hot, five times as heavy; a tenth of the hot ones change. The
// policy gets the placement, None for a new task, and updates it.
func drift(tasks, workers, terms int, policy func(weight []int64, at []int32)) (r driftResult) {
	random := rand.New(rand.NewPCG(200, 1))
	base, at, weight := make([]int64, tasks), make([]int32, tasks), make([]int64, tasks)
	for t := range base {
		base[t], at[t] = 1000+random.Int64N(9000), None
	}
	hot := random.Perm(tasks)[:tasks/100]
	for term := range terms {
		for t := range base {
			base[t] = max(1, base[t]*(980+random.Int64N(41))/1000)
		}
		for range len(hot) / 10 {
			hot[random.IntN(len(hot))] = random.IntN(tasks)
		}
		copy(weight, base)
		for _, t := range hot {
			weight[t] = base[t] * 5
		}
		for t, n := range weight {
			weight[t] = RoundWeight(n).Int64()
		}
		before := slices.Clone(at)
		policy(weight, at)
		load, total := make([]int64, workers), int64(0)
		for t, w := range at {
			load[w] += weight[t]
			total += weight[t]
			if term > 0 && before[t] != w {
				r.moves++
			}
		}
		highest := float64(slices.Max(load)) * float64(workers) / float64(total)
		r.worst, r.mean = max(r.worst, highest), r.mean+highest/float64(terms)
	}
	r.moves /= float64(terms - 1)
	return r
}

// driftPolicies returns the planner and what it is compared with, by name.
func driftPolicies(tasks, workers int) map[string]func(weight []int64, at []int32) {
	var p Planner
	return map[string]func(weight []int64, at []int32){
		"planner": func(weight []int64, at []int32) {
			pr := &Problem{
				Want: slices.Repeat([]int32{1}, tasks), States: make([]State, workers), Running: make([][]int32, workers),
				Weight: make([]Weight, tasks), Band: 50_000, MaxMoves: NoLimit,
			}
			for t, n := range weight {
				pr.Weight[t] = RoundWeight(n)
			}
			for t, w := range at {
				if w != None {
					pr.Running[w] = append(pr.Running[w], int32(t))
				}
			}
			plan, err := p.Plan(pr)
			if err != nil {
				panic(err)
			}
			for _, c := range plan.Changes {
				at[c.Task] = c.To
			}
		},
		// Greedy, as a scheduler that places everything again: each on the least loaded.
		"greedy": func(weight []int64, at []int32) {
			load := make([]int64, workers)
			for t := range at {
				at[t] = 0
				for w := range int32(workers) {
					if load[w] < load[at[t]] {
						at[t] = w
					}
				}
				load[at[t]] += weight[t]
			}
		},
		"hash": func(_ []int64, at []int32) {
			for t := range at {
				h := fnv.New32a()
				_, _ = h.Write([]byte(strconv.Itoa(t)))
				at[t] = int32(h.Sum32() % uint32(workers))
			}
		},
	}
}

func TestP18_DriftWithHotTasks(t *testing.T) {
	const tasks, workers, terms = 2000, 20, 200
	results := make(map[string]driftResult)
	for name, policy := range driftPolicies(tasks, workers) {
		results[name] = drift(tasks, workers, terms, policy)
		t.Logf("%s: highest load %.3f of the mean at worst, %.3f on average, %.1f moves a term", name, results[name].worst, results[name].mean, results[name].moves)
	}
	planner := results["planner"]
	require.LessOrEqual(t, planner.worst, 1.0501)
	require.Less(t, planner.moves, results["greedy"].moves/20)
	require.Less(t, planner.worst, results["hash"].worst)
}

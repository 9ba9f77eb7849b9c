package rebalance

// Plans of large fleets with weights.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// weightLaws draw weights.
var weightLaws = []struct {
	name string
	draw func(random *rand.Rand) Weight
}{
	{"uniform", func(random *rand.Rand) Weight { return RoundWeight(1 + random.Int64N(1000)) }},
	{"lognormal", func(random *rand.Rand) Weight {
		return RoundWeight(int64(1000 * math.Exp(random.NormFloat64()*1.5)))
	}},
}

// weightEvents are what happens to a placed fleet.
var weightEvents = []struct {
	name string
	to   func(random *rand.Rand, pr *Problem)
}{
	{"fresh", func(_ *rand.Rand, pr *Problem) { clear(pr.Running) }},
	{"steady", func(*rand.Rand, *Problem) {}},
	{"steady_without_weights", func(_ *rand.Rand, pr *Problem) { pr.Weight = nil }}, // to compare: a plan by counts
	{"loads_wander", func(random *rand.Rand, pr *Problem) {
		for t, w := range pr.Weight {
			pr.Weight[t] = RoundWeight(w.Int64() * (970 + random.Int64N(61)) / 1000)
		}
	}},
	{"tenth_changes", func(random *rand.Rand, pr *Problem) {
		for range len(pr.Weight) / 10 {
			t := random.IntN(len(pr.Weight))
			pr.Weight[t] = RoundWeight(pr.Weight[t].Int64() * (500 + random.Int64N(1501)) / 1000)
		}
	}},
	{"one_joins", func(_ *rand.Rand, pr *Problem) { joinWeighted(pr, 1) }},
	{"tenth_joins", func(_ *rand.Rand, pr *Problem) { joinWeighted(pr, len(pr.States)/10) }},
}

func joinWeighted(pr *Problem, n int) {
	pr.States = append(pr.States, make([]State, n)...)
	pr.Running = append(pr.Running, make([][]int32, n)...)
}

// carriedOut returns the problem after a plan.
func carriedOut(pr *Problem, plan Plan) [][]int32 {
	after := make([][]int32, len(pr.Running))
	gone := make(map[Pair]bool)
	for _, c := range plan.Changes {
		if c.From != None {
			gone[Pair{c.Task, c.From}] = true
		}
	}
	for w, list := range pr.Running {
		for _, t := range list {
			if len(gone) == 0 || !gone[Pair{t, int32(w)}] {
				after[w] = append(after[w], t)
			}
		}
	}
	for _, c := range plan.Changes {
		if c.To != None {
			after[c.To] = append(after[c.To], c.Task)
		}
	}
	return after
}

// BenchmarkWeights reports the moves beside the time.
func BenchmarkWeights(b *testing.B) {
	for _, size := range []struct{ tasks, workers int }{{100_000, 1_000}, {1_000_000, 10_000}} {
		for _, law := range weightLaws {
			random := rand.New(rand.NewPCG(1, 1))
			placed := &Problem{
				Want: make([]int32, size.tasks), States: make([]State, size.workers), Running: make([][]int32, size.workers),
				Weight: make([]Weight, size.tasks), Band: 50_000, MaxMoves: NoLimit,
			}
			for t := range placed.Want {
				placed.Want[t], placed.Weight[t] = 1, law.draw(random)
			}
			var p Planner
			plan, err := p.Plan(placed)
			require.NoError(b, err)
			placed.Running = carriedOut(placed, plan)
			for _, event := range weightEvents {
				b.Run(fmt.Sprintf("%d_on_%d/%s/%s", size.tasks, size.workers, law.name, event.name), func(b *testing.B) {
					pr := *placed
					pr.States = append([]State(nil), placed.States...)
					pr.Running = append([][]int32(nil), placed.Running...)
					pr.Weight = slices.Clone(placed.Weight)
					event.to(rand.New(rand.NewPCG(2, 2)), &pr)
					for b.Loop() {
						plan, err = p.Plan(&pr)
					}
					require.NoError(b, err)
					b.ReportMetric(float64(plan.Moves), "moves")
				})
			}
		}
	}
}

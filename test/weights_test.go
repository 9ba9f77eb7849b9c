package test

// T18: measured weights move little.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// weigh measures the tasks t1, t2, …, and runs a term.
func (f *fleet) weigh(weights ...int64) {
	f.t.Helper()
	measured := make(map[string]int64)
	for i, weight := range weights {
		measured[fmt.Sprint("t", i+1)] = weight
	}
	require.NoError(f.t, f.UpdateWeights(measured))
	f.term()
}

// A task that was moved for weight rests for a minute, but not towards a later worker.
func TestT18_AMovedTaskRests(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 3}, func(t *testing.T, f *fleet) {
		f.set(workerOptions{labels("a")}, "w1")
		f.set(workerOptions{labels("b")}, "w2")
		require.NoError(t, f.AddTask("t1", requires("a")))
		require.NoError(t, f.AddTask("t3", requires("b")))
		f.weigh(100, 60, 40)
		require.Equal(t, []string{"w2"}, f.Running("t2"))
		f.weigh(40, 60, 100)
		require.Equal(t, []string{"w1"}, f.Running("t2"))
		f.weigh(100, 60, 40)
		require.Empty(t, f.moves(), "t2 has just moved")
		p, err := f.Plan(orchestrator.Hypothesis[string, string]{})
		require.NoError(t, err)
		require.Empty(t, p.Changes, "what-if knows it too")
		time.Sleep(time.Minute - time.Nanosecond)
		f.requireQuiet(1)
		time.Sleep(time.Nanosecond)
		f.term()
		require.Equal(t, []string{"w2"}, f.Running("t2"))

		f.join("w3")
		f.weigh(100, 100, 100)
		require.Equal(t, []string{"t2"}, f.RunsOn("w3"), "the joiner takes what rests")
		require.NoError(t, f.DrainWorker("w3"))
		f.term()
		require.Empty(t, f.RunsOn("w3"), "a drain does not wait")
	})
}

// 12 tasks on 5 workers, and 1% of noise: 64 moves before, and one task 30 times.
func TestT18_NoiseMovesNothing(t *testing.T) {
	for _, every := range []time.Duration{time.Second, time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			total := 0
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, given{workers: 5, expected: 12})
					random := rand.New(rand.NewPCG(seed, 18))
					base, weights := make([]float64, 12), make([]int64, 12)
					for i := range base {
						base[i] = 1000 / math.Pow(1-random.Float64(), 1/1.5)
					}
					moves := 0
					for update := range 200 {
						for i := range base {
							weights[i] = int64(base[i] * (0.99 + 0.02*random.Float64()))
						}
						f.weigh(weights...)
						if update > 0 {
							moves += len(f.moves())
						}
						time.Sleep(every)
					}
					require.LessOrEqual(t, moves, 10, "seed %d", seed)
					total += moves
				})
			}
			t.Logf("%d moves in 20 runs", total)
		})
	}
}

package rebalance_test

import (
	"testing"

	"github.com/f8949c05/orchestrator/rebalance"
)

// FuzzPlan reads a problem out of bytes and checks every clause.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 6, 0})                                                       // nothing held
	f.Add([]byte{3, 6, 0, 1, 1, 1, 1, 1, 1, 0, 0b1101, 0, 0b10011, 0, 0b100010}) // drops chosen together
	f.Add([]byte{5, 9, 1, 2, 3, 2, 3, 2, 3, 2, 3, 2, 1, 0xff, 2, 0xf0, 3, 0x0f, 0, 0xaa, 0, 0x55})
	f.Add([]byte{4, 8, 2, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0xff, 0, 0, 0, 0, 0, 0, 1, 3, 2, 4, 0, 1, 1, 2})
	f.Add([]byte{4, 8, 4, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0xff, 0, 0x0f, 3, 0xf0, 0, 0, 4, 3, 9, 2})
	f.Add([]byte{4, 8, 15, 2, 2, 2, 2, 1, 1, 1, 0, 0, 0xff, 1, 0x0f, 2, 0xf0, 3, 0x3c, 0, 2, 3, 9, 2, 0, 0, 1, 1, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		pr := decode(data)
		if _, err := examine(pr, new(rebalance.Planner)); err != nil {
			t.Fatalf("%v\n%#v", err, *pr)
		}
	})
}

// decode makes a valid problem of any bytes: sizes, which limits there are,
// then wants, a state and a bit per task for each worker, pinned copies, gains, a
// budget, late copies, forbidden pairs. Bytes that are not there are 0.
func decode(data []byte) *rebalance.Problem {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % n
	}
	workers, tasks, limits := next(9), next(25), next(32)
	pr := &rebalance.Problem{
		Want:     make([]int32, tasks),
		States:   make([]rebalance.State, workers),
		Held:     make([][]int32, workers),
		MaxMoves: rebalance.NoLimit,
	}
	for t := range pr.Want {
		pr.Want[t] = int32(next(workers + 3))
	}
	for w := range pr.States {
		pr.States[w] = rebalance.State(next(4))
		for t := 0; t < tasks; t += 8 {
			bits := next(256)
			for bit := range min(8, tasks-t) {
				if bits>>bit&1 != 0 {
					pr.Held[w] = append(pr.Held[w], int32(t+bit))
				}
			}
		}
	}
	if limits&1 != 0 {
		pr.Pinned = make([]int32, workers)
		for w, list := range pr.Held {
			pr.Pinned[w] = int32(next(len(list) + 1))
		}
	}
	if limits&8 != 0 {
		pr.Gain = make([]int32, workers)
		for w := range pr.Gain {
			pr.Gain[w] = int32(next(4))
		}
	}
	if limits&2 != 0 {
		pr.MaxMoves = next(12)
	}
	if limits&16 != 0 {
		for range next(8) {
			if workers > 0 && tasks > 0 {
				pr.Late = append(pr.Late, rebalance.Pair{Task: int32(next(tasks)), Worker: int32(next(workers))})
			}
		}
	}
	for limits&4 != 0 && workers > 0 && tasks > 0 && len(data) > 0 {
		pr.Forbidden = append(pr.Forbidden, rebalance.Pair{Task: int32(next(tasks)), Worker: int32(next(workers))})
	}
	return pr
}

package term

// The weights of tasks.

import (
	"math/bits"

	"github.com/f8949c05/orchestrator/rebalance"
)

// SetWeights sets the weights of the tasks, by number. 0 stands for the mean of the others, or
// 1 without any, and so does a number beyond the slice. SetWeights rounds the weights, so
// that noise does not make all differ, and keeps the slice.
func (t *Tasks) SetWeights(weights []int64) {
	t.weight = nil
	if n := len(t.Instances) - len(weights); n > 0 { // numbers of tasks that were only listed
		weights = append(weights, make([]int64, n)...)
	}
	var given, high, low uint64
	for _, weight := range weights {
		if weight > 0 {
			var carry uint64
			low, carry = bits.Add64(low, uint64(weight), 0)
			high += carry
			given++
		}
	}
	if given == 0 {
		return
	}
	mean, _ := bits.Div64(high, low, given)
	same := true
	for i, weight := range weights {
		if weight == 0 {
			weight = int64(mean)
		}
		weights[i] = rebalance.RoundWeight(weight)
		same = same && weights[i] == weights[0]
	}
	if !same {
		t.weight = weights
	}
}

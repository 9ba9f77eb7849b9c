package term

// The weights of tasks.

import (
	"math/bits"

	"github.com/f8949c05/orchestrator/rebalance"
)

// SetWeights sets the weights of the tasks, by number. 0 stands for the mean of the others, or
// 1 if there are none. SetWeights keeps the slice.
func (t *Tasks) SetWeights(weights []int64) {
	t.weight = nil
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
		weights[i] = rounded(weight)
		same = same && weights[i] == weights[0]
	}
	if !same {
		t.weight = weights
	}
}

// rounded returns a weight with three significant digits, so that measured weights that
// hardly differ are equal.
func rounded(weight int64) int64 {
	unit := int64(1)
	for weight/unit >= 1000 {
		unit *= 10
	}
	return min((weight+unit/2)/unit*unit, rebalance.MaxWeight)
}

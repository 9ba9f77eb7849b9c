package rebalance

// Weights, and exact arithmetic on them.

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
)

// Weight is what one copy of a task takes: a number of three significant digits, so that noise
// in measured weights does not make all different. The zero value is a weight of 1.
type Weight struct {
	// The number less one, or, with the highest bit, thousands less one. So codes are in the order
	// of the numbers, and a million of them fit into a small cache.
	code uint32
}

// thousands is the bit of a code that counts thousands. Lower numbers fit without it, and higher
// ones of three digits are multiples of a thousand.
const thousands = 1 << 31

// RoundWeight rounds a number to three significant digits, half of a digit up. Numbers below 1
// become 1, and those above MaxWeight become RoundWeight(MaxWeight), which is 1.1e12.
func RoundWeight(weight int64) Weight {
	weight = min(max(weight, 1), MaxWeight)
	rounded := weight
	for digit := int64(10); rounded >= 100*digit; digit *= 10 {
		rounded = (weight + digit/2) / digit * digit
	}
	if rounded < thousands {
		return Weight{uint32(rounded - 1)}
	}
	return Weight{thousands | uint32(rounded/1000-1)}
}

// Int64 returns the number.
func (w Weight) Int64() int64 {
	n := int64(w.code&(thousands-1)) + 1
	if w.code >= thousands {
		n *= 1000
	}
	return n
}

func (w Weight) compare(v Weight) int { return cmp.Compare(w.code, v.code) }

// String returns the number in decimal digits.
func (w Weight) String() string { return fmt.Sprint(w.Int64()) }

// GoString returns the call that makes the weight.
func (w Weight) GoString() string { return "rebalance.RoundWeight(" + w.String() + ")" }

// compareProducts compares a*b with c*d. No factor is negative.
func compareProducts(a, b, c, d int64) int {
	high, low := bits.Mul64(uint64(a), uint64(b))
	high2, low2 := bits.Mul64(uint64(c), uint64(d))
	return cmp.Or(cmp.Compare(high, high2), cmp.Compare(low, low2))
}

// scaled returns a*b/c, rounded down, and at most math.MaxInt64. No factor is negative.
func scaled(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(min(quotient, math.MaxInt64))
}

// square is the sum of two squares.
type square struct{ high, low uint64 }

// squares returns a*a + b*b.
func squares(a, b int64) square {
	high, low := bits.Mul64(uint64(a), uint64(a))
	high2, low2 := bits.Mul64(uint64(b), uint64(b))
	low, carry := bits.Add64(low, low2, 0)
	return square{high + high2 + carry, low}
}

// minus returns a - b, and any number if b is more.
func (a square) minus(b square) square {
	low, borrow := bits.Sub64(a.low, b.low, 0)
	high, _ := bits.Sub64(a.high, b.high, borrow)
	return square{high, low}
}

func (a square) less(b square) bool { return a.high < b.high || a.high == b.high && a.low < b.low }

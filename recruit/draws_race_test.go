//go:build race

package recruit

// draws is lower under the race detector, which makes a draw ten times slower. Only one
// goroutine draws, so there is no race to find.
const draws = 1_000_000

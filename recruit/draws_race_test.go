//go:build race

package recruit

// draws is fewer where each takes ten times as long: one goroutine draws, in
// which there is no race to find.
const draws = 1_000_000

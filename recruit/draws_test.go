//go:build !race

package recruit

// draws is how often the tests of shares draw.
const draws = 10_000_000

//go:build !race

package recruit

// draws is the number of draws in the tests of shares.
const draws = 10_000_000

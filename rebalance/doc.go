// Package rebalance plans who runs what: whole, even, and with the fewest
// starts.
package rebalance

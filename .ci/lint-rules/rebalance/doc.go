// Package rebalance stands for its floor.
package rebalance

// Package orchestrator keeps N instances of every task running, evenly spread
// over workers that come and go.
package orchestrator

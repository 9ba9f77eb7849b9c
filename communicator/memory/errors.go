package memory

// What calls fail with that did not get an answer from a worker.

import "errors"

// Both leave open whether a write was done, as in a real network, where
// nobody can know.
var (
	// ErrDown is what a call fails with, at once, if there is no process under
	// the worker's name, or if it has been killed since the call set out.
	ErrDown = errors.New("the worker's process is gone")

	// ErrCut is what a call fails with, at once, if the worker was cut off with
	// [Cluster.Cut].
	ErrCut = errors.New("the worker is cut off")
)

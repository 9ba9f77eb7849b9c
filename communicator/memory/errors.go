package memory

// Errors of calls without an answer from a worker.

import "errors"

// Both leave open whether a write was done, as errors of a real network do.
var (
	// ErrDown is returned immediately if the worker has no process, or if its
	// process was killed during the call.
	ErrDown = errors.New("the worker's process is gone")

	// ErrCut is returned immediately if the worker is cut off by [Cluster.Cut].
	ErrCut = errors.New("the worker is cut off")
)

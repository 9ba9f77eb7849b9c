// Package memory is a table for replicas in one process, for tests and examples. It loses,
// delays and repeats calls, and its records can be set back, lost or replaced by garbage.
package memory

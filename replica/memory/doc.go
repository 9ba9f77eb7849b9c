// Package memory is a table of replicas in memory, for tests and for several replicas in one
// process. It keeps every clause of [replica.Backend], and is lost with its process.
package memory

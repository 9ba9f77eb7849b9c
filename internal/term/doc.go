// Package term holds what a leader knows of its workers, and decides what a term changes:
// the pure middle of a term. Workers and tasks are integers. The caller keeps their names,
// makes the calls, and passes the time.
//
// # A term
//
// The caller makes these calls on its [Fleet], in this order:
//
//  1. [Fleet.ForgetTasks] if the expected tasks changed, [Fleet.Part] and [Fleet.Join] if
//     the members did, and [Fleet.Begin].
//  2. [Fleet.Answer] or [Worker.NoAnswer] for each worker.
//  3. [Fleet.ClearFailures], and [Fleet.Judge], which declares workers lost.
//  4. [Fleet.Decide], which makes a problem for package rebalance and turns its plan into
//     changes.
//  5. [Fleet.Write], if there are changes. The machine in the [Writes] says which write may
//     be sent next; [Writes.Ended] records each answer. Then [Writes.Learn].
//  6. [Fleet.Count], [Fleet.Paused] and [Fleet.Snapshot], for the readers.
//
// A what-if plan begins with [Snapshot.Suppose] and [Fleet.Resume], and continues with
// steps 3 and 4.
//
// # Numbers
//
// A task has a dense number, which is an index into [Tasks]. A worker has a serial, which
// is never reused, and an index into [Fleet.Workers], which holds within a term.
//
// There is no goroutine, no lock, no clock and no I/O here. Nothing is for concurrent use.
package term

// Package term holds what a leader knows of its workers, and decides what a term changes:
// the pure middle of a term. Workers and tasks are integers. The caller keeps their names,
// makes the calls, and passes the time. There is no goroutine, no lock, no clock and no I/O
// here. Nothing is for concurrent use.
//
// # A term
//
// The caller makes these calls on its [Fleet], in this order:
//
//  1. [Fleet.ForgetTasks] if the expected tasks changed, [Fleet.Retain] and [Fleet.Join] if
//     the members did, and [Fleet.Begin].
//  2. [Fleet.Answer] for each worker that answered, then [Fleet.ClearFailures].
//  3. [Worker.NoAnswer] for each other worker (T3), then [Fleet.Judge], which declares
//     workers lost (T4, T5).
//  4. [Fleet.Decide], which makes a problem for package rebalance and turns its plan into
//     changes (P1 to P8, P24, T10).
//  5. [Fleet.Write], if there are changes. The machine in the [Writes] says which write may
//     be sent next (T7, T8); [Writes.Ended] records each answer. Then [Writes.Learn].
//  6. [Fleet.Count], [Fleet.Paused] and [Fleet.Snapshot], for the readers (T12).
//
// A what-if plan calls [Snapshot.Suppose], [Fleet.Judge], [Fleet.Resume] and [Fleet.Decide].
//
// # Numbers
//
// A task has a dense number, which is an index into [Tasks]. A worker has a serial, which
// is never reused, and an index into [Fleet.Workers], which holds within a term.
//
// # Failed starts
//
// Circuit breakers leave tasks, workers and all moves alone for some terms because of
// starts that failed (T9).
//
// A start that fails pauses its task on that worker, for 1, 2, 4, 8 and then 16
// terms. A task that fails on two workers in a row is suspect: its pause holds on
// all workers, and afterwards it is tried on another worker than the last one.
// The pause of a suspect grows with each timeout, and with each round of as many
// failures as there are workers. No term waits for a suspect that has timed out: it is
// tried on a third of the workers at once, and its worker is late while the call lasts. Starts
// and moves of these are not tried on the same worker, because the starts come first.
//
// A suspect whose pause is the longest may need a place on a full worker, because the
// others have rejected it. Then it is planned like any other task, and healthy tasks make
// room for it.
//
// A failed start counts against its worker only once the task has started on
// another worker, or if it runs there already and is to move. It does not count while
// the task has failed on more than half of the open workers, or on eight. A worker is
// quarantined when two tasks count against it since its last acknowledged start; one
// task is enough if the worker runs nothing. So a task that no worker can start
// quarantines no worker, and a worker that can start nothing makes no task suspect for
// long. After its pause a quarantined worker is tried with one task, which the plan is
// changed for afterwards: one that has run elsewhere, if there is any. If that fails, the
// pause is longer. A quarantine in which no start is tried for 64 terms after its pause
// ends.
//
// A move whose task ends up stopped, because neither its receiver nor its source
// started it, says that starts fail as such. It counts against no worker. All
// moves pause; then one move at a time is tried. An acknowledged start that gives
// nothing back ends the pause.
//
// An acknowledged start clears its task and its worker.
//
// A task that has asked to run elsewhere pauses on the worker that refuses it, for 16 terms.
// While it runs elsewhere it does not move there for sixteen times the longest pause. Such a
// start is no failure.
//
// # Failed stops
//
// A stop that fails pauses, with the other failed stops of its worker, for as long as a
// start. Then one of them is tried in a term. The plan does not count on it.
//
// # Calm
//
// Moves for an even spread wait while a worker that held tasks is silent, for a minute at
// most (T16), and as long as a [Hold] lasts. A host that fell more than once takes only what
// no other worker may run (T17). A task that moved for its weight rests for a minute (T18).
package term

// Package breaker remembers which starts failed, and decides what is left alone
// for a while because of them: circuit breakers for tasks, for workers, and for
// all moves.
//
// # Tasks
//
// A start that fails pauses its task on that worker, for 1, 2, 4, 8 and then 16
// terms. A task that fails on two workers in a row is suspect: its pause holds on
// all workers, and afterwards it is tried on another worker than the last one.
// The pause of a suspect grows with each timeout, and with each round of as many
// failures as there are workers. Suspects that time out are tried in terms whose
// number is a multiple of their pause, so that many of them share one long term.
//
// # Workers
//
// A failed start counts against its worker only once the task has started on
// another worker, or if it runs there already and is to move. It does not count while
// the task has failed on more than half of the open workers, or on eight. A worker is
// quarantined when two tasks count against it since its last acknowledged start; one
// task is enough if the worker runs nothing. So a task that no worker can start
// quarantines no worker, and a worker that can start nothing makes no task suspect for
// long. After its pause a quarantined worker may gain one task; if that fails, the
// pause is longer. A quarantine in which no start is tried for 64 terms after its pause
// ends.
//
// Failures of an outage count against no worker: more than half of the open workers
// failed to start tasks since the last term with an acknowledged start.
//
// # Moves
//
// A move whose task ends up stopped, because neither its receiver nor its source
// started it, says that starts fail as such. It counts against no worker. All
// moves pause; then one move at a time is tried. An acknowledged start that gives
// nothing back ends the pause.
//
// An acknowledged start clears its task and its worker.
//
// Everything here is a function of values: no clock, no lock, no call. It is not
// for concurrent use.
package breaker

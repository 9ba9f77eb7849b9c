// Package orchestrator keeps N instances of every task running, evenly spread
// over workers that come and go.
//
// Tasks are long-lived pieces of work: pollers, partition consumers, tenants,
// shards, stream readers. Workers are the processes that run them. A leader
// tells an [Orchestrator] which tasks are expected and which workers there are,
// gives it a [Communicator] that reaches them, and calls
// [Orchestrator.NextTerm] on a ticker, or [Orchestrator.Run]. Everything else
// follows.
//
// # A term
//
// One term lists what every worker runs, compares that with what is expected,
// plans the fewest moves to an even spread, and carries them out:
//
//	List every worker ──► plan ──► Remove and Add ──► LastPlan, LastActual
//
// A term starts from what the workers say, never from what the leader remembers
// having done. So the leader can crash at any line, and the first term of the
// next leader repairs what it left.
//
// # What it promises
//
//   - A worker that joins gets its fair share in the next term, and nothing
//     else moves. The plan is even and needs the fewest starts possible; it
//     says how many that is (package rebalance has the proof).
//   - A worker that does not answer is silent, not empty. What it had is
//     neither started elsewhere nor stopped elsewhere until it answers, is
//     removed, or has been silent for longer than the grace period, and a call to it
//     has failed after that ([WithGracePeriod]). While most of three or more workers are silent at the
//     same time, none is declared lost, for five minutes ([WithMaxLoss]).
//   - A task that moves is stopped before it is started elsewhere, or the other
//     way round where a gap is worse than an overlap ([WithHandoff]). If its new
//     worker refuses it with [ErrRejected], it runs again on its old one in the same
//     term.
//   - Every change, and every instance without a place, comes with its reason:
//     see [Plan].
//
// # While faults last
//
// A fault delays the workers and tasks that have it:
//
//   - A worker whose List is slow or hangs makes one term longer by a tenth of the
//     communicator timeout; then terms do not wait for it. Its tasks stay where they
//     are, and its answers count when they come. A start or stop that hangs makes its
//     term longer by up to a timeout, and is tried again only after a pause. No term is
//     longer than five timeouts, whatever the workers do.
//   - A fleet that is slow as a whole loses no worker: a worker misses a term only if
//     its call failed, or had its whole timeout.
//   - A task that fails to start pauses on that worker for 1, 2, 4, 8 and then 16
//     terms, at most a minute ([WithMaxPause]). If two workers in a row fail to start
//     it, it is tried on others, one after the other, and no healthy task makes room.
//   - A worker that fails to start tasks that other workers then start is quarantined:
//     it keeps its tasks, and after pauses of 1, 2, 4, 8 and then 16 terms may gain one,
//     if possible one that runs elsewhere, until it starts one. While more than half of
//     the open workers fail to start a task, or eight, it counts against none.
//   - When starts fail everywhere, healthy tasks stop moving. An outage stops at most one
//     task for each receiver in its first term, and then one after each pause of all
//     moves: 1, 2, 4, … and then 64 terms, at most a minute.
//   - A stop that takes longer than three timeouts, or fails, delays neither a drain nor
//     a rebalance: it pauses, and uses no budget of [WithMaxMoves] that another move
//     could use.
//
// LastPlan says what pauses, until when and why. What is not promised:
//
//   - A task that no worker can start does not run, and a task that does not stop stays
//     where it is. The spread is even only over what can move.
//   - A move to a worker that fails, a trial of a quarantined one included, stops its
//     task until the next term, unless the error wraps [ErrRejected].
//   - A worker that was there in the leader's first term, and has not answered since, may
//     run anything. No missing task starts until it answers, is declared lost or is
//     removed.
//
// What keeps a task from running twice, and what does not, depends on when a
// silent worker counts as lost. With the default grace period a worker that is
// cut off from the leader, and goes on running, has its tasks started a second
// time elsewhere. Where that must not happen, use [HoldUntilRemoved] and remove
// a worker only when it is certain to have stopped.
//
// # Leaders
//
// Whoever calls NextTerm leads. Terms carry an epoch, and a worker that has seen
// a higher one refuses a lower one's with [ErrDeposed]; a leader that hears of
// that has to stop, and to make a new Orchestrator if it leads again, since an
// epoch belongs to one period of leading. Without [WithEpoch] it is the wall
// clock when New was called. That is enough for one leader that is restarted; two
// that run side by side depose each other, restart by restart, and one whose
// clock is behind is deposed until it has caught up. With more than one candidate
// take an election, and its epoch.
//
// Epochs keep a deposed leader from every worker that has heard of its successor,
// and not from the others. So end its context with [ErrDeposed] as soon as it may
// have lost the election, or have each of its writes checked against the election, as
// package etcd does both; what a leader believes to have run on a worker that it
// removes may run elsewhere by then.
//
// # The workers' side
//
// Package worker runs the tasks: it starts, stops, restarts and queues them, and
// refuses what a deposed leader or a past term sends. An implementation of
// Communicator carries the calls there; communicatortest checks whether it does
// so faithfully, and memory is a whole cluster in one process, for tests.
package orchestrator

// Package orchestrator keeps N instances of each task running, spread evenly over
// workers that join and leave.
//
// A task is a long-lived piece of work: a poller, a partition consumer, a tenant, a
// shard, a stream reader. A worker is a process that runs tasks. A leader tells an
// [Orchestrator] which tasks and workers to expect, reaches the workers through a
// [Communicator], and calls [Orchestrator.NextTerm] on a ticker, or
// [Orchestrator.Run].
//
// # Terms
//
// A term lists the tasks of every worker, compares them with the expected tasks,
// plans the fewest moves to an even spread, and carries them out:
//
//	List every worker ──► plan ──► Remove and Add ──► LastPlan, LastActual
//
// A term starts from the answers of the workers. The leader's memory of its own
// writes only stands in for workers that do not answer. So a leader may crash at any
// point, and the first term of the next leader repairs the state that it left.
//
// # Every worker that may run tasks is added before the first term
//
// Otherwise its tasks run twice: the leader does not ask a worker that it does not know, and
// starts elsewhere what no other worker reports. This includes the workers that still run the
// tasks of a leader before this one. If workers register themselves with a leader that has
// restarted, give them time with [WithInitialWait]: for that long the leader starts nothing
// that a worker unheard of may run. Packages replica and manager know all of their workers
// before the first term.
//
// # Guarantees
//
// The numbers are those in the names of the tests. Those of C1 to C9 are in the
// documentation of [Communicator].
//
// T1. The expectations may change at any time, without waiting for a term. The next
// term uses them.
//
// T2. A term lists all workers at the same time, with at most [WithConcurrency] calls in
// flight. A worker misses a term only if its call failed or had its whole timeout. So a
// fleet in which every worker is slow loses none.
//
// T3. A term takes at most five communicator timeouts. A slow List delays one term by a
// tenth of the timeout. Later terms do not wait for the worker: it keeps its tasks, and what
// is missing starts on others. A start or stop that hangs makes its term longer by up to a
// timeout, and is tried again only after a pause.
//
// T4. A worker that does not answer is silent, not empty. Its tasks are neither started
// nor stopped elsewhere until it answers, is removed or is declared lost. It is declared
// lost when it has been silent for longer than the grace period and a call to it has
// failed after that ([WithGracePeriod]). A held list ([Held]) makes its worker silent.
//
// T5. While most of three or more workers are silent, none is declared lost, for up to
// five minutes ([WithMaxLoss]).
//
// T6. If the context of a term ends before the writes begin, nothing is written. If it
// ends later, changes that have begun are completed, unless the cause is [ErrDeposed].
//
// T7. Calls to different workers run at the same time, calls to the same worker one after
// the other. A slow worker delays only changes that involve it.
//
// T8. A move stops the task before it starts it elsewhere, or the reverse if a gap is
// worse than an overlap ([WithHandoff]). If the new worker refuses the task with
// [ErrRejected], the old one starts it again in the same term. Until a worker has
// acknowledged a start, few moves to it are under way ([WithFirstMoves]).
//
// T9. A start that fails delays only the worker and the task that have the fault:
//
//   - A task that fails to start pauses on that worker for 1, 2, 4, 8 and then 16 terms,
//     at most a minute ([WithMaxPause]). If two workers in a row fail to start it, the
//     others are tried one at a time, and no healthy task makes room for it.
//   - A worker that fails to start tasks that other workers then start is quarantined.
//     It keeps its tasks. After each pause it may gain one task, until it starts one. A
//     quarantine without a trial ends 64 terms after its pause.
//   - Failures during an outage, and those of a task that more than half of the open
//     workers, or eight, fail to start, count against no worker.
//   - A task that asks to leave its worker ([ErrElsewhere]) pauses there for 16 terms, at most
//     a minute. While it runs elsewhere it is not moved there for another 15 minutes. That
//     counts against neither the task nor the worker.
//   - A worker that fails several starts in a term, and starts no task, gets none in the
//     next term.
//   - While starts fail everywhere, healthy tasks do not move. An outage stops at most one
//     task for each receiver in its first term, and then one after each pause of all
//     moves: 1, 2, 4, … and then 64 terms, at most a minute.
//
// T10. [WithMaxMoves] limits the moves of a term. A stop that fails, or takes longer than
// three timeouts, pauses, and uses no budget that another move could use. So it delays
// neither a drain nor a rebalance.
//
// T11. NextTerm returns every failure of the term in a [*TermError]. It carries out
// everything else.
//
// T12. [Orchestrator.Last] is the last term: its plan, its workers and what it expected.
// [Orchestrator.LastPlan] and [Orchestrator.LastActual] read from it. They never block. The
// plan lists what pauses, until when and why.
//
// D1. The parts of a [Snapshot] agree with each other, and do not change.
//
// D3. Readers never delay a term, and a term never delays a reader.
//
// D14. Each missing instance waits in the plan exactly once, with its reason
// ([Waiting]), and [Snapshot.Explain] says of each worker why it does not run a task.
//
// D15. A start that replaces a lost or vanished instance names the worker that had it.
//
// D16. [Orchestrator.Plan] returns what the next term does, if its hypothesis comes true and
// nothing else changes.
//
// D17. Plan makes no call and changes nothing.
//
// D18. What marshals to JSON unmarshals to a value that marshals to the same bytes.
//
// T13. Each call carries the epoch and the number of its term ([Term]). Workers refuse
// writes of earlier leaders and of earlier terms.
//
// T14. [Orchestrator.Run] runs a term at once, at each tick, and after each change of the
// expectations. Terms never overlap.
//
// T15. A term without workers, tasks or open workers is an ordinary term. Until AddTask or
// UpdateTasks was called, no task is unexpected and none is stopped.
//
// T16. Moves for an even spread wait during a [Orchestrator.Hold], and while a worker that held
// tasks is silent: then they are made once a minute. Starts, drains and evictions do not wait.
//
// T17. A worker that falls again within ten minutes ([PauseFallen]) gains nothing for an even
// spread for 30 s from its return, and twice as long after each further fall.
//
// T18. In [Orchestrator.UpdateWeights] an absent task is not measured, and 0 is the least weight.
//
// A plan is part of a term. A worker that joins gets its share in the next term, unless such moves
// wait (T16, T17), and nothing else moves. Package rebalance has the proof.
//
//   - P1: Each task runs on as many different workers as wanted, if that many can take it.
//   - P2: The numbers of tasks on open workers differ by at most one, or are as even as
//     pinned tasks, labels, zones and limits allow (P14), by share (P16) or by weight (P17).
//   - P3: The plan needs the fewest starts possible. With quarantined workers, pinned
//     tasks, zones or weights it may need a few more.
//   - P4: A surplus instance stops only if more than wanted are on answering workers.
//   - P5: Equal inputs have equal plans.
//   - P6: Planning again on the result changes nothing.
//   - P7: Each change, and each instance without a place, has a reason ([Plan]).
//   - P8: [TermStats].LowerBound is the fewest starts possible.
//   - P9: Placing instances comes before emptying workers that drain, then before the rules
//     for running instances, then before an even spread.
//   - P10: No start breaks a rule: [Task].Requires and MaxPerZone, [Worker].MaxTasks.
//   - P11: A running instance that breaks a rule moves, if it has another place.
//   - P12: Each instance without a place has its [Causes].
//   - P13: Instances of a task are spread over the zones.
//   - P18: While all workers are within [WithBand] of their level, weights move nothing. A
//     worker beyond it is brought to half of it. A task moved for weight rests for a minute.
//   - P24: A pinned task ([Pin]) is not moved for an even spread, and a drain waits for it.
//
// # Limits
//
//   - A task that no worker can start does not run, and a task that does not stop
//     stays in place. The spread is even only over what can move.
//   - A move to a worker that fails stops its task until the next term, unless the
//     error wraps [ErrRejected]. This includes the trial of a quarantined worker.
//   - A worker that was present in the leader's first term, or registered in its initial wait
//     ([WithInitialWait]), and has not answered since may run any task. No missing task starts
//     until it answers, is declared lost or is removed.
//
// Whether a task can run twice depends on when a silent worker is declared lost. By
// default, a worker that is cut off from the leader keeps running its tasks, and they
// are started elsewhere after the grace period. To prevent this, use
// [HoldUntilRemoved], and call RemoveWorker only for a worker that has certainly
// stopped.
//
// # Leaders
//
// The caller of NextTerm is the leader. Each term carries an epoch. A worker that has
// seen a higher epoch refuses writes of a lower one with [ErrDeposed]. A leader that
// receives ErrDeposed must stop. To lead again it needs a new Orchestrator, because an
// epoch belongs to one period of leadership.
//
// Without [WithEpoch], the epoch is the wall clock at the call of New. That suffices
// for one leader that restarts. Two leaders side by side depose each other at each
// restart, and a leader whose clock is behind stays deposed until its clock has caught
// up. With several candidates, use an election and its epoch.
//
// An epoch fences a deposed leader only at workers that have heard from its successor.
// At the others it may still start tasks, for example those of a worker that it
// removes, which may already run under the successor. So end the leader's context with
// ErrDeposed as soon as it may have lost the election, or check each write against the
// election. Package replica does both.
//
// # Workers
//
// Package worker starts, stops, restarts and queues tasks, and refuses writes of
// deposed leaders and past terms. A Communicator carries the calls to it. Package
// communicatortest tests a Communicator, and package memory is a cluster in one
// process for tests.
package orchestrator

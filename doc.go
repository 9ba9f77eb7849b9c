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
//     removed, or has been silent for longer than the grace period
//     ([WithGracePeriod]). While most of three or more workers are silent
//     at once, none is given up, for five minutes ([WithMaxLoss]).
//   - A task that moves is stopped before it is started elsewhere, or the other
//     way round where a gap is worse than an overlap ([WithHandoff]). If its
//     new place refuses it, it runs again at its old one in the same term.
//   - A worker that takes no tasks, and a task that nobody can start, are told
//     apart, and neither disturbs the others for long: room is not made for what
//     has failed on several workers.
//   - One worker that is slow, hangs or ignores its context delays only what
//     concerns it. A term waits for five communicator timeouts at most, whatever
//     the workers do.
//   - Every change, and every instance without a place, comes with its reason:
//     see [Plan].
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

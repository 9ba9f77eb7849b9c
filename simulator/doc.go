// Package simulator runs a leader and its workers against faults, and checks after
// every step that what the orchestrator promises holds.
//
// One call of [Run] is one run: a leader and its successors, a cluster of real
// workers (worker.Worker), and faults, all in one process and in a bubble of
// testing/synctest, where hours pass in milliseconds. Everything follows from a
// seed, to the nanosecond. So a run that has failed fails again:
//
//	func TestMySettings(t *testing.T) {
//		for seed := range uint64(1000) {
//			_, err := simulator.Run(t, seed, simulator.Settings{
//				Membership: simulator.Leases,
//				MaxMoves:   5,
//			})
//			if err != nil {
//				t.Fatal(err) // names the seed, the term, and what did not hold
//			}
//		}
//	}
//
// # Faults
//
// Single calls meet the faults of communicatortest.Faulty: they are refused, fail,
// fail although they happen, are lost on the way there or back, are answered too
// late, land in a later term, or never return. Besides, each [Trouble] befalls
// workers, leaders, tasks or members for a while: crashes and restarts, partitions,
// slow lists, starts that hang, stops that do not end, leaders that are deposed or
// crash, leases that cannot be renewed, and members and tasks that change all the
// time. Every seed draws a mixture, the options, and the size of the cluster, if
// [Settings] do not fix them. One seed in 150 has a fleet of 60 to 200 workers, and
// half of those are slow as a whole, with few slots for calls.
//
// Almost half of all runs have faults that last: some workers, at most five and a third
// of all, refuse all starts, hang in them or list slowly; some tasks cannot be started
// or stopped; or no worker starts anything. These end only after everything else.
//
// # What is checked
//
// Each [Invariant] is a promise. The calls of a leader are reviewed after each term,
// and held against a model of what the leader may believe, which knows nothing of how
// the orchestrator works. In this model an answer to a write counts if its term waits
// for it; if it comes later, the outcome of the write is unknown until the worker's
// next answer to List. What workers accept, and what really runs, is checked at the
// moment it happens.
//
// If a task runs more often than wanted, [Report] counts the [Cause], and there must
// be one. With [Leases] the only causes are: its move starts first; there were too
// many already, because fewer are wanted than before; a worker lied in List; a
// deposed leader did not know. A move that starts first accounts for one copy, as long
// as the task still runs at its old place.
//
// A deposed leader continues until it is told. Workers that know its successor refuse
// it. But if the successor empties a worker that then leaves, and the first leader
// sees that it has left, this one starts again what ran there, on a worker that does
// not know the successor. No knowledge of the workers prevents that. A coordinator
// does that ends the first leader's time before the second's begins, or that refuses
// its writes, as package etcd makes it do.
//
// Failures of starts (T9) are checked by their results: what the plan says to pause is
// not tried; a worker is quarantined only if it failed two tasks that run elsewhere or
// have started there since, or one if it runs nothing, and may then gain one task; after
// a move that left its task stopped, no healthy task moves in the next term, and then
// one alone until some start succeeds.
//
// Some leaders call Plan, with and without a hypothesis, if they do not use Run: it
// takes no time, calls no worker and changes nothing; and if all workers then answer
// what the last term had left, the next term does what Plan said. Some run a term with
// WithDryRun first, which writes nothing and carries no identity.
//
// # While faults last
//
// When there have been enough terms, the faults that end have ended. If others last,
// the run adds tasks, drains a healthy worker and lets one join. Then, in terms a tenth
// of a timeout apart:
//
//   - no healthy task is missing for more than 30 terms;
//   - within 60 terms, and as many more as a budget of moves demands, drained workers
//     run only what cannot be stopped or started, and no move of a healthy task would
//     make the spread of the healthy workers better;
//   - in the 30 terms after that few are long, and few healthy tasks move;
//   - if no start succeeds anywhere, hardly any task stops.
//
// A slow fleet has as many times more terms as it takes to ask all its workers.
//
// # After the faults
//
// Then these faults end too. From the first term on for which the grace period, mass
// loss, leases, pauses and late calls that they have caused have ended, everything
// wanted must run within four terms, evenly, with nothing left on draining workers
// that others can take, and the next term must change nothing. With a budget of moves
// it takes as many terms more as the budget demands.
//
// # What is not checked
//
//   - Plan beside Run, called from another goroutine: leaders that use Run do not
//     call Plan.
//   - That a plan needs the fewest starts: package rebalance proves that.
//   - Pinned jobs (C8): no worker of a run pins anything.
//   - The order in which failed tasks are tried again, and when failures are forgotten:
//     that is the implementation's. Pauses are checked to grow, and to end.
//   - That a term does all that it may: a term that begins fewer moves than it could is
//     only found if it never gets anywhere.
//   - Liveness if most workers are sick or fewer than two are healthy, if a worker does
//     not answer at all as long as the faults last, if calls hang and there are fewer
//     than five slots, or if the grace period is shorter than two timeouts and lists are
//     slow.
//   - What a leader records in the term in which it is deposed.
//   - A change that reaches a leader only after its last term.
//
// # One's own Communicator
//
// Settings.Wrap puts a layer between the leader and the simulated network: a
// whole transport, say, whose client is what the leader calls and whose
// server's handlers call what Wrap was given, as they would call a
// worker.Worker. Between the two runs net.Pipe, which works in a bubble, while
// real sockets do not. The layer has to hand on what any transport must: the
// names, the term (orchestrator.TermFromContext, put back on the other side by
// orchestrator.ContextWithTerm), the end of the call's context, and the meaning of
// errors. What goes wrong goes wrong behind it. A run is repeatable as far as
// the layer is.
//
// A layer must not hold a mutex over a call: time in a bubble goes on only while
// every goroutine waits for a channel, a timer or the like, and a mutex is none
// of these. The run would stand still until the test's own timeout; in production
// it is a breach of C1.
//
// What Wrap was given binds each call to the incarnation that it is meant for, so
// the layer need not; a layer that lets a write reach a process that has just
// begun and knows of no term is therefore not found out. Nor is one that loses the
// meaning of errors (C6), as long as the leader does nothing wrong for it. For
// the letter of the contract there is communicatortest.Run.
//
// An error says in one line what did not hold. To see how it came to that, make
// the same run again with Settings.Transcript:
//
//	if err != nil {
//		var story bytes.Buffer
//		settings.Transcript = &story
//		_, _ = simulator.Run(t, seed, settings)
//		t.Fatalf("%v\n%s", err, &story)
//	}
package simulator

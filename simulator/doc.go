// Package simulator tries a leader and its workers against everything that can
// go wrong between them, and checks after every step that what the
// orchestrator promises still holds.
//
// One call of [Run] is one run: a leader and its successors, a cluster of
// workers that are real (worker.Worker), and a weather of faults, all in one
// process and in a bubble of testing/synctest, where hours pass in
// milliseconds. What happens follows from a seed, to the last nanosecond. So a
// run that has failed fails again:
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
// # What goes wrong
//
// Single calls meet the faults of communicatortest.Faulty: they are refused,
// fail, fail though they happen, are lost on the way there or back, are answered
// too late, land when the next term has begun, or never return. Besides, each
// [Trouble] befalls workers, leaders and what is expected: workers crash, restart
// empty or with their tasks, lie in List, refuse what they are told to start;
// partitions, also one way; leaders that crash, or are deposed and go on for a
// while; leases that cannot be renewed; tasks, instances and workers that change
// all the time. Every seed draws a mixture of its own, as it draws the options
// and the size of the cluster, where [Settings] do not fix them.
//
// # What is checked
//
// Each [Invariant] is a promise. What leaders send and are told is reviewed
// after each term, and held against a model of what they may conclude, which
// knows nothing of how the orchestrator works. In it an answer to a write counts
// as long as its term waits for it: what came of a write that is answered later
// is unknown until the worker's next answer to List, whatever that answer says.
// What workers accept and what really runs is checked in the moment in which it
// happens. Where a task runs more often than it wants, [Report] counts the
// [Cause], and there has to be one: with [Leases] only that its move was to be
// started first, that there were too many already, since fewer are wanted than
// before, that a worker lied, or that a deposed leader was not told. A move that
// starts first accounts for one copy, and only as long as the task still runs where
// it comes from.
//
// A deposed leader goes on until somebody tells it. What it does is harmless for
// the most part, since workers refuse it that have heard of its successor. But where
// the successor empties a worker, that leaves, and the first leader hears of it, it
// starts again what it believes to have run there, and finds a worker to start it on
// of which its successor has heard nothing yet. Nothing that workers know prevents
// that. What does is a coordinator that ends the first leader's time before the
// second's begins, or that refuses its writes, as package etcd has it do.
//
// Now and then a leader calls Plan, where it does not use Run. That writes nothing
// and carries no identity, and where everybody says the same in the term that
// follows, that term does what it said.
//
// When there have been terms enough the faults stop. From the first term on for
// which the grace period, mass loss, leases, backoffs and late calls are over that
// they have caused, everything wanted has to run within four terms, evenly, with
// nothing left on draining workers that others can take, and the next term must
// change nothing. With a budget of moves it takes as many terms more as the budget
// demands.
//
// # What is not checked
//
//   - Plan beside Run, called from another goroutine: leaders that use Run call
//     no Plan.
//   - That a plan needs the fewest starts: package rebalance proves that.
//   - That a term does all that it may. What it does is held against the rules,
//     and what comes of it in the end; but a term that begins fewer moves than its
//     receivers have proved to be able to take, say, is only found out where it
//     never gets anywhere.
//   - Which of a worker's failures are forgotten when it works again: a leader
//     that forgets more than it should is not always found out. Nor what a leader
//     writes down in the term in which it is deposed.
//   - A change that is heard of so late that its leader's time ends before the
//     term is due to which it leads.
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

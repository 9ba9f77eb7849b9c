// Package simulator runs a leader and its workers against faults, and checks that what
// happens to tasks and workers is what the orchestrator promises.
//
// One call of [Run] is one run. It has a leader, its successors, a cluster of real
// workers (worker.Worker) and faults. All of them run in one process, in a bubble of
// testing/synctest, where hours pass in milliseconds. A seed determines everything,
// to the nanosecond, so a failed run can be repeated:
//
//	func TestMySettings(t *testing.T) {
//		for seed := range uint64(1000) {
//			_, err := simulator.Run(t, seed, simulator.Settings{
//				Membership: simulator.Leases,
//				MaxMoves:   5,
//			})
//			if err != nil {
//				t.Fatal(err) // names the seed, the term and the broken invariant
//			}
//		}
//	}
//
// # Faults
//
// Single calls suffer the faults of communicatortest.Faulty: they are refused, fail,
// fail although they take effect, are lost on the way there or back, are answered
// late, take effect in a later term, or never return.
//
// Each [Event] affects workers, leaders, tasks or members. Processes crash and
// restart, leaders are deposed, networks partition, and leases cannot be renewed.
// Lists are slow, starts hang, and stops do not end. Members and tasks change all the
// time.
//
// Every seed draws a mixture of faults, the options, and the size of the cluster,
// unless [Settings] fix them. One seed in 150 has a fleet of 60 to 200 workers, half of them
// with few slots for calls.
//
// In one run of seven a new leader knows no worker: they register one after the other, within its
// initial wait (orchestrator.WithInitialWait).
//
// Almost half of all runs have lasting faults, which end after all others. At most
// five workers, and at most a third, refuse all starts, hang in them or list slowly.
// Or some tasks cannot be started or stopped. Or no worker starts anything.
//
// # What is checked
//
// The simulator knows what really happened: which worker ran which task and when, what
// leaders sent and heard, and how long their terms took. It compares this with what users are
// promised, whatever rules the leader has applied. Each [Invariant] is a promise; its
// documentation names the clauses of DESIGN.md.
//
//   - A worker applies no write of an earlier term or of a deposed leader, and starts nothing
//     by itself.
//   - No task runs more often than wanted, unless there is a [Cause]. What a crashed worker ran
//     counts as running as long as the worker may come back with its tasks.
//   - A wanted copy is stopped only as surplus, while enough answering copies remain, or for a
//     move. The second half of a move follows the acknowledged first, and a task that was
//     stopped and certainly not started is given back.
//   - Nothing starts in the initial wait of a leader, but for moves.
//   - Nothing is written to a worker that has not answered in the term. No worker is lost
//     within its grace period, while leases hold it, or during a mass loss.
//   - A term takes at most five timeouts, its listing one, and few slow workers delay it little.
//   - Each start keeps the rules of placement as its leader knew them, counting the copies that
//     the leader knew.
//   - Plan takes no time, calls no worker and changes nothing. If all workers then answer
//     as they did in the last term, the next term does what Plan returned. A dry run writes
//     nothing, and its calls carry no term.
//
// The only causes for a task to run too often with [Leases] are:
//
//   - The task's move starts it first, as long as the task still runs on its old worker.
//   - A copy has moved while more copies than wanted ran.
//   - A worker has returned a false List.
//   - A deposed leader did not know that it was deposed.
//
// A deposed leader continues until it learns that it is deposed. Workers that know
// its successor refuse its writes. But suppose that the successor empties a worker
// and the worker leaves. The first leader sees only that the worker has left, and
// starts its tasks again on a worker that does not know the successor. No knowledge
// of the workers prevents this. A coordinator prevents it if it ends the first
// leader's time before the second's begins, or refuses the first leader's writes, as
// with package replica.
//
// # Rules of placement
//
// Four runs in ten have rules: some workers have zones, labels, shares and limits, and some
// tasks require labels or limit their copies in a zone. Workers register again with other
// settings, or most of them without labels.
//
// # While faults last
//
// After enough terms, all faults but the lasting ones end. If there are lasting
// faults, the run adds tasks, drains a healthy worker and adds a worker. Then it
// runs terms a tenth of a timeout apart. What is left to do for healthy tasks and workers is
// what package rebalance would plan for what really runs:
//
//   - No healthy task that has a place is missing for more than 30 terms, or 60 if all
//     starts hang on two workers or more.
//   - Within 60 terms, and as many more as a budget of moves requires, no healthy task is to
//     leave a draining worker, and none is to move for an even spread. Every 20 of these terms
//     are followed by a minute's pause, because moves for an even spread may wait so long.
//   - In the 30 terms after that, few terms are long and few healthy tasks move. These terms begin
//     once each copy of a surplus task that cannot be stopped has had its turn.
//   - If no start succeeds anywhere, hardly any task stops.
//
// # After the faults
//
// Then the lasting faults end too. The simulator waits until the calls, stops and leases that
// they affected have ended, and until workers that have ended are lost. From then on, four terms
// that change something must suffice; eight more among rules, two more for each pause, and as
// many as a budget of moves requires. If something is left to do that a term does not do, the
// next term follows a minute later. At most 26 such terms may be needed while something pauses,
// and seven otherwise, because evictions may be held for five minutes. In the end all wanted
// tasks run, the loads of open workers differ by one at most, package rebalance would change
// nothing within the budget of moves, the next term changes nothing, and LastActual says what
// really runs.
//
// # What is not checked
//
//   - What the leader decides as long as the promises hold: the reasons that plans give, what
//     errors and LastPlan report, which task is tried when after a failure, how moves are
//     spread over terms. The tests of the clauses in package test, and of internal/term and
//     internal/handover, check these.
//   - When Run begins its terms, what the end of a leader's context stops, and how soon a
//     worker is lost (T4, T6, T14). How long an eviction is held (P11). Whether goroutines
//     remain after a term.
//   - That a plan needs the fewest starts, and among rules that the spread is even: package
//     rebalance proves that. Plan with a hypothesis, or among rules.
//   - Among rules, some moves for an even spread after the end: the planner may find them if the
//     same tasks come in another order.
//   - Weights of tasks (P17 to P20), and pinned jobs (C8).
//   - While faults last: drains, if tasks cannot be stopped and others hang; and in runs with
//     rules, workers with a limit, and the spread.
//   - Liveness if most workers are faulty or fewer than two are healthy, if calls hang and
//     pauses are shorter than four timeouts or there are fewer than five slots, or if the grace
//     period is shorter than two timeouts and lists are slow.
//   - A change that reaches a leader only after its last term.
//
// # Test your own Communicator
//
// Settings.Wrap inserts a layer between the leader and the simulated network. The
// layer may be a whole transport: the leader calls its client, and its server's
// handlers call the Communicator passed to Wrap as they would call a worker.Worker.
// Connect the two by net.Pipe, which works in a bubble; real sockets do not. The
// layer must pass on what any transport must: the names, the term
// (orchestrator.TermFromContext, restored on the other side by
// orchestrator.ContextWithTerm), the end of the call's context, and the meaning of
// errors. Faults happen behind the layer. A run is repeatable if the layer is
// deterministic.
//
// A layer must not hold a mutex during a call. Time in a bubble advances only while
// every goroutine waits for a channel, a timer or the like, and a mutex does not
// count. The run would hang until the test's own timeout; in production it would
// violate C1.
//
// The Communicator passed to Wrap binds each call to the worker's incarnation, so
// the layer need not. Two defects of a layer are therefore not found: a write that
// reaches a new process that knows no term, and a lost meaning of errors (C6) that
// does not make the leader act wrongly. Use communicatortest.Run to check the whole
// contract.
//
// An error describes the broken invariant in one line. To see what led to it, repeat
// the run with Settings.Transcript:
//
//	if err != nil {
//		var story bytes.Buffer
//		settings.Transcript = &story
//		_, _ = simulator.Run(t, seed, settings)
//		t.Fatalf("%v\n%s", err, &story)
//	}
package simulator

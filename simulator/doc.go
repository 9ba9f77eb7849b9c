// Package simulator runs a leader and its workers against faults, and checks the
// orchestrator's promises after every step.
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
// unless [Settings] fix them. One seed in 150 has a fleet of 60 to 200 workers. Half
// of these fleets are slow as a whole, with few slots for calls.
//
// Almost half of all runs have lasting faults, which end after all others. At most
// five workers, and at most a third, refuse all starts, hang in them or list slowly.
// Or some tasks cannot be started or stopped. Or no worker starts anything.
//
// # What is checked
//
// Each [Invariant] is a promise; its documentation names the clauses of DESIGN.md.
// After each term, the simulator compares the
// leader's calls with a model of what the leader may believe. The model does not
// depend on the orchestrator's code. In the model, an answer to a write counts if
// its term waits for it. If the answer comes later, the outcome of the write is
// unknown until the worker's next answer to List. What workers accept and what runs
// is checked at the moment it happens.
//
// If a task runs more often than wanted, there must be a [Cause], which [Report]
// counts. With [Leases] the only causes are:
//
//   - The task's move starts it first. Such a move accounts for one copy, as long as
//     the task still runs on its old worker.
//   - More copies than wanted ran before, because the number wanted was reduced.
//   - A worker has returned a false List.
//   - A deposed leader did not know that it was deposed.
//
// A deposed leader continues until it learns that it is deposed. Workers that know
// its successor refuse its writes. But suppose that the successor empties a worker
// and the worker leaves. The first leader sees only that the worker has left, and
// starts its tasks again on a worker that does not know the successor. No knowledge
// of the workers prevents this. A coordinator prevents it if it ends the first
// leader's time before the second's begins, or refuses the first leader's writes, as
// with package etcd.
//
// Failures of starts (T9) are checked by their results:
//
//   - A start that the plan pauses is not tried.
//   - A worker is quarantined only if it failed to start two tasks that run
//     elsewhere or have started there since, or one if it runs nothing. It may then
//     gain one task.
//   - After a move that left its task stopped, no healthy task moves in the next
//     term, and then one at a time until some start succeeds.
//
// Some leaders that do not use Run call Plan, with and without a hypothesis. Plan
// must take no time, call no worker and change nothing. If all workers then answer
// as they did in the last term, the next term must do what Plan returned. Some
// leaders first run a term with WithDryRun. It must write nothing and its calls must
// carry no term.
//
// # Rules of placement
//
// Four runs in ten have rules: some workers have zones, labels, shares and limits, and some
// tasks require labels or limit their copies in a zone. Workers register again with other
// settings, or most of them without labels. Each start is compared with the rules as the
// leader knows them (P10), counting what silent workers may run and what has not stopped. A
// move inside a zone is allowed even if the zone has too many copies. The simulator checks
// that labels that would evict too much evict nothing for five minutes, that each copy that
// should leave moves or is named (P11), and that the causes of what has no place add up
// (P12). At the end of a run, as many instances must run as open workers could run together.
//
// # While faults last
//
// After enough terms, all faults but the lasting ones end. If there are lasting
// faults, the run adds tasks, drains a healthy worker and adds a worker. Then it
// runs terms a tenth of a timeout apart and checks:
//
//   - No healthy task is missing for more than 30 terms.
//   - Within 60 terms, and as many more as a budget of moves requires, drained
//     workers run only tasks that cannot be stopped or started, and no move of a
//     healthy task would make the healthy workers more even.
//   - In the 30 terms after that, few terms are long and few healthy tasks move.
//   - If no start succeeds anywhere, hardly any task stops.
//
// For a slow fleet, these numbers are multiplied by the number of terms that it
// takes to list all its workers.
//
// # After the faults
//
// Then the lasting faults end too. The simulator waits until the grace periods, mass
// losses, leases, pauses and late calls that they caused have ended. Within four
// terms from then on, every wanted task must run, evenly, and draining workers must
// run nothing that others can take. The next term must change nothing. A budget of
// moves allows as many more terms as it requires.
//
// # What is not checked
//
//   - Plan called from another goroutine during Run: leaders that use Run do not
//     call Plan.
//   - That a plan needs the fewest starts: package rebalance proves that.
//   - Weights of tasks (P17 to P20), and the spread over zones if a task does not limit it
//     (P13): at the end the planner judges it, whose next plan must be empty.
//   - In runs with rules: that tasks make room for a suspect; that while faults last the
//     spread is even, that few terms are long, or that a worker with a limit gets its tasks
//     in time.
//   - Pinned jobs (C8): no worker of a run pins anything.
//   - The order in which failed tasks are tried again, and when failures are
//     forgotten: both depend on the implementation. Pauses are checked to grow and
//     to end.
//   - That a term does all that it may: a term that begins fewer moves than it could
//     is found only if the cluster never converges.
//   - Liveness if most workers are faulty or fewer than two are healthy, if a worker
//     does not answer as long as the faults last, if calls hang and there are fewer
//     than five slots, or if the grace period is shorter than two timeouts and lists
//     are slow.
//   - What a leader records in the term in which it is deposed.
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

// Package rebalance plans which worker runs which task: completely, evenly, and
// with the fewest starts. It is a pure function from a [Problem] in dense integers
// to a [Plan]: no I/O, no clock, no names, no randomness. Equal problems have equal
// plans.
//
// # Guarantees
//
// A worker is open, quarantined (it keeps what it runs and gains nothing), draining (all copies leave it)
// or frozen (no call reaches it: its copies count, and neither stop nor move). See [State].
//
//   - P1: A task gets at most as many copies as it wants, each on a worker of its own. [Plan.Unplaced]
//     lists the copies without a worker.
//   - P2: Loads of open workers differ by one at most. Where rules, pinned copies or forbidden pairs
//     prevent that, they are as even as these allow. With [Problem.Share] the sum of load²/share is
//     least (P16).
//   - P3: No plan that is as complete and as even has fewer starts. This does not hold with unequal
//     weights or [Problem.MaxMoves].
//   - P4: Let n copies of a task be wanted, and m run on workers that are not frozen. Stops leave
//     min(n, m) of the m.
//   - P5: Equal problems have equal plans, to the last tie-break.
//   - P6: Carry out a plan and plan again: the first or the second new plan is empty. With a limit
//     on moves, repeated calls converge, and no move makes the spread worse.
//   - P7: Each change and each copy without a place names the rule or the state that causes it.
//   - P8: No plan as complete and as even has fewer starts than [Plan.LowerBound].
//   - P9: Plans are compared by these figures, in this order: the first copies of tasks that run, the
//     further copies that run, the copies that leave draining workers, the copies that leave workers
//     where a rule forbids them, evenness, starts. A later figure never worsens an earlier one.
//   - P10: No start or move breaks a rule: labels, zones, limits, forbidden pairs, or one
//     copy of a task on each worker. Copies on frozen workers count for every rule.
//   - P11: A running copy that breaks a rule leaves like one on a draining worker. If no other worker can
//     take it, it stays, and [Plan.Unplaced] lists it.
//   - P13: By default copies of a task spread over the zones, as evenly as the workers of
//     the zones allow. That is a rule, so it comes before evenness, but it leaves no copy without a place.
//   - P14, P15: P2 and P3 hold with labels, zones and several copies too. Two cases are exempt: copies
//     that must leave and find no place, and limits beside many other rules.
//     TestP15_HistoriesAreExact counts them.
//   - P17 to P19: With unequal weights each worker has a level, and a band about it. Moves and swaps of
//     single copies bring a worker that is outside to within half of the band, where they can.
//   - P21: A rule that forbids nothing does not change the plan.
//   - P24: A pinned copy counts and does not move. It stops only if its task is
//     unexpected, or if too many copies remain when all others have stopped.
//
// # The model
//
// The problem is a flow: from a source to the tasks, from each task to the workers, from each worker to a sink.
// A task sends as many units as it wants copies. A unit on a worker that runs the task costs nothing, and any
// other one costs a start. The k-th unit of a worker costs (2k-1)/share. One step of this cost outweighs all
// starts. So of the flows that place the most copies the cheapest is the most even one, and among these it has
// the fewest starts. Rules only take arcs away. A cap on the copies in a zone is one more node between task and
// workers, so zones need no step of their own.
//
// The graph has an arc for each task and worker, and is never built. A shortest path passes each task once, so
// it is stored as a list of workers, each of which hands a copy to the next one. A copy that has moved already
// moves on for nothing. A copy that returns to the worker that runs it saves a start. Any other copy costs one.
//
// A flow is cheapest if and only if no cycle has a negative cost (Klein, A Primal Method for Minimal Cost
// Flows, Management Science 14, 1967). Improve looks for one. If it finds none, LowerBound is Adds. Improve
// bounds its work. If it gives up, LowerBound is what the missing copies and the loads show. With unequal weights
// it is what is missing or must leave.
//
// # The steps
//
// The state (state.go) says which running copies are gone, and which copies are on workers that do not run
// them. Steps take copies and put them. A copy that is put back where it runs is not gone any more. The gate
// (gate.go) knows every rule but room: it says whether a worker may have a copy. Tasks of equal labels are a
// class, and workers of equal labels and zone are a hub (by weight, of equal share too): labels and zones
// treat all workers of a hub alike. Planner.solve (planner.go) runs the steps:
//
//	step              reads               writes
//	1 bind, scan      the problem         classes, hubs; unexpected and repeated copies are gone; loads, counts
//	2 keep            counts, loads       targets, surplus copies are gone, the items: copies that need a place
//	(no item, and the loads are even: go on with 6)
//	  exchange        surplus copies      other surplus copies are gone instead
//	3 place           the items           missing copies are put
//	4 move, again while it places more:
//	  limits          loads above limits  copies move
//	  place           the items           copies that must leave move, or stay: pinned and leaving
//	  even            loads               copies move
//	  place           the items           missing copies that have room now, and those beyond default caps
//	5 improve         what moved          copies move elsewhere or back, along cycles that save starts
//	  take up         the items           copies that stay move, if 4 or 5 made room; then 5 again
//	6 diff, unplaced  the state           the plan: changes, moves, reasons, what has no place, LowerBound
//
// Keep (keep.go) sorts the items by tier, in the order of P9. Place and move take them in this order.
//
// Place (place.go) gives each item to the least loaded worker that the gate admits and that has room. If no
// worker has room, it looks for a path: a worker takes the copy and hands another one on, worker after worker,
// to one that has room (search.go). Deal (deal.go) is a shortcut for many missing copies at once.
//
// Even (even.go) moves copies from the most to the least loaded workers directly, and then along shortest
// paths, until no path makes the loads more even. The direct moves are a shortcut.
//
// Improve (improve.go) has a search of its own, for cycles. It is skipped if no worker has both gained and lost
// copies, and each that has lost some has at least the load of each that has gained some.
//
// Plan solves a problem without a limit first. With [Problem.Still] it solves it again without evening. If more
// copies move than [Problem.MaxMoves] allows, it solves it once more and counts the moves. A chain of moves that
// helps only as a whole may exceed the limit if it is the first of the plan: otherwise it would never be made.
// [Problem.Trial] allows one move and no chain.
//
// A hash of worker and load orders equal workers (ranks.go). So the tasks that two workers have in common are
// few, and the loss of a worker or a zone is spread over all others. What must leave goes to the newest of
// equal workers: see placeLeaving.
//
// # Weights
//
// With unequal weights the problem is bin packing, and exactness ends. The level of a worker (levels.go) is what it
// would run if tasks were divisible. A task heavier than that gets a worker of its own. What is missing goes, the
// heaviest first, to the worker with the least weight after it. Settle (settle.go) takes the place of even:
// each worker outside of its band gives, takes or swaps a copy. Each time the sum of the squared distances from half
// of the band falls, so this ends. There is no improve. As long as all are in band, nothing moves.
package rebalance

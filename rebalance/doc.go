// Package rebalance plans which worker runs which task: completely, evenly, and
// with the fewest starts. It is a pure function from a [Problem] in dense integers
// to a [Plan]: no I/O, no clock, no names, no randomness. Equal problems have equal
// plans.
//
// # Guarantees
//
// A worker has one of four states, see [State]. An open worker may gain, keep and lose copies. A quarantined
// worker may keep and lose them. A draining worker loses each copy that is not pinned and has another place.
// A frozen worker keeps its copies: no call reaches it. A copy on a frozen worker counts as one that is wanted,
// but no other copy stops because of it (P4).
//
//   - P1: Each copy of a task is on a worker of its own. No copy starts of a task that has as many as it wants.
//     [Plan.Unplaced] lists the wanted copies without a worker.
//   - P2: Loads of open workers differ by one at most. Where rules, pinned copies, forbidden pairs or
//     quarantined workers prevent that, loads are as even as these allow. With [Problem.Share] the sum of
//     load²/share is least (P16). P2 does not hold with unequal weights (see P17), MaxMoves, Still or Trial.
//   - P3: If [Plan.LowerBound] is [Plan.Adds], no plan that is as complete and as even has fewer starts.
//   - P4: Let n copies of a task be wanted, and m run on workers that are not frozen. Stops leave
//     min(n, m) of the m.
//   - P5: Equal problems have equal plans, to the last tie-break.
//   - P6: After a plan is carried out, the next plan or the one after it is empty. With a limit on moves,
//     repeated calls converge, and no move makes the spread worse.
//   - P7: Each change has a [Reason], and each copy without a place has an [UnplacedReason].
//   - P8: No plan as complete and as even has fewer starts than [Plan.LowerBound].
//   - P9: Plans are compared by these figures, in this order: the first copies of tasks that run, the
//     further copies that run, the copies that leave draining workers, the copies that leave workers
//     where a rule forbids them, evenness, starts. A later figure does not worsen an earlier one, with one
//     exception: copies above MaxTasks leave before copies on draining workers.
//   - P10: No start or move breaks a rule: labels, MaxPerZone, MaxTasks, forbidden pairs, or one
//     copy of a task on each worker. Copies on frozen workers count for every rule.
//   - P11: A running copy leaves its worker if labels or a zone forbid it there, or if the worker has more than
//     MaxTasks. If no other worker can take it, it stays. [Plan.Unplaced] lists copies that stay against
//     labels or MaxPerZone. It lists no pinned copy of an open worker and no copy above MaxTasks. A forbidden
//     pair does not evict a copy that runs.
//   - P13: By default a zone runs at most ⌈want/zones⌉ copies of a task, or more if smaller zones lack workers.
//     Zones far below the mean size do not count. This cap comes before evenness, but leaves no copy without
//     a place.
//   - P14, P15: P2 and P3 hold with labels, zones and several copies too. Two cases are exempt: copies
//     that must leave and find no place, and limits beside many other rules.
//     TestP15_HistoriesAreExact counts them.
//   - P17 to P19: With unequal weights each worker has a level, and a band about it. Moves and swaps of
//     single copies bring a worker that is outside to within half of the band, where they can.
//   - P21: A rule that forbids nothing leaves the figures of P9 as they are. It may choose another one of equal
//     workers.
//   - P24: A pinned copy counts and does not move. It stops only if its task is
//     unexpected, or if too many copies remain when all others have stopped.
//
// # The model
//
// The problem is a flow: from a source to the tasks, from each task to the workers, from each worker to a sink.
// A task sends as many units as it wants copies. A unit on a worker that runs the task costs nothing, and any
// other one costs a start. The k-th unit of a worker costs (2k-1)/share. One step of this cost outweighs all
// starts. Of the flows that place the most copies, the cheapest is the most even. Of equally even flows, it has
// the fewest starts. Labels and forbidden pairs remove arcs. MaxTasks and MaxPerZone are capacities: a zone is
// one more node between a task and its workers.
//
// The graph has an arc for each task and worker, and is never built. A path is a list of workers, each of which
// hands a copy to the next one. A hop costs one start if the copy runs and nothing if it is fresh. It costs one
// start less if the next worker ran the task before the plan.
//
// A flow is cheapest if and only if no cycle has a negative cost (Klein, A Primal Method for Minimal Cost
// Flows, Management Science 14, 1967). Improve looks for one, in a bounded number of steps.
//
// LowerBound is Adds if improve has searched everything and found none. Otherwise it is the larger of two
// figures: the starts that are no moves, and the sum over all workers of what each gains less what it loses less
// one. With unequal weights it is the starts that do not serve the spread. If moves are held or deferred,
// LowerBound counts without them.
//
// # The copies
//
// The state (state.go) has two kinds of copies. A copy that runs is named by its position in Problem.Running,
// and has flags. A copy on a worker that does not run its task is fresh, and is named by ^i. Steps only take
// copies and put them.
//
//	flags             the copy
//	none              runs, and may move
//	pinned            runs, and does not move: pinned by the problem, or on a frozen worker
//	leaving           runs, and needs another place
//	pinned, leaving   must leave, has no other place and stays; take up tries again
//	gone              has left its worker, or is unexpected; a put on that worker brings it back
//	gone, leaving     the same, and is leaving again after that put
//	gone, repeated    is the second entry for one copy, and no copy
//	gone, paired      is the beginning of a move; set by diff
//
// The load of a worker counts its copies. Evenness counts what remains without the leaving ones.
//
// The gate (gate.go) knows every rule but room. It says whether a worker may have a copy. Tasks of equal labels
// are a class, and workers of equal labels a kind. Workers of equal kind and zone are a hub (by weight, of equal
// share too). Labels and zones treat all workers of a hub alike.
//
// # The steps
//
// Plan solves a problem at most three times, each time from the start:
//
//  1. without a limit;
//  2. with [Problem.Still], if the first plan moves copies: without even. Copies that made room for others return
//     home where that room is not needed. Held is how many moves fewer the plan has;
//  3. with [Problem.MaxMoves] or [Problem.Trial], if the plan moves more copies than allowed: each step stops at
//     the limit. Deferred is how many moves fewer the plan has, and at least one if a step stopped.
//
// If a plan with rules or weights changes nothing, Planner keeps it and a copy of the problem. It is the plan of the
// next problem too, if that is equal.
//
// A chain of moves that helps only as a whole may exceed the limit if it is the first of the plan: otherwise it
// would never be made. [Problem.Trial] allows one move and no chain.
//
// Planner.solve (planner.go) runs the steps:
//
//	step              reads               writes
//	1 bind, scan      the problem         hubs, caps; unexpected and repeated copies are gone; loads, counts
//	2 keep            counts, loads       targets, surplus copies are gone; pinned and leaving; the items: copies
//	                                      that need a place
//	(if there is no item and no surplus copy, and the loads are even: go on with 6)
//	  exchange        surplus copies      other surplus copies are gone instead
//	3 place           the items           missing copies are put
//	4 move, again while it places more:
//	  limits          loads above limits  copies move
//	  place           the items           leaving copies move, or stay
//	  even            loads               copies move
//	  place           the items           missing copies that have room now, at last beyond default caps
//	5 improve         what moved          copies move elsewhere or back, along cycles that save starts
//	  return home     what moved          with Still: copies that made room which is not needed move back
//	  take up         the items           copies that stay move, if 4 or 5 made room; then even and 5 again
//	6 diff, unplaced  the state           the plan: changes, moves, reasons, what has no place, LowerBound
//
// Keep (keep.go) sorts the items by tier, in the order of P9. In a tier the heaviest task comes first, or the
// class with the fewest workers. Place and move take them in this order.
//
// Place (place.go) gives each item to the least loaded worker that the gate admits and that has room. If there is
// none, it looks for a path: a worker takes the copy and hands another one on, worker after worker,
// to one that has room (search.go). Deal (deal.go) is a shortcut for many missing copies at once.
//
// Even (even.go) moves copies from the most to the least loaded workers directly, and then along shortest
// paths, until no path makes the loads more even. The direct moves are a shortcut.
//
// Improve (improve.go) has a search of its own, for cycles. It is skipped if no cycle can save a start: no copy
// was surplus or had to leave, no worker has both gained and lost copies, and each worker that has lost some has
// at least the load of each worker that has gained some.
//
// A hash of worker and load orders equal workers (ranks.go). Two workers then have few tasks in common, and the
// tasks of a lost worker spread over all others. A copy that must leave goes to the newest of equal workers: see
// placeLeaving.
//
// # Weights
//
// With unequal weights an even spread is NP-hard, so plans are good and not exact. The level of a worker
// (levels.go) is what it would run if tasks were divisible. A copy heavier than every level that it could have a
// part in gets a worker of its own. Missing copies are placed heaviest first, each on the worker whose weight by
// share is the least with it. Settle (settle.go) takes the place of even. A worker outside of its band gives,
// takes or swaps a copy. Each such step lowers the sum of the squared distances from half of the band, so this
// ends. There is no exchange, no deal and no improve. If all workers are in band and no limit is exceeded, nothing
// moves for the spread.
package rebalance

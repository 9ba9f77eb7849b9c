// Package rebalance plans which worker runs which task: completely, evenly, and
// with the fewest starts. It is a pure function from a [Problem] in dense integers
// to a [Plan]: no I/O, no clock, no names, no randomness. Equal problems have equal
// plans.
//
// # Guarantees
//
//   - P1: A task gets as many copies as it wants, each on a different worker. Copies
//     without a place are in [Plan.Unplaced].
//   - P2: Loads of open workers differ by one at most, or are as even as rules, pinned copies
//     and forbidden pairs allow. With shares the sum of load²/share is least (P16).
//   - P3: No plan that is as complete and as even has fewer starts. Weights and [Problem.MaxMoves]
//     are the exceptions.
//   - P4: If n copies of a task are wanted, and m run on workers that are not frozen,
//     stops leave min(n, m) of these.
//   - P5: Equal problems have equal plans, to the last tie-break.
//   - P6: A plan for the result of a plan is empty, at the latest the second time. With a limit
//     on moves, repeated calls converge, and no move makes the spread worse.
//   - P7: Each change has its true reason, and so has each copy without a place.
//   - P8: [Plan.LowerBound] is at most the fewest starts possible.
//   - P9: Plans are compared by the copies placed, first copies before further ones; by
//     those moved off draining workers, and off workers where a rule forbids them; by
//     evenness; by starts. Nothing lower costs anything higher.
//   - P10: No start or move breaks a rule: labels, zones, limits, forbidden pairs, or one
//     copy of a task on each worker. Copies on frozen workers count for every rule.
//   - P11: A running copy that breaks a rule moves as off a draining worker. It stays,
//     and is listed, if it has no other place.
//   - P13: By default copies of a task spread over the zones, as evenly as the workers of
//     the zones allow. That never leaves a copy without a place. Zones outrank evenness.
//   - P14, P15: With labels, zones and several copies plans are as exact as without. The
//     exceptions are copies that must leave their worker and find no place, and limits beside
//     many other rules: TestP15_HistoriesAreExact counts them.
//   - P17 to P19: With unequal weights a worker out of its band is brought to half of it, as far
//     as moves and swaps of single copies can.
//   - P21: Rules that forbid nothing leave the plan as it is without them.
//   - P24: A pinned copy counts and does not move. It stops only if its task is
//     unexpected, or if too many copies remain when all others have stopped.
//
// # The model
//
// Think of a flow: from a source to the tasks, from each task to the workers, from each worker
// to a sink. A task sends as many units as it wants copies. A unit on a worker that runs the task
// costs nothing, any other one costs a start. What a worker passes on costs 1, 3, 5 … by its share, far
// more than a start: so the cheapest flow of most units is the most even one, and among these it has the
// fewest starts. Rules only take arcs away. A cap on the copies in a zone is one more node between task
// and workers, so zones need no step of their own.
//
// The graph has an edge for each task and worker. It is never built. A shortest path in it passes a
// task once, so it is a walk over workers: each hands a copy to the next one. A copy that has
// moved already goes elsewhere for nothing, one that returns to where it runs saves a start,
// and any other one costs a start.
//
// A flow is of least cost if and only if no cycle of the walk costs less than nothing (Klein, A Primal
// Method for Minimal Cost Flows, Management Science 14, 1967). So the plan ends with its own proof, and
// then LowerBound is Adds.
//
// # The steps
//
// The state says which copies that run are gone, and which fresh ones there are. Each step only
// takes copies and puts them: a copy put back where it runs is not gone any more. One gate
// knows every rule, and one search finds every path.
//
//		Problem → bind → scan → keep → place → move → improve → diff → Plan
//		          rules  what   what   what    off    cycles    changes,
//		                 runs   must   is      drains that      reasons
//		                        leave  missing, even  save
//
//	 1. Bind (gate.go): tasks of equal labels are a class, workers of equal labels and zone a hub. A
//	    rule admits a class to all workers of a hub or to none.
//	 2. Scan (scan.go): one pass over what runs. If nothing is missing, surplus or leaving, and the
//	    loads are even, the plan is empty.
//	 3. Keep (keep.go): which surplus copies stop, which copies must leave their worker.
//	 4. Place (place.go, deal.go): each missing copy goes to the worker with the least that can
//	    have it. Many copies are dealt at once. One that no worker can simply take looks for a path:
//	    some worker takes it and hands another copy on, and so forth (search.go).
//	 5. Move (even.go): what must leave is placed likewise. Then the workers with the most give to
//	    those with the least, directly as long as that helps, then along shortest paths, until there is none.
//	 6. Improve (improve.go): cycles that save a start. Most plans need no look: if no worker has
//	    both gained and lost copies, and none that has lost some has less than one that has gained, there is no
//	    such cycle.
//	 7. Diff (diff.go): the state beside what runs gives changes, moves and reasons.
//
// Equal workers have their turn by a number that looks random and changes with the load. So families of
// tasks spread, and so do the tasks that two workers have in common: the loss of a worker or a zone is
// spread over all others. What must leave goes to the newest of equal workers: see placeLeaving.
//
// # Weights
//
// With unequal weights the problem is bin packing, and exactness ends. The levels (levels.go) are
// the best loads of tasks that can be divided. A task heavier than its level gets a worker of its own.
// What is missing goes, the heaviest first, where it adds least. Then each worker that is out of its band gives,
// takes or swaps a copy (settle.go). Each time the sum of the squares of what is out of half of
// the band falls, so that ends. As long as all are in band, nothing moves.
//
// # Limited moves
//
// With [Problem.MaxMoves] the same steps count their moves. A chain of moves that helps only as a whole
// is made whole if it is the first of its plan: otherwise it would never be made. So MaxMoves is a
// brake, and not a quota. [Problem.Still] leaves the evening out, and [Problem.Trial] lets one copy move.
package rebalance

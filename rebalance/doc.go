// Package rebalance plans which worker runs which task: completely, evenly, and
// with the fewest starts. It is a pure function from a [Problem] in dense integers
// to a [Plan]: no I/O, no clock, no names, no randomness. Equal problems have equal
// plans.
//
// # Guarantees
//
//   - P1: A task gets as many copies as it wants, each on a different worker. Copies
//     without a place are in [Plan.Unplaced].
//   - P2: Loads of open workers differ by one at most. With pinned copies and forbidden
//     pairs they are as even as these allow.
//   - P3: No plan with P1 and P2 has fewer starts. "Other workers" below has the
//     exceptions.
//   - P4: If n copies of a task are wanted, and m run on workers that are not frozen,
//     stops leave min(n, m) of these.
//   - P5: Equal problems have equal plans, to the last tie-break.
//   - P6: A plan for the result of a plan is empty. With a limit on moves, repeated
//     calls converge, and no move between open workers makes the spread worse.
//   - P7: Each change has its true reason, and so has each copy without a place.
//   - P8: [Plan.LowerBound] is at most the fewest starts possible, and exactly that
//     without constraints.
//   - P9: Plans are compared by the copies placed, first copies before later ones; by
//     those moved off draining workers, and off workers where a rule forbids them; by
//     evenness; by moves; and by numbers. Nothing lower costs anything higher.
//   - P10: No start or move breaks a rule: labels, zones, limits, forbidden pairs, or one
//     copy of a task on each worker. Copies on frozen workers count for every rule.
//   - P11: A running copy that breaks a rule moves as off a draining worker. It stays,
//     and is listed, if it has no other place.
//   - P13: By default copies of a task spread over the zones, as evenly as the workers of
//     the zones allow. That never leaves a copy without a place. Zones outrank evenness.
//   - P14: With labels, and each task wanted once, the sum of squared loads is least, and
//     no plan that reaches it has fewer starts. This is proven in each plan.
//   - P15: With zones the copies of each zone are as even as P14 says. Together they may
//     need a few more starts than the best plan for all zones: 0.2% more in 113,004
//     random problems, 4 of which were also less even than the best plan.
//   - P16: With shares, P2 and P14 are about the sum of load²/share.
//   - P21: Rules that forbid nothing leave the plan as it is without them.
//   - P24: A pinned copy counts and does not move. It stops only if its task is
//     unexpected, or if too many copies remain when all others have stopped.
//
// # The model
//
// Every task has a number of copies to place, each on a different worker. Think of
// it as a flow: from a source to the tasks, from each task to the workers, from
// each worker to a sink. A task takes as much as it has copies. A worker takes
// ⌊n/w⌋ of the n copies, and n mod w of the w workers take an extra one. A unit
// that goes to a worker that runs the task already costs nothing. Any other unit
// costs one start. A maximum flow is a complete and even assignment, and the
// cheapest one has the fewest starts.
//
// The graph has an edge for each task and worker. The planner never builds it, and
// uses the shape of the problem instead.
//
// # Why there is little to search for
//
// An even assignment always exists: deal all copies out in turn, task by task.
// Sending one unit after the other along a cheapest path finds a flow of least
// cost, and the paths never get cheaper on the way. Begin with as many units as
// cost nothing. Then
//
//	every cheapest path costs one start, or two.
//
// Proof: let task t lack a copy. If a worker with room does not run t, a start
// there costs one. Otherwise take a full worker v that does not run t, and a
// worker u with room, which runs t. v runs at least as many tasks as u, and u runs
// t while v does not; so v runs some task s that u does not. Start t at v and
// move s to u: two starts.
//
// So the number of starts is (n − M) + L. M is the number of copies that can stay,
// and L is the number of copies without a path of cost one. Only these two need a
// search, and each search ends with the proof that there is no more to find.
//
// # The steps
//
// With n copies on w workers, and c changes:
//
//  1. Scan: find what runs, what is missing, and what is surplus. O(n + tasks). If
//     nothing is missing or surplus and the loads are even, the plan is empty. If
//     no task wants more than one copy and no worker is restricted, one bit for
//     each task is enough.
//  2. Trim and relieve: surplus copies stop, first on workers with too many. Then
//     drops are exchanged along paths as long as more copies can stay. This is the
//     search for M, needed only if a task has surplus copies. O(n), and O(their
//     copies + w) for each round of the search. There are few rounds in practice,
//     and at most one more than copies that the search saves. A path through all
//     workers takes one.
//  3. Place: workers with room take missing copies of tasks that they do not run.
//     O(n + c). A copy that none of them can take is stuck. A search looks for its
//     path of cost one: through starts that can go elsewhere, drops that can be
//     exchanged, and extra units that another worker can do without. A round looks
//     at each task to start and each worker once, and costs w/64 for each: O((c +
//     w) · w/64), with the same bound on the number of rounds.
//  4. Hand off: workers with too many copies move some to workers with room that do not
//     run these tasks. By the argument above this never fails. O(n + c).
//  5. Exchange: a copy that is still stuck costs two. O(n) for each worker with
//     room at worst. If it runs less than most of what the others run, O(n + c).
//     Constraints can leave more stuck than any worker runs: then it is also O(w)
//     for each copy stuck.
//
// Missing copies are placed before workers hand copies off, because missing copies
// are constrained and the others are not.
//
// Greedy steps are exact without any search if no task has surplus copies and none
// is stuck, which is nearly always the case.
//
// # Other workers
//
// A draining worker is taken out. So is a frozen one, and its copies count as
// placed. Both leave the argument intact, and the plan exact. Copies on a draining
// worker that no open one can take stay there, and the plan lists them: a task
// does not stop before it has another place.
//
// The planner decides first what a quarantined worker keeps and gains. It keeps
// its share, as if it were open, and loses surplus copies first. Up to
// [Problem.MaxGain] it gains what brings it to its share: starts and moves that the
// plan needs anyway, and then copies of the fullest open worker. The rest of the
// plan is exact for that choice.
//
// A pinned copy stays where it is. A worker with more pinned copies than its share
// keeps them, and the others share the rest evenly.
//
// Forbidden pairs and pinned copies break the argument that a path costs two at
// most. If the steps leave something over, a breadth-first search places each copy
// where the load that grows is the least. It then evens the loads until no path
// leads from a worker to one that has two less. The result is complete, and as even
// as possible. What a search learns about workers that it cannot reach shortens
// later searches, so that few go through everything. Forbidden pairs can be made up
// so that each search does: see repair.
//
// With these constraints the number of starts may exceed the minimum. The test
// measures by how much, against a reference that solves the whole problem. Of
// 460,000 random problems of all kinds, the starts beyond the minimum were 0.2%
// with quarantined workers that gain nothing (4 at worst in one problem), 0.4% with
// those that gain (5), 0.02% with forbidden pairs (1), 0.02% with pinned copies (2),
// and 0.3% with several of these (6). Pinned copies alone leave the plan exact if no
// task wants more than one copy.
//
// # Rules
//
// Labels say which workers may run a task, zones how many copies of a task fail together,
// shares how the loads relate, and limits how many copies a worker may run. Where such a
// rule binds, not every worker may take what another hands over, and the proof above
// does not hold: paths cost any number of starts. So these problems have steps of their
// own. All their starts and moves pass one gate, which knows every rule.
//
//  1. Keep: a copy on a draining worker, or where its labels do not match, needs another
//     place. So does a missing copy. Surplus copies stop.
//  2. Zones: how many copies of each task does each zone run? Copies keep their zone as
//     far as the cap allows. The others go where the zone has the most room. Then copies
//     change zone along cheapest paths, until the zones are even. From here on each zone
//     is a problem of its own.
//  3. Counts: tasks of equal labels are a class, workers of equal labels a kind, and copies
//     of a class are interchangeable. The network first finds the most even loads, and
//     then a flow of least cost that reaches them: a copy that stays is free, any other
//     one costs a start. No cycle of negative cost is left, which proves that no plan
//     with these loads has fewer starts. Copies of an earlier tier of P9 come first.
//  4. Realize: workers hand over what they have beyond their counts, and take what they
//     lack. If each task is wanted once, that always works out. Several copies of a task
//     may meet on a worker, though, and forbidden pairs know no classes.
//  5. Search: what has no worker yet looks for a path from worker to worker, breadth
//     first, on which each one gains a copy and gives another one away. Then further paths
//     even the loads, until no path is left. Where a search has found nothing, later ones
//     need not look again.
//
// If all workers are open and zones do not bind, a quick look comes first: if every copy is
// where it may be, and the loads are even, that is all. Steps 1, 3 and 4 take a pass over the
// lists. Step 5 is needed only for what step 4 leaves over, and looks at a limited number of
// copies. In 6,000,000 random problems of up to 64 tasks it left no copy without a place that has
// one. In large problems that are hardly solvable it may, until a later plan.
//
// Copies that need a place because of a rule have it found like missing ones, but they
// stay where they are until then. With limited moves a start never takes the room of a
// move that waits: it takes another place, or waits as well.
//
// # Weights
//
// If weights differ, a worker is in band if its load is within [Problem.Band] of its
// level. The level is its load by share in the best placement of tasks that can be
// divided, apart from tasks that alone exceed it (P17). If all workers are in band, and
// nothing else must change, the plan is empty (P18). Otherwise missing copies go, the
// heaviest first, where they add least. Then moves and swaps lower the sum of squares of
// what is out of band, until none in reach does (P19). Placement by weight is no flow, so
// the result is not always the best one.
//
// Zones do not divide the workers then: only few tasks may have several copies, and all
// loads should be even. A zone with as many copies of a task as it may have takes no more of
// them, as a worker takes no second one.
//
// # Limited moves
//
// With [Problem.MaxMoves] the planner makes the whole plan and carries out a part.
// Every call leaves fewer moves, and no move between open workers makes the spread
// worse, so repeated calls converge.
package rebalance

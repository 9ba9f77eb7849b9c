// Package rebalance plans who runs what: whole, even, and with the fewest
// starts. It is a pure function from a [Problem] in dense integers to a [Plan]:
// no I/O, no clock, no names, no randomness. Equal problems have equal plans.
//
// # The model
//
// Every task has a number of copies to be placed, each on a worker of its own.
// Think of it as a flow: from a source to the tasks, from each task to the
// workers, from each worker to a sink. A task takes as much as it has copies; a
// worker takes ⌊n/w⌋ of the n copies, and n mod w of the w workers take an extra
// one. To send a copy where one runs already costs nothing, to send it anywhere
// else costs one start. A maximum flow is a whole and even assignment, and the
// cheapest has the fewest starts.
//
// The graph has an edge for each task and worker. It is never built: what
// follows from the shape of the problem takes its place.
//
// # Why so little has to be searched for
//
// An even assignment always exists: deal all copies out in turn, task by task.
// A flow of least cost is found by sending one unit after the other along a
// cheapest path, and the paths never get cheaper on the way. Begin with as many
// units as can be sent for nothing. Then
//
//	every cheapest path costs one start, or two.
//
// For let task t lack a copy. If a worker with room does not run t, to start it
// there costs one. Otherwise take a full worker v that does not run t, and a
// worker u with room, which does. v runs at least as many tasks as u, and u runs
// t while v does not; so v runs some task s that u does not. Start t at v and
// hand s over to u: two starts.
//
// So the number of starts is (n − M) + L, where M is how many copies can stay,
// and L is how many have no path of cost one. Only these two have to be searched
// for, and each search ends with the proof that there is no more to find.
//
// # The steps
//
// With n copies on w workers, and c changes:
//
//  1. Scan: what there is, what is missing, what is too much. O(n + tasks). If
//     nothing is, and the loads are even, that is all. Where no task is wanted
//     more than once and no worker is restricted, a bit for each task tells.
//  2. Trim and relieve: of tasks with too many copies some go, those on workers
//     with too many first; then drops are exchanged along paths as long as that
//     lets more copies stay. This is the search for M, needed only where a task
//     has too many. O(n), and O(their copies + w) a round of the search; there
//     are few rounds in practice, and at most one more than copies that it saves.
//     A path through all workers takes one.
//  3. Place: workers with room take what is missing and they do not run. O(n +
//     c). What none of them can take is stuck, and gets the search for paths of
//     cost one: through starts that can go elsewhere, drops that can be
//     exchanged, and extra units that another worker can do without. A round
//     looks at each task to be started and each worker once, and costs w/64 for
//     each: O((c + w) · w/64), with the same bound on the number of rounds.
//  4. Shed: workers with too many hand over to workers with room what those do
//     not run. It never fails, by the argument above. O(n + c).
//  5. Exchange: what is still stuck costs two. O(n) for each worker with room at
//     worst; where what that runs is not most of what the others do, O(n + c).
//     Closed workers and forbidden pairs can leave more stuck than any worker
//     runs: then it is also O(w) for each copy stuck.
//
// What is missing is placed before anything is shed, because it is constrained
// and what is shed is not.
//
// Greed is exact without any search where no task has too many copies and none
// is stuck: which is to say, nearly always.
//
// # Other workers
//
// A draining worker is taken out, a frozen one too, its copies counting as
// placed: both leave the argument intact, and the plan exact. Copies on a
// draining worker that no open one can take stay there, and are listed: a task
// is not stopped before it has somewhere to go.
//
// A closed worker may keep or lose, not gain. What it keeps is decided first:
// as many as it would have if it were open, and first to go are copies of tasks
// with too many. The rest of the plan is exact for that choice. Forbidden pairs
// and [Problem.Bounds] break the argument that a path costs two at most; where
// the steps leave something over, a breadth-first search places it where the
// load that grows is the least, and evens the loads until no path leads from a
// worker to one that has two less. That is whole, and as even as can be; what
// searches learn about who cannot be reached spares the later ones the way, so
// that few go through everything, though for made-up forbidden pairs each may: see
// repair. The number of starts need not be the least. The test measures how far off it is,
// against a reference that solves the whole problem: of a million random
// problems of all kinds, 0.2% of the starts were too many with closed workers (7 at
// worst in one problem), 0.03% with forbidden pairs (4), 0.5% with bounds (35), and
// 1% with several of these (63).
//
// # Limited moves
//
// With [Problem.MaxMoves] the whole plan is made, and part of it carried out.
// Every call leaves fewer moves to be made, and none makes the spread worse, so
// repeated calls converge. With Bounds they need not.
package rebalance

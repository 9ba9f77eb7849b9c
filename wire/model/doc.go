// Package model explores every interleaving of the rules by which equal processes share
// tasks through a table.
//
// A search starts with an empty table and tries each step that a member, a leader or the
// table could take next, breadth first, until no new state is found. It fails if more
// members run a task than are wanted, if a token does not rise, or if a state is reached
// from which something never comes to run although no more faults occur. The bounds are
// small: two or three members, one or two tasks, two or three elections, at most three
// orders of a leader, at most one loss of the table. Within its bounds a search is
// complete, but for states whose 64-bit hashes are equal: for a million states the
// probability is 1 in 30 million.
//
// Nothing outside of the tests uses the package. `go test` runs the smallest searches,
// -model.all those of CI, -model.large all of them, and -model.print prints every
// counterexample.
//
// # What is modelled
//
// Two kinds of stores: A, which writes a batch in one guarded step (O4), and B, which
// writes each order record by compare-and-swap (O5). Members join, send Syncs with and
// without a report, read their orders, start, stop and refuse tasks, leave or lose their
// lease, and rejoin under another ID. Leaders claim the table, send a first batch (O6)
// and then any orders that O3 allows, whether or not a planner would send them. What is
// sent takes effect later, or never. Depending on the configuration a Sync stays under
// way for any time, arrives after it was given up, or loses its answer; an answer of a
// reading is acted on late; an order arrives twice; a member dies by observation while it
// lives; the table falls back to an earlier state, or loses its own record and any of the
// others.
//
// No clock is modelled. A member whose death is observed has stopped all its tasks,
// because self-fencing stops them earlier; without heartbeats in the model, a member that
// is removed had ended before. At Confirm a longest lease has passed since the table
// lost data: each member that still lives has published in this Server.
//
// An order record has one version for all tasks of its member, so an order for one task
// gives the others a new version, too. A leader sends orders for one member at a time,
// except in its first batch.
//
// # What is not modelled
//
// Members that neither the View nor Gone names (B6), silent members (A10), heartbeats
// that are withheld (A11), deletion of orders and of single records by hand (O7 to O9),
// OrderCount, content and restarts of tasks (Input, Generation), drains, the list in force
// and its Source, evictions in several writes on Kubernetes, records that cannot be read,
// versions outside of their range, and time. The histories over a real backend and the
// conformance kit cover those.
//
// # Reading a counterexample
//
// A counterexample is a shortest way to the failure, a line for each step. Members are
// letters, and an ID that rejoins gets the next letter. Leader 2 is the one of epoch 2.
// Order 2.1 {x} is the first order of that leader, and names the tasks that its member
// shall run. Sync and answer are one step unless the configuration has slow Syncs. Read
// it from the end: two members have started x. Find out from which order each of them
// did, then why the leader of the later order did not know of the earlier one. The example
// shows one.
//
// # Rules
//
// Each rule can be switched off. The columns have the steps to the shortest failure in
// stores of kind A and B; "–" if no configuration finds one there, and a star if the
// failure is that something never comes to run.
//
//	O1    20    –  a member starts a task only from an order above its Applied
//	O1    18    –  a reading of another Server than the newest View's changes nothing
//	O1    9*    –  a member refuses an order to run that it does not act on
//	O1    16    –  a member never starts a task from an order that it has refused
//	O2    20   20  a report has the tasks that a member will start, too
//	O2    18   21  a report has the tasks that still stop
//	O2    18    –  a View with another report than the member's own renews no lease
//	O3    13   14  a member may run what its order in the table has
//	O3    18   20  a member may run what its report has
//	O3    13   14  what a leader has sent counts as written
//	O3    15   19  a member may run a task whose order to stop it has not read
//	O4    14    –  a batch takes effect only in the epoch of its writer
//	O4    16    –  a batch takes effect only in the Server that it names
//	O4    18    –  a batch takes effect only if no later one was written
//	O5     –   15  a member starts nothing from an order of another epoch
//	O5     –   15  the epoch of an order must be exactly the table's, not a higher one
//	O5     –   16  a member reads its order first and the table's record second
//	O5     –   22  an order record is written only over the one that was read
//	O5     –   21  a leader does not replace an order of a later epoch
//	O6    15   16  a leader claims before it reads
//	O6     –   5*  a new leader writes the orders of earlier epochs again
//	O6     –   19  the first batch makes unread orders that O3 forbids orders to stop
//	O6     –   7*  a leader treats an order of an earlier epoch alike when it finds it later
//	B1    20    –  a Sync with an older heartbeat publishes nothing
//	B2    17    –  an eviction fails if the heartbeat has risen
//	B2    17    –  the Sync of a removed ID publishes nothing
//	B2     –    –  the Sync of an unknown ID publishes it anew
//	B3    27    –  a new epoch is above those in all records
//	B5     –    –  a batch without an answer is followed by no other one
//	B7    16   17  no campaign takes effect before Confirm
//	B7    17   18  at Confirm each member that lives has published in this Server
//	B7    19   19  a Sync that names another Server renews no lease
//	A5    16    –  a member whose lease was lost rejoins under another ID
//	A9    15    –  a leader stops when a View names another Server
//	2.3   15    –  a member stops all tasks before its death can be observed
package model

// Package model checks the rules by which equal processes share tasks through a table. It
// explores every interleaving of their steps.
//
// A search starts with an empty table and tries each step that a member, a leader or the
// table could take next, breadth first, until it finds no new state. It fails if more
// members run a task than are wanted, if a token does not rise, or if something never
// comes to run although no more faults occur. The bounds are small: two or three members,
// one or two tasks, two or three elections, at most three orders of a leader, at most one
// loss of the table. Within its bounds a search is complete, except for states with equal
// 64-bit hashes: for a million states the probability of two is 1 in 37 million.
//
// Only tests use the package. They search the smallest configurations; with the flag
// -model.all those of CI, with -model.large all. -model.print prints every counterexample.
//
// # What is modelled
//
// There are two kinds of stores. A writes a batch in one guarded step (O4), B writes each
// order record by compare-and-swap (O5). Members join, send Syncs, read their orders,
// start, stop and refuse tasks, leave or lose their lease, and rejoin under another ID.
// Leaders claim the table, send a first batch (O6; in A only in some configurations), and
// then any order that O3 permits, whether or not a planner would send it. A batch takes
// effect at any later time, or never. The options of a configuration add faults:
//
//   - A Sync stays under way for any time, loses its answer, or arrives after its sender
//     gave it up. A Sync without a report follows a Sync that is lost.
//   - The answer of a reading arrives late. A batch arrives twice.
//   - The death of a member that lives is observed, and it is evicted.
//   - The table falls back to an earlier state, or in B it loses its own record and none,
//     any or all of the others. The table has another Server from then on.
//   - A leader reads reports and orders at different times.
//
// There is no clock. A member whose death is observed has stopped all its tasks, because
// self-fencing stops them earlier. If a configuration has no heartbeats, a member has
// ended before it is removed. When Confirm takes effect, a longest lease has passed since
// the loss, so each member that lives has published in this Server.
//
// An order record has one version for all tasks of its member. So an order for one task
// gives the others another version, too. Orders are sent for one member at a time, except
// in a first batch.
//
// # What is not modelled
//
//   - Members that neither the View nor Gone names (B6), silent members (A10), heartbeats
//     that are withheld (A11).
//   - Deletion of orders, of single records by hand, and OrderCount (O7 to O9).
//   - Input and Generation, drains and the other verbs, the list in force and its Source.
//   - Epochs that the claim writes into all records before the first batch (O5), records
//     that it creates, evictions in several writes.
//   - Records that cannot be read, versions outside of their range, leases that differ,
//     and time.
//
// # Reading a counterexample
//
// A counterexample is a shortest way to the failure, a line for each step. Members are
// letters; an ID that rejoins gets the next one. Leader 2 is the leader of epoch 2. Order
// 2.1 {x} is the first one of that leader, and names the tasks that its member shall run.
// A Sync and its answer are one step unless the configuration has slow Syncs.
//
// Read it from its end: two members have started x. Find the order from which each of
// them did, and then the reason why the later leader did not know of the earlier order.
// The example shows one.
//
// # Rules
//
// A configuration can switch off each rule. The columns have the number of steps to the
// shortest failure without it, in A and in B. A star marks that something never comes to
// run. A plus marks rules that are each other's second line: A5, and the two parts of B2.
// Only a search without A5 and one of those fails. A dash marks that no search fails. B2's
// unknown ID and B5 are never needed for safety.
//
// Two more defects are options. If a leader reads orders before reports, a task runs twice
// after 24 steps in B, with a loss. If a loss may lower epochs, a token falls after 16.
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
//	O3    27   18  a task is always permitted where its report has it, but not where only an order has it
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
//	O6    31   19  the first batch makes unread orders that O3 forbids orders to stop
//	O6     –   7*  a leader treats an order of an earlier epoch alike when it finds it later
//	B1    20    –  a Sync with an older heartbeat publishes nothing
//	B2   17+    –  an eviction fails if the heartbeat has risen
//	B2   17+    –  the Sync of a removed ID publishes nothing
//	B2     –    –  the Sync of an unknown ID publishes it anew
//	B3    27    –  a new epoch is above those in all records
//	B5     –    –  a batch without an answer is followed by no other one
//	B7    16   17  no campaign takes effect before Confirm
//	B7    17   18  at Confirm each member that lives has published in this Server
//	B7    16   19  a Sync that names another Server publishes nothing and renews no lease
//	B7     –   18  with another Server no epoch is in force, so no order is of the table's epoch
//	A5   17+    –  a member whose lease was lost rejoins under another ID
//	A9    15    –  a leader stops when a View names another Server
//	2.3   15    –  a member stops all tasks before its death can be observed
package model

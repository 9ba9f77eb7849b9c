// Package replica shares tasks among equal processes, the replicas of a service, through a
// table that all of them read and write. Replicas never call each other: there is no
// port, no address and no certificate.
//
//	tenants := replica.Poll(10*time.Second, listTenants)
//	err := replica.Run(ctx, table, tenants, pollTenant)
//
// Every process runs this. table is a [Backend], such as that of package memory; tenants is a
// [Source], which lists the tasks; pollTenant is called for each task that is to run here.
//
//   - A replica that joins is given its share. A task that moves stops before it starts
//     elsewhere, or overlaps if the task has orchestrator.StartThenStop.
//   - A replica whose context ends moves its tasks, for at most the time of [WithDrain], and
//     then leaves. A task for which no other replica has a place stays until then.
//   - The tasks of a replica that crashes start elsewhere after about one lease ([WithLease]).
//     The death of the leader moves nothing else.
//   - While the table is away, everything runs on until nine tenths of the lease, less the time
//     to stop, have passed since the last answered heartbeat: 10.2 to 11.5 seconds by default.
//     Then it stops.
//   - In a new table, and after a loss of data, nothing starts or moves for one lease, unless the
//     table is in memory.
//
// [Replica.Alive] and [Replica.Ready] are for probes, [Replica.Status] is for people; package
// admin serves them, metrics and a dashboard. [Replica.Owners] and [Replica.Watch] tell who runs
// what. A task guards its writes with worker.Token, learns with worker.Updated that its input has
// changed, and asks with worker.Reschedule to run on another replica.
//
// # How it works
//
// The table has four kinds of records, each with one kind of writer. The leader writes the
// tasks that are wanted ([Task]) and which member runs which task ([Order]). Each member
// writes what it is ([Member], with its heartbeat) and what it runs ([Report]). A new
// leader finds all that it needs in the table, and waits for no other replica.
//
// A [Backend] writes and then reads. It has no clock and grants no lease: a member is dead
// when its heartbeat has not risen for one of its leases, by the clock of the member that
// watches it. The member counts from when it sent that heartbeat, less a tenth, so it stops
// its tasks first. No two clocks are compared.
//
// A number orders everything that leaders write. A version is the leader's epoch plus the
// number of batches that it has written, and epochs are at least 2³² apart. It is the
// version of an order and the token of the task that starts from it.
//
// What a member may run is, by the records:
//
//   - every task with an order to run, read or not, unless its report refuses the order;
//   - every task with an order to stop that the member has not read ([Report].Applied);
//   - every task in [Report].Also.
//
// So an order adds to it as soon as it is written, and only the member's own report takes
// something away.
//
// # The table
//
// The clauses from here on are for authors of backends and of this package. Tests are named
// after them.
//
// B1. A record is in every View of a call that began after the Sync that published it had
// returned, as last published, byte for byte. A Sync whose heartbeat is not above the
// recorded one only reads. If the backend is [Traits].Piecewise, a View that is not full may show
// records of others later: reports only take away, an eviction compares, and no order starts a task
// before the table's record was read after it (O5).
//
// B2. An eviction removes a member and its report only if its heartbeat is the one given,
// in one step. Its orders stay until the leader drops them. Removed IDs are remembered:
// their Syncs fail with [ErrEvicted] and publish nothing. The Sync of an unknown ID
// publishes it.
//
// B3. Of the campaigns that name one Epoch at most one succeeds. An epoch is above all that
// were seen, and rises even if a clock is behind.
//
// B4. Of a Sync that campaigns and one that publishes a new member, the first returns the
// member or the second returns the new epoch.
//
// B5. A call ends with its context. A batch costs no lease: the Sync after a failed one
// carries none. A batch without an answer is sent again unchanged. One that was refused is
// sent in halves, and a record that is refused alone is left out. If a batch is refused after
// a Sync with it had no answer, the table may have it: the leader stops leading.
//
// B6. A member whose record is missing, as Beats or its orders show, but that was not
// removed, is held for the longest lease if it may run something. Then the leader evicts its
// ID.
//
// B7. [View].Server changes when there is a sign that acknowledged data was lost; with it the
// epoch ends. Before a campaign the backend counts the orders of every member, also those to
// stop. A Sync that names another Server only reads, and renews no lease. No campaign takes
// effect in a new Server until a replica has seen it for the longest lease, and confirms it.
//
// # Orders
//
// O1. A member starts a task only from an order to run that was above its Applied when it
// read the order, and only under its lease. A later order for the same task changes the run
// only if its Input or Generation differs. It refuses any other order to run.
//
// O2. A report is made after the orders up to Applied were read, and a lease counts from
// when the report of its Sync was put together. The whole order is acted on again each time.
//
// O3. The leader orders a task for a member only if fewer other members than wanted may run
// it; under orchestrator.StartThenStop twice as many. A task that the member's report has
// may always be ordered.
//
// O4. A batch takes effect only if, in the same step, the writer still leads this epoch of
// this Server, and no later batch was written.
//
// O5. If the backend is [Traits].Piecewise, each order record is replaced only if it has
// not changed, and a member starts nothing from an order of another epoch than the table's.
// Reports are read before orders, and orders before the table's record.
//
// O6. A new leader reads everything, and then plans. Orders that were read stay. Others get
// a new version, or are stopped if O3 forbids them. A member leaves an unread order of
// another epoch unread.
//
// O7. Of a member only orders to stop are deleted, once its report shows that the task has
// stopped. A refused order becomes one to stop.
//
// O8. What is missing of the leader's records is written again. Each task in Also gets an
// order, but in a new table only once the Source has answered: an order without the task's
// Input would begin it anew.
//
// O9. While a member has no report, the leader orders no task to run but for those that its
// member's report has. A backend that is piecewise shows no report that was made from
// another order record than the one that is there; a record that was edited by hand is
// another one.
//
// # Replicas
//
// A1. A replica's first call is a Read that names no Server. It gives the Server that its first
// Sync names.
//
// A2. A leader evicts a member that is dead by observation, and treats a member as gone
// only when the backend says so.
//
// A3. A candidate campaigns if the leader is gone, dead or draining, if the table's epoch is
// below its own, and if the leader's Source has not answered for a third of a lease while
// its own has. Candidates after the fourth wait another quarter of a lease.
//
// A4. The leader and the first four candidates that live watch all heartbeats, others the
// leader's.
//
// A5. A replica whose lease is lost stops everything and joins under another ID. It removes
// its former IDs.
//
// A6. A replica that leaves stops at once if no other member could take its tasks, or no
// other candidate could lead. Once it stops its tasks its lease is not renewed any more, so
// that a task that does not stop ends with the last resort.
//
// A7. The list in force is in the table. A candidate that does not lead runs its Source only
// while the leader's has not answered for a third of a lease.
//
// A8. Each member's own lease counts for it.
//
// A9. A leader stops when it is draining, when a View names another Server, leader or
// epoch, and when a report has an Applied above its last batch.
//
// A10. A member whose heartbeat has not risen for a quarter of its lease, or that does not
// read its orders, is held (orchestrator.Held).
//
// A11. A replica sends no heartbeat while an order that it read a third of a lease ago was
// not handed to its worker.
package replica

// Package replica spreads tasks over the equal processes of a service. Each process calls
// [Run]; together they run each task on as many of them as it wants, evenly spread. There
// is no other process: one of them leads, and all of them share a table on a store that
// the service has already ([Backend]).
//
//	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
//	…
//	tenants := postgres.Query(pool, "select id from tenants where active")
//	err = replica.Run(ctx, postgres.New(pool, "pollers"), tenants, poll, replica.WithPlaintext())
//
// poll is called for each tenant of this replica, and runs until its context ends. Package
// worker has the details: restarts, readiness, slots, content, tokens.
//
// # How it works
//
// A replica has one record in the table, which it publishes again every twelfth of its
// lease with a higher heartbeat. That is one call, [Backend.Sync], which also returns the
// records of all others.
//
// Death is observed. A replica is dead when its heartbeat has not risen for its whole lease,
// by the observer's own monotonic clock. It counts itself from when it sent the heartbeat,
// and stops its tasks before nine tenths of the lease are over. So no two clocks are
// compared, and a clock that is wrong or steps harms nothing.
//
// Leadership need not be exclusive. Each election has a higher epoch, and a replica that has
// seen it refuses the calls of earlier leaders. A new leader starts nothing that a replica
// might run which has not answered it yet.
//
// # What it promises
//
// As long as processes stop their tasks in time (WithLease of package worker, which ends the
// process otherwise) and the store keeps what it has acknowledged, a task runs on no more
// replicas than it wants. If the store loses acknowledged data, as after an asynchronous
// failover, that holds too, because no replica is elected or evicted for one lease. That costs
// one lease at the first installation as well. Where no process lives for a whole lease, no
// leader is ever elected.
//
//   - (A1) A replica takes no task before it has seen the present epoch.
//   - (A2) A leader starts the tasks of another replica elsewhere only when the table says
//     that the other has left, or was evicted as dead.
//   - (A3) A candidate campaigns where the leader is gone, dead, draining or passive. A new
//     leader first waits for every replica that was there, and for its Source.
//   - (A4) Leases are renewed with the backend, so the death of a leader stops nothing.
//   - (A5) A replica that has lost its lease stops its tasks, and joins again under another
//     ID. The former record is removed at once, so after an outage no replica waits for it.
//   - (A6) A replica whose context ends hands over the leadership and its tasks, and leaves.
//   - (A7) A Source that fails changes nothing. A leader without a first answer of its
//     Source, or that reaches fewer than half of the others, lets another one lead.
//   - (A8) Leases may differ, so they can be changed in a rolling update.
//   - (A9) A leader stops when its own lease ends, and when the table is another one.
//   - (A10) A replica that Syncs but never answers the leader, or no longer answers it since
//     a start or a stop, is retired after four thirds of a lease. Otherwise it would hold up
//     every start of a new leader, or the one task. It leaves, and joins again after a pause.
//
// After the loss of a whole table the one lease is the longest that a living replica knows. A
// replica with a longer one, cut off just then, is not known.
//
// Not promised: two primaries of a database at once, a disk that is rolled back, clones of a
// running virtual machine, one that its host has paused, whose clocks stood still meanwhile,
// and a record deleted by hand from a store that cannot tell (B7). No lease stops a process
// that was paused between its last check and a write; a store that compares tokens does
// (worker.Token).
package replica

// Package postgres is a table of replicas in PostgreSQL 13 or later. It keeps every clause
// of [replica.Backend].
//
//	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
//	…
//	tenants := postgres.Query(pool, "select id from tenants where active")
//	err = replica.Run(ctx, postgres.New(pool, "pollers"), tenants, poll, replica.WithPlaintext())
//
// # In the database
//
// There are two tables and a procedure ([Schema]) in the first schema of the user's
// search_path. The first Sync creates them; later ones need the right to select, insert,
// update and delete, and no other. All names given to [New] share them. All replicas must
// find the same ones: with different search_paths each group has a table of its own, and
// runs all tasks. As for every unqualified name, no other user should be able to create
// anything in the schemas of the search_path.
//
// A Sync is one statement, one transaction and one round trip. The pool may lead through
// PgBouncer in transaction mode. A Sync waits for the Syncs of other replicas of its name,
// each time for at most half of the time that its context leaves it, and at most two
// seconds. It holds no lock while the result is sent, so a replica that is stopped or cut
// off holds up no other.
//
// Let a supervisor start PgBouncer again when it exits: version 1.18, as in Debian 12, may do
// so when clients cancel queries of a server that hangs (pgbouncer/pgbouncer#801).
//
// A name may have some 200 replicas: each Sync reads the records of all. With leases of 15
// seconds, 100 replicas make 80 Syncs a second, each of which takes a transaction ID.
//
// While a transaction of the same database is open for hours, such as a large dump,
// PostgreSQL removes no old version of a row. The tables then grow by some hundred bytes with
// each Sync, which becomes no slower. The space is reused when the
// transaction has ended.
//
// # What may be lost
//
// While a server keeps what it has acknowledged, everything holds that package replica
// promises. A Sync is acknowledged when it is on disk and on the synchronous standbys, even
// if synchronous_commit is off for other transactions.
//
// After a loss View.Server is another one, so that for the longest lease no replica is
// elected or evicted. Losses that are found:
//
//   - a standby was promoted, or a backup recovered to a point in time
//   - tables were dropped, truncated, or restored from a dump, here or in another database
//   - a row was changed, replaced or deleted by another statement than the procedure's
//   - the server runs from an older copy of its disk, and a replica that lives has seen a
//     transaction that the copy has not reached
//
// A restart, a crash, VACUUM FULL and CLUSTER are no losses. A statement that rewrites the
// rows, such as some of ALTER TABLE, counts as one. So does each start of a server that
// does not tell its timeline, because pg_control_system or pg_walfile_name is refused. All
// replicas of a name must have the same rights to these functions. Otherwise their Syncs
// count as losses by turns, and no replica is ever elected.
//
// Not promised: two primaries at once, and an older copy of the disk whose transactions
// have caught up before the first Sync.
package postgres

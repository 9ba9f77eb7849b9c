// Package postgres is a table of replicas in PostgreSQL 13 or later. It keeps every clause of
// [replica.Backend].
//
//	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
//	…
//	tenants := postgres.Query(pool, "select id from tenants where active")
//	err = replica.Run(ctx, postgres.New(pool, "pollers"), tenants, poll)
//
// # In the database
//
// There are eight tables with the prefix replica_, and functions, in one schema: see [WithSchema].
// The first call creates them, for which the user needs the right to create in that schema. In
// PostgreSQL 15 and later only the owner of the database has it in schema public. Otherwise somebody
// else applies the text of [Schema], which is schema.sql of this package with the schema in each
// name. Later calls need usage of the schema, the right to execute the functions (public has it), and
// those to select, insert, update and delete in the eight tables.
//
// All names given to [New] share the tables. All replicas must find the same ones: otherwise each
// group has a table of its own, and runs all tasks. So a replica whose search_path lacks the tables,
// though another schema has them, says so and waits for [WithSchema]. The log and each error name
// the schema. As for every unqualified name, no other user should be able to create anything in the
// schemas of the search_path.
//
// Records are JSON that people can read. Names and texts are escaped as in Go, so a database
// of any encoding has them. Who may write the tables may command every replica.
//
// # Connections
//
// Each replica has a connection for its calls, and one that waits for notifications. The one
// that leads has a third one for [Query], and so has each for a moment when it starts. They are made
// as the pool makes its own, with its hooks, and do not count among its MaxConns. So n replicas need
// 3n connections of the server, beside those of their pools: max_connections is 100 by default. Each
// has one more for two minutes after it has started, and for 15 seconds after a connection has
// fallen silent, which is replaced after a quarter of a lease.
//
// Where notifications do not arrive, as through PgBouncer in transaction mode, replicas find it
// out, say so, and read at intervals instead: some 50 ms with a few replicas, and less often the
// more there are. Let a supervisor start PgBouncer again when it exits: version 1.18, as in
// Debian 12, may do so when clients cancel queries of a server that hangs
// (pgbouncer/pgbouncer#801).
//
// # What calls cost
//
// A heartbeat or a report is one statement that locks nothing but the replica's own rows, so
// there may be a thousand replicas. What else a replica writes waits for others of the same name,
// for half of the time that its context leaves it, at most two seconds. No lock is held while a
// result is sent, so a replica that is stopped or cut off holds up no other. A replica may have
// 10,000 tasks. Each move of a task writes some 2 kB of WAL.
//
// While a transaction of the same database is open for hours, such as a large dump, PostgreSQL
// removes no old version of a row. The tables then grow by some hundred bytes with each heartbeat,
// but calls read only the newest versions. The space is reused when the transaction has ended.
//
// # How long the database may be away
//
// Tasks go on for nine tenths of the lease, less the time that they have to stop, after the last
// heartbeat that was answered. Heartbeats come every twelfth of the lease. With the defaults of
// package replica this is 10.2 to 11.5 seconds. After that all tasks stop, and run again as soon as the
// database answers.
//
// # What may be lost
//
// While a server keeps what it has acknowledged, everything holds that package replica promises. A
// Sync is acknowledged when it is on disk and on the synchronous standbys, even if
// synchronous_commit is off for other transactions. A statement_timeout of the user ends the wait
// for a standby: then it may be only on disk.
//
// After a loss View.Server is another one, so that for the longest lease no replica is elected,
// and no task starts. Tasks that run go on. Losses that are found:
//
//   - a standby was promoted, or a backup recovered to a point in time
//   - tables were dropped, truncated, or restored from a dump, here or in another database
//   - a row was changed, replaced or deleted by another statement than those of this package: if
//     it is the table's or the replica's own, with its next call; orders and tasks with the next
//     election, and with the next View that shows all of them
//   - the server runs from an older copy of its disk, and a replica that lives has seen more
//
// A restart, a crash, VACUUM FULL and CLUSTER are no losses. A statement that rewrites the rows,
// such as some of ALTER TABLE, counts as one. So does each start of a server that does not tell
// its timeline, because pg_control_system or pg_walfile_name is refused. All replicas of a name
// must have the same rights to these functions. Otherwise their Syncs count as losses by turns,
// and no replica is ever elected.
//
// Not promised: two primaries at once, and an older copy of the disk that has caught up before
// the first Sync.
package postgres

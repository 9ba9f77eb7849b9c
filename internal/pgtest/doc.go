// Package pgtest starts real PostgreSQL servers for tests: each in a folder and on a port of
// its own, as an unprivileged user. A test pauses, crashes and restarts a server, promotes a
// standby, and connects directly or through a PgBouncer. fsync is off: what a killed server has
// written is not lost, because the kernel has it. jit is off, because compiling queries took half of
// the processor time of tests.
//
// It needs the programs of PostgreSQL, in the PATH or in /usr/lib/postgresql, where Debian
// has them. Root may not run them, so for root they run as user postgres.
package pgtest

// Package e2e contains only tests. They run replicas as real processes that share tasks
// over a table on a real PostgreSQL. They kill, stop and end replicas. They pause, crash, fill and
// fail over the server, lock the tables, take away rights, and truncate, restore and edit each
// table by hand. Each task records in a journal when it ran, and when worker.Check allowed it to
// continue. The journal is then checked: no task may run in two places, but for a process that was
// stopped past its lease, which worker.Check must tell so.
//
//	go test ./replica/postgres/e2e -proof.rounds=100 -v
//
// The default is 2 rounds.
package e2e

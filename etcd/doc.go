// Package etcd runs an orchestrator on top of etcd, for users whose leader must
// survive the loss of its machine. Several processes may lead, and each may be a
// worker. No process is indispensable. The tasks, the membership, the election and
// the assignments are stored in a real etcd.
//
// [Election.Lead] is a complete leader, and [Member] a complete worker. The package
// example combines them. The parts are usable separately:
//
//   - [Election] makes one of several candidates the leader, until its lease may
//     have expired; [LeadWith] runs an orchestrator during one leadership;
//   - [Registry] stores the tasks, with content and settings, and the workers to
//     drain;
//   - [Membership] lists the workers, each of which holds a lease;
//   - [Communicator] assigns tasks to workers, for the leader;
//   - [Member] wraps a worker.Worker: it joins, claims, runs, and stops in time;
//   - [Owners] reports which worker runs a task, for clients that call it.
//
// The subpackage embed runs an etcd in the process, for users without a cluster.
//
// # Guarantees
//
// As long as etcd keeps its own guarantees, at most as many workers claim a task as
// it has instances. With StartThenStop a move may add one claim while it lasts. This
// holds through crashes, network partitions, slow processes and late messages. A
// worker runs no task that it has not claimed. A claim ends after its task has
// stopped, or with the worker's lease.
//
// So a task runs only on its claimants, as long as workers stop before their leases
// may have expired. Package worker ensures this; its documentation names the
// assumptions, and what can happen if a process or machine is paused and continues.
// Tokens protect against that case. worker.Token returns the revision of the task's
// claim, which rises with each new owner. Its scope is the cluster id, within which
// revisions rise. A store that refuses a token lower than the highest it has seen
// accepts nothing from a former owner.
//
// Without such a store, a worker that was paused past its lease continues until it
// notices: about a millisecond if the process was stopped, at most a twentieth of
// the lease if the machine was suspended. If the machine's clocks stood still too,
// the worker continues until etcd reports the loss. Tasks that have not stopped then
// are passed to worker.WithLastResort immediately, which should end the process. A
// supervisor that restarts the process is part of the design.
//
// # Clauses
//
// Tests carry these numbers in their names:
//
//   - E1: All keys share one prefix, and can be read with etcdctl. Names may contain any
//     bytes.
//   - E2: At most one candidate leads. A deposed leader writes nothing.
//   - E3: The registry survives every restart. A leader has loaded it before its first
//     term.
//   - E4: A leader learns within milliseconds of a worker that joins or leaves. A name has
//     one member at a time.
//   - E5: A task runs only under a claim, and no write takes effect after its term.
//   - E6: Transactions stay within etcd's default limits, whatever the size of the cluster.
//     A watch that was cut or compacted misses no change.
//   - E7: Owners answers from memory.
//   - E8: After an outage of etcd, workers rejoin and tasks run again, without intervention.
//
// # How it works
//
// Every write is guarded by the leader's key, the term's number and the worker's
// membership:
//
//  1. The candidate with the oldest key leads. The key's create revision is its
//     epoch. Each of its writes compares that the key still exists.
//  2. A term begins with a write of its number. Each later write of the term
//     compares the revision of that write, so none lands after another term has
//     begun. List answers from a copy that is at least as new as that write.
//  3. Add puts an assignment under the worker's lease. The worker claims it before
//     the task starts, in a transaction that compares the assignment and its own
//     membership. An assignment that is not claimed in time is withdrawn, in a
//     transaction that compares that there is no claim.
//  4. Remove deletes the assignment. The worker stops the task, then deletes the
//     claim, comparing its revision.
//  5. A worker that joins gets a new lease and a new identity, the create revision
//     of its key. Nothing meant for a predecessor of the same name reaches it.
//
// The folder model contains an exhaustively checked model of this protocol. It finds
// a task that runs twice as soon as one of these rules is left out. The folder e2e
// contains tests that kill, stop and cut off real processes.
//
// # Keys
//
// All keys share one prefix, [WithPrefix], and can be read with etcdctl. Names are
// escaped as in URLs, so they may contain any bytes:
//
//	format                      identifies the user of the prefix
//	registry/<task>             the content of a task, unchanged
//	tasks/<task>                its settings as JSON; absent: the default
//	members/<worker>            a member, under its lease
//	workers/<worker>            its approximate number of tasks, under its lease
//	assigned/<worker>/<task>    an assignment by the leader, under the worker's lease
//	active/<worker>/<task>      a claim of the worker, under its lease
//	refused/<worker>/<task>     a refusal with its reason, under its lease; the last 128
//	drains/<worker>             the worker must drain
//	term                        the number of the last term
//	begun                       the same, in the range that its leader watches
//	leader/<lease>              the candidates, the oldest of which leads
//
// # The client
//
// The user provides the client; [ClientConfig] returns suitable settings. Set
// DialKeepAliveTime and DialKeepAliveTimeout to some seconds. Otherwise a client
// whose peer has vanished silently waits on that connection and tries no other
// endpoint. Only after about a quarter of an hour does the kernel close the
// connection. This is safe, since leases expire by the clock, but nothing
// progresses.
//
// TLS, users and passwords are configured on the client too. The user needs only the
// right to read and write the prefix.
//
// # The server
//
//   - Each term writes, even if nothing changes, so let etcd compact its history
//     with --auto-compaction-retention, which is off by default. An etcd that has
//     exceeded its space quota accepts no writes: no term begins, and a worker that
//     has lost its lease cannot rejoin. Running tasks continue.
//   - Contents of up to a mebibyte fit etcd's default --max-request-bytes, and every
//     transaction its default --max-txn-ops.
//   - A restored snapshot must not reuse revisions, because they are the tokens.
//     Restore it with etcdutl snapshot restore --bump-revision and --mark-compacted,
//     or as a cluster with another id, whose tokens have another scope. A store
//     decides itself whether to accept a new scope; accepting it means trusting the
//     operator of the cluster.
package etcd

// Package etcd is for users whose leader must survive its machine: any of
// several processes may lead, any may be a worker, and none of them matters.
// What is to run, who is there, who leads and who runs what is kept in a real
// etcd.
//
// Its parts are usable alone:
//
//   - [Election]: one of several candidates leads, until its lease can have ended;
//   - [Registry]: the tasks, with content and settings, and which workers to drain;
//   - [Membership]: which workers there are, each by a lease;
//   - [Communicator]: how the leader assigns tasks to workers;
//   - [Member]: a worker.Worker that joins, claims, runs, and stops in time;
//   - [Owners]: who runs a task, for those who want to talk to it.
//
// The package example puts all of them together. Package embed, beneath this one,
// runs an etcd in the process, for those who have none.
//
// # What is promised
//
// As long as etcd keeps its own promises, no task is claimed by more workers at once
// than it is to run on (or, with StartThenStop, than its moves ask for), whatever
// crashes, is cut off, is slow or comes late. A worker runs nothing that it has not
// claimed; a claim ends after its task has stopped, or with the worker's lease.
//
// So a task runs where it is claimed and nowhere else, as long as workers stop
// before their leases can have ended. Package worker sees to that: its documentation
// says on what it rests, and what remains where a process or a machine is paused
// and goes on. Against that there are tokens: worker.Token gives the revision of
// the task's claim, which rises with each new owner, and as its scope the id of the
// cluster, within which it does. A store that refuses a lower token than it has
// seen takes nothing from a former owner, whatever was paused where.
//
// Without a store that checks tokens, a worker that was paused past its lease
// may go on for as long as it takes to notice: about a millisecond where the
// process was stopped, at most a twentieth of the lease where the machine was
// suspended, and until etcd tells it where its clocks stood still as well. What has
// not stopped then is handed to worker.WithLastResort at once, which should end the
// process: something that starts it again is part of the design.
//
// # How it works
//
// A leader's key, a term's number and a worker's membership guard every write:
//
//  1. The candidate with the oldest key leads. The key's create revision is its
//     epoch; each of its writes compares that the key is still there.
//  2. A term begins with a write of its number. Each later write of the term
//     compares the revision of that one, so none of them lands once another
//     term has begun. List answers from a copy that is as new as it at least.
//  3. Add puts an assignment under the worker's lease. The worker claims it, in one
//     transaction that compares the assignment and its own membership, before
//     anything starts. What it does not claim in time is withdrawn, in one
//     transaction that compares that there is no claim.
//  4. Remove deletes the assignment. The worker stops the task, then deletes the
//     claim, comparing its revision.
//  5. Whoever joins gets a new lease and, by the revision of its key, a new identity:
//     nothing that was meant for its predecessor of the same name reaches it.
//
// A model of this, checked exhaustively, is in the folder model: it finds a
// task that runs twice as soon as one of these rules is left out. The folder proof
// has the tests that kill, stop and cut off real processes.
//
// Where assignments are to go straight from the leader to the workers, over
// communicator/grpc, etcd keeps the election, the registry and the membership:
// [WithoutAssignments] says what keeps leaders apart then, and what is not
// promised.
//
// # Keys
//
// Everything lies under one prefix, [WithPrefix], and can be read with etcdctl.
// Names are escaped as in URLs, so that they may hold any bytes:
//
//	format                      what the prefix is used by
//	registry/<task>             the content of a task, as it was given
//	tasks/<task>                its settings as JSON; absent: the default
//	members/<worker>            a worker that is there, under its lease
//	workers/<worker>            about how many tasks it has, under its lease
//	assigned/<worker>/<task>    what the leader wants there, under the worker's lease
//	active/<worker>/<task>      what the worker has claimed, under its lease
//	refused/<worker>/<task>     why it did not, under its lease; the last 128
//	drains/<worker>             that it is to end empty
//	term                        the number of the last term
//	begun                       the same, where its leader watches
//	leader/<lease>              the candidates, the oldest of which leads
//
// # The client
//
// All of this works on a client of the user's; [ClientConfig] has settings for
// it that suit. Have it look after its
// connection, with DialKeepAliveTime and DialKeepAliveTimeout of some seconds:
// without them a client whose peer has vanished silently waits on that connection
// until the kernel gives up, which takes a quarter of an hour, and never tries
// another endpoint. Nothing is unsafe meanwhile, since leases end by the clock,
// but nothing happens either.
//
// TLS, users and passwords are the client's too. The right to read and write the
// prefix is all that is needed.
//
// # The server
//
//   - Each term writes, even where nothing happens: have etcd compact its history,
//     with --auto-compaction-retention, which is off by default. An etcd whose space
//     is exceeded takes no write, so no term begins and nobody who has lost a lease
//     comes back; what runs goes on.
//   - Contents of up to a mebibyte fit etcd's default --max-request-bytes, and
//     every transaction its default --max-txn-ops.
//   - A restored snapshot must not count revisions that were given out before, as
//     they are the tokens: restore it with etcdutl snapshot restore --bump-revision and
//     --mark-compacted, or as a cluster of another id, whose tokens are of another
//     scope. What a store is to do with a new scope is its own decision: to take
//     it trusts whoever has set up the cluster.
package etcd

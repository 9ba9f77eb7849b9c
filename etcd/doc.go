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
// The package example puts all of them together. Package etcd/embed runs an etcd
// in the process, for those who have none. [ClientConfig] sets up the client.
//
// # What is promised
//
// As long as etcd keeps its own promises, no task is claimed by two workers at
// once (or by more than the instances it wants), whatever crashes, is cut off,
// is slow or comes late. A worker runs nothing that it has not claimed; a claim
// ends after its task has stopped, or with the worker's lease.
//
// So no task runs in two places as long as workers stop before their leases can
// have ended, which package worker sees to: its documentation says on what that
// rests, and what remains where a process or a machine is paused and goes on. Against
// that there are tokens: worker.Token gives the revision of the task's claim, which
// rises with each new owner, and the id of the cluster, within which it
// does. A store that refuses a lower token than it has seen takes nothing
// from a former owner, whatever was paused where.
//
// Without a store that checks tokens, a worker that was paused past its lease
// may go on for as long as it takes to notice: about a millisecond where the
// process was stopped, at most a twentieth of the lease where the machine was
// suspended, and until etcd tells it where its clocks stood still as well.
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
// task that runs twice as soon as one of these rules is left out.
//
// # What is in etcd
//
// Everything is under one prefix, /work/ unless [WithPrefix] says otherwise, and
// readable with etcdctl. Names are escaped, so they may hold any bytes.
//
//	registry/TASK            the content, as it was given
//	tasks/TASK               its settings, as JSON; absent: one instance
//	members/WORKER           incarnation, lease, attributes; under the worker's lease
//	workers/WORKER           how many tasks it has claimed, padded with zeros; leased
//	assigned/WORKER/TASK     what the leader wants there; under the worker's lease
//	active/WORKER/TASK       what the worker has claimed; leased
//	refused/WORKER/TASK      why it did not; leased
//	drains/WORKER            the worker is to end empty
//	leader/LEASE             a candidate; the oldest leads
//	term                     the number of the leader's term
//	format                   that the prefix is this package's
//
// A leader's term writes one key, so etcd's history grows by one revision a term
// even where nothing happens: have etcd compact it (embed does).
package etcd

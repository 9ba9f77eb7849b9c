// Package manager assigns tasks to workers from a single process, over gRPC.
//
// A [Manager] keeps the tasks and the members in a [Store], and runs the terms of an
// [orchestrator.Orchestrator]. A [Member] makes a [worker.Worker] a member of a manager:
// it registers, renews its lease, carries out the manager's calls and reports completed
// tasks. Both take the options of package grpc, such as grpc.WithCredentials, beside their
// own. The documentation of package grpc describes the calls, certificates, and the limits
// of connections.
//
// # Members and leases
//
// A worker registers with the manager. The manager first calls the worker at the
// address that it gives. The worker is then a member until it leaves or its lease
// expires, and renews the lease by heartbeats. The worker measures the lease from
// when it sent the acknowledged request, the manager from when it received that
// request. So the lease expires at the worker first. The worker stops all its tasks
// before the lease can expire (see package worker), and rejoins as another
// incarnation. Until the lease has expired, nothing that the worker may run is
// started elsewhere, however long the worker is silent.
//
// Members, tasks and completions are in a [Store] before the manager acts on them. A
// manager that is restarted on the same store continues: workers reach it with their
// next heartbeat, running tasks are not restarted, and completed tasks are not run
// again. The manager runs no term until it has heard from each known member, or one
// whole lease of that member has passed.
//
// If the manager is away for too long, every worker stops. The longest time from the
// manager's last answers until it serves again is
//
//	d - d/10 - stop - d/6 - 1.2s
//
// with leases made by worker.WithLease(d, stop). Subtracted are the margin that a
// worker keeps, the time that its tasks need to stop, two heartbeats, and the
// longest pause between two attempts to connect. Heartbeats are d/12 apart; two
// count, because the last one may have come just before the outage and the next one
// just too early. That is 5.1 seconds for a lease of 10 seconds, and 19.8 for one of
// 30, with one second to stop. If the manager's machine does not even refuse
// connections, each attempt takes another second. Choose the lease by how long a
// restart of the manager takes, on any machine.
//
// A worker that can reach its manager but cannot be called by it is of no use. After
// [WithUnreachable], its lease is no longer renewed.
//
// # Clauses
//
// Tests carry these numbers in their names; package grpc has R1, R3, R4 and R6:
//
//   - R2: A worker is a member until it leaves or its lease has expired. A restarted
//     manager runs no term before it has heard from each member or its lease has passed.
//   - R5: A compromised worker harms only its own tasks.
//   - W6: A member that leaves waits until its tasks have moved, and reports what completed.
//   - W8: Completed and failed jobs are recorded once, and not run again.
//
// # Guarantees
//
// No task runs on more workers at the same time than it has instances (or, with
// StartThenStop, than its moves allow), whatever crashes, is cut off, is slow or
// arrives late. The condition is that workers keep what package worker promises with
// a lease. There are no tokens: a store that must refuse a former owner needs
// package replica. A task that runs to completion completes at least once, and its
// completion is recorded once for each version of its content. Package worker
// describes which jobs suit this, and which need a queue.
//
// # What a compromised worker can do
//
// With TLS, a process that has the key of one worker's certificate harms only that
// worker's tasks. It can complete only what the manager gave to its name: each
// content comes with a receipt that no other worker can make. It learns neither the
// content of other tasks, nor what listens in the manager's network. The memory,
// connections and calls that it can take from the manager are bounded, and other
// workers refuse its calls.
//
// It can lie about its own tasks: a task that it was given counts as running there until
// the manager moves the task or the worker's lease ends. If it lists tasks that it was not
// given, or that it has given back, its lease ends, and no copy elsewhere stops. There is
// one gap: the first report after a restart of the manager counts by its receipts, so it
// may then claim every task that it was ever given with the present content. A worker that
// names a higher epoch and leaves has its tasks held until it returns or the manager is
// restarted. To end its access, replace the certificate authority.
//
// # Limits
//
// A worker's request to its manager is bounded by 256 KiB, whatever grpc.WithMaxMessage
// says, and a connection to a manager has at most 8 calls at the same time.
//
// A manager does not trust unregistered clients. To verify a registration, it makes
// one call at a time for each name, and 256 for all names. Each call takes at most
// five seconds, and at most 4 KiB of its answer are read. A second Register under a
// name that is being called is answered with UNAVAILABLE.
package manager

// Package grpc carries assignments over gRPC, directly from one manager to its
// workers. It is for teams that have a single manager, or want no store in the path
// of every assignment.
//
// A [Manager] keeps the tasks and the members, and runs the terms. A [Member] makes
// a [worker.Worker] a member of a manager: it registers, renews its lease, carries
// out the manager's calls and reports completed tasks. Both are built on a
// [Communicator], which calls workers, and a [Server], which serves one worker.
// These two also work with any other membership, such as that of package etcd.
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
// # Guarantees
//
// No task runs on more workers at the same time than it has instances (or, with
// StartThenStop, than its moves allow), whatever crashes, is cut off, is slow or
// arrives late. The condition is that workers keep what package worker promises with
// a lease. There are no tokens: a store that must refuse a former owner needs
// package etcd. A task that runs to completion completes at least once, and its
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
// # The contract
//
// The files proto/orchestrator/v1/*.proto are the contract between manager and
// worker. They contain everything needed to write a worker in another language;
// examples/python is one in Python. Package orchestratorv1 is generated from them.
// In CI, buf rejects changes that break a released version.
//
// # Calls
//
// Report returns a worker's tasks. The request carries the version of the caller's
// last report: the worker's incarnation, which is unique to a process, and a counter
// that rises with each change. If that version is still the newest, the answer is
// the version alone. So a term without changes costs some dozens of bytes for each
// worker, whatever the number of its tasks. A restarted worker never matches an old
// version by accident.
//
// Apply carries any number of changes, including tasks with their contents, and
// returns a result for each. The worker answers shortly before the deadline of the
// call, by a tenth of the time left but at most 100 ms. A change that is not done by
// then is answered as stopping or as unknown, so the slowest change costs no other
// change its answer.
//
// Each call names the incarnation that it is meant for and the term that it belongs
// to. The worker checks both in the step in which a change takes effect. So a call
// that was meant for a former process of that name, or was overtaken by a later
// term, changes nothing, wherever it was delayed.
//
// # Errors
//
// If a worker cannot be reached, nothing was done, and the error says so
// ([orchestrator.ErrRejected]). If a call was sent and its answer is missing, the
// result is unknown until the next List. A worker that cannot be reached is not
// waited for, and there is no backoff: the next call reaches a worker that is back.
//
// # Security
//
// Without options, everything stays on loopback: a server does not listen elsewhere,
// and a client does not connect elsewhere, whatever its address resolves to
// ([ErrPlaintext]). With [WithCredentials], both ends of every connection use TLS
// 1.3 and present a certificate. [WithPlaintext] is for networks that are secured by
// other means.
//
// A URI among a certificate's subject alternative names states its identity:
// [ManagerURI], which is orchestrator://manager, or [WorkerURI], which is
// orchestrator://worker/NAME. A certificate may have several, and [WithIdentities]
// reads other forms. Only a manager commands workers, a worker acts only under its
// own name, and a client talks only to the identity that it called. DNS names are
// ignored, so workers may have any address. All certificates, of managers and
// workers, are signed by the same authorities, and are for servers and clients both.
// With openssl 3, the commands for an authority, a manager, and a worker named
// worker-1 are:
//
//	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
//	  -subj "/CN=our authority" -keyout ca.key -out ca.pem
//	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 \
//	  -CA ca.pem -CAkey ca.key -subj /CN=manager -keyout manager.key -out manager.pem \
//	  -addext basicConstraints=critical,CA:FALSE \
//	  -addext extendedKeyUsage=serverAuth,clientAuth \
//	  -addext subjectAltName=URI:orchestrator://manager
//	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 \
//	  -CA ca.pem -CAkey ca.key -subj /CN=worker-1 -keyout worker-1.key -out worker-1.pem \
//	  -addext basicConstraints=critical,CA:FALSE \
//	  -addext extendedKeyUsage=serverAuth,clientAuth \
//	  -addext subjectAltName=URI:orchestrator://worker/worker-1
//
// The files are read at each handshake, so replaced certificates are used without a
// restart. An authority is replaced in three steps: give every process a file with
// both authorities, give every process a new certificate, give every process a file
// with the new authority only. There are no revocation lists: use certificates that
// last for days, and replace them.
//
// A [Manager] and a [Member] log at Info until when their certificate is valid, at
// the start and when the files were replaced. Once less than a tenth of its lifetime
// is left, they warn, and again each day, until the files are replaced.
// [Credentials.ValidUntil] is for a metric. A connection ends when one of its
// certificates expires, and after about 70 minutes in any case, so that a withdrawn
// authority is not trusted for longer. Calls are not interrupted by this.
//
// If a certificate is not accepted, the client's error wraps [ErrCertificate] and
// states whose certificate it is and what is wrong with it. The server logs it.
//
// # Limits
//
// [WithMaxMessage] bounds the messages of the manager's calls to a worker; an answer
// takes a small multiple of that in memory. A worker's request to its manager is
// bounded by 256 KiB, whatever that option says. Names have 1 to 1024 arbitrary
// bytes. An impossible answer of a worker is an error of that call only.
//
// A manager does not trust unregistered clients. To verify a registration, it makes
// one call at a time for each name, and 256 for all names. Each call takes at most
// five seconds, and at most 4 KiB of its answer are read. A second Register under a
// name that is being called is answered with UNAVAILABLE.
//
// A server has at most about 17,000 connections. About a thousand of them may be
// unauthenticated, for five seconds each. When there are more, the silent ones are
// closed, so a flood of silent connections does not keep others out. A connection to
// a worker has at most 64 calls at the same time, one to a manager at most 8. A peer
// that is dead or does not read is detected within 13 seconds.
package grpc

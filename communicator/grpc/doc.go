// Package grpc carries assignments over gRPC, straight from one manager to its
// workers: for teams that have a single manager, or want no store in the path of
// every assignment.
//
// A [Manager] knows which tasks there are, which workers, and runs the terms. A
// [Member] makes a [worker.Worker] one of its workers: it registers, is a member for
// as long as its lease lasts, does what it is told, and says what is completed.
// Below both, and of use without them, are a [Communicator], which calls workers, and
// a [Server], which answers for one; so they go with membership of any other kind,
// such as that of package etcd.
//
// # Members and leases
//
// A worker comes to work: it registers, once the manager has called it at the
// address that it gives, and is a member until it leaves or its lease has run out. It
// renews the lease by heartbeats. The worker counts from when it sent what was
// acknowledged, the manager from when it received it, so the worker knows first; it
// stops everything before the lease can have run out (see package worker), and
// comes back as another incarnation. Until the lease is over, nothing that a
// worker may run is started elsewhere, however long it is silent.
//
// Members, tasks and completions are in a [Store] before anybody is told of them. A
// manager that is started again on the same store goes on: workers reach it by
// their next heartbeat, what runs is not restarted, what is completed not run again. It
// runs no term before each member that it knows has been heard, or one whole lease
// of it has passed.
//
// A manager that is away for too long has every worker stop. It may be, from its last
// answers until it serves again, for
//
//	d - d/10 - stop - d/6 - 1.2s
//
// with leases made by worker.WithLease(d, stop): without the margin that a worker
// keeps, the time in which its tasks stop, two heartbeats, which are d/12 apart, as
// the last one may have come just before and the next may come just too early, and the
// longest pause between two attempts to connect. That is 5.1 seconds of a lease of
// 10, and 19.8 of one of 30, with a second to stop. Where its machine does not even
// refuse connections, an attempt takes another second. Choose leases for how long it
// takes to start a manager again, wherever that may be.
//
// A worker that can reach its manager but cannot be called by it does no good: after
// [WithUnreachable] its lease is no longer renewed.
//
// # What is promised
//
// No task runs on more workers at once than it is to (or, with StartThenStop, than
// its moves ask for), whatever crashes, is cut off, is slow or comes late, for
// workers that keep what package worker promises with a lease. There are no tokens: a
// store that is to refuse a former owner needs package etcd. A task that runs to
// completion completes at least once; it is noted once for each version of its
// content. For which jobs that is right, and for which a queue is, package worker says.
//
// # What a compromised worker can do
//
// With TLS, a process that has the key of one worker's certificate hurts that worker's
// tasks. It completes only what the manager gave to its name: each content comes with
// a receipt, which no other worker can make. It learns no content of other tasks, and
// nothing of what listens in the manager's network. What it takes of the manager's
// memory, connections and calls is bounded, and other workers admit no calls of it.
// It can lie about what it runs: a task that it claims counts as running there, within
// its even share, until an operator removes it or revokes its certificate.
//
// # The contract
//
// The files proto/orchestrator/v1/*.proto are the contract between the two, with
// all that has to be known to write a worker in another language; examples/python is
// one in Python. Package orchestratorv1 is generated from them. A change that would break what was
// released is found by buf in CI.
//
// # Calls
//
// Report asks what a worker runs. It carries the version of the last report that
// the caller has: the worker's incarnation, which no other process has, and a
// number that rises with each change. Where that is still the newest, the answer
// is the version alone. So a term in which nothing has changed costs some dozens
// of bytes for each worker, however much it runs, and a worker that was restarted
// never matches by accident.
//
// Apply carries any number of changes, tasks with their contents included, and has
// an answer for each. A worker gives it a little before the call's deadline, a
// tenth of its time but at most 100 ms: what is not done by then is answered for
// as being stopped, or as under way, and no answer is lost for the slowest of them.
//
// Each call names the process that it is meant for, and the term that it is of.
// The worker looks at both in the step in which a change takes effect: nothing gets
// through that was meant for a former process of the name, or was overtaken by a
// later term, wherever it may have waited.
//
// # What an error says
//
// Where a worker cannot be reached, certainly nothing was done, and the error says so
// ([orchestrator.ErrRejected]); where a call was made and the answer is missing,
// nobody knows, and the next List tells. Nobody is waited for who cannot be
// reached, and no pauses are made: who is back is reached by the next call.
//
// # Security
//
// Without options, everything stays on loopback: a server does not listen elsewhere,
// and a client does not talk to elsewhere, wherever its address leads
// ([ErrPlaintext]). [WithCredentials] has both ends of every connection speak TLS 1.3
// and show a certificate; [WithPlaintext] is for networks that are safe by
// themselves.
//
// A certificate says by a URI among its subject alternative names whom it stands for:
// [ManagerURI], which is orchestrator://manager, or [WorkerURI], which is
// orchestrator://worker/NAME; it may have several, and [WithIdentities] reads other
// words. Only a manager commands workers; a worker speaks for its own name only; a
// client talks to whom it meant to call only. DNS names mean nothing, so that
// workers may have any address. All certificates, those of managers and workers, are
// signed by the same authorities, and are for servers and clients both. With openssl 3,
// an authority, a manager, and a worker called worker-1:
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
// The files are read at each handshake: certificates that are replaced are used
// without a restart. An authority is replaced in three steps: a file with both for
// everybody, new certificates for everybody, a file with the new one only. There are
// no lists of what was revoked: make certificates that last for days, and replace them.
// Until when a process's own is valid is logged at Info when a [Manager] or a [Member]
// starts, and when files were replaced. Once less than a tenth of that is left there is
// a warning, and one each day, until they are replaced; [Credentials.ValidUntil] says
// it to a metric.
// A connection ends when a certificate that it was made with does, and within some 70
// minutes in any case, so that a withdrawn authority is not trusted for longer; calls do
// not notice.
//
// A certificate that is not accepted is an error that wraps [ErrCertificate] at the
// client, and says whose certificate it is and what is wrong with it; the server logs
// it.
//
// # Bounds
//
// What a manager and a worker say to each other in a call of the manager's is bounded by
// [WithMaxMessage], and the memory that a worker's answer takes by a few times that. What
// a worker asks of its manager is bounded by 256 KiB, whatever that option says. Names
// have from 1 to 1024 bytes, whichever. What a worker answers that cannot be is an error
// of that call alone.
//
// Of who wants to be a member, a manager does not believe much. It makes one call at a
// time to see who a name is, and 256 for all names; each takes five seconds at most, and
// of the answer 4 KiB are read. A second Register under a name that is just being called
// is answered with UNAVAILABLE.
//
// A server has some 17,000 connections at most, of which a thousand may not have shown yet
// who they are; they have five seconds. If there are more, those who say nothing make
// way: a flood of them does not keep others out. On a connection to a worker there are
// 64 calls at a time, on one to a manager 8. A peer that is dead, or does not read, is
// found within 13 seconds.
package grpc

// Package grpc carries assignments over gRPC, directly from one manager to its
// workers. It has the two ends of the wire: a [Communicator], which calls workers, and a
// [Server], which serves one worker. They work with any membership and any leader, such as
// one that replica.Lead has elected.
//
// Package manager, in a folder of this one, is built on both. It also keeps the tasks and
// the members. It is for teams that have a single manager, or want no store in the path
// of every assignment.
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
// A manager.Manager and a manager.Member log at Info until when their certificate is
// valid, at the start and when the files were replaced. Once less than a tenth of its
// lifetime is left, they warn, and again each day, until the files are replaced.
// [Credentials.ValidUntil] is for a metric. A connection ends when one of its
// certificates expires, and after about 70 minutes in any case, so that a withdrawn
// authority is not trusted for longer. Calls are not interrupted by this.
//
// If a certificate is not accepted, the client's error wraps [ErrCertificate] and
// states whose certificate it is and what is wrong with it. The server logs it.
//
// # Clauses
//
// Tests carry these numbers in their names; package manager has R2:
//
//   - R1: A call carries any number of writes, and each has its own result.
//   - R3: Connections use TLS with certificates at both ends, and files are replaced without
//     a restart. Plaintext leaves the machine only under [WithPlaintext].
//   - R4: Only a manager commands workers. A worker acts only under its own name.
//   - R5: The memory, connections and calls that a peer can use are bounded.
//   - R6: A peer ignores fields and reasons that it does not know. CI rejects a change of the
//     proto files that breaks a released version.
//   - R7: A flood from one worker, or from clients without a certificate, does not delay
//     the heartbeats of other workers.
//
// # Limits
//
// [WithMaxMessage] bounds the messages of calls to a worker; an answer takes a small
// multiple of that in memory. A long report comes in up to eight of them. Names have 1 to 1024 arbitrary bytes. An impossible answer
// of a worker is an error of that call only.
//
// A server has at most about 17,000 connections. About a thousand of them may be
// unauthenticated, for five seconds each, and 256 from one address. When there are more,
// the silent ones are closed, so a flood of silent connections does not keep others out.
// A client without an accepted certificate may send about 200 frames, enough to be told
// why. A worker has at most four connections to a manager for each name in its
// certificate. Together they may carry about 1,000 calls and 8 MiB a second, and five
// times as much at once: more bytes are read later, and a connection with more calls,
// resets or other frames is closed. A connection to a worker has at most 64 calls at the
// same time. A peer that is dead or does not read is detected within 13 seconds.
package grpc

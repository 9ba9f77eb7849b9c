// Package grpc carries assignments over gRPC, straight from one manager to its
// workers: for teams that have a single manager, or want no store in the path of
// every assignment.
//
// A manager knows which tasks there are, which workers, and runs the terms. Its
// worker's side is a [worker.Worker] that registers, is a member for as long as
// its lease lasts, and does what it is told. Below both, and of use without them,
// are a [Communicator], which calls workers, and a [Server], which answers for one;
// so they go with membership of any other kind.
//
// # The contract
//
// The files proto/orchestrator/v1/*.proto are the contract between the two, with
// all that has to be known to write a worker in another language. Package
// orchestratorv1 is generated from them. A change that would break what was
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
// # Bounds
//
// Messages are bounded by [WithMaxMessage] in both directions, and the memory that
// a worker's report takes by a few times that. Names have from 1 to 1024 bytes,
// whichever. What a worker answers that cannot be is an error of that call alone.
package grpc

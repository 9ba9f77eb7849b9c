// Package state has the decisions of a manager: which workers are members, which tasks
// are expected, completed or failed, and what of that must be stored.
//
// A [State] changes by events, such as a registration or a new task. Each event takes the
// time as an argument, and collects its changes as [Records], which [Records.Encode] turns
// into keys and values (format.go). Once these are stored, [Committed] applies them: it is
// the readable copy of what no crash can undo, and it returns the [Delta] that the
// orchestrator and the communicator must learn. [ReceiptKey] makes the receipts by which
// a worker proves that it was given a task.
//
// The package has no clock, no I/O and no goroutine, and knows nothing of gRPC.
package state

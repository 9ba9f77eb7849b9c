// Package state has the decisions of a manager: which workers are members, which tasks
// are expected, completed or failed, and what of that must be stored.
//
// A [State] changes by events, such as a registration or a new task. Each event takes the
// time as an argument, and collects its changes as [Records], which [Records.Encode] turns
// into keys and values (format.go). Once they are stored, [Committed] applies them.
// Readers see only stored records. Apply returns the [Delta] for the orchestrator and the
// communicator. [ReceiptKey] makes the receipts by which a worker proves that it was given
// a task.
//
// The package has no clock, no I/O and no goroutine, and knows nothing of gRPC.
package state

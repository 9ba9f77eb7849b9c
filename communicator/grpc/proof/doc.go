// Package proof holds no code, only tests: they run a manager, with its store in
// a file, and workers, each a process of its own, and then kill them, stop them,
// and cut the lines between them. Whatever runs a task writes down when it starts
// and stops, and the manager what it has recorded; what was written is then held
// against what was promised: that no task ever runs in two places, that none is
// lost, and that none is recorded twice.
//
//	go test ./communicator/grpc/proof -proof.rounds=100 -v
//
// Without the flag a tenth of the rounds is run. With -proof.seed other faults
// are drawn.
package proof

// Package e2e contains only tests. They run a manager, with its store in a file,
// and workers, each as a separate process. Then they kill and suspend the processes,
// and cut the connections between them. Each task records when it starts and stops,
// and the manager's process records the completions. The tests compare these records
// with the guarantees: no task ever runs in two places, none is lost, and none is
// recorded twice.
//
//	go test ./communicator/grpc/e2e -proof.rounds=100 -v
//
// The default is 3 rounds. The flag -proof.seed selects other faults.
package e2e

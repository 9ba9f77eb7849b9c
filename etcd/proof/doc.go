// Package proof holds no code, only tests: they run real processes, each a
// candidate for leadership and a worker, on a real etcd, and then kill them,
// stop them, and cut them off. Whatever runs a task writes down when it starts
// and stops; what was written is then held against the promise that no task
// ever runs in two places.
//
//	go test ./etcd/proof -proof.rounds=200 -v
//
// Without the flag a tenth of the rounds is run.
package proof

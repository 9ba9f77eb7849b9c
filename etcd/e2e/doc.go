// Package e2e contains only tests. They run real processes on a real etcd, each a
// candidate and a worker, and kill them, stop them and cut them off. Each task
// records its starts and stops in a journal. The journal is then checked: no task
// may ever run in two places.
//
//	go test ./etcd/e2e -proof.rounds=200 -v
//
// The default is 3 rounds.
package e2e

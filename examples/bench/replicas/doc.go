// Package replicas measures package replica on stores side by side: a real PostgreSQL, a real etcd of one
// member in a process of its own, and a table in the memory of a server, which is the least that a store
// can take. The measurement is a test, because the kits that it uses are for tests:
//
//	go test -tags peers -timeout 0 -v ./examples/bench/replicas -replicas.only reaction,load,growth,calls,rebalance
//
// Flag -replicas.on selects stores, and -run selects further: TestReplicas/reaction/4x100/etcd.
package replicas

// Package replicas measures package replica on a real PostgreSQL. The measurement is a test, because
// the kits that it uses are for tests:
//
//	go test -tags peers -timeout 0 -v ./examples/bench/replicas -replicas.only reaction,load,calls,rebalance
//
// Flag -run selects further: TestReplicas/reaction/4x100/LISTEN.
package replicas

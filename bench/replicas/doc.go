// Package replicas measures package wire beside package replica on a real PostgreSQL, in turns.
// The measurement is a test, because the kits that it uses are for tests:
//
//	go test -tags peers -timeout 0 -v ./bench/replicas -replicas.only reaction,load,calls,rebalance
//
// Flag -run selects further: TestReplicas/reaction/4x100/LISTEN/wire.
package replicas

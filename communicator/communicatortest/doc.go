// Package communicatortest helps to implement an [orchestrator.Communicator], and to
// test how a cluster behaves when one fails.
//
// [Run] is a conformance kit. It checks an implementation against the contract,
// clause by clause, C1 to C7 and C9, in an ordinary test. [Checks] returns the same
// checks one by one, for example to run each in a bubble of testing/synctest.
//
//	func TestConformance(t *testing.T) {
//		communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[string, string] {
//			srv := startWorkers(t, "w1", "w2") // stops them in t.Cleanup
//			return communicatortest.Cluster[string, string]{
//				Communicator: mytransport.New(srv.Addr()),
//				Workers:      []string{"w1", "w2"},
//				Tasks:        []string{"a", "b", "c"},
//				Hold:         srv.HoldWrites, // optional, but recommended
//			}
//		})
//	}
//
// [Faulty] is a fault injector. It wraps a Communicator in a network that loses
// requests and answers, delays them, delivers them after the caller has stopped
// waiting, hangs, and partitions. A function chooses the fault of each call: your
// own function, or one that [Seeded] makes from a seed. The function of Seeded is
// pure, so a failure can be repeated from its seed, however goroutines are
// scheduled.
//
// The package imports only the standard library and package orchestrator.
package communicatortest

// Package communicatortest helps those who write an
// [orchestrator.Communicator], and those who want to see what becomes of a
// cluster when one misbehaves.
//
// [Run] is a conformance kit: it checks an implementation against the contract,
// clause by clause, from C1 to C7, in an ordinary test. [Checks] hands out the
// same checks one by one, for those who want to run each in a bubble of
// testing/synctest.
//
//	func TestConformance(t *testing.T) {
//		communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[string, string] {
//			srv := startWorkers(t, "w1", "w2") // stops them in t.Cleanup
//			return communicatortest.Cluster[string, string]{
//				Communicator: mytransport.New(srv.Addr()),
//				Workers:      []string{"w1", "w2"},
//				Tasks:        []string{"a", "b", "c"},
//				Hold:         srv.HoldWrites, // optional, and worth it
//			}
//		})
//	}
//
// [Faulty] is a fault injector: it wraps a Communicator in a network that loses
// requests and answers, delays them, delivers them after the caller has given
// up, hangs, and falls apart into partitions. Which call meets which fault is a
// pure function of the call, either one's own or the one that [Seeded] makes of
// a seed, so that what a seed has broken once it breaks again, however the
// goroutines of the two runs were interleaved.
//
// The package uses nothing but the standard library and the package
// orchestrator.
package communicatortest

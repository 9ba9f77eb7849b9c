// Package communicatortest helps to implement an [orchestrator.Communicator], and to
// test how a cluster behaves when one fails.
//
// [Run] is a conformance kit. It checks an implementation against the contract,
// clause by clause, C1 to C9, in an ordinary test. [Checks] returns the same
// checks one by one, for example to run each in a bubble of testing/synctest.
//
//	func TestConformance(t *testing.T) {
//		communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[string, string] {
//			srv := startWorkers(t, "w1", "w2") // stops them in t.Cleanup
//			return communicatortest.Cluster[string, string]{
//				Communicator: mytransport.New(srv.Addr()),
//				Workers:      []string{"w1", "w2"},
//				Tasks:        []string{"a", "b", "c"},
//				Hold:         srv.HoldWrites, // optional, as Cut, Linger, Pin, Restart, Refuse
//			}
//		})
//	}
//
// # What the kit sees
//
// A check that needs a switch is skipped without it, and its line in go test -v says what
// is then not found. A correct implementation passes with all switches.
//
//	     what is found                               needs            what is not seen
//	C1   answers of other calls or workers, also     –                a mix-up that needs more than a few
//	     after calls that were given up                               calls at once
//	     one worker's hang that stops others         Hold or Cut
//	C2   a list that changes later                   –                a list that changes while it is read
//	C3   a context that is ignored                   Hold, Cut or     a List that ignores it, without Cut; a
//	                                                 Linger           call that is slow without a switch
//	C4   an Add or Remove that fails when repeated   –                a task that starts twice, listed once
//	C5   Add or Remove before it is done             –; surely with   a task that List names, and that does
//	                                                 Hold, Linger     not run, or runs and is not named
//	     a write that is carried out again           –                one that is repeated before the call
//	                                                                  returns, or after Timeout/20
//	C6   an error that reads as an empty list, or    –                errors that need another fault, such as
//	     as an old one                                                a list that is too long for a message
//	     a refusal that is done or unknown           Refuse           other reasons of ErrRejected
//	     a worker that does not exist                UnknownWorkers
//	C7   a term that is lost, on any kind of call    –                numbers above 2³², if Epoch is small
//	     a write that lands after a later List       Hold             delays behind the place of Hold
//	     a Remove that outlives its leader           Linger
//	     a successor that gets calls (incarnations)  Restart          a successor at another address
//	C8   pins that are lost or wrong                 Pin              that a job starts only once
//	C9   a list that lacks what may run              Cut
//
// The kit sees what List returns, not what runs. It makes few calls: races that need load
// and faults of the machine are for tests with [Faulty] or of your own.
//
// # Faults
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

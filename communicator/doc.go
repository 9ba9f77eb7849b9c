// Package communicator helps to implement an [orchestrator.Communicator].
//
// [Func] makes one of three functions, for a service that has its calls
// already. In the folders below are an in-process cluster for tests and first
// steps (memory) and the conformance kit that every implementation should pass
// (communicatortest).
//
// # Wrappers
//
// A Communicator that wraps another, to log, count or limit its calls, has to
// pass on more than the three methods:
//
//   - the context, which carries the term that the call belongs to (see
//     [orchestrator.TermFromContext]): without it, workers refuse the writes;
//   - the errors, wrapped at most, since orchestrator.ErrRejected and its like
//     decide what is done next;
//   - the slice of List itself, since the very same slice means "unchanged";
//   - [orchestrator.Applier], if what is wrapped is one, and only then: every
//     write then goes through Apply, so a wrapper that forgets it sees none of
//     them, and one that always has it promises what it cannot do. That takes
//     two types, one that embeds the other.
//
// Every wrapper in this repository forwards Applier.
package communicator

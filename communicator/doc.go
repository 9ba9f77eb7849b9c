// Package communicator helps to implement an [orchestrator.Communicator].
//
// [Func] adapts three functions. Package memory, below this one, is an in-process
// cluster for tests and first steps. Package communicatortest is the conformance kit
// that every implementation should pass.
//
// # Wrappers
//
// A Communicator that wraps another, to log, count or limit its calls, must pass on:
//
//   - the context, which carries the call's term (see
//     [orchestrator.TermFromContext]). Without the term, workers refuse the writes;
//   - the errors, wrapped or unchanged, because errors such as
//     orchestrator.ErrRejected determine what the orchestrator does next;
//   - the slice that List returns, because the same slice means "unchanged";
//   - [orchestrator.Applier], if and only if the wrapped Communicator implements it.
//     The orchestrator makes every write to an Applier through Apply. So a wrapper
//     that passes Apply through unwrapped sees no writes, and a wrapper that always
//     has Apply promises what it may not be able to do. Use two types, of which one
//     embeds the other.
//
// Every wrapper in this repository forwards Applier.
package communicator

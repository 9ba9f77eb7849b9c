// Package handover decides, one step at a time, which write of a term may be
// sent next. It is a pure state machine over integers: the caller asks for
// calls with [Machine.Next], makes them however it likes, and reports how they
// went with [Machine.Done]; clocks come in as the events [Machine.CloseBegin],
// [Machine.CloseSecond] and [Machine.CloseBack].
//
// # What it guarantees
//
//   - One call at a time to each worker.
//   - The two halves of a move in the order that its handoff asks for. The
//     second half is sent only after the first was acknowledged; a task that was
//     stopped, and whose start was refused or not sent, is started again where
//     it came from.
//   - After a timeout nothing new begins on that worker; what has begun is
//     carried through.
//   - A receiver has at most one move under way for each start that it has
//     acknowledged in this term, and one more: so a receiver that has proved
//     nothing puts one healthy task at risk, and one that starts tasks slowly
//     leaves few of them stopped and waiting. It is the slow start of TCP,
//     applied to workers. A move that fails takes the whole credit back, and
//     where there was none, bars the receiver for the rest of the term.
//
// # Order
//
// A worker first gets what carries a begun move through, then stops and starts
// that involve nobody else, then the first halves of moves. Workers take turns,
// first come, first served, in an order that the caller gives: where it puts
// workers that answer fast first, no receiver spends its first credit on a
// source that is slow.
//
// Every step costs O(1); a move that finds its receiver without credit is
// parked there, and looked at again when the receiver has some.
package handover

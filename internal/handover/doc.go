// Package handover decides which write of a term may be sent next. It is a pure state
// machine over integers: the caller gets calls from [Machine.Next], makes them, and
// reports the results to [Machine.Done]. The events [Machine.CloseBegin],
// [Machine.CloseSecond] and [Machine.CloseBack] stand for the clock.
//
// # Guarantees
//
//   - One call at a time to each worker (C1, T7).
//   - The two halves of a move in the order of its handoff (T8). The second half is sent
//     only after the first was acknowledged. If the start of a stopped task is refused or
//     not sent, the task is given back: it is started again on its old worker.
//   - After a timeout no change begins on that worker (T7). Changes that have begun are
//     carried through (T3, T6).
//   - A receiver has at most one more move under way than it has acknowledged starts in
//     this term, its credit (T8). So an unproven receiver puts one healthy task at risk, and
//     a slow one leaves few tasks stopped and waiting. This is the slow start of TCP (RFC
//     5681), applied to workers. [Machine.FirstMoves] lets more moves begin at first. A
//     failed move takes the whole credit away, and that allowance. If there was no credit,
//     the receiver takes no more moves in this term.
//   - Where copies are limited, a start waits for the acknowledged stops that make its room
//     (P10). See [Room].
//
// # Order
//
// A worker first gets the second halves and give-backs of moves that have begun, then
// stops and starts, then the first halves of moves. Workers take turns in the order that
// the caller gives. If workers that answer fast come first, no receiver spends its first
// credit on a slow source.
//
// Every step costs O(1). A move whose receiver has no credit is parked there until the
// receiver has some.
package handover

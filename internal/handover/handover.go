package handover

import "fmt"

// The inputs and outputs of the machine.

// None stands for the end that a start or a stop does not have.
const None int32 = -1

// Change is a start (From is None), a stop (To is None) or a move.
type Change struct {
	Task       int32
	From, To   int32
	StartFirst bool // a move that starts at To before it stops at From
	Last       bool // comes after those that are not
	Paused     bool // is not begun
}

// Write is one step of a change: start or stop its task on a worker.
type Write struct {
	Change int32 // index into the changes
	Start  bool  // else stop
	Back   bool  // gives the task back to where it came from
}

// Call is what may be sent to a worker now. Without batches it holds one
// write.
type Call struct {
	Worker int32
	Writes []Write
}

// Answer is what came of one write.
type Answer uint8

// The answers.
const (
	Done     Answer = iota + 1
	Refused         // certainly not done
	Stopping        // a stop is under way
	Unknown         // perhaps done
)

// Outcome is what came of a change.
type Outcome uint8

// The outcomes.
const (
	Pending      Outcome = iota
	OutDone              // every write was acknowledged
	OutFailed            // certainly refused, or cut off half-way
	OutReturned          // stopped, not started, given back
	OutUnknown           // a write has no certain answer
	OutStopping          // the stop goes on
	OutSkipped           // not begun
	OutUnstarted         // stopped, and neither started nor given back
)

// Skip says why a change, or its second half, was not begun.
type Skip uint8

// The reasons of skipping.
const (
	NotSkipped     Skip = iota
	WindowClosed        // its time in this term was over
	WorkerTimedOut      // a call to its worker timed out before
	ReceiverFailed      // its receiver failed another move
	TermEnded           // the term was stopped
	Paused              // it failed before, and pauses
)

// String returns the reason as the end of a sentence.
func (s Skip) String() string {
	switch s {
	case NotSkipped:
		return "not skipped"
	case WindowClosed:
		return "the time for it was over"
	case WorkerTimedOut:
		return "an earlier call to the worker timed out"
	case ReceiverFailed:
		return "the receiver failed to take another task"
	case TermEnded:
		return "the term ended"
	case Paused:
		return "it failed before, and pauses"
	}
	return fmt.Sprintf("skip(%d)", uint8(s))
}

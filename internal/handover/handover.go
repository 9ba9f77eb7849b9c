package handover

import "fmt"

// None is the From of a start and the To of a stop.
const None int32 = -1

// Change is a start, a stop or a move. A start has no From, and a stop has no To.
type Change struct {
	Task       int32
	From, To   int32
	StartFirst bool // the move starts at To before it stops at From
	Last       bool // begins after the changes without Last
	Skip       Skip // why it does not begin
	// After, if it is above 0, is one more than the index of a change: the start waits until that
	// one has stopped its task, which makes room for it. Loose lets a move stop before that.
	After int32
	Loose bool
}

// Write is one step of a change: start or stop its task on a worker.
type Write struct {
	Change int32 // index into the changes
	Start  bool  // start, otherwise stop
	Back   bool  // gives the task back to its old worker
}

// Call holds the writes that may be sent to a worker now. Without batches it holds one.
type Call struct {
	Worker int32
	Writes []Write
}

// Result is the result of one write.
type Result uint8

// The results.
const (
	Done     Result = iota + 1
	Refused         // certainly not done
	Stopping        // a stop is under way
	Unknown         // perhaps done
)

// Outcome is the result of a change.
type Outcome string

// The outcomes.
const (
	Pending      Outcome = ""
	OutDone      Outcome = "done"      // every write was acknowledged
	OutFailed    Outcome = "failed"    // certainly refused, or cut off half-way
	OutReturned  Outcome = "returned"  // stopped, not started, given back
	OutUnknown   Outcome = "unknown"   // a write has no certain answer
	OutStopping  Outcome = "stopping"  // the stop is under way
	OutSkipped   Outcome = "skipped"   // not begun
	OutUnstarted Outcome = "unstarted" // stopped, and neither started nor given back
)

// Skip is why a change, or its second half, was not begun.
type Skip uint8

// The reasons of skipping.
const (
	NotSkipped     Skip = iota
	WindowClosed        // its time in this term had passed
	WorkerTimedOut      // an earlier call to its worker timed out
	ReceiverFailed      // its receiver failed another move
	TermEnded           // the term was stopped
	Paused              // it failed before, and pauses
	NoRoom              // its worker or zone is full
)

// String returns the reason as the end of a sentence.
func (s Skip) String() string {
	texts := [...]string{
		NotSkipped:     "not skipped",
		WindowClosed:   "its time in the term had passed",
		WorkerTimedOut: "an earlier call to the worker timed out",
		ReceiverFailed: "the receiver failed to take another task",
		TermEnded:      "the term ended",
		Paused:         "it failed before, and pauses",
		NoRoom:         "no stop made room for it",
	}
	if int(s) < len(texts) {
		return texts[s]
	}
	return fmt.Sprintf("skip(%d)", uint8(s))
}

package recruit

// What Enlist says of a call.

import "fmt"

// Outcome is what became of a call of Enlist. It is there to be looked at, not to
// be acted upon: whatever it is, the caller's own work is as it was.
type Outcome uint8

// The outcomes of a call.
const (
	Dismissed Outcome = iota // no job was drawn, or the one drawn is not to be had
	Done                     // a job was done
	Failed                   // it returned an error, or panicked
	Overdue                  // it was left behind
)

var outcomes = [...]string{Dismissed: "dismissed", Done: "done", Failed: "failed", Overdue: "overdue"}

// String returns the outcome in one word.
func (o Outcome) String() string {
	if int(o) >= len(outcomes) {
		return fmt.Sprintf("Outcome(%d)", uint8(o))
	}
	return outcomes[o]
}

// MarshalText returns what String does.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

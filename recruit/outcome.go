package recruit

// The result of Enlist.

import "fmt"

// Outcome is the result of a call of Enlist. It is for information only: the
// caller's own work does not depend on it.
type Outcome uint8

// The outcomes of a call.
const (
	Dismissed Outcome = iota // no job ran: none was drawn, or the one drawn could not run
	Done                     // a job ran and returned nil
	Failed                   // a job returned an error, panicked or called runtime.Goexit
	Overdue                  // a job was left behind
)

var outcomes = [...]string{Dismissed: "dismissed", Done: "done", Failed: "failed", Overdue: "overdue"}

// String returns the name of the outcome in lower case.
func (o Outcome) String() string {
	if int(o) >= len(outcomes) {
		return fmt.Sprintf("Outcome(%d)", uint8(o))
	}
	return outcomes[o]
}

// MarshalText returns the result of String.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

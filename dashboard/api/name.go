package api

import (
	"fmt"

	"github.com/f8949c05/orchestrator/history"
)

// Name is the name of a worker or a task as text. Different names may have the same text;
// Nth then counts them, from 2, in the order of the term. For the first it is 0.
type Name struct {
	Name string `json:"name"`
	Nth  int    `json:"nth,omitempty"`
}

// String returns the name as a parameter: "w1", or "w1#2" for the second of this text.
func (n Name) String() string {
	if n.Nth > 1 {
		return fmt.Sprintf("%s#%d", n.Name, n.Nth)
	}
	return n.Name
}

// LongestText bounds the texts that come from workers and users, in bytes.
const LongestText = history.LongestText

// Printable is [history.Printable]. The names and errors in answers are such texts, and
// Printable returns them unchanged.
func Printable(s string) string { return history.Printable(s) }

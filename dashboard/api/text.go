package api

// Names and times that pages and commands share.

import (
	"time"

	"github.com/f8949c05/orchestrator/history"
)

// Name is the name of a worker or a task as text, as [history.NameText] returns it.
type Name struct {
	Name string `json:"name"`
}

// String returns the name.
func (n Name) String() string { return n.Name }

// LongestText bounds the texts that come from workers and users, in bytes.
const LongestText = history.LongestText

// Printable is [history.Printable]. The names and errors in answers are such texts, and
// Printable returns them unchanged.
func Printable(s string) string { return history.Printable(s) }

// Clock returns a time as all texts have it, such as "2026-11-27 10:20:30 UTC".
func Clock(t time.Time) string { return t.UTC().Format(time.DateTime + " UTC") }

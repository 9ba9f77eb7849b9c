package api

// Names and sentences that pages and commands share.

import (
	"fmt"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
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

// HeldText returns how many moves for an even spread wait, and for the first three holds why and
// until when, without a full stop: "39 moves for an even spread wait: worker w3 is silent, until
// 2026-11-27 10:20:30 UTC at the latest". It is empty without moves and holds.
func HeldText(moves int, holds []orchestrator.Hold) string {
	text := fmt.Sprintf("%d moves for an even spread wait", moves)
	switch {
	case moves == 1:
		text = "1 move for an even spread waits"
	case moves == 0 && len(holds) == 0:
		return ""
	case moves == 0:
		text = "Moves for an even spread wait"
	}
	sep := ": "
	for _, h := range holds[:min(len(holds), 3)] {
		text += sep + orchestrator.Hold{Why: Printable(h.Why), Until: h.Until}.String()
		sep = "; "
	}
	if more := len(holds) - 3; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// FellText returns what follows from the falls of a worker, without a full stop: "fell 3 times, less
// than ten minutes apart; gains nothing for an even spread until 2026-11-27 10:20:30 UTC". falls is
// the text of the pause's error, and ends its end.
func FellText(falls string, ends time.Time) string {
	return strings.TrimPrefix(Printable(falls)+"; gains nothing for an even spread until "+Clock(ends), "; ")
}

// Line returns the problem in one line: its kind, its text, and since when, unless the text says that.
func (p Problem) Line() string {
	line := fmt.Sprintf("%s: %s", Printable(string(p.Kind)), Printable(p.Text))
	if !p.Since.IsZero() && !strings.Contains(p.Text, " since ") {
		line += fmt.Sprintf(" Since %s.", Clock(p.Since))
	}
	return line
}

// Clock returns a time as all texts have it, such as "2026-11-27 10:20:30 UTC".
func Clock(t time.Time) string { return t.UTC().Format(time.DateTime + " UTC") }

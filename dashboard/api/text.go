package api

// Sentences that pages and commands share.

import (
	"fmt"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
)

// HeldText returns how many moves for an even spread wait, and for the first three holds why and
// until when, without a full stop: "39 moves for an even spread wait: worker w3 is silent, until
// 10:20:30 at the latest". It is empty without moves and holds. now is the time of the answer.
func HeldText(moves int, holds []orchestrator.Hold, now time.Time) string {
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
		text += sep + Printable(h.Why)
		if !h.Until.IsZero() {
			text += ", until " + clock(h.Until, now) + " at the latest"
		}
		sep = "; "
	}
	if more := len(holds) - 3; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// FellText returns what follows from the falls of a worker, without a full stop: "fell 3 times in
// ten minutes; gains nothing for an even spread until 10:20:30". falls is the text of the pause's
// error, and ends its end. now is the time of the answer.
func FellText(falls string, ends, now time.Time) string {
	return strings.TrimPrefix(Printable(falls)+"; gains nothing for an even spread until "+clock(ends, now), "; ")
}

// clock returns a time of the day, with the date if it is not that of now.
func clock(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

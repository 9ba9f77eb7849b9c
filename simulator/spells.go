package simulator

// The times in which a leader does not know what it could.

import (
	"slices"
	"time"
)

// spell is a time in which a leader does not know what it could: since when,
// and until it has heard.
type spell struct {
	since, heard time.Time
	serial       uint64 // of a worker that was removed
}

// covers says whether it was so at a moment.
func (s spell) covers(at time.Time) bool { return s.meets(at, at) }

// meets says whether it was so at any moment from one time to another.
func (s spell) meets(from, to time.Time) bool {
	return !s.since.IsZero() && !s.since.After(to) && (s.heard.IsZero() || s.heard.After(from))
}

// spells are those of one kind, in the order of time.
type spells []spell

func (s spells) meet(from, to time.Time) bool {
	return slices.ContainsFunc(s, func(one spell) bool { return one.meets(from, to) })
}

// end ends those that last, and of which it is so.
func (s spells) end(at time.Time, so func(spell) bool) {
	for i := range s {
		if s[i].covers(at) && so(s[i]) {
			s[i].heard = at
		}
	}
}

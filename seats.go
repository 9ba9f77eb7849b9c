package orchestrator

import (
	"maps"
	"time"
)

// How workers come and go in what a leader knows of them: functions of values,
// like fleet.go.

// seat is a member as a term sees it.
type seat[W comparable] struct {
	name     W
	serial   uint64
	draining bool
}

// part removes from the fleet who is no longer a member. Both seats and the
// workers are in the order of their serials, which rise.
func (f *fleet[W, T]) part(seats []seat[W]) (gone []*worker[W, T]) {
	var stay []*worker[W, T]
	for _, w := range f.workers {
		for len(seats) > 0 && seats[0].serial < w.serial {
			seats = seats[1:]
		}
		if len(seats) > 0 && seats[0].serial == w.serial {
			stay = append(stay, w)
			continue
		}
		legacy := w.sinceAnswer()
		f.markLost(w)
		w.maybe = legacy
		gone = append(gone, w)
	}
	f.workers = stay
	return gone
}

// sinceAnswer returns the starts sent to w since its last answer that may have
// happened, and were not followed by an acknowledged stop.
func (w *worker[W, T]) sinceAnswer() set {
	starts := make(set)
	for i, id := range w.ackedIDs {
		if w.acked[i].Op == OpAdd {
			starts.add(id)
		} else {
			delete(starts, id)
		}
	}
	maps.Copy(starts, w.maybe) // an acknowledged stop has taken its task out of these
	return starts
}

// join takes over who is a member, once those were parted with who are gone.
//
// Who comes in the place of one of the same name may hold what was started there
// last:
//
//  1. A term has begun, and asks w1.
//  2. w1 is removed, since its process is gone, and added again, for a new one.
//  3. The term goes on, and starts a task on w1: the new process gets it.
//  4. The next term sees the removal. To forget the start with the w1 of step 1,
//     and then to hear nothing of the other, would start the task elsewhere too.
func (f *fleet[W, T]) join(seats []seat[W], gone []*worker[W, T], now time.Time, lineOf func(W) *line[W, T]) {
	legacy := make(map[W]set, len(gone))
	for _, w := range gone {
		legacy[w.name] = w.maybe
	}
	for i, s := range seats {
		if i == len(f.workers) {
			ln := lineOf(s.name)
			maybe, ok := legacy[s.name]
			if !ok {
				maybe = ln.legacy
			}
			f.workers = append(f.workers, &worker[W, T]{
				name: s.name, serial: s.serial, line: ln, maybe: maps.Clone(maybe),
				initial: !f.started, since: now, awaited: true,
			})
		}
		f.workers[i].draining = s.draining
	}
	f.started = f.started || len(seats) > 0
}

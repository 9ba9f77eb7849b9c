package orchestrator

import (
	"maps"
	"time"
)

// Workers that join and leave the fleet: pure functions, like those of fleet.go.

// seat is a member as a term sees it.
type seat[W comparable] struct {
	name     W
	serial   uint64
	draining bool
}

// part removes the workers that are no longer members, and returns them. Seats and
// workers are in ascending order of their serials.
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
	maps.Copy(starts, w.maybe) // an acknowledged stop removes its task from maybe
	return starts
}

// join adds the new members, after part has removed the others.
//
// A worker that takes the name of a removed one may run the tasks that were started on
// that one last:
//
//  1. A term has begun and lists w1.
//  2. w1 is removed, because its process is gone, and added again for a new process.
//  3. The term starts a task on w1. The new process receives the call.
//  4. The next term sees the removal. If it forgot the start together with the first
//     w1, and the new process did not answer, the task would start elsewhere too.
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

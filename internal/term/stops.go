package term

import (
	"time"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// stop is a stop that did not succeed.
type stop struct {
	since    time.Time // when it was first sent
	failures int
	turn     uint64 // the term in which it was last tried, or could have been
	err      error
	// surplus: it was not part of a move.
	surplus bool
	// stopping: by the last answer, the stop is under way. refused: by the last answer,
	// it will not happen.
	stopping, refused bool
}

// leaves reports whether the copy counts as gone while its stop pauses: it is a
// surplus copy, and the stop may still happen. Otherwise it counts as pinned: it
// does not move, and another surplus copy stops in its place.
func (s *stop) leaves() bool {
	return s.surplus && (s.stopping || !s.refused && s.failures < 3)
}

// stopFailed records an unsuccessful stop of a task. A stop under way counts as
// failed when it has taken three timeouts.
func (f *Fleet) stopFailed(w *Worker, task int32, surplus bool, r *Result, now Moment) {
	s := w.stops[task]
	if s == nil {
		s = &stop{since: now.Time}
		if w.stops == nil {
			w.stops = make(map[int32]*stop)
		}
		w.stops[task] = s
	}
	s.surplus, s.err = surplus, r.Err
	s.stopping, s.refused = r.Answer == handover.Stopping, r.Answer == handover.Refused
	if !s.stopping || now.Time.Sub(s.since) >= 3*f.cfg.Timeout {
		s.failures++
		s.turn = now.Term
		w.stopPause.fail(now, f.cfg.MaxPause, r.Err, maxPauseTerms)
	}
}

// stopSucceeded records an acknowledged stop. If the stop had failed before, stops work
// again, and the others are tried immediately.
func (w *Worker) stopSucceeded(task int32) {
	if s := w.stops[task]; s != nil && s.failures > 0 {
		w.stops, w.stopPause = nil, Pause{}
	}
	delete(w.stops, task)
}

// stopFails reports whether the last stop of a task on the worker failed.
func (w *Worker) stopFails(task int32) bool {
	s := w.stops[task]
	return s != nil && s.failures > 0
}

// retry returns the task on the worker whose failed stop may be tried again in this term,
// or None. The tasks take turns, one in a term, because a stop that hangs blocks the
// others on its worker, and the plan keeps a place for its task elsewhere.
func (w *Worker) retry(now Moment) int32 {
	next := handover.None
	if len(w.stops) == 0 || w.stopPause.active(now) {
		return next
	}
	var of *stop
	for _, task := range w.runs {
		if s := w.stops[task]; s != nil && s.failures > 0 && (of == nil || s.turn < of.turn) {
			next, of = task, s
		}
	}
	return next
}

package term

// How answers and silence change the view of a worker (T4, T5).

import (
	"maps"
	"math"
	"slices"
	"time"
)

// massLossHold bounds how long a mass loss keeps workers from being declared lost.
const massLossHold = 5 * time.Minute

// HoldUntilRemoved is a grace period that never ends.
const HoldUntilRemoved time.Duration = math.MaxInt64

// Answer is a worker's answer to List.
type Answer struct {
	// Tasks holds the listed tasks, as often as they are listed. The fleet keeps it. It
	// is ignored if Changed is false, because the answer repeats the last one.
	Tasks   []int32
	Changed bool
	// Pinned is how many of the last tasks must not move.
	Pinned int
	// Held: the worker is silent, and Tasks is the most that it may run (C9).
	Held bool
	At   time.Time
	Took time.Duration // the duration of the call
}

// Answer records a worker's answer, and reports whether the worker had answered before and
// then not. A held answer leaves the worker silent since its last other answer, or lost.
// It takes a step for each task if the answer changed or writes were
// acknowledged since the last one, and no time otherwise.
func (f *Fleet) Answer(w *Worker, a Answer, now Moment) (returned bool) {
	if a.Held && w.State == Lost {
		w.Missed = a.At
		return false
	}
	returned = w.Heard && w.State != Answering && !a.Held
	if a.Changed {
		w.ids = a.Tasks
		if len(w.ids) > 0 {
			f.grow(int(slices.Max(w.ids)) + 1)
		}
	}
	if a.Changed || len(w.acked) > 0 || w.State == Lost {
		before := w.runs
		w.runs, w.Duplicates = f.distinct(w.ids)
		gone := 0
		for _, id := range w.runs {
			f.flags[id] |= taskSeen
			f.find(id, w.Serial)
		}
		for _, id := range before { // the tasks in w.ids have the latest stamp
			if f.stamps[id] != f.round && w.stops[id] == nil {
				f.lose(id, loss{worker: w.Serial, vanished: true})
				gone++
			}
		}
		if gone == len(before) && (gone > 1 || gone == 1 && returned) && rulesOf(w).Host == "" {
			f.fall(w, now.Time) // it is back without its tasks; with a Host, a process that is back is another worker
		}
	}
	unsure := w.unsure
	w.pins, w.acked, w.unsure = min(a.Pinned, len(w.ids)), nil, nil
	w.Heard, w.Late, w.Stuck, w.took = true, false, false, a.Took
	if a.Held {
		w.State, w.Missed = Silent, a.At
	} else {
		f.isBack(w, now.Time)
		w.State, w.Missed, w.Since = Answering, time.Time{}, a.At
	}
	if len(w.stops) > 0 {
		round := f.stamp(w.runs)
		maps.DeleteFunc(w.stops, func(task int32, _ *stop) bool { return f.stamps[task] != round })
	}
	if len(w.stops) == 0 && w.stopPause.Failures > 0 {
		w.stopPause = Pause{}
	}
	f.recordNotStarted(w, unsure, now)
	return returned
}

// distinct returns ids without repetitions, and the number of repetitions. Without any,
// it returns ids itself.
func (f *Fleet) distinct(ids []int32) (once []int32, repeated int) {
	round := f.nextRound()
	for _, id := range ids {
		if f.stamps[id] == round {
			repeated++
		}
		f.stamps[id] = round
	}
	if repeated == 0 {
		return ids, 0
	}
	round = f.nextRound()
	for _, id := range ids {
		if f.stamps[id] != round {
			once = append(once, id)
		}
		f.stamps[id] = round
	}
	return once, repeated
}

// recordNotStarted begins the pauses again of those unsure starts of which a worker's answer
// shows that they have not happened, if that was not known for some terms.
func (f *Fleet) recordNotStarted(w *Worker, unsure Set, now Moment) {
	if len(unsure) == 0 {
		return
	}
	round := f.stamp(w.runs)
	for task := range unsure {
		if t := f.breakers.tasks[task]; f.stamps[task] != round && t != nil && t.on[w.Serial] != nil {
			t.on[w.Serial].restart(now, f.breakers.longest)
		}
	}
}

// ClearFailures forgets the failed starts whose tasks turn out to run. It takes O(tasks)
// for each worker that failed to start one.
func (f *Fleet) ClearFailures(now Moment) {
	failed := f.breakers.failedWorkers()
	for _, w := range f.Workers {
		if !failed[w.Serial] || w.State != Answering {
			continue
		}
		for _, task := range w.runs {
			f.breakers.happened(taskOn{Task: task, Worker: w.Serial}, now)
		}
	}
}

// Miss records that a call to a worker failed too late for its term.
func (w *Worker) Miss(at time.Time) { w.Missed = at }

// NoAnswer records that a worker did not answer this term. missed: its call failed, or had
// the whole timeout. blocked: it was not called, because an own call has not returned. An
// answering worker that did not miss is late until it was without an answer for the grace
// period, or for as long as it is blocked.
func (w *Worker) NoAnswer(missed, blocked bool, now time.Time, grace time.Duration) {
	w.Stuck = blocked
	if missed {
		w.Missed = now
	}
	w.Late = w.State == Answering && w.Missed.IsZero() && (blocked || now.Sub(w.Since) < grace)
	if !w.Late && w.State != Lost {
		w.State = Silent
	}
}

// IsDue reports whether a silent worker is declared lost if it misses this term too. The
// term waits for the answer of such a worker.
func (f *Fleet) IsDue(w *Worker, now time.Time, grace time.Duration) bool {
	return w.State == Silent && now.Sub(w.Since) >= grace && f.massLossSince.IsZero()
}

// MarkLost declares a worker lost: it holds no task any more.
func (f *Fleet) MarkLost(w *Worker) {
	for _, id := range w.holds() {
		f.lose(id, loss{worker: w.Serial})
	}
	w.State = Lost
	w.runs, w.unsure, w.acked, w.stops = nil, nil, nil, nil
}

// loss is a worker that had a task.
type loss struct {
	worker uint64 // its serial
	// vanished: the worker answers and does not list the task any more, and no stop of it
	// was sent. Otherwise the worker was declared lost or removed.
	vanished bool
}

// lose records that a worker has a task no more. Snapshots share the lists.
func (f *Fleet) lose(task int32, l loss) {
	f.losses[task] = append(slices.Clip(f.losses[task]), l)
}

// find records that a worker has a task again, or that another instance has replaced the
// one that it lost.
func (f *Fleet) find(task int32, worker uint64) {
	if len(f.losses) == 0 || f.losses[task] == nil {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(f.losses[task]), func(l loss) bool { return l.worker == worker })
	if f.losses[task] = rest; len(rest) == 0 {
		delete(f.losses, task)
	}
}

// Losers returns the serials of the workers to which a [Change] may refer as the loser of
// its task. A serial may come more than once.
func (f *Fleet) Losers() (serials []uint64) {
	for _, all := range f.losses {
		for _, l := range all {
			serials = append(serials, l.worker)
		}
	}
	return serials
}

// Judge declares silent workers lost (T4), unless so many are silent that it must be
// the leader's own network (T5). It returns the indices of the workers that it declared
// lost, and whether a mass loss protects the others.
//
// A worker is declared lost when a call to it fails at the end of its grace period or
// later. An earlier failure does not count: no term may have run since, and the answer
// to the present one may be on its way.
//
// The protection outlasts the mass loss by a timeout:
//
//  1. The network fails for longer than the grace period, and returns.
//  2. A term lists all workers, and waits for those that answered the last term in time.
//  3. When the term continues, half of the workers have answered, and the answers of the
//     others are on their way. Declaring these lost now would be wrong.
func (f *Fleet) Judge(now time.Time, grace time.Duration) (lost []int, massLoss bool) {
	members, silent := 0, 0
	for _, w := range f.Workers {
		if w.State != Lost {
			members++
		}
		if w.State == Silent {
			silent++
		}
	}
	switch {
	case members >= 3 && float64(silent) > f.cfg.MaxLoss*float64(members):
		f.massLossEnded = time.Time{}
		if f.massLossSince.IsZero() {
			f.massLossSince = now
		}
	case f.massLossSince.IsZero():
	case f.massLossEnded.IsZero() && silent > 0:
		f.massLossEnded = now
	case silent == 0 || now.Sub(f.massLossEnded) >= f.cfg.Timeout:
		f.massLossSince, f.massLossEnded = time.Time{}, time.Time{}
	}
	massLoss = !f.massLossSince.IsZero() && grace > 0 && now.Sub(f.massLossSince) < massLossHold
	if massLoss || grace == HoldUntilRemoved {
		return nil, massLoss
	}
	for i, w := range f.Workers {
		if w.State == Silent && !w.Missed.IsZero() && w.Missed.Sub(w.Since) >= grace {
			f.fall(w, now)
			f.MarkLost(w)
			lost = append(lost, i)
		}
	}
	return lost, false
}

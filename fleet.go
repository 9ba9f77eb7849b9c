package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/breaker"
	"github.com/f8949c05/orchestrator/internal/handover"
)

// The leader's view of its workers, and how answers, silence and acknowledged writes
// change it (T4, T5). Everything here is pure: no calls, no locks, no clock.

// fleet is the leader's view of the workers, in the order in which they were added.
type fleet[W, T comparable] struct {
	workers []*worker[W, T]
	version uint64 // of the member table that workers was made from

	// started: there was a term with workers. The workers of the first such term are
	// initial.
	started bool
	// massLossSince is when too many workers fell silent, and massLossEnded when enough
	// answered again. They are zero without a mass loss.
	massLossSince, massLossEnded time.Time

	// flags holds the flags of the tasks, by number.
	flags []taskFlags
	// stamps holds the round in which each task was last visited, by number.
	stamps []uint32
	round  uint32
}

// taskFlags is the state of a task beyond its workers.
type taskFlags uint8

const (
	// taskSeen: some worker has listed it or acknowledged its start.
	taskSeen taskFlags = 1 << iota
	// taskLost: a worker that ran it was declared lost or removed since its last start.
	taskLost
	// taskSuspect: it is outside the plan of the term that is being decided.
	taskSuspect
	// taskStuck: some worker failed to stop it. Other tasks move before it.
	taskStuck
)

// set is a set of tasks, by number. A nil set is empty.
type set map[int32]struct{}

func (s set) add(task int32) { s[task] = struct{}{} }

// sorted returns the members in order.
func (s set) sorted() []int32 { return slices.Sorted(maps.Keys(s)) }

// worker is the leader's view of one worker.
type worker[W, T comparable] struct {
	// Most passes over all workers read only the first fields, so these are close
	// together.

	name     W
	serial   uint64
	slot     *callSlot[W, T]
	state    State
	draining bool
	initial  bool
	heard    bool
	// awaited: a term waits for its answer. Its last answer was in time, or it is new.
	awaited bool
	// fresh: an answer that came too late for the last term serves this one.
	fresh bool
	// late: this term has no answer, and the call may still be under way. lateFor counts
	// the consecutive terms of this kind.
	late    bool
	lateFor int
	// runs holds the numbers of the tasks of its answer, once each, with the acknowledged
	// writes since. While acked is empty it may share its memory with ids.
	runs []int32
	// pins is how many tasks at the end of list must not move (C8).
	pins int
	// maybe holds the starts sent since the last answer that were neither acknowledged
	// nor certainly refused.
	maybe set
	// stops holds the stops that did not succeed, as long as their task is listed. While
	// stopPause holds, none that failed is tried again.
	stops map[int32]*stop
	// gain is how many tasks the worker may gain in the term limited, because it could
	// not begin all its starts in the term before.
	gain    int32
	limited uint64

	// since is the time of its last answer. Before the first answer it is the time at
	// which the worker was added or, for an initial worker, of the first term with
	// workers.
	since time.Time
	// asked is the number of the last term that called List of it.
	asked uint64
	took  time.Duration // of the call of its last answer

	list       []T     // its last answer; must not change
	ids        []int32 // the numbers of list, one each
	duplicates int
	acked      []Write[T] // the writes acknowledged since list, oldest first; only appended to
	ackedIDs   []int32    // the numbers of their tasks; nil once the worker is lost

	// missed is when a call last failed or used up its timeout, zero if an answer came
	// after that. A worker that missed is silent, not late: a late one may not have
	// been called.
	missed    time.Time
	stopPause breaker.Pause
	err       error // why it is silent
	// failed is the text of the failure of its last List call; "" if it did not fail.
	failed string
}

// noLimit lets the plan decide how many tasks a worker gains.
const noLimit = -1

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
func (w *worker[W, T]) stopFailed(task int32, surplus bool, err error, now breaker.Moment, cfg *config) {
	s := w.stops[task]
	if s == nil {
		s = &stop{since: now.Time}
		if w.stops == nil {
			w.stops = make(map[int32]*stop)
		}
		w.stops[task] = s
	}
	s.surplus, s.err = surplus, err
	s.stopping, s.refused = errors.Is(err, ErrStopping), errors.Is(err, ErrRejected)
	if !s.stopping || now.Time.Sub(s.since) >= 3*cfg.timeout {
		s.failures++
		s.turn = now.Term
		w.stopPause.Fail(now, cfg.maxPause, err)
		if isTimeout(err) {
			w.stopPause.Align(now)
		}
	}
}

// isTimeout reports whether a call used up its time.
func isTimeout(err error) bool {
	return errors.Is(err, ErrSilent) || errors.Is(err, context.DeadlineExceeded)
}

// stopped records an acknowledged stop. If the stop had failed before, stops work again,
// and the others are tried immediately.
func (w *worker[W, T]) stopped(task int32) {
	if s := w.stops[task]; s != nil && s.failures > 0 {
		w.stops, w.stopPause = nil, breaker.Pause{}
	}
	delete(w.stops, task)
}

// retry returns the task on the worker whose failed stop may be tried again in this term,
// or None. The tasks take turns, one in a term, because a stop that hangs blocks the
// others on its worker, and the plan keeps a place for its task elsewhere.
func (w *worker[W, T]) retry(now breaker.Moment) int32 {
	next := handover.None
	if w.stopPause.Active(now) {
		return next
	}
	var of *stop
	if len(w.stops) > 0 {
		for _, task := range w.runs {
			if s := w.stops[task]; s != nil && s.failures > 0 && (of == nil || s.turn < of.turn) {
				next, of = task, s
			}
		}
	}
	return next
}

// applyAnswer records a worker's answer, whose first same names equal those of the
// previous answer. id returns the number of a name.
//
// If all names are the same it takes no time. Otherwise it takes a step for each name,
// and a look-up for each name at a new position: for all names if a worker answers in a
// different order each time.
func (f *fleet[W, T]) applyAnswer(w *worker[W, T], list []T, pins, same int, at time.Time, id func(T) int32) {
	unchanged := w.heard && same == len(list) && same == len(w.list)
	if !unchanged {
		f.compare(w, list, same, id)
	}
	if !unchanged || len(w.acked) > 0 || w.state == Lost {
		w.runs, w.duplicates = f.distinct(w.ids)
		for _, id := range w.runs {
			f.flags[id] = f.flags[id]&^taskLost | taskSeen
		}
	}
	w.list, w.pins, w.acked, w.ackedIDs, w.maybe = list, min(pins, len(list)), nil, nil, nil
	w.heard, w.late, w.lateFor, w.missed, w.since = true, false, 0, time.Time{}, at
	w.state, w.err, w.failed = Answering, nil, ""
	if len(w.stops) > 0 {
		round := f.stamp(w.runs)
		maps.DeleteFunc(w.stops, func(task int32, _ *stop) bool { return f.stamps[task] != round })
	}
	if len(w.stops) == 0 && w.stopPause.Failures > 0 {
		w.stopPause = breaker.Pause{}
	}
}

// deny records the starts that a worker's answer shows not to have happened, among those
// that were unsure.
func (f *fleet[W, T]) deny(w *worker[W, T], unsure set, b *breaker.Breakers, now breaker.Moment) {
	if len(unsure) == 0 {
		return
	}
	round := f.stamp(w.runs)
	for task := range unsure {
		if f.stamps[task] != round {
			b.Missing(breaker.Pair{Task: task, Worker: w.serial}, now)
		}
	}
}

// stamp gives the tasks the stamp of a new round, and returns it.
func (f *fleet[W, T]) stamp(tasks []int32) uint32 {
	round := f.nextRound()
	for _, id := range tasks {
		f.stamps[id] = round
	}
	return round
}

// alike returns the number of equal names at the start of two lists. If they are the same
// slice (C2), it compares none. If T is an interface type, a name may be of a type that
// cannot be compared; then it returns 0, and applyAnswer fails.
func alike[T comparable](a, b []T) (n int) {
	n = min(len(a), len(b))
	if n == 0 || &a[0] == &b[0] {
		return n
	}
	defer func() {
		if recover() != nil {
			n = 0
		}
	}()
	for i := range a[:n] {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// compare sets w.ids to the numbers of list, whose first n names equal those of w.list.
// It walks along both lists, so that it looks up only names that differ: a look-up costs
// twenty times as much as a comparison.
func (f *fleet[W, T]) compare(w *worker[W, T], list []T, n int, id func(T) int32) {
	old := w.list
	ids := append(make([]int32, 0, len(list)), w.ids[:n]...)
	for i, j := n, n; j < len(list); {
		switch {
		case i < len(old) && list[j] == old[i]:
			ids = append(ids, w.ids[i])
			i, j = i+1, j+1
		case i+1 < len(old) && list[j] == old[i+1]: // old[i] is gone
			i++
		default:
			ids = append(ids, id(list[j]))
			if j+1 >= len(list) || i >= len(old) || list[j+1] != old[i] { // not an insertion
				i++
			}
			j++
		}
	}
	w.ids = ids
	if len(ids) > 0 {
		f.grow(int(slices.Max(ids)) + 1)
	}
}

// grow makes room for the flags and stamps of n tasks.
func (f *fleet[W, T]) grow(n int) {
	if n > len(f.flags) {
		f.flags = append(f.flags, make([]taskFlags, n-len(f.flags))...)
		f.stamps = append(f.stamps, make([]uint32, n-len(f.stamps))...)
	}
}

// distinct returns ids without repetitions, and the number of repetitions. Without any,
// it returns ids itself.
func (f *fleet[W, T]) distinct(ids []int32) (once []int32, repeated int) {
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

// nextRound returns a value that no stamp has.
func (f *fleet[W, T]) nextRound() uint32 {
	f.round++
	if f.round == 0 { // wrapped around
		clear(f.stamps)
		f.round = 1
	}
	return f.round
}

// unanswered returns the error of a worker whose call is under way. It includes the
// failure of the previous call, because a worker that refuses each call late would look
// slow otherwise. That failure is text only, so that errors.Is does not find it.
func (w *worker[W, T]) unanswered() error {
	if w.failed == "" {
		return ErrSilent
	}
	return fmt.Errorf("%w, and the last call failed: %s", ErrSilent, w.failed)
}

// applyNoAnswer records that a worker did not answer this term. missed: its call
// failed, or had the whole timeout. An answering worker that did not miss is late
// until it was without an answer for the grace period.
func (f *fleet[W, T]) applyNoAnswer(w *worker[W, T], missed bool, err error, now time.Time, grace time.Duration) {
	if missed {
		w.missed = now
	}
	w.err = err
	w.late = w.state == Answering && w.missed.IsZero() && now.Sub(w.since) < grace
	if w.late {
		w.lateFor++
		return
	}
	if w.state != Lost {
		w.state = Silent
	}
}

// isDue reports whether a silent worker is declared lost if it misses this term too. The
// term waits for the answer of such a worker.
func (f *fleet[W, T]) isDue(w *worker[W, T], now time.Time, grace time.Duration) bool {
	return w.state == Silent && now.Sub(w.since) >= grace && f.massLossSince.IsZero()
}

// markLost declares a worker lost: it holds no task.
func (f *fleet[W, T]) markLost(w *worker[W, T]) {
	for _, id := range w.holds() {
		f.flags[id] |= taskLost
	}
	w.state = Lost
	w.runs, w.maybe, w.ackedIDs, w.stops = nil, nil, nil, nil
}

// judge declares silent workers lost (T4), unless so many are silent that it must be
// the leader's own network (T5). It returns the workers that it declared lost, and
// whether a mass loss protects the others.
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
func (f *fleet[W, T]) judge(now time.Time, cfg *config, grace time.Duration) (lost []*worker[W, T], massLoss bool) {
	members, silent := 0, 0
	for _, w := range f.workers {
		if w.state != Lost {
			members++
		}
		if w.state == Silent {
			silent++
		}
	}
	switch {
	case members >= 3 && float64(silent) > cfg.maxLoss*float64(members):
		f.massLossEnded = time.Time{}
		if f.massLossSince.IsZero() {
			f.massLossSince = now
		}
	case f.massLossSince.IsZero():
	case f.massLossEnded.IsZero() && silent > 0:
		f.massLossEnded = now
	case silent == 0 || now.Sub(f.massLossEnded) >= cfg.timeout:
		f.massLossSince, f.massLossEnded = time.Time{}, time.Time{}
	}
	massLoss = !f.massLossSince.IsZero() && grace > 0 && now.Sub(f.massLossSince) < massLossHold
	if massLoss || grace == HoldUntilRemoved {
		return nil, massLoss
	}
	for _, w := range f.workers {
		if w.state == Silent && !w.missed.IsZero() && w.missed.Sub(w.since) >= grace {
			f.markLost(w)
			lost = append(lost, w)
		}
	}
	return lost, false
}

// neverAnswered returns a worker that may hold any task: an initial one that has not
// answered and is not lost.
func (f *fleet[W, T]) neverAnswered() *worker[W, T] {
	for _, w := range f.workers {
		if w.initial && !w.heard && w.state == Silent {
			return w
		}
	}
	return nil
}

// didStart records an acknowledged start, which settle applies.
func (f *fleet[W, T]) didStart(w *worker[W, T], id int32, name T) {
	f.flags[id] = f.flags[id]&^taskLost | taskSeen
	w.acked = append(w.acked, Write[T]{Op: OpAdd, Task: name})
	w.ackedIDs = append(w.ackedIDs, id)
}

// didStop records an acknowledged stop, which settle applies.
func (w *worker[W, T]) didStop(id int32, name T) {
	delete(w.maybe, id)
	w.acked = append(w.acked, Write[T]{Op: OpRemove, Task: name})
	w.ackedIDs = append(w.ackedIDs, id)
}

// settle applies the acknowledged writes of a term to w.runs in one pass, which takes
// O(runs + writes).
func (f *fleet[W, T]) settle(w *worker[W, T]) {
	if len(w.ackedIDs) == 0 {
		return
	}
	// The last write for a task decides. Stops are stamped with one round, and starts
	// with the next.
	stops, starts := f.nextRound(), f.nextRound()
	if starts < stops {
		stops, starts = f.nextRound(), f.nextRound()
	}
	for i, id := range w.ackedIDs {
		f.stamps[id] = stops
		if w.acked[i].Op == OpAdd {
			f.stamps[id] = starts
		}
	}
	runs := make([]int32, 0, len(w.runs)+len(w.ackedIDs))
	for _, id := range w.runs {
		if f.stamps[id] != stops {
			runs = append(runs, id)
			f.stamps[id] = 0 // present, so that it is not appended again
		}
	}
	for _, id := range w.ackedIDs {
		if f.stamps[id] == starts {
			runs = append(runs, id)
			f.stamps[id] = 0
		}
	}
	w.runs = runs
}

// holds returns the numbers of the tasks that w runs or may run; a number may
// appear twice.
func (w *worker[W, T]) holds() []int32 {
	if len(w.maybe) == 0 {
		return w.runs
	}
	return slices.Concat(w.runs, w.maybe.sorted())
}

// mark calls f with the number of every task that the fleet refers to.
func (f *fleet[W, T]) mark(mark func(task int32)) {
	for _, w := range f.workers {
		for _, ids := range [][]int32{w.ids, w.runs, w.maybe.sorted()} {
			for _, id := range ids {
				mark(id)
			}
		}
		for task := range w.stops {
			mark(task)
		}
	}
}

// bySerial returns the worker with a serial, or nil if it was removed.
func (f *fleet[W, T]) bySerial(serial uint64) *worker[W, T] {
	i, ok := slices.BinarySearchFunc(f.workers, serial, func(w *worker[W, T], s uint64) int {
		return cmp.Compare(w.serial, s)
	})
	if !ok {
		return nil
	}
	return f.workers[i]
}

// runsNothing reports whether the worker with a serial runs no task or was removed.
func (f *fleet[W, T]) runsNothing(serial uint64) bool {
	w := f.bySerial(serial)
	return w == nil || len(w.runs) == 0
}

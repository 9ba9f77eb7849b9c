package orchestrator

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/breaker"
	"github.com/f8949c05/orchestrator/internal/handover"
)

// What a leader knows of its workers, and how answers, silence and
// acknowledged writes change that (T4, T5). Everything here is a function of
// values: no calls, no locks, no clock.

// fleet is all that a leader knows of the workers, in the order they were
// added.
type fleet[W, T comparable] struct {
	workers []*worker[W, T]
	version uint64 // of the member table that workers was made from

	// started: there was a term with workers. Those that were in it are initial.
	started bool
	// massLossSince is when too many workers fell silent at once, and
	// massLossEnded when enough answered again; zero where neither is so.
	massLossSince, massLossEnded time.Time

	// flags holds what is remembered of tasks, by number.
	flags []taskFlags
	// stamps holds, by task number, in which round a task was last met.
	stamps []uint32
	round  uint32
}

// taskFlags is what is remembered of a task beyond who runs it.
type taskFlags uint8

const (
	// taskSeen: some worker has listed it or acknowledged its start.
	taskSeen taskFlags = 1 << iota
	// taskLost: a worker that ran it was lost or removed since it was last
	// started.
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

// worker is what a leader knows of one worker.
type worker[W, T comparable] struct {
	// Most passes over all workers look at the first fields only, so they stand
	// close together.

	name     W
	serial   uint64
	line     *line[W, T]
	state    State
	draining bool
	initial  bool
	heard    bool
	// awaited: a term waits for its answer. It answered in time last, or is new.
	awaited bool
	// fresh: an answer that came after the last term went on serves this one.
	fresh bool
	// late: this term has no answer, and its call may still be under way. lateFor
	// counts the terms for which that has been so.
	late    bool
	lateFor int
	// runs holds the numbers of the tasks of its answer, once each, with the
	// acknowledged writes since applied. It may share its memory with ids while
	// acked is empty.
	runs []int32
	// pins is how many tasks at the end of list must not be moved (C8).
	pins int
	// maybe holds the starts sent since the last answer that were neither
	// acknowledged nor certainly refused.
	maybe set
	// stops holds the stops that did not succeed, as long as their task is listed.
	// While stopPause holds, none that failed is tried again.
	stops map[int32]*stop
	// gain is how many tasks the worker may gain in the term limited, because it could
	// not begin all that it was given in the term before.
	gain    int32
	limited uint64

	// since is the time of its last answer. Before the first answer it is when the
	// worker was added, or, for an initial worker, the first term that had workers.
	since time.Time
	// asked is the number of the term that last asked it.
	asked uint64
	took  time.Duration // by its last answer

	list       []T     // its last answer, not to be changed
	ids        []int32 // the numbers of list, one each
	duplicates int
	acked      []Write[T] // the writes that runs has beyond it, oldest first; only ever appended to
	ackedIDs   []int32    // the numbers of their tasks; nil once it is lost

	// missed is when a call last failed, or had had the whole timeout, if that was after
	// its last answer. Then the worker is not late but silent; otherwise it may not
	// have been asked.
	missed    time.Time
	stopPause breaker.Pause
	err       error // why it is silent
	// failed is the text of the failure of its last List call; "" if it did not fail.
	failed string
}

// noLimit as what a worker may gain lets the plan decide.
const noLimit = -1

// stop is a stop that did not succeed.
type stop struct {
	since    time.Time // when it was first sent
	failures int
	turn     uint64 // the term in which it was last tried, or could have been
	err      error
	// surplus: it was no part of a move.
	surplus bool
	// stopping: the latest answer was that the stop is under way; refused: that
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
	}
}

// stopped records an acknowledged stop. If it failed before, stops work again, and
// the others are tried immediately.
func (w *worker[W, T]) stopped(task int32) {
	if s := w.stops[task]; s != nil && s.failures > 0 {
		w.stops, w.stopPause = nil, breaker.Pause{}
	}
	delete(w.stops, task)
}

// retry returns the one task on the worker whose failed stop may be tried again in
// this term, or None: they take turns. It is only one, because a stop that hangs blocks the others on its
// worker, and the plan keeps a place for it elsewhere.
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

// applyAnswer records a worker's answer. Its first same names are those of the
// answer before. id gives names their numbers.
//
// If all names are the same there is nothing to do. Otherwise it takes a step for
// each name, and a look-up for each name that is not where it was: for all of them
// if a worker answers in another order each time.
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

// deny records that a worker answered without the starts that may have happened.
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

// alike returns how many names two lists have in common, from their start. If they
// are the very same slice (C2), it looks at none. If T is an interface type, a name
// may be of a type that cannot be compared; then it returns 0, and applyAnswer fails.
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

// compare makes w.ids the numbers of list, of which the first n names are those
// of the list that w answered before. It walks along both, so that only names
// that differ are looked up: to look up a name costs twenty times as much as to
// see that it is the same.
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

// grow makes room for what is remembered of n tasks.
func (f *fleet[W, T]) grow(n int) {
	if n > len(f.flags) {
		f.flags = append(f.flags, make([]taskFlags, n-len(f.flags))...)
		f.stamps = append(f.stamps, make([]uint32, n-len(f.stamps))...)
	}
}

// distinct returns ids without repetitions, and how many there were. Without
// any, it returns ids itself.
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

// unanswered is the error of a worker whose call is under way. It tells how the
// call before failed, because a worker that refuses each call a moment later would
// look slow otherwise. That failure is text only: errors.Is must not find it.
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

// isDue reports whether a silent worker is lost if it misses this term too. Then the
// term waits for its answer.
func (f *fleet[W, T]) isDue(w *worker[W, T], now time.Time, grace time.Duration) bool {
	return w.state == Silent && now.Sub(w.since) >= grace && f.massLossSince.IsZero()
}

// markLost makes a worker hold nothing.
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
// A worker is lost when a call to it fails at the end of its grace period or later.
// An earlier failure does not count: there may have been no term since, and the answer
// to the present one may be on its way.
//
// The protection outlasts the mass loss by a timeout:
//
//  1. The network is away for longer than the grace period, and comes back.
//  2. A term asks all workers, and waits for those that answered in time last term.
//  3. Half of the workers have answered when it goes on; the answers of the others
//     are on their way. To declare these lost now would be wrong.
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

// neverAnswered returns a worker that may hold anything: an initial one that has
// not answered and is not lost.
func (f *fleet[W, T]) neverAnswered() *worker[W, T] {
	for _, w := range f.workers {
		if w.initial && !w.heard && w.state == Silent {
			return w
		}
	}
	return nil
}

// didStart takes over an acknowledged start; settle makes it count.
func (f *fleet[W, T]) didStart(w *worker[W, T], id int32, name T) {
	f.flags[id] = f.flags[id]&^taskLost | taskSeen
	w.acked = append(w.acked, Write[T]{Op: OpAdd, Task: name})
	w.ackedIDs = append(w.ackedIDs, id)
}

// didStop takes over an acknowledged stop; settle makes it count.
func (w *worker[W, T]) didStop(id int32, name T) {
	delete(w.maybe, id)
	w.acked = append(w.acked, Write[T]{Op: OpRemove, Task: name})
	w.ackedIDs = append(w.ackedIDs, id)
}

// settle applies the acknowledged writes of a term to what w runs: all at once,
// so that a worker that loses most of what it has costs one pass, O(runs +
// writes), not one for each.
func (f *fleet[W, T]) settle(w *worker[W, T]) {
	if len(w.ackedIDs) == 0 {
		return
	}
	// The last write for a task decides. What stops is stamped with one round,
	// what starts with the next.
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
			f.stamps[id] = 0 // it is there: not to be appended again
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

// bySerial returns the worker of a serial, or nil if it is gone.
func (f *fleet[W, T]) bySerial(serial uint64) *worker[W, T] {
	i, ok := slices.BinarySearchFunc(f.workers, serial, func(w *worker[W, T], s uint64) int {
		return cmp.Compare(w.serial, s)
	})
	if !ok {
		return nil
	}
	return f.workers[i]
}

// runsNothing reports whether the worker of a serial runs no task, or is gone.
func (f *fleet[W, T]) runsNothing(serial uint64) bool {
	w := f.bySerial(serial)
	return w == nil || len(w.runs) == 0
}

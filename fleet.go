package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// What a leader knows of its workers, and how answers, silence and
// acknowledged writes change that (T4, T5). Everything here is a function of
// values: no calls, no locks, no clock.

// fleet is all that a leader knows of the workers, in the order they were
// added.
type fleet[W, T comparable] struct {
	workers []*worker[W, T]
	version uint64 // of the member table that workers was made from

	// started says that there was a term with workers; those that were there
	// in it are founders.
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
)

// set is a set of tasks, by number. A nil set is empty.
type set map[int32]struct{}

func (s set) add(task int32) { s[task] = struct{}{} }

// sorted returns the members in order.
func (s set) sorted() []int32 { return slices.Sorted(maps.Keys(s)) }

// pendingWrite is a start or a stop of a task, by its number.
type pendingWrite struct {
	task  int32
	start bool
}

// worker is what a leader knows of one worker.
type worker[W, T comparable] struct {
	// What most passes over all workers look at stands at the start, close
	// together.

	name     W
	serial   uint64
	line     *line[W, T]
	state    State
	draining bool
	founder  bool
	heard    bool
	// patience says that a term waits for its answer: it answered last term, or
	// has since, or is new.
	patience bool
	// missed says that it was asked since its last answer, and that the call
	// failed or ran out of time. Without that it cannot be lost: perhaps nobody
	// asked, for want of a slot, or the term did not wait.
	missed bool
	// runs holds the numbers of what it answered, once each, with the writes
	// applied that it has acknowledged since. It may share its memory with ids
	// while acked is empty.
	runs []int32
	// maybe holds the starts sent since the last answer that were neither
	// acknowledged nor certainly refused.
	maybe set
	// timedOut holds the writes that timed out when they were last sent, as long
	// as they are still to be made.
	timedOut map[pendingWrite]bool

	err error // why it is silent
	// failed is how the last call of List ended that has; "" where it did not fail.
	failed string
	// since is its last answer; before the first one, when it was added, or,
	// for a founder, the first term that had workers.
	since time.Time
	// asked is the number of the term that last asked it, and answered that of
	// the one it last answered.
	asked, answered uint64
	took            time.Duration // by its last answer

	list       []T     // its last answer, not to be changed
	ids        []int32 // the numbers of list, one each
	duplicates int
	acked      []Write[T] // the writes that runs has beyond it, oldest first; only ever appended to
	ackedIDs   []int32    // the numbers of their tasks; nil once it is lost
}

// clone returns a copy that a term without writes may change.
func (f *fleet[W, T]) clone() fleet[W, T] {
	c := *f
	c.workers = make([]*worker[W, T], len(f.workers))
	for i, w := range f.workers {
		copied := *w
		copied.timedOut, copied.maybe = maps.Clone(w.timedOut), maps.Clone(w.maybe)
		c.workers[i] = &copied
	}
	c.flags = slices.Clone(f.flags)
	c.stamps = slices.Clone(f.stamps)
	return c
}

// heard takes over a worker's answer to the List of a term, of which the first
// same names are those of its last one. id gives names their numbers.
//
// Where all of them are the same there is nothing to do. Else it takes a step for
// each name, and a look-up for each that is not where it was: for all of them at
// worst, where a worker answers in another order each time.
func (f *fleet[W, T]) heard(w *worker[W, T], list []T, same int, term uint64, at time.Time, id func(T) int32) {
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
	w.list, w.acked, w.ackedIDs, w.maybe = list, nil, nil, nil
	w.heard, w.patience, w.missed, w.since, w.answered = true, true, false, at, term
	w.state, w.err, w.failed = Answering, nil, ""
}

// alike returns how many names two lists have in common, from their start: with
// none looked at where they are the very same slice (C2). Where T is an interface
// type, a name may turn out to be of a type that cannot be compared: then it
// says 0, and whoever looks closer will meet it.
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

// unanswered is why a worker is silent whose call is under way. How the call before
// it failed is told, or the worker would look slow where every call to it is refused
// a moment later; but not wrapped: an error says of its own call what it is.
func (w *worker[W, T]) unanswered() error {
	if w.failed == "" {
		return ErrSilent
	}
	return fmt.Errorf("%w, and the last call failed: %s", ErrSilent, w.failed)
}

// silent says that a worker did not answer this term. missed says that it was
// asked, and that the call came to nothing.
func (f *fleet[W, T]) silent(w *worker[W, T], missed bool, err error) {
	w.patience = false
	w.missed = w.missed || missed
	w.err = err
	if w.state != Lost {
		w.state = Silent
	}
}

// lose has a worker hold nothing.
func (f *fleet[W, T]) lose(w *worker[W, T]) {
	for _, id := range w.holds() {
		f.flags[id] |= taskLost
	}
	w.state = Lost
	w.runs, w.maybe, w.ackedIDs = nil, nil, nil
}

// judge decides which silent workers are lost (T4), unless so many are silent
// that it must be the leader's own network (T5). It returns those that it
// lost, and whether a mass loss keeps others from it.
//
// The protection outlasts the mass loss by a timeout:
//
//  1. The network is away for longer than the grace period, and comes back.
//  2. A term asks everybody, and waits for those that answered last term.
//  3. Half of the workers have answered when it goes on; the answers of the
//     others are on their way. To lose these now would be wrong.
func (f *fleet[W, T]) judge(now time.Time, cfg *config) (lost []*worker[W, T], massLoss bool) {
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
	grace := cfg.grace
	massLoss = !f.massLossSince.IsZero() && grace > 0 && now.Sub(f.massLossSince) < massLossHold
	if massLoss || grace == HoldUntilRemoved {
		return nil, massLoss
	}
	for _, w := range f.workers {
		if w.state == Silent && w.missed && now.Sub(w.since) >= grace {
			f.lose(w)
			lost = append(lost, w)
		}
	}
	return lost, false
}

// unheard returns a worker that may hold anything: a founder that was never
// heard and is not lost.
func (f *fleet[W, T]) unheard() *worker[W, T] {
	for _, w := range f.workers {
		if w.founder && !w.heard && w.state == Silent {
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
		for write := range w.timedOut {
			mark(write.task)
		}
	}
}

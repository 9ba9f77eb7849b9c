package orchestrator

import (
	"fmt"
	"maps"
	"time"

	"github.com/f8949c05/orchestrator/internal/term"
)

// worker is a worker of the fleet with its name, its call slot and its last answer. The
// turn guards it.
type worker[W, T comparable] struct {
	*term.Worker
	name W
	slot *callSlot[W, T]

	// awaited: a term waits for its answer. Its last answer was in time, or it is new.
	awaited bool
	// fresh: an answer that came too late for the last term serves this one.
	fresh bool
	// asked is the number of the last term that called List of it.
	asked uint64

	list   []T        // its last answer; must not change
	acked  []Write[T] // the writes acknowledged since list, oldest first; only appended to
	err    error      // why it is silent
	failed string     // the text of the failure of its last List call; "" if it did not fail
}

// setMembers makes the members the workers of the fleet.
func (o *Orchestrator[W, T]) setMembers(names []W, members []term.Member, now time.Time) {
	o.fleet.Retain(members, now)
	gone := o.dropGone()
	o.keepLosers(gone)
	o.inflight.forget(gone) // before a new worker of the same name joins
	legacy := make(map[W]term.Set, len(gone))
	for _, w := range gone {
		legacy[w.name] = w.Legacy()
	}
	o.fleet.Join(members, now, func(i int) term.Set {
		if set, ok := legacy[names[i]]; ok {
			return set
		}
		return o.inflight.of(names[i]).legacy
	})
	for i := len(o.workers); i < len(names); i++ {
		o.workers = append(o.workers, &worker[W, T]{
			Worker: o.fleet.Workers[i], name: names[i], slot: o.inflight.of(names[i]), awaited: true,
		})
	}
}

// keepLosers keeps the names of removed workers as long as a task that they had is missing.
func (o *Orchestrator[W, T]) keepLosers(gone []*worker[W, T]) {
	names := make(map[uint64]W)
	maps.Copy(names, o.losers)
	for _, w := range gone {
		names[w.Serial] = w.name
	}
	o.losers = make(map[uint64]W)
	for _, serial := range o.fleet.Losers() {
		if name, ok := names[serial]; ok {
			o.losers[serial] = name
		}
	}
}

// dropGone removes the workers that are no longer in the fleet, and returns them.
func (o *Orchestrator[W, T]) dropGone() (gone []*worker[W, T]) {
	stay := make([]*worker[W, T], 0, len(o.fleet.Workers)) // listings may still read the old slice
	for _, w := range o.workers {
		if i := len(stay); i < len(o.fleet.Workers) && w.Worker == o.fleet.Workers[i] {
			stay = append(stay, w)
		} else {
			gone = append(gone, w)
		}
	}
	o.workers = stay
	return gone
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

// numbers returns the numbers of list, whose first n names equal those of the last
// answer. id returns the number of a name. If all names are the same, numbers takes no
// time and reports no change. Otherwise it walks along both lists and looks up only the
// names at new positions: a look-up costs twenty times as much as a comparison.
func (w *worker[W, T]) numbers(list []T, n int, id func(T) int32) (ids []int32, changed bool) {
	old, known := w.list, w.Listed()
	if w.Heard && n == len(list) && n == len(old) {
		return known, false
	}
	ids = append(make([]int32, 0, len(list)), known[:n]...)
	for i, j := n, n; j < len(list); {
		switch {
		case i < len(old) && list[j] == old[i]:
			ids = append(ids, known[i])
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
	return ids, true
}
